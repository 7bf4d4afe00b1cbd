"""`otlp.solve` with a problem, or with p, q and n; ambiguous arguments are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otlp
from otlp.errors import OTLPError

P, Q = [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]
PROBLEM = otlp.Problem(P, otlp.IID(Q, 2))
NAIVE = otlp.solvers.Naive()


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("solver", ["auto", "naive", "linear-program", NAIVE])
def test_the_short_form_is_the_problem_of_iid_drafts(n: int, solver: Any) -> None:
    whole = otlp.solve(otlp.Problem(P, otlp.IID(Q, n)), solver)
    for p, q in ((P, Q), (tuple(P), np.array(Q)), (np.array(P, np.float32), np.array(Q))):
        short = otlp.solve(p, q, n=n, solver=solver)
        assert short.solver == whole.solver and short.guarantee is whole.guarantee
        assert short.acceptance == pytest.approx(whole.acceptance, abs=1e-7)
    assert otlp.solve(P, Q, n=2, solver="linear-program", form="full").details["variables"] == 27
    with pytest.raises(otlp.SolveError):
        otlp.solve(P, Q, n=2, solver="linear-program", time_limit=1e-9)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: otlp.solve(P, Q), r"n must be given .* solve\(p, q, n=2\)"),
        (lambda: otlp.solve(P, n=2), "q must be given"),
        (lambda: otlp.solve(P), "problem must be .*; got list"),
        (lambda: otlp.solve(P, "naive"), "problem must be .*; got list"),
        (lambda: otlp.solve("naive", PROBLEM), "problem must be .*; got str"),
        (lambda: otlp.solve(PROBLEM, n=2), "n must be omitted if the first argument is a Problem"),
        (lambda: otlp.solve(P, "naive", n=2), "the second is a solver"),
        (lambda: otlp.solve(PROBLEM, "naive", solver="naive"), "solver must be given once"),
        (lambda: otlp.solve(PROBLEM, Q), "draft must be omitted with a Problem"),
        (lambda: otlp.solve(PROBLEM, draft=Q), "draft must be omitted with a Problem"),
        (lambda: otlp.solve(0.5, Q, n=2), r"p must have shape \(V,\), got \(\)$"),
        (lambda: otlp.solve(P, otlp.IID(Q, 2)), r"use solve\(Problem\(p, drafts\)\)"),
        (lambda: otlp.solve(P, otlp.IID(Q, 2), n=2), r"use solve\(Problem\(p, drafts\)\)"),
        (lambda: otlp.solve(P, [Q, Q], n=2), r"q must have shape \(V,\), got \(2, 3\)"),
        (lambda: otlp.solve([P, P], Q, n=2), r"p must have shape \(V,\), got \(2, 3\)"),
        (lambda: otlp.solve([P, [1.0]], Q, n=2), "p cannot be converted to an array"),
        (lambda: otlp.solve([0.5, 0.5], Q, n=2), "3"),
        (lambda: otlp.solve([-1.0, 2.0, 0.0], Q, n=2), "target"),
        (lambda: otlp.solve(P, Q, n=0), "n must be .*, got 0"),
        (lambda: otlp.solve(P, Q, n=2, solver="martigale"), "did you mean 'martingale'"),
        (lambda: otlp.solve(P, Q, n=2, form="full"), "auto has no option 'form'"),
    ],
)
def test_what_could_mean_something_else_is_refused(call: Any, words: str) -> None:
    with pytest.raises(OTLPError, match=words):
        call()
