"""Checks of optimum, certificate, conditionals, samples, copies and refusals."""

from __future__ import annotations

import copy
import pickle
import time

import numpy as np
import numpy.typing as npt

import otlp
from otlp.solvers import make_solver
from tests.fuzz.batched import check_batched
from tests.fuzz.instance import Instance
from tests.fuzz.oracle import MOST_TOKENS, Truth, truth
from tests.fuzz.wrong import Wrong, expect
from tests.instances import exact_solvers

FloatArray = npt.NDArray[np.float64]

LOSSLESS = 1e-9
OPTIMAL = 1e-6
ROUNDING = 1e-12
UNDERFLOW = 1e-300
"""Plans that list tuples may omit less likely tuples, and must then raise ZeroProbabilityError."""

SECONDS = 60.0
"""Maximum time of a solve, in seconds; instances need far less."""

MOST_CONDITIONALS = 200


def check(instance: Instance) -> str:
    """Check an instance, and return the outcome: "solved", "unsupported", ...

    Raises
    ------
    Wrong
        If a check fails.
    """
    try:
        if instance.solver.startswith("batched."):
            return check_batched(instance)
        return _check(instance)
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"raised {type(error).__name__}", str(error)) from error


def _check(instance: Instance) -> str:
    true = truth(instance)
    rng = np.random.default_rng(instance.seed)
    try:
        problem = instance.problem()
    except otlp.errors.InvalidInputError as error:
        expect(isinstance(true, str), "refused a valid problem", str(error))
        return "refused input"
    if isinstance(true, str):
        raise Wrong("took an invalid problem", true)
    np.testing.assert_allclose(problem.target, true.target, rtol=1e-14, atol=0.0)
    if true.tuples is not None and rng.random() < 0.25:
        check_scheme(problem.drafts, true, rng)
    solver = make_solver(instance.solver, **instance.options)
    capability = solver.supports(problem)
    if not capability:
        return _check_refusal(problem, solver, capability.reason)
    began = time.process_time()
    solution = otlp.solve(problem, solver, throw=False)
    seconds = time.process_time() - began - solution.timings.load
    expect(seconds < SECONDS, "took too long", f"{seconds:.1f} s")
    check_certificate(instance, problem, solution, true)
    if true.tuples is not None and true.target.size <= MOST_TOKENS and rng.random() < 0.5:
        program = true.linear_program()
        expect(abs(program - true.optimum) <= OPTIMAL, "oracle", f"{program!r}, {true.optimum!r}")
    if solution.plan is None:
        return solution.status.name.lower()
    check_plan(solution, true, rng)
    if rng.random() < 0.1:
        check_copies(solution, true)
    return "solved"


def _check_refusal(problem: otlp.Problem, solver: otlp.Solver, reason: str) -> str:
    expect(len(reason) > 20, "refused without a reason", repr(reason))
    try:
        otlp.solve(problem, solver)
    except otlp.errors.UnsupportedProblemError as error:
        expect(reason in str(error), "refused for another reason", f"{error} / {reason}")
        return "unsupported"
    raise Wrong("solved what it does not support", reason)


def check_certificate(
    instance: Instance, problem: otlp.Problem, solution: otlp.Solution, true: Truth
) -> None:
    """Compare value, bound and guarantee with the truth."""
    summary, optimum = str(solution), true.optimum
    exact = LOSSLESS if true.target.size <= MOST_TOKENS else OPTIMAL
    expect(solution.status is not otlp.Status.CERTIFICATE_FAILED, "certificate failed", summary)
    bound = solution.upper_bound
    expect(bound >= optimum - exact, "upper bound too low", f"{bound!r} < {optimum!r}")
    if solution.subset is not None:
        expect(solution.subset.shape == problem.target.shape, "subset of the wrong shape", summary)
        own = true.bound(solution.subset)
        holds = abs(own - bound) <= 1e-10
        expect(holds, "upper bound is not that of the subset", f"{bound!r}, not {own!r}")
    _check_promise(instance, solution, optimum)
    if solution.plan is None:
        expect(solution.guarantee is otlp.Guarantee.NONE, "guarantee without a plan", summary)
        return
    low, high = solution.acceptance_interval
    within = low - 1e-12 <= solution.acceptance <= high + 1e-12
    expect(within, "acceptance outside of its interval", f"{solution.acceptance!r}, {low!r}")
    compared = f"{solution.acceptance!r}, {optimum!r}"
    possible = low <= optimum + exact or solution.marginal_error > LOSSLESS
    expect(possible, "acceptance above the optimum", compared)
    if solution.guarantee is otlp.Guarantee.OPTIMAL:
        reached = solution.acceptance >= optimum - OPTIMAL - exact
        expect(reached, "called optimal and is not", compared)
    if solution.guarantee >= otlp.Guarantee.LOSSLESS:
        expect(solution.marginal_error <= LOSSLESS, "called lossless and is not", summary)


