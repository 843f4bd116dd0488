"""Let the comment at the end of a field's line stand in the reference as what is said about the field."""

from __future__ import annotations

import tokenize
from pathlib import Path
from typing import Any

import griffe


class Comments(griffe.Extension):
    """A docstring for every attribute that has none but a comment on its line."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Take the comment."""
        if attr.docstring is None and attr.endlineno is not None and isinstance(attr.filepath, Path):
            line = attr.lines_collection[attr.filepath][attr.endlineno - 1]
            text = comment_of(line)
            if text:
                attr.docstring = griffe.Docstring(text, lineno=attr.lineno, endlineno=attr.endlineno, parent=attr)


def comment_of(line: str) -> str:
    """The comment that ends a line of code, as a sentence; empty if there is none."""
    try:
        tokens = list(tokenize.generate_tokens(iter([line.strip() + "\n"]).__next__))
    except tokenize.TokenError:  # the last line of an expression over several
        return ""
    found = [token.string for token in tokens if token.type == tokenize.COMMENT]
    text = found[0].lstrip("# ").rstrip() if found else ""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") or not text else ".")
