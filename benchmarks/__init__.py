"""Ratios of running times, measured interleaved in one run. Nothing here is asserted."""
