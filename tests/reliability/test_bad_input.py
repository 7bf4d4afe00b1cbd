"""Every public function is given every wrong thing in place of each argument, one at a time.

It answers, or raises an error of the library; nothing else gets out.
"""

from __future__ import annotations

import inspect
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import otlp
from otlp.errors import OTLPError
from otlp.export import cvxpy_problem, lp_arrays
from otlp.sweeps.solve_many import Row
from otlp.sweeps.table import columns
from tests.reliability.wrong_values import BAD, FUNCTIONS, P, Q

Calls = dict[str, tuple[Callable[..., Any], dict[str, Any]]]

NOT_THERE = ("captures.load", "generate", "Statistics.read", "Statistics.check_pair")
"""Calls whose file or model does not exist."""

SECONDS = 20
"""After which a call is taken to hang."""


def numpy_calls() -> Calls:
    problem = otlp.Problem(P, otlp.IID(Q, 2))
    solution = otlp.solve(problem)
    assert solution.plan is not None
    plan, rng = solution.plan, np.random.default_rng(0)
    rows, folder = otlp.captures.builtin()[:1], Path(tempfile.mkdtemp())
    log = folder / "log"
    log.write_text('{"prompt_logprobs": [{"1": 0.0}]}')
    return {
        "IID": (otlp.IID, {"draft": Q, "n": 2}),
        "WithoutReplacement": (otlp.WithoutReplacement, {"draft": Q, "n": 2}),
        "Greedy": (otlp.Greedy, {"draft": Q, "n": 2}),
        "Hub": (otlp.Hub, {"draft": Q}),
        "Independent": (otlp.Independent, {"drafts": [Q, P]}),
        "Explicit": (
            otlp.Explicit,
            {"tuples": [[0, 1], [2, 0]], "probabilities": [0.5, 0.5], "vocab_size": 3},
        ),
        "Problem": (otlp.Problem, {"target": P, "drafts": otlp.IID(Q, 2)}),
        "as_distribution": (otlp.as_distribution, {"values": P, "name": "p"}),
        "softmax": (otlp.softmax, {"logits": P, "temperature": 1.0}),
        "solve": (otlp.solve, {"problem": problem, "solver": "auto", "throw": True}),
        "optimal_acceptance": (otlp.optimal_acceptance, {"problem": problem}),
        "audit": (
            otlp.audit,
            {
                "rule": plan, "target": P, "drafts": otlp.IID(Q, 2), "declared": otlp.IID(Q, 2),
                "reported_draft": Q, "samples": 1000, "false_alarm_rate": 1e-6, "confidence": 0.99,
                "tolerance": 1e-6, "max_paths": 1000, "rng": rng,
            },
        ),
        "synthetic.generate": (
            otlp.synthetic.generate, {"rows": 2, "vocab_size": 1000, "seed": 0},
        ),
        "solve_many": (
            lambda **arguments: list(otlp.solve_many(**arguments)),
            {
                "problems": [problem], "solver": "auto", "jobs": None, "chunk": 1,
                "progress": False, "plans": True,
            },
        ),
        "CaptureProblems": (
            otlp.CaptureProblems,
            {
                "capture": otlp.captures.builtin(), "rows": [0], "n": 2, "drafts": "iid",
                "temperature": 1.0, "draft_temperature": 1.0, "top_k": 2, "top_p": 0.9,
            },
        ),
        "SyntheticProblems": (
            otlp.SyntheticProblems, {"rows": 2, "vocab_size": 1000, "seed": 0, "n": 2},
        ),
        "captures.load": (otlp.captures.load, {"path": "nowhere"}),
        "captures.save": (
            partial(otlp.captures.save, path=folder / "one.safetensors"),
            {"capture": rows, "shard_bytes": None},
        ),
        "captures.keep_top": (otlp.captures.keep_top, {"capture": rows, "k": 2}),
        "captures.from_logprobs": (
            otlp.captures.from_logprobs,
            {"target": log, "draft": log, "k": 1, "vocab_size": 3, "target_model": "x"},
        ),
        "TopRows": (
            otlp.captures.TopRows,
            {"ids": [[0]], "logprobs": [[0.0]], "rest": [-np.inf], "vocab_size": 3},
        ),
        "capture.distributions": (
            rows.distributions,
            {"row": 0, "temperature": 1.0, "draft_temperature": 1.0, "top_k": 2, "top_p": 0.5},
        ),
        "top.truncation": (
            otlp.captures.keep_top(rows, 3).truncation,
            {"row": 0, "temperature": 2.0, "draft_temperature": 1.0, "top_k": 2, "top_p": 0.5},
        ),
        "plan.sample": (plan.sample, {"draft_tokens": [0, 1], "rng": rng}),
        "lp_arrays": (lp_arrays, {"problem": problem, "form": "full", "memory_limit": 10**6}),
        "cvxpy_problem": (cvxpy_problem, {"problem": problem, "form": "full"}),
        "columns": (columns, {"rows": [Row(0, solution)]}),
        "plan.conditional": (plan.conditional, {"draft_tokens": [0, 1]}),
    }  # fmt: skip


