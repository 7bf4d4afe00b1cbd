"""`assert_lossless`, and the rules in plain Python against the compiled rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otlp
from otlp import audit_rounds
from otlp.auditing import AuditSettings, DraftedPaths, Verdict
from otlp.decode import Block, TabularModel, TwoSlicePaths, iid_paths, random_pair
from otlp.decode.laws.multipath_lp import multipath_optimum
from otlp.decode.laws.round_laws import round_law
from otlp.errors import InvalidInputError
from otlp.testing import assert_lossless, lossless
from otlp.testing.plain_martingale import picked_law, score_laws, verify_martingale
from otlp.testing.plain_two_slice import Cells, slices, verify_two_slice
from tests.otlp.auditing.shipped_rules import MENDED, SHIPPED, one_uniform_a_token, token_rule

pytestmark = pytest.mark.usefixtures("few_repetitions")
SLOW = pytest.mark.slow


def two_slice(x: Any, p: Any, q: Any, rng: Any) -> list[int]:
    return verify_two_slice(x.tolist(), p.tolist(), q.tolist(), rng.random)


def martingale(x: Any, p: Any, q: Any, rng: Any) -> int:
    return verify_martingale(x.tolist(), p.tolist(), q.tolist(), rng.random)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_mistake_that_was_shipped_fails(name: str) -> None:
    rule, drafts, more = SHIPPED[name]
    size = 2 if more else 3  # samplers have many outcomes
    how: dict[str, Any] = {"settings": AuditSettings(2_000, max_paths=20_000), **more}
    with pytest.raises(AssertionError, match=r"NOT_LOSSLESS|DRAFTS_DIFFER"):
        assert_lossless(rule, drafts, vocab_sizes=[size], dtypes=["float64"], **how)


@pytest.mark.parametrize("name", SHIPPED)
def test_mended_it_passes(name: str) -> None:
    rule, drafts, more = MENDED[name]
    control, *found = assert_lossless(rule, drafts, vocab_sizes=[3], dtypes=["float64"], **more)
    assert control.verdict is Verdict.NOT_LOSSLESS
    assert control.total_variation > 0.05
    assert len(found) == 5


def test_a_sample_has_a_stated_power() -> None:
    """A sampled test must detect two thirds of the planted error nine times in ten."""

    def sampled(x: Any, p: Any, q: Any, rng: Any) -> Any:
        rng.normal()
        return token_rule(x, p, q, rng)

    one = DraftedPaths(1, 1)
    how: dict[str, Any] = {"vocab_sizes": [2], "dtypes": ["float64"]}
    assert_lossless(sampled, one, settings=AuditSettings(samples=2_500), **how)
    with pytest.raises(AssertionError, match=r"1,000 samples detect .* more samples"):
        assert_lossless(sampled, one, settings=AuditSettings(samples=1_000), **how)


def test_a_control_that_is_not_found_fails() -> None:
    """A tolerance that hides the planted error would also hide an error of the rule."""
    with pytest.raises(AssertionError, match="the control passed"):
        assert_lossless(
            token_rule, DraftedPaths(1, 1), vocab_sizes=[2], settings=AuditSettings(tolerance=0.2)
        )


def test_it_fails_without_assert_statements() -> None:
    """`python -O` skips assert statements."""
    source = Path(lossless.__file__).read_text(encoding="utf-8")
    optimized: dict[str, Any] = {"__name__": "optimized"}
    exec(compile(source, "optimized", "exec", optimize=1), optimized)
    with pytest.raises(AssertionError, match=r"^2 tokens, zeros: none, float64\nNOT_LOSSLESS"):
        optimized["assert_lossless"](
            lambda d, p, q, rng: int(d[0]), lambda q: otlp.IID(q, 1), vocab_sizes=[2]
        )


@pytest.mark.slow
def test_it_fails_without_assertions_of_the_interpreter() -> None:
    program = (
        "import otlp; from otlp.testing import assert_lossless\n"
        "first = lambda d, p, q, rng: int(d[0])\n"
        "assert_lossless(first, lambda q: otlp.IID(q, 1), vocab_sizes=[2], dtypes=['float64'])"
    )
    ended = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1 and "AssertionError: 2 tokens" in ended.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: assert_lossless(token_rule, DraftedPaths(1, 1), vocab_sizes=[]),
        lambda: assert_lossless(token_rule, DraftedPaths(1, 1), vocab_sizes=[1]),
        lambda: assert_lossless(token_rule, 3),
        lambda: assert_lossless(3, DraftedPaths(1, 1)),
        lambda: assert_lossless(martingale, lambda q: otlp.IID(q, n=1), batch=3),
        lambda: assert_lossless(token_rule, DraftedPaths(1, 1), least_error=0.7),
    ],
)
def test_bad_input_is_named(wrong: Any) -> None:
    with pytest.raises(InvalidInputError):
        wrong()


def test_block_verification_in_plain_python_is_the_compiled_one() -> None:
    assert_lossless(one_uniform_a_token, DraftedPaths(1, 2), vocab_sizes=[3])
    draft, target = random_pair(3, 4, np.random.default_rng(0))
    report = audit_rounds(one_uniform_a_token, target.tables, draft.tables, DraftedPaths(1, 3))
    law = round_law(draft, target, iid_paths(1, 3), Block())
    assert report.tokens == pytest.approx(law.block_efficiency, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [2, 3, 6, 30])
def test_the_optimum_in_plain_python_is_that_of_the_solver(size: int, n: int) -> None:
    rng = np.random.default_rng(size + n)
    p, q = rng.dirichlet(np.full(size, 0.5), 2)
    if size > 3:  # a token of draft probability 0, and a token of target probability 0
        p[0] = q[2] = 0.0
        p, q = p / p.sum(), q / q.sum()
    laws = score_laws(p.tolist(), q.tolist(), n)
    picked = picked_law(laws, size, n)
    best = otlp.solve(otlp.Problem(p, otlp.IID(q, n)), "martingale").acceptance
    assert np.minimum(p, picked).sum() == pytest.approx(best, abs=1e-13)
    # The mass of tokens is kept, and the score of a random draft is uniform.
    assert min(mass for law in laws.values() for *_, mass in law) >= 0.0
    for token, law in laws.items():
        assert sum(mass for *_, mass in law) == pytest.approx(q[token], abs=1e-13)
    for low, high in {part[:2] for law in laws.values() for part in law}:
        there = sum(m for law in laws.values() for a, b, m in law if (a, b) == (low, high))
        assert there == pytest.approx(high - low, abs=1e-13)


def test_what_compares_scores_is_lossless_by_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """False-alarm rate 1e-6, with these seeds; a total variation of 0.1 would be detected.

    Any threshold of the slices is lossless, also after few bisection steps.
    """
    monkeypatch.setattr("otlp.testing.plain_two_slice.STEPS", 8)
    draft, target = random_pair(2, 3, np.random.default_rng(0))
    p, q = target.tables[0], draft.tables[0]
    reports = [
        otlp.audit(martingale, p, otlp.IID(q, n=3), settings=AuditSettings(samples=1_500)),
        audit_rounds(
            two_slice,
            target.tables,
            draft.tables,
            DraftedPaths(2, 2),
            settings=AuditSettings(samples=1_500),
        ),
    ]
    for report in reports:
        assert report.verdict is Verdict.NOT_REJECTED
        assert report.test.detectable < 0.1


def efficiency(draft: TabularModel, target: TabularModel, paths: int, length: int) -> float:
    """Return the exact block efficiency of `verify_two_slice`, prefix by prefix."""

    def below(prefix: tuple[int, ...], cells: Cells, weight: float, mass: float) -> float:
        if len(prefix) == length:
            return 0.0
        p, q = (model.distribution(prefix).tolist() for model in (target, draft))
        law, child = slices(cells, weight, p, q, paths)
        assert sum(law) == pytest.approx(1.0, abs=1e-12)
        found = 0.0
        for y in np.flatnonzero(q).tolist():
            share = min(1.0, weight * p[y] / law[y])
            there = mass * law[y]
            found += there * share + below((*prefix, y), child(y), share, there)
        return found

    return 1.0 + below((), [(0.0, 1.0, 1.0)], 1.0, 1.0)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=SLOW) for seed in range(1, 6))])
@pytest.mark.parametrize(("paths", "length"), [(1, 3), (2, 1), (3, 1), (2, 2)])
def test_two_slices_in_plain_python_accept_what_the_compiled_do(
    seed: int, paths: int, length: int
) -> None:
    """Equal for one token and for one path, and almost equal for several paths."""
    draft, target = random_pair(3, length + 1, np.random.default_rng(seed))
    found = efficiency(draft, target, paths, length)
    law = round_law(draft, target, iid_paths(paths, length), TwoSlicePaths())
    apart = 1e-9 if 1 in (paths, length) else 0.01
    assert found == pytest.approx(law.block_efficiency, rel=apart)
    assert found <= multipath_optimum(draft, target, paths, length) + 1e-6
