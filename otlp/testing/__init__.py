"""For other people's code: a check for a test suite, and rules in plain Python to port from.

`lossless` holds `assert_lossless`, `vectors` test vectors for any language; `plain_rules`,
`plain_block`, `plain_martingale` and `plain_two_slice` need nothing but Python, and are tested.
"""

from otlp.testing.lossless import assert_lossless
from otlp.testing.vectors import make_vectors

__all__ = ["assert_lossless", "make_vectors"]