def solver_calls() -> Calls:
    """Every option of every solver."""
    several = [otlp.Problem(P, kind(Q, 2)) for kind in (otlp.WithoutReplacement, otlp.IID)]
    return {
        f"solve {name}, {option}": (otlp.solve, {"problem": one, "solver": name, option: value})
        for name in otlp.solvers.SOLVERS
        for option, value in options(name).items()
        for one in filter(otlp.solvers.make_solver(name).supports, several)
    }


def options(solver: str) -> dict[str, Any]:
    """The options of a solver with their defaults."""
    made = otlp.solvers.make_solver(solver)
    fields = getattr(made, "__dataclass_fields__", {})
    return {name: getattr(made, name) for name in fields if name != "name"}


def batched_calls() -> Calls:
    torch = pytest.importorskip("torch")
    from otlp import batched

    target, draft = torch.tensor([P, P]), torch.tensor([Q, Q])
    tokens, numbers = torch.tensor([[0, 1], [2, 1]]), torch.Generator().manual_seed(0)
    base = {"target": target, "draft": draft, "draft_tokens": tokens}
    calls: Calls = {
        name: (getattr(batched, name), {**base, "generator": numbers})
        for name in (
            "verify",
            "verify_histogram",
            "k_seq",
            "recursive_rejection",
            "recursive_rejection_without_replacement",
            "verify_without_replacement",
        )
    }
    for name in ("speculative_sampling",):
        calls[name] = (getattr(batched, name), {**base, "draft_tokens": tokens[:, :1]})
    for name in (
        "acceptance",
        "acceptance_histogram",
        "acceptance_without_replacement",
        "conditional",
    ):
        calls[name] = (getattr(batched, name), dict(base))
    for name in ("verify_histogram", "acceptance_histogram"):
        calls[name][1]["fraction_bits"] = 8
    calls["certified_loss"] = (batched.certified_loss, {"fraction_bits": 8})
    calls["sample"] = (batched.sample, {"probabilities": draft, "n": 2, "generator": numbers})
    calls["sample_without_replacement"] = (
        batched.sample_without_replacement,
        {"probabilities": draft, "n": 2, "generator": numbers},
    )
    calls["softmax"] = (batched.softmax, {"logits": draft, "temperature": 1.0})
    calls["uniforms"] = (batched.uniforms, {"draft_tokens": tokens, "generator": numbers})
    paths = {
        "target": target[0].expand(2, 2, 3, 3), "draft": draft[0].expand(2, 2, 2, 3),
        "draft_tokens": torch.zeros((2, 2, 2), dtype=torch.int64), "generator": numbers,
    }  # fmt: skip
    calls["verify_paths"] = (batched.verify_paths, paths)
    shape = batched.TreeShape(torch.tensor([[-1, 0, 0, 1]] * 2))
    trees = {
        "target": target[:, None].expand(2, 4, 3), "draft": draft[:, None].expand(2, 4, 3),
        "draft_tokens": torch.tensor([[-1, 0, 0, 2]] * 2), "shape": shape, "generator": numbers,
        "nodes": torch.tensor([[0, 1, 1, 2]] * 2),
    }  # fmt: skip
    calls["verify_tree"] = (batched.verify_tree, trees)
    calls["TreeShape"] = (
        batched.TreeShape,
        {"parents": shape.parents, "certain": shape.parents > 9, "last": shape.parents > 9},
    )
    law = batched.BatchedScoreLaw(*(torch.ones((2, 1), dtype=torch.float64),) * 4)
    calls["two_slice_step"] = (
        batched.two_slice_step, {"law": law, "target": target, "draft": draft, "paths": 2},
    )  # fmt: skip
    return calls


