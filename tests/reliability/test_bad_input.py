"""Every public function is called with each wrong value for each argument, one at a time.

The call must return or raise an error of the library.
"""

from __future__ import annotations

import inspect
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import otlp
from otlp.auditing import AuditSettings
from otlp.errors import OTLPError
from otlp.export import cvxpy_problem, lp_arrays
from otlp.parallel.solve_many import Row
from otlp.parallel.table import columns

Calls = list[partial[Any]]
"""Valid calls, with arguments by name."""

P, Q = [0.2, 0.3, 0.5], [0.5, 0.3, 0.2]
BAD: list[Any] = [
    None, "x", "", b"x", [], (), {}, object(), 1.5, 0, -1, True, 2**63, 2**70, 10**400, 1e400,
    float("nan"), 1e-320, 2 + 1j, [0.0, 1.0], [None, 0], ["0", "1"], [[0, 1], [0]], [[0.5], [0.5]],
    np.ma.array([0.5, 0.5], mask=[0, 1]), np.array([0, 1j]), np.array([True, False]),
    np.zeros((0, 2)), np.zeros((2, 0)), np.zeros(()), np.array([0.5, 0.5]), np.array([[0, 1]]),
    np.array([1, 2], dtype="datetime64[s]"), np.zeros(3, dtype=[("a", float)]), {0, 1}, [0, 2**70],
    np.array(["a"], dtype=object), np.float32(0.5), np.int8(-3), range(3), lambda: 0, len, int,
    [1e308, 1e308], [-1.0, 2.0], [0.0, 0.0], [0.5, 10**400], (0.5, 0.5), otlp, otlp.IID,
    otlp.IID(Q, 2), otlp.Problem(P, otlp.IID(Q, 2)), np.random.default_rng(0), np.void(b"ab"),
    [1, "b"], [[1], [2, 3]], [[0, 1], [2, -1]], [True] * 3, np.zeros(3), np.zeros((2, 2), complex),
    float("inf"),
]  # fmt: skip
FUNCTIONS = frozenset({"choose", "kind", "rule", "transform"})
"""Arguments that may be functions of the caller, whose errors propagate."""

NOT_THERE = ("captures.load", "generating.generate", "JsonFile.read")
"""Calls whose file or model does not exist."""

SECONDS = 20
"""Seconds after which a call counts as hanging."""


def numpy_calls() -> Calls:
    problem = otlp.Problem(P, otlp.IID(Q, 2))
    solution = otlp.solve(problem)
    plan, rng = solution.plan, np.random.default_rng(0)
    return [
        partial(otlp.IID, draft=Q, n=2),
        partial(otlp.WithoutReplacement, draft=Q, n=2),
        partial(otlp.Greedy, draft=Q, n=2),
        partial(otlp.Hub, draft=Q),
        partial(otlp.Independent, drafts=[Q, P]),
        partial(otlp.Explicit, tuples=[[0, 1], [2, 0]], probabilities=[0.5, 0.5], vocab_size=3),
        partial(otlp.Problem, target=P, drafts=otlp.IID(Q, 2)),
        partial(otlp.as_distribution, values=P, name="p"),
        partial(otlp.softmax, logits=P, temperature=1.0),
        partial(otlp.solve, problem=problem, solver="auto", throw=True),
        partial(otlp.optimal_acceptance, problem=problem),
        partial(
            otlp.audit,
            rule=plan, target=P, drafts=otlp.IID(Q, 2), declared=otlp.IID(Q, 2), reported_draft=Q,
            settings=AuditSettings(samples=1000, max_paths=1000), rng=rng,
        ),
        partial(
            AuditSettings,
            samples=1000, false_alarm_rate=1e-6, confidence=0.99, tolerance=1e-6, max_paths=1000,
        ),
        partial(otlp.synthetic.generate, rows=2, vocab_size=1000, seed=0),
        partial(
            lambda **arguments: list(otlp.solve_many(**arguments)),
            problems=[problem], solver="auto", jobs=None, chunk=1, progress=False, plans=True,
        ),
        partial(
            otlp.CaptureProblems,
            capture=otlp.captures.builtin(), rows=[0], n=2, drafts="iid", **CUTS,
        ),
        partial(otlp.SyntheticProblems, rows=2, vocab_size=1000, seed=0, n=2),
        *capture_calls(),
        partial(plan.sample, draft_tokens=[0, 1], rng=rng),
        partial(lp_arrays, problem=problem, form="full", memory_limit=10**6),
        partial(cvxpy_problem, problem=problem, form="full"),
        partial(columns, rows=[Row(0, solution)]),
        partial(plan.conditional, draft_tokens=[0, 1]),
    ]  # fmt: skip


CUTS = {"temperature": 2.0, "draft_temperature": 1.0, "top_k": 2, "top_p": 0.5}
"""Operations on a row of a capture."""