def _check_promise(instance: Instance, solution: otlp.Solution, optimum: float) -> None:
    """Check the promises of each solver."""
    name, summary, options = instance.solver, f"{solution} {solution.message}", instance.options
    reached = solution.guarantee
    if solution.status is otlp.Status.TIME_LIMIT and "time_limit" in options:
        return
    if name == "orderings":
        gap = options.get("gap", OPTIMAL)
        expect(reached >= otlp.Guarantee.LOSSLESS, "orderings lost the law", summary)
        limited = options.get("max_iterations", 1000) < 1000 or gap < 1e-11
        expect(limited or solution.gap <= gap + LOSSLESS, "orderings stopped early", summary)
    elif name in exact_solvers():
        expect(reached is otlp.Guarantee.OPTIMAL, "an exact solver did not solve", summary)
    elif name == "global-resolution":
        tau = options.get("tau", 1e-3)
        if solution.plan is None:
            return
        if options.get("plan") == "published":
            # Lemma 6.6 of the paper
            expect(solution.marginal_error <= 15 * tau + LOSSLESS, "published plan off", summary)
        else:
            expect(reached >= otlp.Guarantee.LOSSLESS, "global resolution lost the law", summary)
            expect(optimum - solution.acceptance <= 15 * tau + OPTIMAL, "beyond tau", summary)
    else:
        expect(reached >= otlp.Guarantee.LOSSLESS, "a rule lost the law", summary)


def check_plan(solution: otlp.Solution, true: Truth, rng: np.random.Generator) -> None:
    """Enumerate the conditionals; check them and the certified output and acceptance."""
    plan = solution.plan
    if true.tuples is None:
        tokens = plan.problem.drafts.sample(rng, 4)
    else:
        tokens = true.tokens
    if len(tokens) > MOST_CONDITIONALS:
        tokens = tokens[rng.choice(len(tokens), MOST_CONDITIONALS, replace=False)]
    rows = [_conditional(plan, row, true) for row in tokens]
    kept = np.array([row is not None for row in rows])
    tokens, conditionals = tokens[kept], np.array([row for row in rows if row is not None])
    shape = (len(tokens), true.target.size)
    expect(conditionals.shape == shape, "conditionals of the wrong shape", f"{shape}")
    expect(bool(np.isfinite(conditionals).all()), "conditionals not finite", "")
    expect(float(conditionals.min()) >= 0.0, "a conditional is negative", f"{conditionals.min()!r}")
    off = float(np.abs(conditionals.sum(axis=1) - 1.0).max())
    expect(off <= LOSSLESS, "a conditional does not sum to one", f"off by {off:.3g}")
    for place in rng.integers(len(tokens), size=3):
        row = tokens[place].tolist()
        token = plan.sample(row, rng)
        drawn = f"tuple {row}, token {token}"
        expect(conditionals[place, token] > 0.0, "sampled a token of conditional 0", drawn)
        expect(plan.accepted(token, row) == (token in row), "accepted is wrong", drawn)
    if true.tuples is None or len(kept) < len(true.mass):
        return
    mass = true.mass[kept]
    error = float(np.abs(mass @ conditionals - true.target).sum())
    summary = f"enumerated {error:.3g}, certified {solution.marginal_error:.3g}"
    certified = max(solution.marginal_error, LOSSLESS) + ROUNDING
    expect(error <= certified, "the output is not the target", summary)
    accepted = np.where(true.drafted[kept], mass[:, None] * conditionals, 0.0).sum(axis=0)
    acceptance = float(accepted.sum())
    low, high = solution.acceptance_interval
    summary = f"enumerated {acceptance!r}, certified {solution.acceptance_interval!r}"
    within = low - LOSSLESS <= acceptance <= high + LOSSLESS
    expect(within, "another acceptance than certified", summary)
    if low < high:
        return
    worst = float(np.abs(accepted - plan.marginals().acceptance).max())
    expect(worst <= LOSSLESS, "acceptance vector wrong", f"off by {worst:.3g}")


