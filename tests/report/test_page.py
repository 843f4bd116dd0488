from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))

from making import broken, record, settings

from massmover.evaluation.store import Record, RunFolder, read_records, write_records
from massmover.evaluation.summary import summarise
from massmover.paper import VICTIMS
from massmover.report import charts, load_run, write_page
from massmover.report.downloads import image_lines
from massmover.report.figures import write_figures
from massmover.report.page import confusion, page, worst_classes
from massmover.report.pictures import DETAIL, arrows, detail, difference, png
from massmover.report.published import CURVES, RADII_PIXELS, curves_for
from massmover.report.runs import Between

SHAPE = (1, 28, 28)


def finished_run(
    folder: Path, *, failed_check: bool = False, manifest: dict[str, Any] | None = None, **changes: Any
) -> Path:
    """A folder as a run leaves it: labels 0 to 3, one clean mistake, one carried success, one that stands."""
    folder.mkdir(parents=True)
    radii = (10 / 784, 50 / 784)
    chosen = settings(**{"radii": radii, "count": 4, **changes})
    mistake = {"label": 0, "prediction_before": 8, "cost": 0.0, "distance": 0.0}
    lines = [
        broken(0, radii[0], **mistake),
        broken(0, radii[1], **mistake),
        broken(1, radii[0], label=1, prediction_before=1),
        broken(1, radii[1], label=1, prediction_before=1, carried_from=radii[0]),
        record(2, radii[0], label=2, prediction_before=2, prediction_after=2),
        broken(2, radii[1], label=2, prediction_before=2),
        record(3, radii[0], label=3, margin_before=4.0, margin=3.0),
        record(3, radii[1], label=3, margin_before=4.0, margin=0.5),
    ]
    lines = [Record(**{**vars(line), "radius_pixels": line.radius * 784}) for line in lines]
    run = RunFolder(folder)
    write_records(run.records, lines)
    summary = summarise(lines, chosen, numbers_per_image=784)
    summary["checks"] = [{"name": "gradients", "passed": not failed_check, "seen": "<none>", "read": "docs/checks.md"}]
    run.write_json(run.summary, summary)
    run.write_json(
        run.manifest,
        {
            "settings": chosen.as_json(),
            "data": {"checksum": "d" * 64, "shape": list(SHAPE)},
            "weights": {"checksum": "w" * 64},
            "versions": {"massmover": "0"},
            "command": "massmover evaluate --out <run>",
            "started": "today",
            **(manifest or {}),
        },
    )
    won = [line for line in lines if line.success]
    random = np.random.default_rng(0)
    original = (random.random((len(won), *SHAPE)) / 2).astype(np.float32)
    original[:, 0, 3, 4], original[:, 0, 4, 5] = 0.75, 0.25
    adversarial = original.copy()
    adversarial[:, 0, 3, 4], adversarial[:, 0, 4, 5] = 0.25, 0.75  # the move below, and then one that is not stored
    adversarial[:, 0, 10, 10:12] = original[:, 0, 10, 11:9:-1]
    moves = np.zeros((len(won), 60, 6), np.float32)
    moves[:, 0] = (0, 3, 4, 4, 5, 0.5)
    np.savez(
        run.examples,
        index=[line.index for line in won],
        radius=[line.radius for line in won],
        label=[line.label for line in won],
        prediction=[line.prediction_after for line in won],
        original=original,
        adversarial=adversarial,
        moves=moves,
    )
    return folder


def certified_run(folder: Path) -> Path:
    """The same run with proofs: image 1 is proved below what broke it, image 2 not at all, image 3 beyond all radii."""
    path = finished_run(folder, certify=True)
    run = RunFolder(path)
    proofs = {0: 0.0, 1: 5 / 784, 2: 0.0, 3: 60 / 784}
    lines = [replace(line, certified=proofs[line.index]) for line in read_records(run.records)]
    write_records(run.records, lines)
    summary = summarise(lines, load_run(path).settings, numbers_per_image=784)
    run.write_json(run.summary, {**summary, "checks": []})
    return path


def test_every_image_has_its_interval_between_proof_and_attack(tmp_path: Path) -> None:
    run = load_run(certified_run(tmp_path / "run"))
    rows = {row.image: row[2:] for row in run.between()}
    assert rows == {
        0: (0, 0, 0),
        1: (pytest.approx(5), 0, pytest.approx(10)),
        2: (0, pytest.approx(10), pytest.approx(50)),
        3: (pytest.approx(60), pytest.approx(50), None),
    }
    assert [row.image for row in run.between()] == [0, 2, 1, 3]
    text = page([run])
    assert "image 1, 1: proved up to 5, broken at 10" in text and "image 3, 3: proved up to 60, stood at 50" in text
    assert "image 0, 0: a clean mistake" in text and text.count("proved up to</th>") == 3
    lines = {line["image"]: line for line in image_lines([run])}
    assert lines[2]["certified_radius_pixels"] == 0 and lines[2]["stood_radius_pixels"] == pytest.approx(10)
    assert not load_run(finished_run(tmp_path / "plain")).between()
    # A search of smallest radii asks at no list of radii: nothing is known below what it found.
    searched = {row.image: row.stood for row in replace(run, settings=replace(run.settings, smallest=True)).between()}
    assert searched == {0: 0, 1: 0, 2: 0, 3: pytest.approx(50)}


