"""Measure and improve how image classifiers stand up to an adversary that moves pixel mass."""
