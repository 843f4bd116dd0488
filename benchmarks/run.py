"""All benchmarks, one after the other: `make bench`."""

from __future__ import annotations

from benchmarks import ascent, backends, certificates, coherent, judge, sinkhorn, training


def main() -> None:
    """Run everything."""
    for part in (ascent, coherent, backends, sinkhorn, judge, training, certificates):
        print(f"== {part.__name__.removeprefix('benchmarks.')}: {(part.__doc__ or '').splitlines()[0]}", flush=True)
        part.main()


if __name__ == "__main__":
    main()
