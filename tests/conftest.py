"""Hypothesis draws the same examples in every run of one version of a test.

So what passes here passes in CI. `pytest --hypothesis-profile=explore` draws new ones, and so does
`python -m tests.fuzz`.
"""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("repeatable")