def test_of_many_images_some_are_drawn_from_end_to_end() -> None:
    rows = [Between(image, 0, float(image), 0.0, None) for image in range(1000)]
    drawn = charts.spread(rows, most=60)
    assert len(drawn) == 60 and (drawn[0].image, drawn[-1].image) == (0, 999)
    assert charts.spread(rows[:7], most=60) == rows[:7]


def test_the_page_is_self_contained_and_says_what_was_measured(tmp_path: Path) -> None:
    path = write_page([finished_run(tmp_path / "run")], tmp_path / "page.html")
    text = path.read_text()
    assert "http://" not in text and "https://" not in text and 'src="/' not in text
    assert "75.0 %" in text and "25.0 %" in text
    assert text.count('class="card"') == 3  # clean mistakes have nothing to show
    assert "massmover evaluate --out &lt;run&gt;" in text and "&lt;none&gt;" in text
    assert "the paper&#39;s attack" not in text and "Do not trust" not in text
    assert "30.1 to 95.4 %" in text  # three of four, by Wilson's score
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix == ".html"] == ["page.html"]


def test_a_failed_check_is_at_the_top(tmp_path: Path) -> None:
    text = page([load_run(finished_run(tmp_path / "run", failed_check=True))])
    assert "Do not trust this evaluation yet" in text


def test_several_runs_share_one_curve(tmp_path: Path) -> None:
    runs = [load_run(finished_run(tmp_path / name)) for name in ("first", "second")]
    text = page(runs)
    assert "2 runs side by side" in text and text.count('class="line s1"') == 3  # wide, narrow and the key


def test_the_papers_curves_appear_only_where_they_belong(tmp_path: Path) -> None:
    assert curves_for("mnist", SHAPE) and curves_for("cifar10", (3, 32, 32))
    assert not curves_for("fashion-mnist", SHAPE) and not curves_for("mnist", (1, 6, 6))
    assert all(len(curve.percent) == len(RADII_PIXELS) for curves in CURVES.values() for curve in curves)
    other = load_run(finished_run(tmp_path / "other", data="fashion-mnist"))
    assert not charts.paper_curves([other], asked=True)
    digits = load_run(finished_run(tmp_path / "digits"))
    assert not charts.paper_curves([digits]) and len(charts.paper_curves([digits], asked=True)) == 3
    victim = load_run(finished_run(tmp_path / "victim", manifest={"weights": {"checksum": next(iter(VICTIMS))}}))
    assert len(charts.paper_curves([victim])) == 3 and not charts.paper_curves([victim, digits])
    assert "the paper&#39;s attack" in page([digits], paper=True)


def test_bars_count_every_image_once(tmp_path: Path) -> None:
    bars = charts.breaking_bars(load_run(finished_run(tmp_path / "run")))
    assert [(bar.images, bar.kind) for bar in bars] == [(1, "mistake"), (1, "broken"), (1, "broken"), (1, "standing")]


def test_confusion_counts_answers_under_attack(tmp_path: Path) -> None:
    run = load_run(finished_run(tmp_path / "run"))
    assert run.confusion(run.settings.radii[0]) == {(0, 8): 1, (1, 8): 1, (2, 2): 1, (3, 3): 1}
    assert run.confusion(run.settings.radii[1]) == {(0, 8): 1, (1, 8): 1, (2, 8): 1, (3, 3): 1}


def test_classes_are_accurate_where_their_images_are(tmp_path: Path) -> None:
    run = load_run(finished_run(tmp_path / "run"))
    assert [tuple(row) for row in run.by_class()] == [
        (0, 1, (0, 0, 0)),  # a clean mistake
        (1, 1, (1, 0, 0)),
        (2, 1, (1, 1, 0)),
        (3, 1, (1, 1, 1)),
    ]
    for place, (_, accuracy) in enumerate(run.curve()):
        assert sum(row.right[place] for row in run.by_class()) == accuracy * run.images


def test_the_survivors_that_came_closest_come_first(tmp_path: Path) -> None:
    run = load_run(finished_run(tmp_path / "run"))
    assert [(record.index, record.margin) for record in run.survivors()] == [(3, 0.5)]
    nearer = Record(**{**vars(run.survivors()[0]), "index": 9, "margin": 0.25})
    both = replace(run, records=[*run.records, nearer])
    assert [record.index for record in both.survivors()] == [9, 3]
    assert "12.5 %" in page([run])  # of its lead