def capture_calls() -> Calls:
    rows, path = otlp.synthetic.generate(1, 1000), Path(tempfile.mkdtemp()) / "one.safetensors"
    return [
        partial(otlp.captures.load, path="nowhere"),
        partial(lambda capture: otlp.captures.save(capture, path), capture=rows),
        partial(otlp.captures.keep_top, capture=rows, k=2),
        partial(otlp.captures.TopRows, ids=[[0]], logprobs=[[0.0]], rest=[-np.inf], vocab_size=3),
        partial(rows.distributions, row=0, **CUTS),
        partial(otlp.captures.keep_top(rows, 3).truncation, row=0, **CUTS),
    ]


def solver_calls() -> Calls:
    """Return calls with every option of every solver."""
    several = [otlp.Problem(P, kind(Q, 2)) for kind in (otlp.WithoutReplacement, otlp.IID)]
    return [
        partial(otlp.solve, problem=one, solver=name, **{option: value})
        for name in otlp.solvers.SOLVERS
        for option, value in options(name).items()
        for one in filter(otlp.solvers.make_solver(name).supports, several)
    ]


def options(solver: str) -> dict[str, Any]:
    """Return the options of a solver with their defaults."""
    made = otlp.solvers.make_solver(solver)
    own = fields(made) if is_dataclass(made) else ()
    return {field.name: getattr(made, field.name) for field in own}


def batched_calls() -> Calls:
    torch = pytest.importorskip("torch")
    from otlp import batched

    target, draft = torch.tensor([P, P]), torch.tensor([Q, Q])
    tokens, numbers = torch.tensor([[0, 1], [2, 1]]), torch.Generator().manual_seed(0)
    base = {"target": target, "draft": draft, "draft_tokens": tokens}
    rules = ("verify", "k_seq", "recursive_rejection", "recursive_rejection_without_replacement")
    return [
        partial(batched.acceptance, **base),
        *(partial(getattr(batched, rule), **base, generator=numbers) for rule in rules),
        partial(
            batched.speculative_sampling,
            target=target, draft=draft, draft_tokens=tokens[:, :1], generator=numbers,
        ),
        partial(batched.sample, probabilities=draft, n=2, generator=numbers),
        partial(batched.sample_without_replacement, probabilities=draft, n=2, generator=numbers),
        partial(batched.softmax, logits=draft, temperature=1.0),
        partial(batched.uniforms, draft_tokens=tokens, generator=numbers),
        partial(
            batched.verify_paths,
            target=target[0].expand(2, 2, 3, 3), draft=draft[0].expand(2, 2, 2, 3),
            draft_tokens=torch.zeros((2, 2, 2), dtype=torch.int64), generator=numbers,
        ),
    ]  # fmt: skip


def decode_calls() -> Calls:
    pytest.importorskip("torch")
    from otlp import decode
    from otlp.decode.laws.round_laws import round_law
    from otlp_lab.design.adaptive import adaptive_branching, adaptive_depth
    from otlp_lab.design.mixed_nodes import mixed_shape
    from otlp_lab.generation import generate
    from otlp_lab.laws.prefix_laws import prefix_law

    rng = np.random.default_rng(0)
    draft, target = decode.random_pair(3, 4, rng)
    drafting = decode.iid_paths(1, 2)
    play: dict[str, Any] = {"draft": draft, "target": target, "drafting": drafting}
    play["verification"] = decode.Block()
    return [
        partial(decode.check_pair, draft=draft, target=target),
        *(partial(law, **play) for law in (decode.check_round, round_law, prefix_law)),
        partial(decode.find_verification, wanted="block"),
        partial(decode.ShapedDrafting, shape=(-1, 0), kind="iid"),
        partial(decode.RandomChooser, rng=rng),
        partial(decode.Sampling, temperature=1.0, top_k=2, top_p=0.9),
        partial(decode.Mixture, models=[draft, target], weights=[0.5, 0.5]),
        partial(decode.NGram, vocab_size=3, order=2, corpus=[0, 1, 2]),
        partial(decode.PromptLookup, vocab_size=3, longest=2),
        partial(decode.TabularModel, tables=[P, [P, P, P]], name="x"),
        partial(decode.TopDown, solver="auto", fallback=None),
        partial(generate, model=target, input_ids=[[0]], draft_model=draft),
        partial(decode.hub_pairs, length=1),
        partial(decode.iid_paths, paths=2, length=2),
        partial(decode.without_replacement, branching=[2]),
        partial(decode.prefix_tree, branching=[2]),
        partial(decode.tree_shape, parents=[-1, 0], kind="iid"),
        partial(decode.mixed_tree, branching=[(1, 1)]),
        partial(mixed_shape, shape=((((), ()),), ())),
        *design_calls(),
        *cascade_calls(),
        partial(decode.Sampling(0.7, 2, 0.9).distributions, logits=np.ones((1, 3))),
        partial(decode.Sampling(0.0).distributions, logits=np.ones((1, 3))),
        partial(target.distribution, prefix=[1]),
        partial(target.joint, length=2),
        partial(target.start, context=[1]),
        partial(adaptive_depth, paths=2, length=2, threshold=0.5),
        partial(adaptive_branching, nodes=4, length=2, coverage=0.5),
        partial(decode.top_tree, nodes=4, length=2, width=2),
        partial(decode.RuledDrafting, rule=decode.mixed_tree([(1, 1)]).rule),
        partial(decode.multipath_optimum, draft=draft, target=target, paths=2, length=2),
        partial(decode.play_round, **play, rng=rng, transform=None),
        partial(decode.random_pair, vocab_size=3, length=2, rng=rng, spread=1.5, noise=1.0),
    ]


