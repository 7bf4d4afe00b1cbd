"""Tensors of any precision, with or without gradient, give the results of equal arrays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otlp
from otlp import captures, decode
from otlp.auditing import DraftedPaths
from otlp.distribution import top_k, top_p
from otlp.errors import InvalidInputError
from otlp.export import lp_arrays
from otlp.solvers import SOLVERS
from tests.example_captures import DTYPES, LABELS, check_same, example, make

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[torch]")

from otlp import batched  # noqa: E402

P, Q = [0.125, 0.5, 0.375], [0.5, 0.25, 0.25]
"""Exact in bfloat16 too."""


def first(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> int:
    return int(draft_tokens[0])


def first_round(draft_tokens: Any, p: Any, q: Any, rng: np.random.Generator) -> list[int]:
    return [int(draft_tokens[0, 0]), 0]


def solved(name: str) -> Callable[[Any, Any], Any]:
    scheme: dict[str, Callable[[Any], Any]] = {
        "hub": lambda q: otlp.Hub(q),
        "greedy": lambda q: otlp.Greedy(q, 2),
    }
    scheme["speculative-sampling"] = lambda q: otlp.IID(q, 1)
    scheme["random-ranks"] = lambda q: otlp.WithoutReplacement(q, 2)

    def solve(p: Any, q: Any) -> float:
        made = scheme.get(name, lambda q: otlp.IID(q, 2))(q)
        return otlp.solve(otlp.Problem(p, made), name).acceptance

    return solve


TAKE_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "as_distribution": lambda p, q: otlp.as_distribution(p),
    "softmax": lambda p, q: otlp.softmax(p, 0.5),
    "softmax of rows": lambda p, q: otlp.softmax([p, q]),
    "top_k": lambda p, q: top_k(p, 2),
    "top_p": lambda p, q: top_p(p, 0.5),
    "Problem": lambda p, q: otlp.Problem(p, otlp.IID(q, 2)).target,
    "IID": lambda p, q: otlp.IID(q, 2).draft,
    "Independent": lambda p, q: otlp.Independent([p, q]).drafts,
    "WithoutReplacement": lambda p, q: otlp.WithoutReplacement(q, 2).inclusion,
    "Greedy": lambda p, q: otlp.Greedy(q, 2).inclusion,
    "Hub": lambda p, q: otlp.Hub(q).inclusion,
    "Explicit": lambda p, q: otlp.Explicit([[0, 1], [1, 2], [2, 0]], q).inclusion,
    "optimal_acceptance": lambda p, q: otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, 2))),
    "solve_many": lambda p, q: (
        next(iter(otlp.solve_many([otlp.Problem(p, otlp.IID(q, 2))]))).acceptance
    ),
    "audit": lambda p, q: otlp.audit(first, p, otlp.IID(q, 2), reported_draft=q).output,
    "audit_rounds": lambda p, q: (
        otlp.audit_rounds(first_round, [p, [p, p, p]], [q], DraftedPaths(1, 1)).output
    ),
    "lp_arrays": lambda p, q: lp_arrays(otlp.Problem(p, otlp.IID(q, 2))).optimum,
    "Sampling": lambda p, q: decode.Sampling(0.5, 2).distributions([p, q]),
    "TabularModel": lambda p, q: np.asarray(decode.TabularModel([p, [p, q, p]]).tables[1]),
    **{f"solve with {name}": solved(name) for name in SOLVERS},
}
"""Functions of probabilities or logits with numerical results."""

BATCHED: dict[str, Callable[..., Any]] = {
    "softmax": lambda p, q, drawn: batched.softmax(p, 0.5),
    "acceptance": lambda p, q, drawn: batched.acceptance(p, q, drawn).acceptance,
    **{
        name: lambda p, q, drawn, name=name: getattr(batched, name)(
            p, q, drawn, torch.Generator().manual_seed(1)
        )[0]
        for name in (
            *("verify", "k_seq", "recursive_rejection"),
            "recursive_rejection_without_replacement",
        )
    },
    "sample": lambda p, q, drawn: batched.sample(q, 2, torch.Generator().manual_seed(1)),
    "sample_without_replacement": lambda p, q, drawn: batched.sample_without_replacement(
        q, 2, torch.Generator().manual_seed(1)
    ),
}

KINDS = {
    f"{str(dtype).removeprefix('torch.')}{', grad' * grad}": (dtype, grad)
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    for grad in (False, True)
}


def tensor(values: Any, kind: str) -> Any:
    dtype, grad = KINDS[kind]
    return torch.tensor(values, dtype=dtype, requires_grad=grad)


@pytest.mark.parametrize("name", TAKE_TWO)
@pytest.mark.usefixtures("few_repetitions")
def test_a_tensor_is_as_good_as_an_array(name: str) -> None:
    found = np.asarray(TAKE_TWO[name](np.asarray(P), np.asarray(Q)))
    for kind in KINDS:
        given = np.asarray(TAKE_TWO[name](tensor(P, kind), tensor(Q, kind)))
        assert given.dtype == np.float64, kind
        np.testing.assert_array_equal(given, found, err_msg=kind)


@pytest.mark.parametrize("name", BATCHED)
def test_batched_functions_take_every_kind(name: str) -> None:
    drawn = torch.tensor([[0, 1], [2, 0]])
    both = [[P, Q], [Q, P]]
    found = BATCHED[name](*(tensor(rows, "float32") for rows in both), drawn)
    for kind in KINDS:
        given = BATCHED[name](*(tensor(rows, kind) for rows in both), drawn)
        assert name == "softmax" or not given.requires_grad, kind
        torch.testing.assert_close(given.double(), found.double(), rtol=0.0, atol=1e-5, msg=kind)


def test_tokens_orders_and_subsets_may_be_tensors() -> None:
    problem = otlp.Problem(P, otlp.IID(Q, 2))
    inside, order = torch.tensor([True, False, True]), torch.tensor([2, 0, 1])
    assert problem.dual_value(inside) == problem.dual_value(inside.numpy())
    drafts = problem.drafts
    assert drafts.mass_touching(inside) == drafts.mass_touching(inside.numpy())
    assert (drafts.priority_marginals(order) == drafts.priority_marginals(order.numpy())).all()
    tuples = torch.tensor([[0, 1], [2, 2]])
    explicit = otlp.Explicit(tuples, torch.tensor([0.5, 0.5], dtype=torch.bfloat16))
    assert explicit.probability(tuples).tolist() == [0.5, 0.5]
    plan, tokens = otlp.solve(problem).plan, torch.tensor([0, 2])
    assert (plan.conditional(tokens) == plan.conditional([0, 2])).all()
    assert plan.accepted(2, tokens)


def test_rounding_is_within_the_tolerance_of_the_type_and_a_missing_token_is_not() -> None:
    rough = torch.softmax(torch.randn(1_000, generator=torch.Generator().manual_seed(0)), 0)
    assert otlp.as_distribution(rough.bfloat16()).sum() == pytest.approx(1.0, abs=1e-12)
    for wrong, words in (
        (
            torch.tensor([0.5, 0.25], dtype=torch.bfloat16),
            r"\(for torch\.bfloat16\), got",
        ),
        (torch.tensor([0.5, 0.5], dtype=torch.complex64), "complex"),
    ):
        with pytest.raises(otlp.errors.InvalidDistributionError, match=words):
            otlp.as_distribution(wrong)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("grad", [False, True])
def test_captures_take_logits_with_their_precision(tmp_path: Path, dtype: str, grad: bool) -> None:
    logits = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    logits = logits.to(getattr(torch, dtype)).requires_grad_(grad)
    capture = make(logits)
    assert capture.dtype == dtype
    assert np.array_equal(capture.target_logits, logits.detach().float().numpy())
    captures.save(capture, tmp_path / "capture")
    check_same(captures.load(tmp_path / "capture"), capture)
    if dtype == "bfloat16":
        with pytest.raises(InvalidInputError, match="same precision, got bfloat16 and float32"):
            make(logits, logits.float())


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_safetensors_package_reads_and_writes_captures(tmp_path: Path, dtype: str) -> None:
    from safetensors.torch import load_file, save_file

    capture = example(dtype=dtype)
    captures.save(capture, tmp_path / "ours")
    tensors = load_file(tmp_path / "ours")
    assert tensors["draft_logits"].dtype == getattr(torch, dtype)
    assert np.array_equal(tensors["draft_logits"].float().numpy(), capture.draft_logits)
    metadata = {**LABELS, "format": "otlp-capture-2", "synthetic": "false"}
    save_file(tensors, tmp_path / "theirs", metadata)
    check_same(captures.load(tmp_path / "theirs"), capture)
    del tensors["contexts"], tensors["context_ends"]
    simple = {"format": "otlp-capture-1", "contexts": json.dumps(capture.contexts)}
    save_file(tensors, tmp_path / "simple", metadata | simple)
    check_same(captures.load(tmp_path / "simple"), capture)
