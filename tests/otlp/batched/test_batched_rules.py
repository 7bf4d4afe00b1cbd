"""The batched baselines follow the target; G-tests share the rate of test_batched_verify.py."""

from __future__ import annotations

import numpy as np
import pytest

import otlp
from otlp.auditing.gtest import g_test

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402

RATE = 1e-6 / 64
COUNT = 8_000


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "verify", [batched.speculative_sampling, batched.recursive_rejection, batched.k_seq]
)
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_output_law(verify, dtype, padded: bool) -> None:
    generator = torch.Generator().manual_seed(11)
    p = torch.tensor([0.02, 0.4, 0.0, 0.18, 0.3, 0.1]).to(dtype)
    q = torch.tensor([0.5, 0.1, 0.15, 0.2, 0.05, 0.0]).to(dtype)
    drafts = batched.sample(q, 3 * COUNT, generator)
    drafts = drafts.view(COUNT, 3)
    if padded:
        drafts = drafts.clone()
        drafts[:, 0] = batched.PADDING
    tokens, accepted = verify(p.repeat(COUNT, 1), q.repeat(COUNT, 1), drafts, generator)
    law = p.double().numpy() / p.double().numpy().sum()
    counts = torch.bincount(tokens, minlength=6).numpy()
    assert not g_test(counts, law, RATE).rejects(RATE)
    assert ((drafts == tokens[:, None]).any(1) | ~accepted).all()


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
        assert not g_test(np.array([hits, COUNT - hits]), law, RATE).rejects(RATE)


class Numbers:
    """A source of random numbers: one row of those that a batched verification was given."""

    def __init__(self, row: np.ndarray) -> None:
        self.left = list(row)

    def random(self) -> float:
        return float(self.left.pop(0))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_different_drafts_are_verified_as_by_the_plan(n: int) -> None:
    """The same random numbers give the same tokens as `RecursiveRejection`, proved by enumeration.

    Both compare a number with the same chance, worked out differently: no number here is so near.
    """
    generator = torch.Generator().manual_seed(n)
    rng = np.random.default_rng(n)
    cases = [rng.dirichlet(np.full(6, 0.3), size=2) for _ in range(8)]
    cases += [(p, p) for p, _ in cases[:2]] + [(np.eye(6)[0], q) for _, q in cases[:2]]
    for p, q in cases:
        q = np.maximum(q, 1e-6)
        q /= q.sum()
        rows = [torch.tensor(x).expand(100, 6) for x in (p, q)]
        drafts = batched.sample_without_replacement(rows[1], n, generator)
        numbers = batched.uniforms(drafts, generator)
        found, accepted = batched.recursive_rejection_without_replacement(*rows, drafts, numbers)
        problem = otlp.Problem(p, otlp.WithoutReplacement(q, n))
        plan = otlp.solvers.RecursiveRejection().prepare(problem)
        used = np.column_stack((numbers[:, :n].numpy(), numbers[:, -1].numpy()))
        for row, drawn, token, was in zip(used, drafts, found.tolist(), accepted, strict=True):
            assert plan.sample(drawn.numpy(), Numbers(row)) == token
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
    assert not g_test(counts, scheme.probability(pairs), RATE).rejects(RATE)


def test_equal_drafts_and_too_few_tokens_are_refused() -> None:
    rows = torch.full((2, 4), 0.25)
    with pytest.raises(otlp.ZeroProbabilityError, match="row 1 holds token 3 twice"):
        batched.recursive_rejection_without_replacement(
            rows, rows, torch.tensor([[0, 1, -1, -1], [3, 0, 3, -1]])
        )
    q = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    with pytest.raises(otlp.InvalidInputError, match="row 1 has 1 tokens"):
        batched.sample_without_replacement(q, 2)
    for n in (0, 4, 2.0, True):
        with pytest.raises(otlp.InvalidInputError, match="n is"):
            batched.sample_without_replacement(q, n)
