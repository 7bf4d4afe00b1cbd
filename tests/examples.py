"""Numbers of random examples, relative to the Hypothesis profile."""

from hypothesis import settings

USUAL = 50
"""Number of examples of a test without a number of its own, in the default profile."""


def examples(count: int) -> settings:
    """Return settings with `count` examples, or more in a profile with more than `USUAL`."""
    return settings(max_examples=count * settings().max_examples // USUAL)