def decode_calls() -> Calls:
    pytest.importorskip("torch")
    from otlp import decode
    from otlp.decode.laws.information_lp import on_path_optimum, on_tree_optimum
    from otlp.decode.laws.prefix_laws import prefix_law
    from otlp.decode.laws.round_laws import round_law

    rng = np.random.default_rng(0)
    draft, target = decode.random_pair(3, 4, rng)
    drafting, block = decode.iid_paths(1, 2), decode.Block()
    return {
        "check_pair": (decode.check_pair, {"draft": draft, "target": target}),
        "check_round": (
            decode.check_round,
            {"draft": draft, "target": target, "drafting": drafting, "verification": block},
        ),
        "find_verification": (decode.find_verification, {"wanted": "block"}),
        "ShapedDrafting": (decode.ShapedDrafting, {"shape": (-1, 0), "kind": "iid"}),
        "RandomChooser": (decode.RandomChooser, {"rng": rng}),
        "Sampling": (decode.Sampling, {"temperature": 1.0, "top_k": 2, "top_p": 0.9}),
        "Mixture": (decode.Mixture, {"models": [draft, target], "weights": [0.5, 0.5]}),
        "NGram": (decode.NGram, {"vocab_size": 3, "order": 2, "corpus": [0, 1, 2]}),
        "PromptLookup": (decode.PromptLookup, {"vocab_size": 3, "longest": 2}),
        "TabularModel": (decode.TabularModel, {"tables": [P, [P, P, P]], "name": "x"}),
        "TopDown": (decode.TopDown, {"solver": "auto", "fallback": None}),
        "generate": (decode.generate, {"model": target, "input_ids": [[0]], "draft_model": draft}),
        "greedy_distribution": (decode.greedy_distribution, {"q": np.array(P)}),
        "hub_pairs": (decode.hub_pairs, {"length": 1}),
        "iid_paths": (decode.iid_paths, {"paths": 2, "length": 2}),
        "without_replacement": (decode.without_replacement, {"branching": [2]}),
        "prefix_tree": (decode.prefix_tree, {"branching": [2]}),
        "tree_shape": (decode.tree_shape, {"parents": [-1, 0], "kind": "iid"}),
        "mixed_tree": (decode.mixed_tree, {"branching": [(1, 1)]}),
        "mixed_shape": (decode.mixed_shape, {"shape": ((((), ()),), ())}),
        **design_calls(),
        **cascade_calls(draft, target),
        "Sampling.distributions": (
            decode.Sampling(0.7, 2, 0.9).distributions, {"logits": np.ones((1, 3))},
        ),
        "greedy sampling": (decode.Sampling(0.0).distributions, {"logits": np.ones((1, 3))}),
        **{
            law.__name__: (
                law,
                {"draft": draft, "target": target, "drafting": drafting, "verification": block},
            )
            for law in (round_law, prefix_law)
        },
        "TabularModel.distribution": (target.distribution, {"prefix": [1]}),
        "TabularModel.joint": (target.joint, {"length": 2}),
        "TabularModel.start": (target.start, {"context": [1]}),
        "adaptive_depth": (decode.adaptive_depth, {"paths": 2, "length": 2, "threshold": 0.5}),
        "adaptive_branching": (
            decode.adaptive_branching, {"nodes": 4, "length": 2, "coverage": 0.5},
        ),
        "top_tree": (decode.top_tree, {"nodes": 4, "length": 2, "width": 2}),
        "RuledDrafting": (decode.RuledDrafting, {"rule": decode.mixed_tree([(1, 1)]).rule}),
        "multipath_optimum": (
            decode.multipath_optimum,
            {"draft": draft, "target": target, "paths": 2, "length": 2, "rounds": 100},
        ),
        "on_tree_optimum": (
            on_tree_optimum,
            {"pairs": [(draft, target)], "drafting": drafting, "weights": [1.0]},
        ),
        "on_path_optimum": (
            on_path_optimum,
            {"pairs": [(draft, target)], "paths": 2, "length": 2, "cells": 2, "weights": [1.0]},
        ),
        "play_round": (
            decode.play_round,
            {
                "draft": draft, "target": target, "drafting": drafting, "verification": block,
                "rng": rng, "transform": None,
            },
        ),
        "random_pair": (
            decode.random_pair,
            {"vocab_size": 3, "length": 2, "rng": rng, "spread": 1.5, "noise": 1.0},
        ),
    }  # fmt: skip


