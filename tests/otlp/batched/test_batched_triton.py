"""The Triton kernels, in Triton's interpreter, against the PyTorch path and the target's law."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    # Triton reads it when kernels are defined
    os.environ.setdefault("TRITON_INTERPRET", "1")

from bench.triton_kernels import same_tokens  # noqa: E402
from otlp import batched  # noqa: E402
from otlp.batched.paths import find_kernels  # noqa: E402
from otlp.batched.two_slice import root_law  # noqa: E402
from otlp.errors import EngineNotFoundError, InvalidInputError  # noqa: E402
from tests.otlp.batched.batched_rounds import (  # noqa: E402
    check_decisions,
    check_law,
    enumerate_round,
    tabular,
)

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs pip install triton")


@needs_triton
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("vocab", "paths", "length"), [(2, 1, 1), (3, 2, 2), (64, 4, 3)])
def test_same_tokens_for_the_same_numbers(vocab: int, paths: int, length: int) -> None:
    rng = np.random.default_rng(vocab)
    same = same_tokens(rng, vocab, paths, length, 16)
    assert same.all()


@needs_triton
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["plain", "masked", "equal", "disjoint"])
@pytest.mark.parametrize(
    ("vocab", "length", "paths"),
    [(2, 1, 1), (3, 2, 1), (2, 1, 2), (2, 2, 2), (3, 1, 2), (3, 2, 2), (2, 2, 3), (3, 2, 3)],
)
def test_lossless_by_enumeration(vocab: int, length: int, paths: int, kind: str) -> None:
    kernels = find_kernels("triton", torch.device("cpu"))
    p, q = tabular(0, vocab, length, kind)
    rounds = enumerate_round(p, q, vocab, length, paths, kernels=kernels)
    check_law(rounds, paths)
    check_decisions(rounds, kernels)


@needs_triton
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_step_is_that_of_pytorch() -> None:
    """Rows that end within a program, and a vocabulary of several blocks."""
    from otlp.batched import triton_kernels

    rng = np.random.default_rng(1)
    target, draft = torch.from_numpy(rng.dirichlet(np.full(40_000, 0.1), size=(2, 3)))
    law = root_law(3, target)
    wanted = batched.two_slice_step(law, target, draft, 3)
    found = triton_kernels.two_slice_kernel(law, target, draft, 3)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


def rows() -> tuple[object, ...]:
    p = torch.tensor([0.5, 0.3, 0.2])
    return p.expand(1, 2, 3, 3), p.expand(1, 2, 2, 3), torch.tensor([[[0, 1], [2, 2]]])


def test_without_triton_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "otlp.batched.triton_kernels", raising=False)
    with pytest.raises(EngineNotFoundError, match=r"pip install triton, or take 'torch'"):
        batched.verify_paths(*rows(), backend="triton")


@needs_triton
def test_on_a_cpu_without_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(InvalidInputError, match="TRITON_INTERPRET=1"):
        batched.verify_paths(*rows(), backend="triton")


def test_a_backend_that_there_is_not() -> None:
    with pytest.raises(InvalidInputError, match="'cuda'"):
        batched.verify_paths(*rows(), backend="cuda")
