"""Whether the Triton kernels give PyTorch's tokens, on random cases, in Triton's interpreter.

Needs Triton (pip install triton).  On a GPU it also times both, with --time.

    python bench/triton_kernels.py [--cases 10000] [--time]
"""

from __future__ import annotations

import argparse
import os
import warnings
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np
import torch

if not torch.cuda.is_available():
    # Triton reads it when kernels are defined
    os.environ.setdefault("TRITON_INTERPRET", "1")

from otlp import batched

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = ("plain", "masked", "equal", "points", "tiny")
"""Of rows: Dirichlet, with zeros, p = q, point masses, with probabilities near the smallest."""
SIZES = (2, 3, 8, 33, 64)
LAWS = 97
"""Of a case: which one follows a prefix is a function of its tokens."""


def laws(rng: np.random.Generator, kind: str, vocab: int) -> tuple[Any, Any]:
    p, q = rng.dirichlet(np.full(vocab, 0.5), size=(2, LAWS))
    for rows in (p, q):
        if kind == "masked":
            rows[rng.random(rows.shape) < 0.4] = 0.0
        if kind == "points":
            rows[rows < rows.max(1, keepdims=True)] = 0.0
        if kind == "tiny":
            rows[rng.random(rows.shape) < 0.5] *= 1e-290
        rows[rows.sum(1) == 0.0] = np.eye(vocab)[0]
        rows /= rows.sum(1, keepdims=True)
    return p, p.copy() if kind == "equal" else q


def cases(
    rng: np.random.Generator, kind: str, vocab: int, paths: int, length: int, rows: int
) -> tuple[Any, ...]:
    p, q = laws(rng, kind, vocab)
    state = np.repeat(rng.integers(LAWS, size=(rows, 1)), paths, 1)
    states, tokens = [state], []
    for _ in range(length):
        law = q[state].cumsum(-1)
        token = (rng.random((rows, paths, 1)) * law[..., -1:] >= law).sum(-1)
        state = (31 * state + 7 * token + 1) % LAWS
        states.append(state)
        tokens.append(token)
    at = np.stack(states, 2)
    numbers = rng.random((rows, paths + length + 2))
    parts = (p[at], q[at[:, :, :-1]], np.stack(tokens, 2), numbers)
    return tuple(torch.from_numpy(np.ascontiguousarray(part)).to(DEVICE) for part in parts)


def same_tokens(rng: np.random.Generator, vocab: int, paths: int, length: int, rows: int) -> Any:
    """Whether each case, so many of each kind, has the same tokens by both.

    Where nothing is accepted, or paths share what is, either path does.
    """
    every = [cases(rng, kind, vocab, paths, length, rows) for kind in KINDS]
    given = [torch.cat(parts) for parts in zip(*every, strict=True)]
    ours, theirs = (batched.verify_paths(*given, backend=name) for name in ("triton", "torch"))
    return (ours.tokens == theirs.tokens).all(1)


def time_both() -> None:
    rng = np.random.default_rng(0)
    print("| V | K x L | PyTorch ms | Triton ms |\n|---|---|---|---|")
    for vocab, paths, length in product((4096, 32_000, 128_000), (1, 4), (4,)):
        given = cases(rng, "plain", vocab, paths, length, 8)
        times = []
        for name in ("torch", "triton"):
            spent = []
            for _ in range(6):
                torch.cuda.synchronize()
                begin = perf_counter()
                batched.verify_paths(*given, backend=name, validate=False)
                torch.cuda.synchronize()
                spent.append(1e3 * (perf_counter() - begin))
            times.append(min(spent[1:]))
        print(f"| {vocab} | {paths} x {length} | {times[0]:.2f} | {times[1]:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--time", action="store_true")
    settings = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    rows = -(-settings.cases // (16 * len(SIZES) * len(KINDS)))
    rng = np.random.default_rng(20241122)
    print("| V | cases | with other tokens |\n|---|---|---|")
    for vocab in SIZES:
        found = [
            same_tokens(rng, vocab, paths, length, rows)
            for paths, length in product(range(1, 5), range(1, 5))
        ]
        same = torch.cat(found)
        print(f"| {vocab} | {len(same):,} | {int((~same).sum())} |", flush=True)
    if settings.time:
        time_both()


if __name__ == "__main__":
    main()
