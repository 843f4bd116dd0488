"""The imports point one way, and the judge shares no code with the judged."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import massmover

ROOT = Path(massmover.__file__).parent
# Lower layers first. A module may import its own layer and the ones before it.
LAYERS = [
    ["types", "names", "interruption"],
    ["inputs", "files", "memory", "threads", "backend", "compiling"],
    ["classifier", "geometry", "drawing"],
    ["ball"],
    ["transport"],
    ["attacks"],
    ["certificates"],
    ["models", "data", "bundled", "ranks", "paper"],
    ["evaluation"],
    ["training", "natural", "reproduce", "report", "adapters"],
    ["cli", "__main__"],
]
JUDGE = {"massmover.transport.exact", "massmover.evaluation.verify", "massmover.evaluation.proof"}
JUDGE_MAY_IMPORT = {"massmover.types", "massmover.threads", "massmover.transport.exact"}
MODULES = sorted(ROOT.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = ["massmover", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> set[str]:
    """Every massmover module a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            module = node.module or ""
            found.add(module)
            found |= {f"{module}.{alias.name}" for alias in node.names}
    names = {module_name(other) for other in MODULES}
    return {name for name in found if name in names and name.startswith("massmover.")}


def layer(module: str) -> int:
    top = module.split(".")[1]
    return next(number for number, names in enumerate(LAYERS) if top in names)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_downwards(path: Path) -> None:
    name = module_name(path)
    if name == "massmover":  # the front door shows what is inside
        return
    upward = {other for other in imported(path) if layer(other) > layer(name)}
    assert not upward, f"{name} imports {sorted(upward)}, which lie above it"


def test_the_choice_of_a_backend_needs_no_other_module() -> None:
    assert imported(ROOT / "backend.py") == {"massmover.types"}


@pytest.mark.parametrize("judge", sorted(JUDGE))
def test_the_judge_imports_no_solver(judge: str) -> None:
    path = ROOT / Path(*judge.split(".")[1:]).with_suffix(".py")
    # The packages themselves hold nothing but a docstring, so importing a sibling cannot pull a solver in.
    packages = {judge.rsplit(".", 1)[0], "massmover.transport", "massmover.evaluation"}
    shared = imported(path) - JUDGE_MAY_IMPORT - packages
    assert not shared, f"{judge} shares {sorted(shared)} with what it judges"


def test_the_report_needs_no_torch() -> None:
    for path in (ROOT / "report").rglob("*.py"):
        tree = ast.parse(path.read_text())
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not any(module.split(".")[0] == "torch" for module in modules), path


def test_only_the_command_line_prints() -> None:
    for path in MODULES:
        if path.relative_to(ROOT).parts[0] in ("cli", "__main__.py"):
            continue
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert not any(isinstance(call.func, ast.Name) and call.func.id == "print" for call in calls), path
