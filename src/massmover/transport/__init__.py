"""Solvers and certificates: they know no model and no label."""
