"""Tests for users' rules, and reference implementations in plain Python.

`lossless` defines `assert_lossless` for test suites, `vectors` creates test vectors for any
language.  `plain_rules`, `plain_block`, `plain_equality`, `plain_martingale` and `plain_two_slice`
are tested implementations without dependencies.
"""

from otlp.testing.lossless import assert_lossless
from otlp.testing.vectors import make_vectors

__all__ = ["assert_lossless", "make_vectors"]
