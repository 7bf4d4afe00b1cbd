"""Audits by enumeration, and by sampling the same rules."""

from __future__ import annotations

import pytest

EXACT, SAMPLED = 100_000, 0


BOTH = pytest.mark.parametrize("max_paths", [EXACT, SAMPLED])
