"""What the classes are called: by a file, by the manifest of the run, or by the data set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from massmover.types import MassmoverError

KNOWN: Mapping[str, tuple[str, ...]] = {
    "fashion-mnist": (
        *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
}


def read_class_names(path: Path) -> tuple[str, ...]:
    """The names in a file, by label from 0 on: a line each, a JSON list, or a JSON object with numbers as keys."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is no text"
        raise MassmoverError(
            f"--class-names {path} cannot be read ({reason}): give a text file, a name a line"
        ) from None
    if path.suffix.lower() != ".json":
        names = [line.strip() for line in text.splitlines()]
        while names and not names[-1]:
            names.pop()
    else:
        names = _from_json(text, path=path)
    if not names or not all(names):
        raise MassmoverError(f"--class-names {path} holds an empty name or none: give one for each class, from 0 on")
    return tuple(names)


def _from_json(text: str, *, path: Path) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        raise MassmoverError(f"--class-names {path} is no JSON: give a list of names, or a text file") from None
    if isinstance(found, dict) and found and all(key.isdecimal() for key in found):
        found = [found.get(str(number), str(number)) for number in range(max(map(int, found)) + 1)]
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise MassmoverError(f"--class-names {path} holds something else: give a list of names, or numbers with names")
    return found


def class_names(manifest: Mapping[str, Any], *, data: str) -> tuple[str, ...]:
    """What a run says of its classes; empty where nobody knows more than their numbers."""
    given = manifest.get("class_names")
    if isinstance(given, list) and given:
        return tuple(str(name) for name in given)
    return KNOWN.get(data, ())
