from __future__ import annotations

import numpy as np
import pytest

import otlp
from otlp.reductions.subset_selection import subset_selection


def test_one_draft_is_the_overlap() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(1000), 2)
    alpha, _ = subset_selection(otlp.Problem(p, otlp.IID(q, 1)))
    assert alpha == pytest.approx(np.minimum(p, q).sum(), abs=1e-14)


def test_more_drafts_are_never_worse() -> None:
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.full(500, 0.1), 2)
    values = [subset_selection(otlp.Problem(p, otlp.IID(q, n)))[0] for n in range(1, 30)]
    assert (np.diff(values) >= -1e-15).all()
