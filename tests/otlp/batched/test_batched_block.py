"""One path a row: the elementwise pass against the paths' own, and losslessness by enumeration."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from otlp import batched  # noqa: E402
from otlp.batched.block import verify_block  # noqa: E402
from otlp.batched.paths import verify_selected  # noqa: E402


def rows(rng: np.random.Generator, shape: tuple[int, ...], vocab: int, kind: str):
    laws = rng.dirichlet(np.full(vocab, 0.5), size=shape)
    if kind == "masked":
        laws[rng.random(laws.shape) < 0.3] = 0.0
        laws[laws.sum(-1) == 0.0] = np.eye(vocab)[0]
        laws /= laws.sum(-1, keepdims=True)
    return torch.from_numpy(laws)


@pytest.mark.parametrize("kind", ["plain", "masked", "equal", "point"])
@pytest.mark.parametrize(("vocab", "length"), [(3, 2), (7, 4)])
def test_same_tokens_for_the_same_numbers(vocab: int, length: int, kind: str) -> None:
    rng = np.random.default_rng(vocab + length)
    target = rows(rng, (80, 1, length + 1), vocab, kind)
    draft = rows(rng, (80, 1, length), vocab, kind)
    if kind == "equal":
        draft = target[:, :, :-1]
    if kind == "point":
        draft = torch.nn.functional.one_hot(draft.argmax(-1), vocab).double()
    tokens = draft.reshape(-1, vocab).multinomial(1).view(80, 1, length)
    numbers = torch.from_numpy(rng.random((80, length + 3)))
    wanted = verify_selected(target, draft, tokens, numbers)
    found = verify_block(target, draft, tokens, numbers)
    same = (found[0] == wanted[0]).all(1)
    # numbers next to a threshold may fall on either side
    assert same.sum() >= 79
    assert (found[1] == wanted[1])[same].all()
    assert (found[2] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_verify_paths_gives(dtype) -> None:
    rng = np.random.default_rng(0)
    target, draft = rows(rng, (64, 1, 4), 11, "plain"), rows(rng, (64, 1, 3), 11, "plain")
    tokens = draft.reshape(-1, 11).multinomial(1).view(64, 1, 3)
    numbers = torch.from_numpy(rng.random((64, 6)))
    found = batched.verify_paths(target.to(dtype), draft.to(dtype), tokens, numbers)
    wanted = verify_block(target.to(dtype), draft.to(dtype), tokens, numbers)
    assert (found.tokens == wanted[0]).all()
    depth = torch.arange(4)
    assert ((found.tokens >= 0) == (depth <= found.accepted[:, None])).all()


@pytest.mark.parametrize("kind", ["plain", "masked", "equal"])
def test_lossless_by_its_own_thresholds(kind: str) -> None:
    """The law of two tokens at once, with the uniform numbers on a grid of their own steps."""
    rng = np.random.default_rng(5)
    vocab, steps = 3, 120
    first = rows(rng, (2, 1, 1), vocab, kind)
    if kind == "equal":
        first[1] = first[0]
    # the token after the drafted one, for each drafted token
    then = rows(rng, (vocab,), vocab, kind)
    p, q = first[0, 0, 0], first[1, 0, 0]
    grid = (np.arange(steps) + 0.5) / steps
    law = np.zeros((vocab, vocab))
    for token in range(vocab):
        if q[token] == 0.0:
            continue
        pass_, last = np.meshgrid(grid, grid)
        numbers = np.stack([np.zeros(steps**2), np.zeros(steps**2), pass_.ravel(), last.ravel()], 1)
        target = torch.stack([p, then[token]]).expand(steps**2, 1, 2, vocab)
        output, accepted, _ = verify_block(
            target,
            q.expand(steps**2, 1, 1, vocab),
            torch.full((steps**2, 1, 1), token),
            torch.from_numpy(numbers),
        )
        for a in range(vocab):
            ends = (output[:, 0] == a) & (accepted == 0)
            law[a] += float(q[token]) * float(ends.double().mean()) * then[a].numpy()
            for b in range(vocab):
                both = (output[:, 0] == a) & (output[:, 1] == b) & (accepted == 1)
                law[a, b] += float(q[token]) * float(both.double().mean())
    assert np.abs(law - (p[:, None] * then).numpy()).max() < 3.0 / steps
