from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import numpy as np
from commandline import evaluation, lines_of, massmover, summary_of, workshop


def test_killed_at_ten_moments_the_run_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    workshop(tmp_path)
    more = ("--save-examples", "all", "--batch-size", "1")
    massmover(*evaluation("warm", "--count", "1", *more, model="tiny:slow"), cwd=tmp_path)
    started = time.monotonic()
    whole = massmover(*evaluation("whole", *more, model="tiny:slow"), cwd=tmp_path)
    took = time.monotonic() - started
    assert whole.returncode == 0, whole.stderr
    words = evaluation("killed", "--resume", *more, model="tiny:slow")
    records, moments, sizes = tmp_path / "killed" / "records.jsonl", random.Random(0), []
    for kill in range(10):
        # half of the kills come anywhere, also before there is anything; the others once there is something to lose
        watched, longest = (records, 0.1 * took) if kill % 2 else (None, 0.5 * took)
        ended = massmover(*words, cwd=tmp_path, kill_after=moments.uniform(0.0, longest), watched=watched)
        assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr
        sizes.append(records.stat().st_size if records.exists() else 0)
        if kill == 5 and sizes[-1]:  # a line torn in the middle, as a crash of the machine leaves it
            records.write_bytes(records.read_bytes()[:-25])
    done = massmover(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(set(sizes)) > 2  # the kills really came in the middle
    assert summary_of(tmp_path / "killed") == summary_of(tmp_path / "whole")
    assert lines_of(tmp_path / "killed") == lines_of(tmp_path / "whole")
    one, two = (np.load(tmp_path / name / "examples.npz") for name in ("killed", "whole"))
    assert all((one[name] == two[name]).all() for name in one.files)
    left, right = ({path.name for path in (tmp_path / name).iterdir()} for name in ("killed", "whole"))
    assert left == right


SECRET = """
import torch
def build():
    weight = {sign} * torch.randn(3, 36, generator=torch.Generator().manual_seed(0))
    return lambda images: images.flatten(1) @ weight.T
"""


def test_a_function_that_was_changed_in_between_is_told_from_the_one_before(tmp_path: Path) -> None:
    """Its weights are out of sight, so that only its answers can tell."""
    workshop(tmp_path)
    (tmp_path / "secret.py").write_text(SECRET.format(sign=1))
    first = massmover(*evaluation("run", model="secret:build"), cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    (tmp_path / "run" / "records.jsonl").write_text("")
    again = massmover(*evaluation("run", "--resume", model="secret:build"), cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    (tmp_path / "secret.py").write_text(SECRET.format(sign=-2))  # of another length, or Python would not read it anew
    mixed = massmover(*evaluation("run", "--resume", model="secret:build"), cwd=tmp_path)
    assert mixed.returncode == 2 and "answers of --model on the first images are others" in mixed.stderr


def test_a_larger_count_goes_on_where_a_smaller_one_ended(tmp_path: Path) -> None:
    workshop(tmp_path)
    more = ("--save-examples", "all")
    whole = massmover(*evaluation("whole", "--count", "8", *more), cwd=tmp_path)
    small = massmover(*evaluation("grown", "--count", "5", *more), cwd=tmp_path)
    assert (whole.returncode, small.returncode) == (0, 0), whole.stderr + small.stderr
    kept = (tmp_path / "grown" / "records.jsonl").read_text().splitlines()[:8]
    grown = massmover(*evaluation("grown", "--count", "8", "--resume", *more), cwd=tmp_path)
    assert grown.returncode == 0, grown.stderr
    assert (tmp_path / "grown" / "records.jsonl").read_text().splitlines()[
        :8
    ] == kept  # seconds and all: not done again
    assert lines_of(tmp_path / "grown") == lines_of(tmp_path / "whole")
    assert summary_of(tmp_path / "grown") == summary_of(tmp_path / "whole")
    one, two = (np.load(tmp_path / name / "examples.npz") for name in ("grown", "whole"))
    assert all((one[name] == two[name]).all() for name in one.files)
    fewer = massmover(*evaluation("grown", "--count", "6", "--resume", *more), cwd=tmp_path)
    assert fewer.returncode == 2 and "--count: was 8, is 6" in fewer.stderr


def test_other_images_do_not_continue_a_run_however_many_they_are(tmp_path: Path) -> None:
    workshop(tmp_path)
    assert massmover(*evaluation("run", "--count", "4"), cwd=tmp_path).returncode == 0
    workshop(tmp_path, seed=1)
    other = massmover(*evaluation("run", "--count", "8", "--resume"), cwd=tmp_path)
    assert other.returncode == 2 and "contents of --data" in other.stderr


def test_a_start_that_failed_does_not_stand_in_the_way_of_the_mended_command(tmp_path: Path) -> None:
    workshop(tmp_path)
    (tmp_path / "moody.py").write_text(
        "import tiny\nmodel = tiny.build()\n"
        "def build():\n    def answer(images):\n"
        "        if images.requires_grad:\n            raise ValueError('no gradients today')\n"
        "        return model(images)\n    return answer\n"
    )
    failed = massmover(*evaluation("run", model="moody:build"), cwd=tmp_path)
    assert failed.returncode != 0 and not (tmp_path / "run").exists()
    mended = massmover(*evaluation("run"), cwd=tmp_path)
    assert mended.returncode == 0, mended.stderr


def test_a_count_beyond_the_data_is_said(tmp_path: Path) -> None:
    workshop(tmp_path)
    done = massmover(*evaluation("run", "--count", "500"), cwd=tmp_path)
    assert done.returncode == 0
    assert "--count is 500: images holds 12 images from --start 0 on" in done.stderr
