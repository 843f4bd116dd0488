"""How a command ends: what its exit code means, what was kept, and the command that goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from commandline import command, environment, evaluation, lines_of, massmover, workshop

from massmover.interruption import way_back

COMMANDS = ("data", "train", "evaluate", "certify", "verify", "report", "demo", "natural", "reproduce", "selftest")
FAILING = """
import os
import tiny

def build():
    model = tiny.build()
    def forward(images):
        if os.path.exists("run/records.jsonl") and os.path.getsize("run/records.jsonl"):
            raise RuntimeError("the accelerator is gone")
        return model(images)
    return forward

def stuck():
    import time
    open("loading", "w").close()
    time.sleep(60)
"""


def one_line(text: str) -> str:
    """The one line beside warnings and, on a slow machine, those that tell the progress."""
    others = re.compile(r"do not trust|massmover: \d+/\d+ images")
    lines = [line for line in text.strip().splitlines() if not others.match(line)]
    assert len(lines) == 1 and "Traceback" not in text, text
    return lines[0]


def test_a_model_that_raises_ends_in_one_line_and_the_way_back(tmp_path: Path) -> None:
    workshop(tmp_path)
    (tmp_path / "failing.py").write_text(FAILING)
    words = evaluation("run", "--steps", "3", model="failing:build")
    done = massmover(*words, cwd=tmp_path)
    assert done.returncode == 2
    line, kept = one_line(done.stderr), len(lines_of(tmp_path / "run")) // 2
    assert 0 < kept < 12
    assert "RuntimeError: the accelerator is gone" in line and "failing.py, line 9" in line
    assert f"{kept} of 12 images are kept in run; go on with: massmover evaluate --out run" in line
    assert line.endswith("--resume")


def test_a_closed_pipe_is_no_broken_rule_and_the_page_is_there(tmp_path: Path) -> None:
    workshop(tmp_path, count=2)
    reading, writing = os.pipe()
    os.close(reading)
    words = command(*evaluation("run", "--steps", "3"))
    try:
        done = subprocess.run(
            words, cwd=tmp_path, env=environment(), stdout=writing, stderr=subprocess.PIPE, text=True, timeout=300
        )
    finally:
        os.close(writing)
    assert done.returncode == 2
    assert "closed" in one_line(done.stderr) and "2 of 2 images are kept in run" in done.stderr
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_output_that_is_full_ends_with_two(tmp_path: Path) -> None:
    workshop(tmp_path, count=2)
    words = command(*evaluation("run", "--steps", "3"))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            words, cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, timeout=300
        )
    assert done.returncode == 2
    assert "No space left" in one_line(done.stderr)
    assert (tmp_path / "run" / "report.html").exists()


def test_strict_makes_a_failed_check_an_exit_code(tmp_path: Path) -> None:
    workshop(tmp_path, count=4)
    assert massmover(*evaluation("strict", "--strict", model="tiny:softmax"), cwd=tmp_path).returncode == 3
    assert massmover(*evaluation("cheating", "--strict", model="tiny:cheating"), cwd=tmp_path).returncode == 1


def heeds_ctrl_c() -> None:
    """Undo what a shell does to jobs in the background: they, and so these tests and their children, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(folder: Path, words: list[str], *, once: Path) -> subprocess.CompletedProcess[str]:
    """Press Ctrl-C as soon as a file is there."""
    process = subprocess.Popen(
        command(*words),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heeds_ctrl_c,
    )
    while not once.exists() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def test_ctrl_c_says_what_was_kept_and_the_command_that_resumes(tmp_path: Path) -> None:
    workshop(tmp_path)
    words = evaluation("run", "--batch-size", "1", model="tiny:slow")
    done = interrupted(tmp_path, words, once=tmp_path / "run" / "records.jsonl")
    assert done.returncode == 130
    line = one_line(done.stderr)
    assert line.startswith("massmover: interrupted; ") and " of 12 images are kept in run; go on with: " in line
    again = line.split("go on with: massmover ")[1].split()
    resumed = massmover(*again, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert len(lines_of(tmp_path / "run")) == 24


def test_ctrl_c_while_a_model_is_loaded(tmp_path: Path) -> None:
    workshop(tmp_path)
    (tmp_path / "failing.py").write_text(FAILING)
    done = interrupted(tmp_path, evaluation("run", model="failing:stuck"), once=tmp_path / "loading")
    assert done.returncode == 130
    assert "interrupted; nothing was kept yet; go on with: massmover evaluate" in one_line(done.stderr)


def test_ctrl_c_while_modules_are_imported(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import time\nopen('importing', 'w').close()\ntime.sleep(60)\n")
    done = interrupted(tmp_path, evaluation("run"), once=tmp_path / "importing")
    assert done.returncode == 130
    assert "interrupted; nothing was kept yet; go on with: massmover evaluate" in one_line(done.stderr)


SWALLOWING = """
import time
try:
    open('importing', 'w').close()
    time.sleep(60)
except KeyboardInterrupt:
    pass
raise ImportError('cannot load module more than once per process')
"""


def test_ctrl_c_while_a_module_is_imported_that_swallows_it(tmp_path: Path) -> None:
    """As NumPy does inside torch: the interrupt is lost, and something else fails later."""
    (tmp_path / "typer.py").write_text(SWALLOWING)
    done = interrupted(tmp_path, evaluation("run"), once=tmp_path / "importing")
    assert done.returncode == 130
    assert "interrupted; nothing was kept yet; go on with: massmover evaluate" in one_line(done.stderr)


def test_a_mistake_of_our_own_leaves_with_two(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ZeroDivisionError\n")
    words = command("--help")
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "ZeroDivisionError" in done.stderr and "please report it" in done.stderr


def test_the_way_back_of_each_command(tmp_path: Path) -> None:
    assert way_back([]) == way_back(["verify", "a.npz"]) == ""
    assert way_back(["train", "--out=a b"]) == ("nothing was kept yet; start again with: massmover train '--out=a b'")
    (tmp_path / "checkpoint.pt").write_bytes(b"")
    assert way_back(["train", "--out", str(tmp_path), "--resume"]) == (
        f"the last checkpoint is kept in {tmp_path}; go on with: massmover train --out {tmp_path} --resume"
    )
    (tmp_path / "parts").mkdir()
    (tmp_path / "records.jsonl").write_text('{"index": 3}\n{"index": 3}\n{"ind')
    (tmp_path / "parts" / "records-0001.jsonl").write_text('{"index": 4}\n')
    assert "2 images are kept" in way_back(["evaluate", "--out", str(tmp_path)])


@pytest.mark.parametrize(
    "words", ["--help", "--version", "data fetch --help", "", *(f"{name} --help" for name in COMMANDS)]
)
def test_a_page_that_nobody_reads_to_its_end_leaves_quietly(words: str, tmp_path: Path) -> None:
    """As in `massmover --help | head -1`: the status that a shell gives any program whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(*words.split()), cwd=tmp_path, env=environment(), stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
