"""How long torch's threads spin is settled by the import, unless the user has settled it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("before", "after"), [(None, "10000"), ("77", "77")])
def test_the_import_shortens_the_wait_unless_it_is_set(before: str | None, after: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    if before is not None:
        environment["GOMP_SPINCOUNT"] = before
    program = "import os, massmover; print(os.environ['GOMP_SPINCOUNT'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == after
