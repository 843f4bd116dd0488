"""Records of runs as one page, tables and figures. Nothing here computes with torch."""

from __future__ import annotations

from massmover.report.loading import Run, load_run, load_runs
from massmover.report.page import write_page

__all__ = ["Run", "load_run", "load_runs", "write_page"]
