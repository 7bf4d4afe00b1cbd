"""otlp.batched.verify_without_replacement: lossless by enumeration, and the optimum."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

import otlp
from otlp.auditing.gtest import g_test
from tests.instances import brute_force_optimum
from tests.otlp.batched.rows import SUBNORMAL, subnormal_pairs

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from otlp.batched import exponential_race  # noqa: E402
from otlp.batched.concave_majorant import concave_majorant  # noqa: E402
from otlp.batched.rejection import accept_or_replace  # noqa: E402
from otlp.batched.rows import prepare  # noqa: E402
from otlp.batched.without_replacement import BatchedRankPlan, rank_plan  # noqa: E402


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two laws on two to seven tokens, some with zeros, equal ones or tiny ones."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 8))
    p, q = rng.dirichlet(np.full(size, rng.choice([0.1, 0.5, 2.0])), size=2)
    kind = seed % 6
    if kind == 1:
        p, q = (
            np.where(rng.random(size) < 0.6, law, 0.0) + 1e-3 * one for law, one in ((p, 1), (q, 0))
        )
        q[0] += 0.1
    elif kind == 2:
        p = q.copy()
    elif kind == 3:
        p, q = (rng.integers(1, 4, size).astype(float) for _ in range(2))
    elif kind == 4:
        q = q * 10.0 ** rng.integers(-12, 1, size)
    elif kind == 5:
        half = max(1, size // 2)
        p[:half], q[half:] = 0.0, 0.0
    return p / p.sum(), q / q.sum()


def repeated(plan: BatchedRankPlan, count: int) -> BatchedRankPlan:
    """One row's plan for many rows."""
    place, ranks, *rest = plan
    many = [part.expand(count, *part.shape[1:]) for part in (place, *ranks, *rest)]
    return BatchedRankPlan(many[0], exponential_race.BatchedRanks(*many[1:4]), *many[4:])


