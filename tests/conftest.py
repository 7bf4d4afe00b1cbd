"""Hypothesis draws the same examples in every run of one version of a test; one thread a process.

So what passes here passes in CI. `pytest --hypothesis-profile=explore` draws new ones, and so does
`python -m tests.fuzz`. Problems here are small: a second thread of PyTorch's would only spin, and
the processes of `pytest -n` would wait for each other's.
"""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when PyTorch is imported
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("repeatable")
