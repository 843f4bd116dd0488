"""The tables of Hu et al. 2020 and what we measure beside them; one file each, values in, values out."""

from __future__ import annotations
