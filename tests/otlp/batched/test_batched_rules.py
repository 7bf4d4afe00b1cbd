"""The batched baselines follow the target; G-tests share the rate of test_batched_verify.py."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import otlp
from otlp.auditing.gtest import g_test
from tests.replaying import Replaying

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from tests.otlp.batched.rows import DEGENERATE, DTYPES, RULES, spread  # noqa: E402

RATE = 1e-6 / 80
COUNT = 20_000


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_output_law(name: str, dtype, padded: bool) -> None:
    """Five tokens, and one hundred masked tokens."""
    generator = torch.Generator().manual_seed(11)
    p = torch.tensor([0.02, 0.4, 0.0, 0.18, 0.3, 0.1] + 100 * [0.0]).to(dtype)
    q = torch.tensor([0.5, 0.1, 0.15, 0.2, 0.05, 0.0] + 100 * [0.0]).to(dtype)
    drafts = batched.sample(q, 3 * COUNT, generator).view(COUNT, 3)
    if padded:
        drafts[:, 0] = batched.PADDING
    tokens, accepted = RULES[name](spread(p, COUNT), spread(q, COUNT), drafts, generator)
    law = p.double().numpy() / p.double().numpy().sum()
    counts = torch.bincount(tokens, minlength=106).numpy()
    assert not g_test(counts, law, RATE).rejected
    assert ((drafts == tokens[:, None]).any(1) | ~accepted).all()
    if name == "martingale":
        alpha = float(batched.acceptance(p[None], q[None], drafts[:1]).acceptance)
        hits = int(accepted.sum())
        observed = np.array([hits, COUNT - hits])
        assert not g_test(observed, np.array([alpha, 1.0 - alpha]), RATE).rejected
        assert (tokens[accepted, None] == drafts[accepted]).any(1).all()


def test_acceptance_of_one_draft() -> None:
    """n = 1: all rules are speculative sampling, which accepts sum min(p, q)."""
    generator = torch.Generator().manual_seed(12)
    p, q = torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.6, 0.1, 0.3])
    drafts = batched.sample(q, COUNT, generator)[:, None]
    alpha = float(torch.minimum(p, q).sum())
    law = np.array([alpha, 1.0 - alpha])
    for verify in (batched.speculative_sampling, batched.recursive_rejection, batched.k_seq):
        _, accepted = verify(p.repeat(COUNT, 1), q.repeat(COUNT, 1), drafts, generator)
        hits = int(accepted.sum())
        assert not g_test(np.array([hits, COUNT - hits]), law, RATE).rejected


@pytest.mark.parametrize("n", [1, 2, 4])
def test_different_drafts_are_verified_as_by_the_plan(n: int) -> None:
    """The same random numbers give the same tokens as `RecursiveRejection`, which is enumerated.

    Both compare a number with the same probability, computed differently; no number here is close.
    """
    generator = torch.Generator().manual_seed(n)
    rng = np.random.default_rng(n)
    cases = [rng.dirichlet(np.full(6, 0.3), size=2) for _ in range(8)]
    cases += [(p, p) for p, _ in cases[:2]] + [(np.eye(6)[0], q) for _, q in cases[:2]]
    for p, q in cases:
        q = np.maximum(q, 1e-6)
        q /= q.sum()
        rows = torch.tensor(p).expand(100, 6), torch.tensor(q).expand(100, 6)
        drafts = batched.sample_without_replacement(rows[1], n, generator)
        numbers = batched.uniforms(drafts, generator)
        found, accepted = batched.recursive_rejection_without_replacement(*rows, drafts, numbers)
        problem = otlp.Problem(p, otlp.WithoutReplacement(q, n))
        plan = otlp.solvers.RecursiveRejection().prepare(problem)
        used = np.column_stack((numbers[:, :n].numpy(), numbers[:, -1].numpy()))
        for row, drawn, token, was in zip(used, drafts, found.tolist(), accepted, strict=True):
            assert plan.sample(drawn.numpy(), Replaying(*row)) == token
            assert was == (token in drawn.tolist())


def test_padding_among_different_drafts_is_skipped() -> None:
    generator = torch.Generator().manual_seed(3)
    p, q = torch.rand(2, 200, 5, generator=generator, dtype=torch.float64).softmax(-1)
    drafts = batched.sample_without_replacement(q, 2, generator)
    numbers = batched.uniforms(drafts, generator)
    found = batched.recursive_rejection_without_replacement(p, q, drafts, numbers)
    for place in range(3):
        wide = torch.full((200, 3), batched.PADDING)
        wide[:, [i for i in range(3) if i != place]] = drafts
        same = torch.zeros(200, 11, dtype=torch.float64)
        same[:, [i for i in range(3) if i != place]] = numbers[:, :2]
        same[:, -1] = numbers[:, -1]
        again = batched.recursive_rejection_without_replacement(p, q, wide, same)
        assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


def test_different_drafts_follow_what_is_left() -> None:
    generator = torch.Generator().manual_seed(4)
    q = torch.tensor([0.5, 0.3, 0.0, 0.15, 0.05])
    drafts = batched.sample_without_replacement(q.repeat(COUNT, 1), 2, generator)
    scheme = otlp.WithoutReplacement(q.double().numpy(), 2)
    counts = torch.bincount(5 * drafts[:, 0] + drafts[:, 1], minlength=25).numpy()
    pairs = np.array([[i, j] for i in range(5) for j in range(5)])
    assert not g_test(counts, scheme.probability(pairs), RATE).rejected


def test_equal_drafts_and_too_few_tokens_are_refused() -> None:
    rows = torch.full((2, 4), 0.25)
    with pytest.raises(otlp.errors.ZeroProbabilityError, match="row 1: token 3 occurs twice"):
        batched.recursive_rejection_without_replacement(
            rows, rows, torch.tensor([[0, 1, -1, -1], [3, 0, 3, -1]])
        )
    q = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    with pytest.raises(otlp.errors.InvalidInputError, match="row 1 must have at least n = 2"):
        batched.sample_without_replacement(q, 2)
    for n in (0, 4, 2.0, True):
        with pytest.raises(otlp.errors.InvalidInputError, match="n must be"):
            batched.sample_without_replacement(q, n)


# --- the exact law of different drafts ------------------------------------------------------------


def least_number(holds, count: int):
    """Return for each row the least multiple of 2^-53 at which a monotone condition holds."""
    low, high = torch.zeros(count, dtype=torch.int64), torch.full((count,), 2**53)
    while bool((low < high).any()):
        middle = (low + high) // 2
        found = holds(middle.double() * 2.0**-53) | (middle == 2**53)
        low, high = torch.where(found, low, middle + 1), torch.where(found, middle, high)
    return low.double() * 2.0**-53


def law_of_different_drafts(p: list[float], q: list[float], n: int, padded: bool):
    """Return the exact law, from the thresholds of each random number."""
    tuples = np.array(list(permutations(np.flatnonzero(q), n)))
    rows = torch.tensor(tuples)
    if padded:
        gap = torch.full((len(rows), 1), batched.PADDING)
        rows = torch.cat([gap, rows[:, :1], gap, rows[:, 1:]], 1)
    count, size, last = len(rows), rows.shape[1], 1.0 - 2.0**-53
    target, draft = (torch.tensor(part, dtype=torch.float64).expand(count, -1) for part in (p, q))

    def tokens(place: int, number):
        # every other number rejects
        numbers = torch.full((count, 3 * size + 2), last, dtype=torch.float64)
        numbers[:, place] = number.clamp(max=last)
        return batched.recursive_rejection_without_replacement(target, draft, rows, numbers)[0]

    chance = torch.tensor(otlp.WithoutReplacement(np.array(q), n).probability(tuples))
    law = torch.zeros(len(p), dtype=torch.float64)
    for place in range(size):
        drafted = rows[:, place]

        def rejects(number, place=place, drafted=drafted):
            return (tokens(place, number) != drafted) | (number >= last)

        taken = least_number(rejects, count)
        # The largest number rejects only by the rule of this test.
        taken = torch.where(taken >= last, 1.0, taken).masked_fill(drafted < 0, 0.0)
        law.scatter_add_(0, drafted.clamp(min=0), chance * taken)
        chance = chance * (1.0 - taken)
    reached = torch.zeros(count, dtype=torch.float64)
    for token in range(len(p)):

        def beyond(number, token=token):
            return tokens(3 * size + 1, number) > token

        up_to = least_number(beyond, count)
        law[token] += (chance * (up_to - reached)).sum()
        reached = up_to
    return law.numpy()


LONG = [pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize(("p", "q"), DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize(
    ("fewer", "padded"),
    [
        (0, False),
        pytest.param(1, True, marks=pytest.mark.slow),
        *(pytest.param(n, True, marks=LONG) for n in (0, 2, 3)),
        *(pytest.param(n, False, marks=LONG) for n in range(1, 4)),
    ],
)
def test_different_drafts_are_lossless(
    p: list[float], q: list[float], fewer: int, padded: bool
) -> None:
    """All tokens of the support are drafted, or all but a few."""
    n = max(1, int(np.count_nonzero(q)) - fewer)
    law = law_of_different_drafts(p, q, n, padded)
    np.testing.assert_allclose(law, np.array(p) / sum(p), atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "rule"),
    [((5, 1), "speculative_sampling"), ((5, 3), "martingale"), ((5, 2, 2), "verify_paths")],
)
def test_verify_is_the_rule_for_the_form_of_the_drafts(shape: tuple[int, ...], rule: str) -> None:
    numbers = torch.Generator().manual_seed(0)
    rows = torch.rand(5, 4, generator=numbers).double()
    p = rows / rows.sum(1, keepdim=True)
    q = p.flip(1)
    tokens = batched.sample(q, int(np.prod(shape[1:])), numbers).view(shape)
    if len(shape) == 3:
        p, q = (one[:, None, None].expand(-1, 2, levels, -1) for one, levels in ((p, 3), (q, 2)))
    uniform = batched.uniforms(tokens, numbers)
    found = batched.verify(p, q, tokens, uniform)
    for one, other in zip(found, getattr(batched, rule)(p, q, tokens, uniform), strict=True):
        assert torch.equal(one, other)
