"""The batched baselines follow the target; G-tests share the rate of test_batched_verify.py."""

from __future__ import annotations

import numpy as np
import pytest

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