def cascade_calls(draft: Any, target: Any) -> Calls:
    from otlp.decode import RandomChooser, cascades

    chow, token = cascades.Chow(0.1), cascades.TokenV1(0.1)
    kinds = {
        chow: (cascades.Cascade, cascades.GreedyCascade),
        token: (cascades.TokenCascade, cascades.GreedyTokenCascade),
    }
    return {
        "Lossy": (cascades.Lossy, {"alpha": 0.1, "beta": 1.0}),
        "sequential_cascade": (
            cascades.sequential_cascade,
            {
                "draft": draft, "target": target, "rule": chow, "context": [], "length": 2,
                "chooser": RandomChooser(np.random.default_rng(0)),
            },
        ),
        **{name: (rule, {"alpha": 0.1}) for name, rule in cascades.RULES.items()},
        **{one.__name__: (one, {"rule": rule}) for rule in kinds for one in kinds[rule]},
    }  # fmt: skip


def design_calls() -> Calls:
    from otlp.decode import Sampling
    from otlp.decode import design as room

    text = room.WrittenText(np.zeros(4, dtype=int), np.tile(P, (4, 1)), np.tile(Q, (4, 1)))
    names: dict[str, Any] = {"draft": "d", "target": "t", "sampling": Sampling()}
    known = room.gather_statistics([text], **names, budgets=(1,), length=1)
    return {
        "WrittenText": (
            room.WrittenText, {"tokens": [0], "targets": np.array([P]), "drafts": np.array([Q])},
        ),
        "tournament_profile": (
            room.tournament_profile,
            {"text": text, "drafting": known.candidates[0].drafting, "length": 2},
        ),
        "gather_statistics": (
            room.gather_statistics, {"texts": [text], **names, "budgets": (1,), "length": 1},
        ),
        "design": (
            room.design,
            {"statistics": known, "nodes": 1, "costs": None, "families": ["paths"], "pair": None},
        ),
        "CostCurve": (room.CostCurve, {"target_seconds": (1.0, 2.0), "draft_seconds": 0.1}),
        "Statistics.from_json": (room.Statistics.from_json, {"text": known.to_json()}),
        "Statistics.read": (room.Statistics.read, {"path": "nowhere"}),
        "Statistics.check_pair": (known.check_pair, {"draft": 1, "target": 2}),
        "best_static_tree": (
            room.best_static_tree, {"acceptance": [0.5], "nodes": 2, "depth": 2},
        ),
    }  # fmt: skip


HOOKS = frozenset(
    {"answer", "write", "divide", "system", "flow", "run"}  # of a solver, by `solve` and `prepare`
    # of a plan, by its `sample` and `sample_many`
    | {"select", "select_many", "selection", "scores", "realised_selection_distribution"}
    | {"selection_order"}  # of a scheme, by `subset_selection`
)
"""What a method writes for its base class, which calls it with what it has checked."""


MANY = frozenset({"sample_many", "possible_each", "check_draft_tuples"})
"""Methods that take a tuple a row."""


