"""What a piece of torch code would ask of a graphics card: kernels launched, and times the host waits for the device.

Counted on the CPU with torch's profiler: an operation that calls no other and makes something new is one launch, and an
operation whose answer Python needs is a wait. Counts are exact, unlike times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch.profiler import ProfilerActivity, profile

WAITS = frozenset({"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select"})
# Operations that only look at memory in another way, or reserve it: nothing is launched for them.
VIEWS = frozenset(
    f"aten::{name}"
    for name in [
        "alias",
        "as_strided",
        "chunk",
        "contiguous",
        "detach",
        "detach_",
        "diagonal",
        "empty",
        "empty_like",
        "empty_strided",
        "expand",
        "expand_as",
        "flatten",
        "movedim",
        "narrow",
        "new_empty",
        "permute",
        "ravel",
        "reshape",
        "resize_",
        "resolve_conj",
        "resolve_neg",
        "result_type",
        "select",
        "set_",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "squeeze_",
        "swapaxes",
        "t",
        "transpose",
        "unbind",
        "unflatten",
        "unfold",
        "unsafe_split",
        "unsqueeze",
        "unsqueeze_",
        "view",
        "view_as",
        "_reshape_alias",
        "_unsafe_view",
        "is_nonzero",
        "item",
        "lift_fresh",
        "to",
        "type_as",
        "broadcast_tensors",
        "broadcast_to",
        "meshgrid",
        "atleast_1d",
        "numpy_T",
        "mT",
        "is_same_size",
        "_conj",
        "size",
        "stride",
    ]
)


HIDDEN = "interpreter"  # what happens inside a region of this name is not torch's


class Counts(NamedTuple):
    """Kernels that a device would be asked to run, and times the host would wait for it."""

    launches: int
    waits: int

    def minus(self, other: Counts) -> Counts:
        """What is left without another piece of work."""
        return Counts(self.launches - other.launches, self.waits - other.waits)

    def per(self, steps: int) -> tuple[float, float]:
        """Launches and waits a step."""
        return self.launches / steps, self.waits / steps


def count(work: Callable[[], object]) -> Counts:
    """Count what some work asks of the device."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    events = list(seen.events() or [])
    return Counts(launches=sum(map(_launches, _outermost(events))), waits=sum(e.name in WAITS for e in events))


def _outermost(events: Iterable[Any]) -> list[Any]:
    return [event for event in events if event.cpu_parent is None]


def _launches(event: Any) -> int:
    """Launches of an operation: its own if it calls no other, else those of the operations that it calls."""
    if event.name == HIDDEN:
        return 0
    called = [child for child in event.cpu_children if child.name.startswith("aten::")]
    if event.name.startswith("aten::") and not called:
        return int(event.name not in VIEWS)
    return sum(map(_launches, event.cpu_children))
