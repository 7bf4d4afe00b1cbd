"""Distributions in serving: both models cut by top-k, top-p and min-p, in this order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otlp
from otlp.data.captures import keep_top
from otlp.data.sampling_cuts import SAMPLING, SamplingCuts
from otlp.distribution import min_p
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.solvers import SOLVERS
from tests.examples import examples
from tests.otlp.cli.command import done, refused
from tests.otlp.data.test_top_capture import ROUNDING, drawn, make, schemes

CUTS = st.fixed_dictionaries(
    {
        "sampling_top_k": st.sampled_from([None, None, 1, 2, 3]),
        "sampling_top_p": st.sampled_from([None, 1.0, 0.9, 0.5, 0.2]),
        "sampling_min_p": st.sampled_from([None, 0.0, 0.05, 0.3, 1.0]),
    }
)


def test_the_cuts_are_those_of_transformers() -> None:
    """1,000 rows, some with ties and masked tokens; the order is top-k, top-p, min-p."""
    torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
    pytest.importorskip("transformers", reason="needs transformers: pip install -e .[decode]")
    from transformers.generation import logits_process as theirs

    rng = np.random.default_rng(0)
    for row in range(1000):
        size = int(rng.integers(2, 200))
        logits = rng.normal(size=size) * rng.choice([0.3, 1.0, 4.0])
        logits[rng.random(size) < 0.1] = -np.inf
        logits[0] = 0.1
        temperature = float(rng.choice([0.3, 0.7, 1.0, 1.6]))
        k, p, m = int(rng.integers(1, size + 1)), rng.uniform(0.05, 1.0), rng.uniform(0.0, 0.5)
        used = rng.random(3) < 0.6
        warpers: list[Any] = [theirs.TemperatureLogitsWarper(temperature)]
        all_of_them = (
            theirs.TopKLogitsWarper(k),
            theirs.TopPLogitsWarper(p),
            theirs.MinPLogitsWarper(m),
        )
        warpers += [warper for warper, on in zip(all_of_them, used, strict=True) if on]
        scores = torch.from_numpy(logits)[None]
        for warper in warpers:
            scores = warper(torch.zeros(1, 1, dtype=torch.long), scores)
        cuts = SamplingCuts(
            *(value if on else None for value, on in zip((k, p, m), used, strict=True))
        )
        found = cuts.cut(otlp.softmax(logits, temperature))
        np.testing.assert_allclose(found, scores.softmax(-1)[0].numpy(), atol=1e-12, err_msg=row)


def test_min_p_keeps_what_is_likely_enough() -> None:
    row = np.array([0.4, 0.05, 0.2, 0.35])
    assert min_p(row, 0.125).tolist() == pytest.approx(row.tolist())  # at least, not above
    assert min_p(row, 0.5).tolist() == pytest.approx([0.4 / 0.95, 0.0, 0.2 / 0.95, 0.35 / 0.95])
    assert min_p(row, 1.0).tolist() == [1.0, 0.0, 0.0, 0.0]


@examples(60)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(2, 9),
    kept=st.integers(1, 9),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.5]),
    cuts=CUTS,
    top_k=st.sampled_from([None, 2]),
)
def test_rows_of_which_some_tokens_were_kept_are_exact_or_bounded(
    seed: int, vocab_size: int, kept: int, temperature: float, cuts: dict[str, Any], top_k: Any
) -> None:
    kept = min(kept, vocab_size)
    whole = drawn(np.random.default_rng(seed), 1, vocab_size)
    top = keep_top(whole, kept)
    asked = {"temperature": temperature, "top_k": top_k, **cuts}
    if any(k is not None and k > top.kept for k in (top_k, cuts["sampling_top_k"])):
        with pytest.raises(InvalidInputError, match=r"top_k must be at most .* this capture, got"):
            top.distributions(0, **asked)
        return
    p, q = top.distributions(0, **asked)
    more = top.truncation(0, **asked)
    target, _ = whole.distributions(0, **asked)
    assert p.sum() == pytest.approx(1.0) and (p[:-1] <= target + ROUNDING / temperature).all()
    if more == 0.0:
        np.testing.assert_allclose(p, np.append(target, 0.0), atol=ROUNDING / temperature)
    for scheme in schemes(q[:-1]):
        best = otlp.optimal_acceptance(otlp.Problem(target, scheme))
        kind: Any = type(scheme)
        known = otlp.optimal_acceptance(otlp.Problem(p, kind(q, scheme.n)))
        slack = 3.0 * ROUNDING / temperature
        assert known - slack <= best <= known + more + slack


@pytest.mark.parametrize(
    "row", [[0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25], [0.9, 0.05, 0.04, 0.01]]
)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_what_reaches_beyond_the_tokens_that_were_kept(
    row: list[float], temperature: float
) -> None:
    """The nucleus, or tokens above min-p, may include tokens that were not stored."""
    whole = make([np.log(row)], [np.log(row[::-1])])
    beyond = 0
    for kept in (1, 2, 3, 4):
        top = keep_top(whole, kept)
        for share in (0.2, 0.5, 0.72, 0.91, 0.97, 1.0):
            for least in (0.0, 0.05, 0.3, 0.6):
                cuts = {"sampling_top_p": share, "sampling_min_p": least}
                asked = {"temperature": temperature, "whole_draft": True, **cuts}
                p, q = top.distributions(0, **asked)
                target, _ = whole.distributions(0, **asked)
                more = top.truncation(0, **asked)
                assert (p[:-1] <= target + ROUNDING).all() and p.sum() == pytest.approx(1.0)
                known = otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, 2)))
                best = otlp.optimal_acceptance(otlp.Problem(target, otlp.IID(q[:-1], 2)))
                assert known - ROUNDING <= best <= known + more + ROUNDING
                beyond += bool((target[np.argsort(row)[::-1][kept:]] > 0.0).any())
    assert beyond


@pytest.mark.parametrize("rule", SOLVERS)
def test_rules_stay_lossless_where_cuts_leave_the_draft_beside_the_target(rule: str) -> None:
    """Also with disjoint supports, where no draft is accepted."""
    rng, solved = np.random.default_rng(1), 0
    for seed in range(16):
        logits = 6.0 * rng.normal(size=(2, 1, 12))
        if seed % 2:
            logits[:, :, :6] -= 40.0 * np.array([[[1.0]], [[0.0]]])
        capture = otlp.captures.Capture(
            target_logits=logits[0], draft_logits=logits[1], target_model="p", draft_model="q",
            tokenizer="", source="", synthetic=True,
        )  # fmt: skip
        p, q = capture.distributions(0, sampling_top_k=3, sampling_min_p=0.1)
        most = min(2, np.count_nonzero(q))
        each = [
            otlp.IID(q, 2), otlp.IID(q, 1), otlp.WithoutReplacement(q, most),
            otlp.Independent([q, q]), otlp.Greedy(q, most), *([otlp.Hub(q)] if most == 2 else []),
        ]  # fmt: skip
        for drafts in each:
            try:
                solution = otlp.solve(otlp.Problem(p, drafts), rule)
            except UnsupportedProblemError:
                continue
            solved += 1
            assert solution.guarantee >= otlp.Guarantee.LOSSLESS
            if not (p * q).any():
                assert solution.acceptance == 0.0
    assert solved >= 8


def test_the_draft_may_be_left_whole() -> None:
    capture = otlp.captures.builtin()
    asked = {"sampling_top_k": 20, "sampling_min_p": 0.05, "whole_draft": True}
    p, q = capture.distributions(3, 0.7, top_p=0.9, **asked)
    assert (p == capture.distributions(3, 0.7, sampling_top_k=20, sampling_min_p=0.05)[0]).all()
    assert (q == capture.distributions(3, 0.7, top_p=0.9)[1]).all()
    whole = capture.distributions(3, 0.7, **asked)[1]
    assert (whole > 0).sum() > 20
    printed = done(
        "solve", "--row", 3, "--temperature", 0.7, "--sampling-top-k", 20, "--whole-draft"
    )
    p, q = capture.distributions(3, 0.7, sampling_top_k=20, whole_draft=True)
    assert f"{otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, 2))):.10f}"[:10] in printed
    assert "--whole-draft need logits" in refused("audit", "naive", "--whole-draft")


@pytest.mark.usefixtures("few_repetitions")
def test_commands_cut_both_models() -> None:
    cut = ("--temperature", 0.7, "--sampling-top-k", 20, "--sampling-top-p", 0.95)
    capture = otlp.captures.builtin()
    p, q = capture.distributions(3, 0.7, sampling_top_k=20, sampling_top_p=0.95)
    assert (p > 0).sum() <= 20 and (q > 0).sum() <= 20
    best = otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, 2)))
    assert f"{best:.10f}"[:10] in done("solve", "--row", 3, *cut)
    done("check", "--rows", 2, "--top-k", 5, *cut)
    done("compare", "--rows", 2, "--n", 1, "--schemes", "iid", *cut, "--sampling-min-p", 0.1)
    done("sweep", "--rows", 2, "--n", 2, "--sampling-min-p", 0.1)
    done("bench", "--rows", 1, "--n", 2, "--top-k", 5, "--sampling-top-k", 20)
    assert "LOSSLESS" in done("audit", "naive", "--row", 3, *cut)
    for words in (
        ("solve", "--sampling-min-p", 1.5),
        ("sweep", "--rows", 1, "--sampling-top-p", 0),
        ("solve", "--sampling-top-k", 5_000),
        ("solve", "--sampling-top-p", 0, "--whole-draft"),
        ("audit", "naive", "--sampling-top-k", 5),
        ("audit", "mine.py:rule", "--length", 2, "--sampling-min-p", 0.5),
    ):
        assert "sampling" in refused(*words).replace("min-p share", "sampling").replace(
            "top-p mass", "sampling"
        )


def test_problems_of_rows_are_cut_alike() -> None:
    capture = otlp.captures.builtin()
    cuts = dict(zip(SAMPLING, (20, 0.9, 0.05), strict=True))
    problem = otlp.CaptureProblems(capture=capture, rows=[3], n=2, **cuts)[0]
    p, q = capture.distributions(3, **cuts)
    assert (problem.target == p).all() and (problem.drafts.mean_draft == q).all()
    for name, wrong in zip(SAMPLING, (0, 0.0, -0.1), strict=True):
        with pytest.raises(InvalidInputError):
            otlp.CaptureProblems(capture=capture, n=2, **{name: wrong})
