"""What a run that ended early has kept, and the command that goes on with it. Needs nothing but Python."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it
RESUMABLE = ("evaluate", "train")
CHECKPOINT = "checkpoint.pt"  # of training


def listen() -> None:
    """Let Ctrl-C end a command at once while modules are imported, and raise as ever at any other time.

    A module that is interrupted while it is imported may swallow the interrupt and fail later, elsewhere, with
    whatever error: NumPy cannot be loaded twice. Nothing is half done then that a run would miss.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background ignores it
        signal.signal(signal.SIGINT, _heard)


def _heard(number: int, frame: FrameType | None) -> None:
    place = frame
    while place is not None:
        if place.f_code.co_filename == "<frozen importlib._bootstrap>":
            shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # the cursor, which a bar hides
            os.write(2, f"{shown}{last_line('interrupted')}".encode(errors="backslashreplace"))
            os._exit(INTERRUPTED)
        place = place.f_back
    raise KeyboardInterrupt


def last_line(reason: str) -> str:
    """Why a command ends and how to go on; the first of several processes says it for all."""
    if os.environ.get("RANK", "0") != "0":
        return ""
    back = way_back(sys.argv[1:])
    return f"massmover: {reason}{'; ' + back if back else ''}\n"


def way_back(words: Sequence[str]) -> str:
    """What the command `massmover WORDS` has kept so far and how to go on, in one line; empty where nothing can."""
    if not words or words[0] not in RESUMABLE:
        return ""
    folder = _out(words)
    if words[0] == "train" and (folder is None or not (folder / CHECKPOINT).exists()):  # --resume would be refused
        return f"nothing was kept yet; start again with: {shlex.join(['massmover', *words])}"
    command = shlex.join(["massmover", *words, *(() if "--resume" in words else ("--resume",))])
    return f"{_kept(words[0], folder)}; go on with: {command}"


def _out(words: Sequence[str]) -> Path | None:
    """The folder that the words name."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--out" or word.startswith("--out="):
            return Path(following if word == "--out" else word.removeprefix("--out="))
    return None


def _kept(command: str, folder: Path | None) -> str:
    if folder is None or not folder.is_dir():
        return "nothing was kept yet"
    if command == "train":
        return f"the last checkpoint is kept in {folder}"
    done = {
        index for path in (folder / "records.jsonl", *folder.glob("parts/records-*.jsonl")) for index in _seen(path)
    }
    return f"{len(done)}{_total(folder)} images are kept in {folder}"


def _seen(path: Path) -> set[int]:
    """The images with a record in a file; a line torn by the end of a process is none."""
    found = set()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        try:
            found.add(int(json.loads(line)["index"]))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _total(folder: Path) -> str:
    try:
        return f" of {int(json.loads((folder / 'manifest.json').read_text(encoding='utf-8'))['settings']['count'])}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
