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