def method_calls() -> Calls:
    """Every public method of schemes, problems, plans, solvers and captures."""
    rng = np.random.default_rng(0)
    iid = otlp.Problem(P, otlp.IID(Q, 2))
    problems = [
        iid,
        *(otlp.Problem(P, kind(Q, 2)) for kind in (otlp.WithoutReplacement, otlp.Greedy)),
        otlp.Problem(P, otlp.Hub(Q)),
        otlp.Problem(P, otlp.IID(Q, 1)),
        otlp.Problem(P, otlp.Independent([Q, P])),
        otlp.Problem(P, otlp.Explicit([[0, 1], [2, 0]], [0.5, 0.5], 3)),
    ]
    objects: list[Any] = [otlp.synthetic.generate(2, 1000, seed=0), *problems]
    objects += [problem.drafts for problem in problems]
    for name in otlp.solvers.SOLVERS:
        solver = otlp.solvers.make_solver(name)
        objects.append(solver)
        for problem in problems:
            if solver.supports(problem):
                objects += [solver.solve(problem).plan, solver.prepare(problem)]
    right = {
        "draft_tokens": [0, 1], "drawn": [0], "tokens": [0, 1, 2], "token": 0, "vocab_size": 3,
        "subset": [True, False, True], "order": [0, 2, 1], "target": P, "problem": iid,
        "rng": rng, "size": 3, "k": 2, "n": 2, "row": 0, "temperature": 1.0, "top_k": 2,
        "draft_temperature": 0.5, "top_p": 0.9, "memory_limit": 10**6,
        "shares": [1.0, 1.0, 1.0],
    }  # fmt: skip
    calls: Calls = {}
    for found in objects:
        for name, _ in inspect.getmembers(type(found), inspect.isfunction):
            method = getattr(found, name)
            what = f"{type(found).__name__}.{method.__qualname__}"
            if name.startswith("_") or name in HOOKS or what in calls:
                continue
            arguments = {
                key: right[key]
                for key, parameter in inspect.signature(method).parameters.items()
                if key in right or parameter.default is parameter.empty
            }
            if isinstance(found, otlp.Solver) and "problem" in arguments:
                arguments["problem"] = next(filter(found.supports, problems))
            one = getattr(getattr(found, "problem", None), "n", getattr(found, "n", 2)) == 1
            if one and "draft_tokens" in arguments:
                arguments["draft_tokens"] = [0]
            if name in MANY:
                arguments["draft_tokens"] = [arguments["draft_tokens"]]
            calls[what] = (method, arguments)
    return calls


ROOMS = [numpy_calls, solver_calls, method_calls, batched_calls, decode_calls]


def wrong(calls: Calls) -> Iterator[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """Each call with each argument replaced by each bad value."""
    for name, (function, arguments) in calls.items():
        for argument in arguments:
            for number, bad in enumerate(BAD):
                if argument in FUNCTIONS and callable(bad):
                    continue
                what = f"{name}({argument} = BAD[{number}], {type(bad).__name__})"
                yield what, function, {**arguments, argument: bad}


def hangs(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("it hangs")


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_no_function_ends_in_a_raw_error(room: Callable[[], Calls]) -> None:
    raw: list[str] = []
    count = 0
    before = signal.signal(signal.SIGALRM, hangs)
    try:
        for what, function, arguments in wrong(room()):
            count += 1
            signal.alarm(SECONDS)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    function(**arguments)
            except OTLPError as error:
                if not str(error):
                    raw.append(f"{what}: no message")
            except BaseException as error:
                raw.append(f"{what}: {type(error).__name__}: {str(error)[:90]}")
            signal.alarm(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    print(f"{count} bad calls of {room.__name__}")
    assert not raw, "\n".join([f"{len(raw)} of {count}:", *raw])


@pytest.mark.parametrize("room", ROOMS)
def test_the_calls_are_right_before_they_are_wrong(room: Callable[[], Calls]) -> None:
    """Or the sweep would test the same refusal again and again."""
    for name, (function, arguments) in room().items():
        if name in NOT_THERE:
            continue
        function(**arguments)
