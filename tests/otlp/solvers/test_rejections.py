"""Sampled sequences of rejected tokens."""

from __future__ import annotations

import numpy as np

import otlp
from otlp.solvers.rejections import _by_ratio, _rejected_mass, _rejected_token, _Step


def test_tokens_beside_a_path_with_nearly_all_the_rejected_mass() -> None:
    """The mass of the others is a sum; the total mass less that of the path has lost its digits."""
    drafts = otlp.WithoutReplacement([0.4, 0.35, 0.25, 3e-17, 1e-17], 2)
    tokens, known = _by_ratio(np.array([0.5, 0.5, 0.0, 0.0, 0.0]), drafts)
    step = _Step(0.0, 1.0, first=3, middle=3)
    masses = [_rejected_mass(step, known, k) for k in range(5)]
    assert tokens[:3].tolist() == [2, 3, 4] and masses == [0.25, 3e-17, 1e-17, 0.0, 0.0]
    path = np.array([0])
    uniforms = (np.arange(400) + 0.5) / 400
    drawn = [_rejected_token(np.array([u]), step, path, known) for u in uniforms]
    assert np.bincount(drawn, minlength=5).tolist() == [0, 300, 100, 0, 0]
