from __future__ import annotations

from pathlib import Path

from commandline import evaluation, massmover, workshop


def test_pages_and_figures_of_one_run_and_of_two(tmp_path: Path) -> None:
    workshop(tmp_path, count=4)
    for name, radius in (("one", "0.1"), ("two", "0.4")):
        assert massmover(*evaluation(name, "--radius", radius), cwd=tmp_path).returncode == 0
    (tmp_path / "one" / "report.html").unlink()
    done = massmover("report", "one", "--figures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "one" / "report.html").exists()
    assert {path.suffix for path in (tmp_path / "one" / "figures").iterdir()} == {".png", ".pdf"}
    both = massmover("report", "one", "two", "--out", "both/page.html", cwd=tmp_path)
    assert both.returncode == 0, both.stderr
    assert "2 runs side by side" in (tmp_path / "both" / "page.html").read_text()


def test_names_of_classes_and_the_papers_curves_on_request(tmp_path: Path) -> None:
    workshop(tmp_path, count=4)
    assert massmover(*evaluation("one", "--radius", "0.4"), cwd=tmp_path).returncode == 0
    (tmp_path / "names.txt").write_text("ant\nbee\ncow\n")
    done = massmover("report", "one", "--class-names", "names.txt", "--figures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '<th scope="row">bee</th>' in (tmp_path / "one" / "report.html").read_text()
    for words, expected in (
        (("--paper",), "--paper: the paper has curves for mnist and cifar10"),
        (("--class-names", "absent.txt"), "--class-names absent.txt cannot be read"),
    ):
        refused = massmover("report", "one", *words, cwd=tmp_path)
        assert refused.returncode == 2 and expected in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for word, expected in (("nowhere", "is no folder"), ("empty", "is no folder of a run")):
        done = massmover("report", word, cwd=tmp_path)
        assert done.returncode == 2 and expected in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert list((tmp_path / "empty").iterdir()) == []
