"""How much memory may still be used."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

CONTAINER_FILES = (  # what a container may use and what it uses, in the two versions of Linux control groups
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def free_memory(groups: Path = Path("/sys/fs/cgroup"), *, machine: Path = Path("/proc/meminfo")) -> int:
    """Bytes that may still be used: what the machine can spare, or less where a container is given less.

    Linux says what is available, caches that it would give up included; elsewhere half of the memory is assumed.
    """
    try:
        available = re.search(r"^MemAvailable:\s+(\d+) kB$", machine.read_text(), re.MULTILINE)
    except OSError:
        available = None
    if available is not None:
        free = 1024 * int(available.group(1))
    else:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    for limit, used in CONTAINER_FILES:
        try:
            free = min(free, int((groups / limit).read_text()) - int((groups / used).read_text()))
        except (OSError, ValueError):  # no such file, or the limit is the word max
            continue
    return max(free, 0)


def free_on(device: torch.device) -> int:
    """Bytes that may still be used on a device."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else free_memory()
