"""`python -m massmover` and the `massmover` command."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command line, or say which extra it needs."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a screen that knows only ASCII shows the rest as codes
    try:
        from massmover.cli import app
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("massmover"):
            raise
        sys.exit(f"massmover: the command line needs {missing.name!r}: pip install 'massmover[cli]'")
    app()


if __name__ == "__main__":
    main()
