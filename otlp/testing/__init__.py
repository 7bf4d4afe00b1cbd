"""For other people's code: a check for a test suite, and rules in plain Python to port from.

`lossless` holds `assert_lossless`; `plain_block`, `plain_martingale` and `plain_two_slice` need
nothing but Python, and are tested against the compiled ones.
"""

from otlp.testing.lossless import assert_lossless

__all__ = ["assert_lossless"]
