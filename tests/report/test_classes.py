"""What classes are called, and where the names come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_page import finished_run

from massmover.report import load_run, load_runs
from massmover.report.classes import read_class_names
from massmover.report.page import page
from massmover.types import MassmoverError


def test_numbers_stand_in_for_names(tmp_path: Path) -> None:
    run = load_run(finished_run(tmp_path / "run"))
    assert run.class_names == () and run.class_name(3) == "3"


def test_the_data_set_the_manifest_and_a_file(tmp_path: Path) -> None:
    known = load_run(finished_run(tmp_path / "known", data="cifar10"))
    assert known.class_name(3) == "cat" and known.class_name(10) == "10"
    folder = finished_run(tmp_path / "given", data="cifar10", manifest={"class_names": ["nought", "one", "<i>two</i>"]})
    assert load_run(folder).class_name(1) == "one"
    text = page([load_run(folder)])
    assert "one <span" in text and "&lt;i&gt;two&lt;/i&gt;" in text and "<i>two</i>" not in text
    file = tmp_path / "names.txt"
    file.write_text("rien\nun\ndeux\ntrois\n\n", encoding="utf-8")
    (run,) = load_runs([folder], names=read_class_names(file))
    assert run.class_name(1) == "un"


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("names.txt", "cat\n dog \n", ("cat", "dog")),
        ("names.json", '["cat", "dog"]', ("cat", "dog")),
        ("names.json", '{"1": "dog", "0": "cat"}', ("cat", "dog")),
        ("names.json", '{"2": "dog", "0": "cat"}', ("cat", "1", "dog")),
    ],
)
def test_files_of_names(tmp_path: Path, name: str, text: str, names: tuple[str, ...]) -> None:
    (tmp_path / name).write_text(text)
    assert read_class_names(tmp_path / name) == names


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("names.txt", "", "an empty name or none"),
        ("names.txt", "cat\n\ndog", "an empty name or none"),
        ("names.json", "cat", "is no JSON"),
        ("names.json", "[1, 2]", "holds something else"),
        ("names.json", '{"cat": 0}', "holds something else"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(MassmoverError, match=message):
        read_class_names(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MassmoverError, match="cannot be read"):
        read_class_names(tmp_path / "absent.txt")