def _conditional(plan: otlp.Plan, row: npt.NDArray[np.int64], true: Truth) -> FloatArray | None:
    """Return a conditional; None if a plan that lists tuples reports an underflow."""
    try:
        return plan.conditional(row)
    except otlp.errors.ZeroProbabilityError:
        if true.tuples is not None and true.tuples[tuple(row.tolist())] > UNDERFLOW:
            raise
        return None


def check_copies(solution: otlp.Solution, true: Truth) -> None:
    """Check that pickled and copied solutions are equal to the original."""
    row = solution.plan.problem.drafts.sample(np.random.default_rng(0))
    before = solution.plan.conditional(row)
    copies = {"pickle": pickle.loads(pickle.dumps(solution)), "deepcopy": copy.deepcopy(solution)}
    for how, again in copies.items():
        expect(str(again) == str(solution), f"another solution after {how}", str(again))
        # The order of summation in NumPy depends on the memory alignment.
        off = float(np.abs(again.plan.conditional(row) - before).sum())
        expect(off <= 1e-14, f"another plan after {how}", f"off by {off:.3g}")


def check_scheme(scheme: otlp.DraftScheme, true: Truth, rng: np.random.Generator) -> None:
    """Compare the methods of a draft scheme with its listed tuples."""
    mass, tokens = true.mass, true.tokens
    size = true.target.size
    near = {"rtol": 1e-9, "atol": 1e-300}
    np.testing.assert_allclose(scheme.probability(tokens), mass, **near)
    listed = scheme.enumerate_tuples()
    place = {row: j for j, row in enumerate(map(tuple, tokens.tolist()))}
    found = np.zeros(mass.size)
    for row, value in zip(listed.tokens.tolist(), listed.mass, strict=True):
        expect(found[place[tuple(row)]] == 0.0, "a tuple is listed twice", str(row))
        found[place[tuple(row)]] = value
    np.testing.assert_allclose(found, mass, **near)
    sets = scheme.enumerate_sets()
    np.testing.assert_allclose(sets.mass.sum(), 1.0, rtol=1e-9)
    counts = scheme.set_count()
    expect(counts[0] >= len(sets), "set_count too small", f"{counts[0]} < {len(sets)}")
    expect(counts[1] >= sets.members.size, "set_count too small", f"{counts[1]}")
    expect(scheme.tuple_count() >= len(listed.mass), "tuple_count too small", "")
    close = {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(scheme.inclusion, mass @ true.drafted, **close)
    by_place = [np.bincount(tokens[:, j], mass, size) for j in range(tokens.shape[1])]
    np.testing.assert_allclose(scheme.mean_draft, np.mean(by_place, axis=0), **close)
    subset = rng.random(size) < 0.5
    np.testing.assert_allclose(scheme.mass_within(subset), true.within(subset), **close)
    touching = mass[(true.drafted & subset).any(axis=1)].sum()
    np.testing.assert_allclose(scheme.mass_touching(subset), touching, **close)
    order = rng.permutation(size)
    first = order[np.argmax(true.drafted[:, order], axis=1)]
    wanted = np.bincount(first, mass, size)
    np.testing.assert_allclose(scheme.priority_marginals(order), wanted, **close)
    for row in scheme.sample(rng, 3).tolist():
        expect(tuple(row) in place, "sampled an impossible tuple", str(row))
