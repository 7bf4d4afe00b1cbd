"""Each row equals `otlp.solve` bitwise; a row that fails reports it and stops no other row."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import otlp
from otlp.certificate import Answer
from otlp.parallel.solve_many import THREAD_TOKENS, Row, solve_many
from otlp.timing import Stopwatch
from tests.damaged_files import without_checks
from tests.example_captures import in_file, opened

PROBLEMS = otlp.SyntheticProblems(7, 1000, n=3, seed=5)
FEW = otlp.SyntheticProblems(4, 1000, n=2, drafts="independent", top_k=6)


def assert_same(rows: Iterator[Row], problems: Any, solver: str, plans: bool = True) -> None:
    for place, (row, problem) in enumerate(zip(rows, problems, strict=True)):
        expected = otlp.solve(problem, solver, throw=False)
        assert row.row == place
        assert row.error is None
        assert row.acceptance == row.solution.acceptance == expected.acceptance
        assert row.solution.solver == expected.solver
        assert row.solution.upper_bound == expected.upper_bound
        assert np.array_equal(row.solution.subset, expected.subset)
        assert row.status == expected.status.name
        assert (row.solution.plan is None) is not plans
        if plans:
            tokens = problem.drafts.sample(np.random.default_rng(0))
            conditionals = (one.plan.conditional(tokens) for one in (row.solution, expected))
            assert np.array_equal(*conditionals)


@pytest.mark.parametrize("chunk", [None, 1, 3, 100])
@pytest.mark.parametrize("problems", [PROBLEMS, list(PROBLEMS)])
def test_rows_are_those_of_the_loop(problems: Any, chunk: int | None) -> None:
    assert_same(solve_many(problems, chunk=chunk), problems, "auto")
    assert_same(solve_many(iter(problems), chunk=chunk), problems, "auto")


@pytest.fixture(scope="module")
def workers() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        yield pool


def test_plans_of_engines_come_from_processes(workers: Executor) -> None:
    assert_same(solve_many(FEW, "max-flow", executor=workers), FEW, "max-flow")


@pytest.mark.parametrize(
    ("problems", "solver"),
    [(PROBLEMS, "martingale"), (FEW, "orderings"), (FEW, "max-flow"), (PROBLEMS, "k-seq")],
)
def test_workers_change_no_bit(problems: Any, solver: str, workers: Executor) -> None:
    found = solve_many(problems, solver, executor=workers, jobs=2, plans=False)
    assert_same(found, problems, solver, plans=False)


@pytest.mark.parametrize("vocab_size", [1000, THREAD_TOKENS])
def test_plans_of_compiled_solvers_are_not_sent(vocab_size: int) -> None:
    kept = list(otlp.SyntheticProblems(3, vocab_size, n=4))
    rows = list(solve_many(kept, jobs=2))
    assert_same(iter(rows), kept, "auto")
    for row, problem in zip(rows, kept, strict=True):
        # the same problem object: it was not sent to another process
        assert row.solution.plan.problem is problem


CUTS: list[dict[str, Any]] = [
    {}, {"temperature": 0.7, "draft_temperature": 1.3}, {"top_k": 20},
    {"top_p": 0.8, "temperature": 2.0},
]  # fmt: skip


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("stored", [False, True])
def test_rows_of_a_capture_are_those_of_the_loop(
    stored: bool, cut: dict[str, Any], tmp_path: Path
) -> None:
    capture = otlp.synthetic.generate(9, 4096, seed=1)
    if stored:
        capture = in_file(tmp_path, capture)
    rows = [7, 8, 1, 2, 3, 4, 5, 6, 0, 0, 8]
    problems = otlp.CaptureProblems(capture, rows, n=3, **cut)
    with ThreadPoolExecutor(2) as threads:
        for executor, chunk, plans in (
            (None, None, True),
            (threads, None, False),
            (threads, 4, True),
        ):
            found = solve_many(problems, executor=executor, chunk=chunk, plans=plans)
            assert_same(found, problems, "auto", plans)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_row_that_cannot_be_read_is_the_only_one_lost(jobs: int, tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    in_file(tmp_path, otlp.synthetic.generate(5, 1000))
    without_checks(path)
    content = path.read_bytes()
    third = len(content) - 3 * 1000 * 4  # the draft logits are last
    path.write_bytes(content[:third] + np.float32(np.nan).tobytes() + content[third + 4 :])
    rows = list(solve_many(otlp.CaptureProblems(opened(path), n=2), jobs=jobs))
    assert [row.status == "SOLVED" for row in rows] == [True, True, False, True, True]
    assert "row 2 of" in rows[2].reason and path.name in rows[2].reason


def test_rows_of_likeliest_tokens_are_those_of_the_loop() -> None:
    problems = otlp.CaptureProblems(otlp.captures.builtin()[:3], n=2)
    assert_same(solve_many(problems, jobs=2), problems, "auto")


def test_a_bad_problem_is_a_row_and_stops_no_other() -> None:
    rows = list(solve_many([PROBLEMS[0], "x", PROBLEMS[1]]))
    assert [row.status for row in rows] == ["SOLVED", "InvalidInputError", "SOLVED"]
    assert "problem must be an otlp.Problem" in rows[1].reason and "got str" in rows[1].reason
    assert np.isnan(rows[1].acceptance)
    rows = list(solve_many([FEW[0], PROBLEMS[0]], "martingale"))
    assert [row.status for row in rows] == ["UnsupportedProblemError", "SOLVED"]


def test_a_row_that_is_no_distribution_is_named() -> None:
    class Rows(list[int]):
        def __getitem__(self, place: Any) -> Any:
            if isinstance(place, slice):
                return Rows(list.__getitem__(self, place))
            draft = [0.5, 0.5] if list.__getitem__(self, place) != 3 else [0.5, 0.6]
            return otlp.Problem([0.2, 0.8], otlp.IID(draft, 2))

    rows = list(solve_many(Rows(range(5))))
    assert [row.row for row in rows if row.error] == [3]
    assert isinstance(rows[3].error, otlp.errors.InvalidDistributionError)
    assert "must sum to 1 within 1e-06 (for float64), got 1.1" in rows[3].reason


def test_a_limit_that_is_reached_is_a_status_not_an_error() -> None:
    (row,) = solve_many(FEW[:1], "orderings", max_iterations=1, gap=0.0)
    assert row.status == "ITERATION_LIMIT" and row.error is None
    assert row.reason == row.solution.message


@dataclass(frozen=True)
class Deadly(otlp.Solver):
    """A solver that fails or kills its process, depending on the probability of the first token."""

    name: ClassVar[str] = "deadly"

    def answer(self, problem: otlp.Problem, clock: Stopwatch) -> Answer:
        if problem.target[0] == 0.25:
            os.kill(os.getpid(), signal.SIGKILL)
        if problem.target[0] == 0.75:
            raise ZeroDivisionError("of its own")
        return Answer(None)


@pytest.mark.slow  # two processes are started three times
def test_a_worker_that_dies_costs_the_row_that_it_died_of() -> None:
    drafts = otlp.IID([0.5, 0.5], 2)
    targets = [0.5, 0.75, 0.5, 0.25, 0.5, 0.5]
    problems = [otlp.Problem([p, 1 - p], drafts) for p in targets]
    rows = list(solve_many(problems, Deadly(), jobs=2, chunk=3))
    assert [row.row for row in rows] == list(range(6))
    assert [row.status for row in rows] == [
        "SOLVED", "TaskError", "SOLVED", "TaskError", "SOLVED", "SOLVED"
    ]  # fmt: skip
    assert rows[1].reason == "ZeroDivisionError: of its own"
    assert "died" in rows[3].reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"problems": otlp.captures.builtin()}, "CaptureProblems"),
        ({"problems": None}, "NoneType"),
        ({"problems": "x"}, "str"),
        ({"solver": "max-flo"}, "did you mean 'max-flow'"),
        ({"time_limit": 1.0}, "auto has no option 'time_limit'"),
        ({"solver": "orderings", "gap": -1}, "gap must be .*, got -1"),
        ({"jobs": 0}, "jobs must be .*, got 0"),
        ({"chunk": 0}, "chunk must be .*, got 0"),
        ({"progress": 1}, "progress must be True or False, got int"),
        ({"plans": None}, "plans must be True or False, got NoneType"),
    ],
)
def test_a_wrong_call_is_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(otlp.errors.OTLPError, match=message):
        solve_many(**{"problems": PROBLEMS, **arguments})


def test_rows_are_solved_as_they_are_asked_for() -> None:
    built = []

    def problems() -> Iterator[otlp.Problem]:
        for problem in PROBLEMS:
            built.append(problem)
            yield problem

    rows = solve_many(problems(), progress=True)
    next(rows)
    assert len(built) == 1


def test_no_problems_no_rows() -> None:
    assert list(solve_many([])) == list(solve_many(iter([]))) == []