def test_many_classes_are_cut_and_the_page_says_so(tmp_path: Path) -> None:
    run = load_run(finished_run(tmp_path / "run"))
    counts = Counter({(label, label): 3 if label < 20 else 1 for label in range(30)}) + Counter({(0, 29): 2})
    table = confusion(run, counts, name="all")
    assert len(table.classes) == 21 and table.classes[-1] == "other"
    assert sum(cell.images for _, cells in table.rows for cell in cells) == sum(counts.values())
    assert table.cut == "The 20 most frequent of 30 classes that occur; the rest together is other."
    assert confusion(run, Counter({(0, 0): 1}), name="all").cut == ""


def test_of_many_classes_the_least_accurate_are_shown(tmp_path: Path) -> None:
    run = load_run(finished_run(tmp_path / "run"))
    assert worst_classes(run) == (run.by_class(), "")
    more = [
        Record(**{**vars(run.records[-1]), "index": 10 + label, "label": label, "prediction_before": label})
        for label in range(10, 40)
    ]
    rows, cut = worst_classes(replace(run, records=[*run.records, *more]))
    assert len(rows) == 20 and [row.label for row in rows[:4]] == [0, 1, 2, 3]
    assert cut == "20 of 34 classes, the least accurate first; all are in classes.csv."


def test_every_example_has_an_address_of_its_own(tmp_path: Path) -> None:
    runs = [load_run(finished_run(tmp_path / name)) for name in ("first", "second")]
    for shown in (runs[:1], runs):
        text = page(shown)
        anchors = re.findall(r'<article class="card" id="([^"]+)"', text)
        assert len(anchors) == len(set(anchors)) == 3 * len(shown)
        assert all(f'href="#{anchor}"' in text for anchor in anchors)


def test_every_card_names_its_units(tmp_path: Path) -> None:
    text = page([load_run(finished_run(tmp_path / "run"))])
    assert text.count("radius × 784</th>") == text.count(">pixels</th>") == text.count('class="card"')


def test_the_plan_of_a_photograph_is_drawn_where_most_mass_moves() -> None:
    moves = np.zeros((60, 6), np.float32)
    moves[0] = (0, 5, 5, 5, 6, 0.4)
    moves[1:4] = [(1, 150, x, 151, x, 0.3) for x in (100, 104, 108)]
    part = detail(moves, height=224, width=224)
    assert part.side == DETAIL
    assert part.left <= 100 and part.left + DETAIL > 108 and part.top <= 150 < part.top + DETAIL
    drawing = arrows(np.zeros((3, 224, 224), np.float32), moves, title="plan")
    assert f'viewBox="{part.left} {part.top} {DETAIL} {DETAIL}"' in drawing
    assert detail(moves[:1], height=28, width=28) == (0, 0, 28)


def test_pictures_are_what_pillow_reads(tmp_path: Path) -> None:
    import base64
    import io

    from PIL import Image

    for shape in ((5, 7), (5, 7, 3), (5, 7, 4)):
        pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
        read = Image.open(io.BytesIO(base64.b64decode(png(pixels).split(",")[1])))
        assert (np.asarray(read) == pixels).all()
    left = np.zeros((1, 2, 2)), np.array([[[0.0, 0.5], [0.0, 0.0]]])
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(difference(*left).split(",")[1]))))
    assert shown[0, 1, 3] == 255 and shown[0, 1, 0] > shown[0, 1, 2]  # orange where mass arrived
    assert shown[1, 1, 3] == 0


def test_figures_are_written_in_both_formats(tmp_path: Path) -> None:
    written = write_figures([load_run(finished_run(tmp_path / "run"))], tmp_path / "figures")
    names = {path.name for path in written}
    assert names == {
        f"{n}.{k}" for n in ("accuracy", "smallest-radii", "confusion", "examples") for k in ("png", "pdf")
    }
    assert all(path.stat().st_size > 3000 for path in written)


def test_the_report_computes_nothing_with_torch() -> None:
    allowed = {"massmover.evaluation", "massmover.evaluation.store", "massmover.files", "massmover.paper"}
    allowed |= {"massmover.evaluation.settings", "massmover.evaluation.summary", "massmover.drawing", "massmover.types"}
    allowed |= {"massmover.evaluation.proof", "massmover.evaluation.proof_file"}  # NumPy alone
    for path in (Path(charts.__file__).parent).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                ours = name.startswith("massmover") and not name.startswith("massmover.report")
                assert not name.startswith("torch") and (not ours or name in allowed), f"{path.name} imports {name}"


@pytest.mark.parametrize("missing", ["manifest.json", "summary.json"])
def test_an_unfinished_run_is_refused(tmp_path: Path, missing: str) -> None:
    folder = finished_run(tmp_path / "run")
    (folder / missing).unlink()
    with pytest.raises(ValueError, match=missing):
        load_run(folder)


def test_settings_survive_the_manifest(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "run")
    kept = json.loads((folder / "manifest.json").read_text())["settings"]
    assert load_run(folder).settings.as_json() == kept
