"""Kernels, one file per family; constants and callees stand beside them, for Numba's cache watches one file."""
