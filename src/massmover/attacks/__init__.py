"""Attacks: one visible loop per file."""
