"""`python -m massmover` and the `massmover` command."""

from __future__ import annotations

import io
import sys
import traceback

from massmover.interruption import INTERRUPTED, last_line, listen


def main() -> None:
    """Run the command line, or say which extra it needs.

    Exit code 1 is for examples that broke the rules, so that whatever else goes wrong leaves with 2.
    """
    listen()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a screen that knows only ASCII shows the rest as codes
    try:
        try:
            from massmover.cli import app
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.startswith("massmover"):
                raise
            sys.exit(f"massmover: the command line needs {missing.name!r}: pip install 'massmover[cli]'")
        app()
    except KeyboardInterrupt:  # also while modules are imported, when nothing else listens yet
        leave("interrupted", code=INTERRUPTED)
    except Exception:  # a mistake of our own: shown whole, but with a code that does not mean broken rules
        traceback.print_exc()
        leave("this is a mistake in massmover: please report it", code=2)


def leave(reason: str, *, code: int) -> None:
    """Say why a command ends and how to go on, and end it."""
    sys.stderr.write(last_line(reason))
    sys.exit(code)


if __name__ == "__main__":
    main()
