"""Records of runs as one page, tables and figures. Nothing here computes with torch."""

from __future__ import annotations

from massmover.report.page import write_page
from massmover.report.runs import Run, load_run, load_runs
from massmover.report.study import Figure, Table, study_page, write_study

__all__ = ["Figure", "Run", "Table", "load_run", "load_runs", "study_page", "write_page", "write_study"]
