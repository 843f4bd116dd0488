"""What a run that ended early has kept, and the command that goes on with it. Needs nothing but Python."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it
RESUMABLE = ("evaluate", "train")
CHECKPOINT = "checkpoint.pt"  # of training


def way_back(words: Sequence[str]) -> str:
    """What the command `massmover WORDS` has kept so far and how to go on, in one line; empty where nothing can."""
    if not words or words[0] not in RESUMABLE:
        return ""
    command = shlex.join(["massmover", *words, *(() if "--resume" in words else ("--resume",))])
    folder = _out(words)
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
        return f"the last checkpoint is kept in {folder}" if (folder / CHECKPOINT).exists() else "nothing was kept yet"
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
