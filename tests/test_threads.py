"""Threads: how long torch's spin, how many of ours there are, and what a fork leaves of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from massmover.evaluation.verify import verify
from massmover.threads import in_parallel
from massmover.transport import exact


@pytest.mark.parametrize(("before", "after"), [(None, "10000"), ("77", "77")])
def test_the_import_shortens_the_wait_unless_it_is_set(before: str | None, after: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    if before is not None:
        environment["GOMP_SPINCOUNT"] = before
    program = "import os, massmover; print(os.environ['GOMP_SPINCOUNT'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == after


FORKED = """
import os, torch
torch.set_num_threads(2)
from massmover.evaluation.verify import verify
from massmover.threads import in_parallel
from massmover.transport import exact
def work(count):
    done = []
    in_parallel(lambda part: done.append(part), count=count)
    return sum(part.stop - part.start for part in done)
assert work(8) == 8
child = os.fork()
if child == 0:
    os._exit(0 if work(8) == 8 else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    """The pool of the parent has no threads in the child: to wait for them would be for ever."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "0", done.stderr


@pytest.mark.parametrize("threads", [1, 3])
def test_as_many_threads_as_torch_uses(threads: int) -> None:
    before, seen = torch.get_num_threads(), set[str]()
    try:
        torch.set_num_threads(threads)
        in_parallel(lambda part: seen.add(threading.current_thread().name), count=64)
    finally:
        torch.set_num_threads(before)
    assert 1 <= len(seen) <= threads


@pytest.mark.parametrize("threads", [1, 3])
def test_the_judge_takes_no_more_threads_than_torch(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counted(ThreadPoolExecutor):
        def __init__(self, workers: int) -> None:
            asked.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(exact, "ThreadPoolExecutor", Counted)
    before, images = torch.get_num_threads(), torch.rand(4, 1, 3, 3)
    try:
        torch.set_num_threads(threads)
        verify(images, images, 0.1)
    finally:
        torch.set_num_threads(before)
    assert asked == [threads]