def cascade_calls() -> Calls:
    from otlp.decode import cascades, random_pair
    from otlp_lab import cascade_baselines as baselines

    chow, token = cascades.Chow(0.1), cascades.TokenV1(0.1)
    little = cascades.BigLittle(cascades.BiLD(1.0), 0.5)
    draft, target = random_pair(3, 3, np.random.default_rng(0))
    play: dict[str, Any] = {"draft": draft, "target": target, "context": [], "tokens": 2}
    play["choose"] = np.argmax
    return [
        partial(baselines.sequential_cascade, **play, rule=chow),
        partial(baselines.sequence_cascade, **play, alpha=0.1),
        partial(baselines.big_little_decoding, **play, rule=little, most=2),
        partial(cascades.BigLittle, rollback=cascades.BiLD(1.0), fallback=0.5),
        partial(cascades.Lossy, alpha=0.1, beta=1.0),
        *(partial(rule, alpha=0.1) for rule in cascades.RULES.values()),
        *(partial(one, rule=chow) for one in (cascades.Cascade, cascades.GreedyCascade)),
        *(partial(one, rule=token) for one in (cascades.TokenCascade, cascades.GreedyTokenCascade)),
    ]


def design_calls() -> Calls:
    from otlp.decode import Sampling
    from otlp_lab import design as room

    text = room.WrittenText(np.zeros(4, dtype=int), np.tile(P, (4, 1)), np.tile(Q, (4, 1)))
    names: dict[str, Any] = {"draft": "d", "target": "t", "sampling": Sampling()}
    known = room.gather_statistics([text], **names, budgets=(1,), length=1)
    drafting = known.candidates[0].drafting
    return [
        partial(room.WrittenText, tokens=[0], targets=np.array([P]), drafts=np.array([Q])),
        partial(room.tournament_profile, text=text, drafting=drafting, length=2),
        partial(room.gather_statistics, texts=[text], **names, budgets=(1,), length=1),
        partial(room.design, statistics=known, nodes=1, costs=None, families=["paths"]),
        partial(room.CostCurve, target_seconds=(1.0, 2.0), draft_seconds=0.1),
        partial(room.Statistics.from_json, text=known.to_json()),
        partial(room.Statistics.read, path="nowhere"),
        partial(known.check_models, target="t", draft="d", sampling=Sampling()),
        partial(room.best_static_tree, acceptance=[0.5], nodes=2, depth=2),
    ]


HOOKS = frozenset(
    {"answer", "write", "divide", "system", "flow", "run"}  # for solvers: `solve` and `prepare`
    # for plans: `sample` and `sample_many`
    | {"select", "select_many", "selection", "realised_selection_distribution"}
    | {"best_subset"}  # for schemes: `subset_selection`
)
"""Methods called by the base class with checked arguments."""


MANY = frozenset({"sample_many", "check_draft_tuples"})
"""Methods that accept one tuple per row."""


def method_calls() -> Calls:
    """Return calls of every public method of schemes, problems, plans, solvers and captures."""
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
    }  # fmt: skip
    calls: dict[str, partial[Any]] = {}
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
            calls[what] = partial(method, **arguments)
    return [*calls.values()]


ROOMS = [numpy_calls, solver_calls, method_calls, batched_calls, decode_calls]


def name_of(call: partial[Any]) -> str:
    return f"{call.func.__module__}.{call.func.__qualname__}"


def wrong(calls: Calls) -> Iterator[tuple[str, partial[Any]]]:
    """Return each call with each argument replaced by each bad value."""
    for call in calls:
        for argument in call.keywords:
            for number, bad in enumerate(BAD):
                if argument in FUNCTIONS and callable(bad):
                    continue
                what = f"{name_of(call)}({argument} = BAD[{number}], {type(bad).__name__})"
                yield what, partial(call, **{argument: bad})


def hangs(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("it hangs")


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_no_function_ends_in_a_raw_error(room: Callable[[], Calls]) -> None:
    raw: list[str] = []
    count = 0
    before = signal.signal(signal.SIGALRM, hangs)
    try:
        for what, call in wrong(room()):
            count += 1
            signal.alarm(SECONDS)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    call()
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
    """Otherwise all wrong calls would test the same refusal."""
    for call in room():
        if not name_of(call).endswith(NOT_THERE):
            call()
