"""Ratios of running times, measured interleaved in one run. Nothing here is asserted."""

import massmover  # noqa: F401  before torch, as on the command line: it tells OpenMP how long to wait