def output_law(p: np.ndarray, q: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is selected, and verified, over all drafted sets and all ranks of their tokens."""
    sets = otlp.WithoutReplacement(q, n).enumerate_sets()
    laws = torch.tensor(np.stack([p, q]))[:, None]
    plan = rank_plan(prepare(*laws, torch.tensor(sets.members[None, :n]), True), True)
    token, below, share = (part[0] for part in plan.ranks)
    steps = []
    for place in plan.place[0]:
        starts = below[(token == place) & (share > 0.0)].numpy()
        steps.append([*pairwise([*starts, 1.0])])
        assert starts.size == 0 or starts[0] == 0.0
    drafts, numbers, chances = [], [], []
    for members, mass in zip(sets.members.reshape(-1, n), sets.mass, strict=True):
        for drawn in product(*(steps[i] for i in members)):
            drafts.append(members)
            numbers.append([0.5 * (a + b) for a, b in drawn])
            chances.append(mass * np.prod([b - a for a, b in drawn]))
    tokens = torch.tensor(np.array(drafts))
    rows = prepare(*laws.expand(-1, len(tokens), -1), tokens, True)
    chosen = repeated(plan, len(tokens)).select(rows, torch.tensor(numbers))[:, 0]
    selected = np.bincount(chosen.numpy(), weights=chances, minlength=p.size)
    y = plan.selection[0].numpy()
    accepted = selected * (p / np.maximum(np.maximum(p, y), 1e-300))
    left = np.maximum(p - y, 0.0)
    left = left / max(left.sum(), 1e-300)
    return selected, accepted + left * (1.0 - accepted.sum()), y


def check_law(p: np.ndarray, q: np.ndarray, n: int) -> None:
    selected, output, y = output_law(p, q, n)
    assert np.abs(selected - y).sum() < 1e-13
    assert np.abs(output - p).sum() < 1e-13


def check_bounds(p: np.ndarray, q: np.ndarray, n: int) -> None:
    """The bound is the optimum, and the acceptance near it."""
    rows = torch.tensor(p)[None], torch.tensor(q)[None]
    found = batched.acceptance_without_replacement(*rows, torch.tensor(np.flatnonzero(q)[None, :n]))
    optimum = brute_force_optimum(otlp.Problem(p, otlp.WithoutReplacement(q, n)))
    assert abs(float(found.upper_bound) - optimum) < 1e-12
    y = output_law(p, q, n)[2]
    assert float(found.acceptance) == pytest.approx(np.minimum(p, y).sum(), abs=1e-15)
    assert optimum - 1e-3 < float(found.acceptance) <= optimum + 1e-12


SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 120))]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_law_by_enumeration(seed: int) -> None:
    p, q = random_case(seed)
    for n in range(1, min(4, np.count_nonzero(q)) + 1):
        check_law(p, q, n)
        check_bounds(p, q, n)


@pytest.mark.parametrize("size", [2, 3, 5, 20])
@pytest.mark.parametrize("seed", range(3))
def test_where_all_is_drafted_the_target_is_selected(size: int, seed: int) -> None:
    """Peaked drafts with n covering the support, some rows of a batch only: no gap at all."""
    q = np.exp(-np.arange(size + 1.0))
    q[-1] = 0.0
    p = np.random.default_rng(seed).dirichlet(np.full(size + 1, (0.1, 0.5, 2.0)[seed]))
    laws = torch.tensor(np.stack([p, q / q.sum()]))[:, None].expand(-1, 2, -1)
    drafts = torch.arange(size).repeat(2, 1)
    drafts[1, 1:] = batched.PADDING
    found = batched.acceptance_without_replacement(*laws, drafts)
    assert float(found.acceptance[0]) == pytest.approx(1.0 - p[-1], abs=1e-15)
    assert float(found.upper_bound[0] - found.acceptance[0]) <= 1e-15
    assert float(found.upper_bound[1] - found.acceptance[1]) <= 1e-15  # one draft: its own law
    if size < 6:
        check_law(p, q / q.sum(), size)


@pytest.mark.parametrize(("tiny", "position"), SUBNORMAL)
def test_subnormal_masses(tiny: float, position: int) -> None:
    for p, q in subnormal_pairs(tiny, position):
        for n in (1, 2, 3):
            check_law(p, q, n)


@pytest.mark.parametrize("tiny", [5e-324, 1e-320, 1e-300])
def test_drafts_behind_a_certain_one(tiny: float) -> None:
    """All but one token so unlikely that the second draft is decided among subnormal masses."""
    q = np.array([0.0, 0.0, tiny, 3 * tiny, tiny, 1.0])
    p = np.array([0.2, 0.1, 0.5, 0.0, 0.1, 0.1])
    for n in (2, 3):
        check_law(p, q, n)
        check_bounds(p, q, n)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 13])
def test_below_the_bar_as_by_the_priorities(n: int) -> None:
    """Tokens of one rank each: the law that `otlp.WithoutReplacement` gives, with heavy tokens."""
    rng = np.random.default_rng(n)
    for heavy, size in product((0.0, 0.9, 1.0 - 1e-9), (n + 1, 200)):
        q = (1.0 - heavy) * rng.dirichlet(np.full(size, 0.5))
        q[n] += heavy
        q = q[rng.permutation(size)] / q.sum()
        wanted = otlp.WithoutReplacement(q, n).priority_marginals(np.arange(size)[::-1].copy())
        draft = torch.tensor(q)[None]
        for look in (True, False):
            found = exponential_race.start_race(draft, torch.full((1, 1), float(n)), n + 1, look)
            inside = exponential_race.within(found, exponential_race.alone(draft))[0].numpy()
            assert np.abs(np.diff(inside, prepend=0.0) - wanted).sum() < 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_the_concave_majorant_is_a_best_selection(seed: int) -> None:
    p, q = random_case(seed)
    order = np.argsort(p / np.maximum(q, 1e-300), kind="stable")
    p, q = p[order], q[order]
    inside = np.cumsum(otlp.WithoutReplacement(q, 2).priority_marginals(np.arange(p.size)[::-1]))
    law = concave_majorant(torch.tensor(p)[None], torch.tensor(inside)[None], True)[0].numpy()
    assert (np.cumsum(law) - inside).min() > -1e-9
    ratio = law[p > 0.0] / p[p > 0.0]
    assert (ratio[1:] <= ratio[:-1] * (1.0 + 1e-9)).all()
    excess = np.maximum(inside - np.cumsum(p), 0.0).max()
    assert np.minimum(law, p).sum() == pytest.approx(1.0 - excess, abs=1e-9)


def laws(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    one, other = np.random.default_rng(seed).standard_normal((2, size))
    return otlp.softmax(2.0 * one), otlp.softmax(1.9 * one + 0.6 * other)


@pytest.mark.parametrize("n", [2, 4])
def test_as_good_as_random_ranks(n: int) -> None:
    p, q = laws(1_000, 0)
    rows = (torch.tensor(law)[None] for law in (p, q))
    found = batched.acceptance_without_replacement(*rows, torch.arange(n)[None])
    best = otlp.solve(otlp.Problem(p, otlp.WithoutReplacement(q, n)), "random-ranks")
    assert float(found.upper_bound) == pytest.approx(best.upper_bound, abs=1e-12)
    assert float(found.upper_bound - found.acceptance) < 1e-6


@pytest.mark.parametrize("n", [2, 4])
def test_the_optimum_on_captured_rows(n: int) -> None:
    capture = otlp.captures.builtin()
    laws = np.array([capture.distributions(row=row) for row in (3, 40, 90)])
    p, q = torch.tensor(laws).unbind(1)
    found = batched.acceptance_without_replacement(p, q, torch.arange(n).expand(3, n))
    assert float((found.upper_bound - found.acceptance).max()) < 1e-6


def test_rows_that_need_other_times_share_a_batch() -> None:
    p = torch.tensor([[0.1, 0.1, 0.1, 0.7], [0.2, 0.3, 0.5, 0.0]], dtype=torch.float64)
    q = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 1e-20, 1e-17, 0.0]], dtype=torch.float64)
    drafts = torch.tensor([[0, 1, 2], [0, 1, 2]])
    together = batched.acceptance_without_replacement(p, q, drafts)
    for row in range(2):
        some = slice(row, row + 1)
        alone = batched.acceptance_without_replacement(p[some], q[some], drafts[some])
        assert float(together.upper_bound[row]) == pytest.approx(
            float(alone.upper_bound), abs=1e-13
        )
        assert float(together.acceptance[row]) == pytest.approx(float(alone.acceptance), abs=1e-6)


def test_where_the_distributions_differ_much_nothing_is_lost() -> None:
    p, q = np.random.default_rng(0).dirichlet(np.full(300, 0.5), size=(2, 4))
    found = batched.acceptance_without_replacement(
        torch.tensor(p), torch.tensor(q), torch.arange(4).expand(4, 4)
    )
    assert float((found.upper_bound - found.acceptance).max()) <= 1e-7
    assert float(found.upper_bound.max()) < 0.8


def test_the_output_follows_the_target() -> None:
    """Right but for a false alarm in 10^6, for this seed; one plan for all rows."""
    generator = torch.Generator().manual_seed(5)
    count = 20_000
    p, q = (torch.tensor(law, dtype=torch.float32)[None] for law in laws(50, 3))
    drafts = batched.sample_without_replacement(q.expand(count, -1), 3, generator)
    plan = rank_plan(prepare(p, q, drafts[:1], True), True)
    everywhere = repeated(plan, count)
    rows = prepare(p.expand(count, -1), q.expand(count, -1), drafts, True)
    numbers = batched.uniforms(drafts, generator)
    selected = everywhere.select(rows, numbers[:, :3])
    tokens, _ = accept_or_replace(
        rows, everywhere.selection, selected, numbers[:, -2], numbers[:, -1]
    )
    for found, law in ((selected[:, 0], plan.selection), (tokens, p)):
        exact = law[0].double().numpy() / float(law.sum(dtype=torch.float64))
        counts = torch.bincount(found, minlength=50).numpy()
        assert not g_test(counts, exact, 5e-7).rejects(5e-7)


def test_rows_have_drafts_of_their_own_number() -> None:
    p, q = torch.tensor([[0.1, 0.2, 0.3, 0.4]]), torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    drafts = torch.tensor([[0, -1, 2], [-1, -1, -1], [3, 1, 0], [-1, 3, -1]])
    numbers = batched.uniforms(drafts, torch.Generator().manual_seed(1))
    tokens, accepted = batched.verify_without_replacement(
        p.expand(4, -1), q.expand(4, -1), drafts, numbers
    )
    assert torch.equal(accepted, (drafts == tokens[:, None]).any(1))
    # without drafts the token is drawn from p, by the last number
    wanted = torch.searchsorted(p[0].double().cumsum(0), numbers[1, -1])
    assert int(tokens[1]) == int(wanted) and not bool(accepted[1])
    alone = [
        batched.verify_without_replacement(p, q, drafts[i, None], numbers[i, None])[0]
        for i in range(4)
    ]
    assert torch.equal(torch.cat(alone), tokens)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_are_taken_as_stored(dtype) -> None:
    """The plan of half precision is that of the same numbers in float64, padding or not."""
    p, q = (torch.tensor(law).to(dtype) for law in laws(30, 1))
    rows = p.repeat(4, 1), q.repeat(4, 1)
    drafts = torch.tensor([[0, 3, 5], [-1, 4, 2], [7, -1, -1], [-1, -1, -1]])
    found = batched.acceptance_without_replacement(*rows, drafts)
    for row, n in enumerate((3, 2, 1)):
        wide = [part.double()[:1] / part.double()[:1].sum() for part in rows]
        alone = batched.acceptance_without_replacement(*wide, torch.arange(n)[None])
        assert float(found.upper_bound[row]) == pytest.approx(float(alone.upper_bound), abs=1e-13)
        assert float(found.acceptance[row]) == pytest.approx(float(alone.acceptance), abs=1e-6)
    assert float(found.acceptance[3]) == float(found.upper_bound[3]) == 0.0


def test_a_token_that_is_held_twice_is_refused() -> None:
    rows = torch.full((2, 4), 0.25)
    with pytest.raises(otlp.errors.ZeroProbabilityError, match="row 1 holds token 3 twice"):
        batched.verify_without_replacement(rows, rows, torch.tensor([[0, 1], [3, 3]]))


@pytest.mark.slow
def test_more_drafts_than_digits_allow_are_refused() -> None:
    draft = torch.full((1, 30), 1 / 30, dtype=torch.float64)
    for verify in (batched.verify_without_replacement, batched.acceptance_without_replacement):
        verify(draft, draft, torch.arange(20)[None])
        with pytest.raises(otlp.errors.SizeLimitError, match="21 drafts a row"):
            verify(draft, draft, torch.arange(21)[None])
