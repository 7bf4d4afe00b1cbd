"""What every public function is given in place of each argument."""

from __future__ import annotations

from typing import Any

import numpy as np

import otlp

P, Q = [0.2, 0.3, 0.5], [0.5, 0.3, 0.2]
BAD: list[Any] = [
    None, "x", "", b"x", [], (), {}, object(), 1.5, 0, -1, True, 2**63, 2**70, 10**400, 1e400,
    float("nan"), 1e-320, 2 + 1j, [0.0, 1.0], [None, 0], ["0", "1"], [[0, 1], [0]], [[0.5], [0.5]],
    np.ma.array([0.5, 0.5], mask=[0, 1]), np.array([0, 1j]), np.array([True, False]),
    np.zeros((0, 2)), np.zeros((2, 0)), np.zeros(()), np.array([0.5, 0.5]), np.array([[0, 1]]),
    np.array([1, 2], dtype="datetime64[s]"), np.zeros(3, dtype=[("a", float)]), {0, 1}, [0, 2**70],
    np.array(["a"], dtype=object), np.float32(0.5), np.int8(-3), range(3), lambda: 0, len, int,
    [1e308, 1e308], [-1.0, 2.0], [0.0, 0.0], [0.5, 10**400], (0.5, 0.5), otlp, otlp.IID,
    otlp.IID(Q, 2), otlp.Problem(P, otlp.IID(Q, 2)), np.random.default_rng(0), np.void(b"ab"),
    [1, "b"], [[1], [2, 3]], [[0, 1], [2, -1]], [True] * 3, np.zeros(3), np.zeros((2, 2), complex),
    float("inf"),
]  # fmt: skip
FUNCTIONS = frozenset({"kind", "rule", "transform"})
"""Arguments that may be functions of the caller, whose errors are the caller's."""
