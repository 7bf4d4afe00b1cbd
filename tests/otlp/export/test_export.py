"""The exported program equals the problem: other readers find the same optimum."""

from __future__ import annotations

from pathlib import Path

import highspy
import numpy as np
import pytest
import scipy
from hypothesis import given

import otlp
from otlp.data.captures import builtin
from otlp.errors import InvalidInputError, SizeLimitError
from otlp.export import LPArrays, cvxpy_problem, lp_arrays, write_arrays, write_mps
from tests.examples import examples
from tests.instances import DEGENERATE, problems
from tests.otlp.cli.command import done

FORMS = ("relaxed", "full")

TOLERANCES = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""Recommended in the files: solvers with the usual tolerance 1e-7 ignore a mass of 1e-8."""


def read(path: Path) -> highspy.Highs:
    """Read a file with HiGHS, with default options except the tolerances."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    for name, value in TOLERANCES.items():
        highs.setOptionValue(name, value)
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    return highs


def minimum(path: Path) -> float:
    highs = read(path)
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(highs.getInfo().objective_function_value)


@pytest.mark.parametrize("form", FORMS)
def test_ten_tokens_and_three_drafts(form: str, tmp_path: Path) -> None:
    path = tmp_path / "row.mps"
    done("export", "--row", 3, "--n", 3, "--top-k", 10, "--form", form, "--to", path)
    target, draft = builtin().distributions(3, top_k=10)
    solution = otlp.solve(otlp.Problem(target, otlp.IID(draft, 3)))
    assert abs(minimum(path) + solution.acceptance) <= 1e-9
    comments = [line for line in path.read_text().splitlines() if line.startswith("* Minimum")]
    stated = float(comments[0].removeprefix("* Minimum -").partition(":")[0])
    assert abs(stated - solution.acceptance) <= 1e-12
    assert "top_k = 10" in path.read_text()


@pytest.mark.parametrize("form", FORMS)
@examples(15)
@given(problem=problems())
def test_the_file_is_the_arrays_and_both_have_the_optimum(
    form: str, tmp_path_factory: pytest.TempPathFactory, problem: otlp.Problem
) -> None:
    path = tmp_path_factory.mktemp("mps") / "a.mps"
    lp = lp_arrays(problem, form)
    write_mps(lp, path)
    model = read(path).getLp()
    assert tuple(model.col_names_) == lp.variables
    assert tuple(model.row_names_) == lp.rows_ub + lp.rows_eq
    np.testing.assert_array_equal(model.col_cost_, lp.c)
    np.testing.assert_array_equal(np.stack((model.col_lower_, model.col_upper_), 1), lp.bounds)
    np.testing.assert_array_equal(model.row_upper_, np.concatenate((lp.b_ub, lp.b_eq)))
    np.testing.assert_array_equal(model.row_lower_[lp.b_ub.size :], lp.b_eq)
    assert np.all(np.isneginf(model.row_lower_[: lp.b_ub.size]))
    matrix = scipy.sparse.csc_array(
        (model.a_matrix_.value_, model.a_matrix_.index_, model.a_matrix_.start_),
        shape=(model.num_row_, model.num_col_),
    )
    dense = np.concatenate((lp.A_ub.toarray(), lp.A_eq.toarray()))
    np.testing.assert_array_equal(matrix.toarray(), dense)
    found = scipy.optimize.linprog(
        lp.c, lp.A_ub, lp.b_ub, lp.A_eq, lp.b_eq, lp.bounds, options=TOLERANCES
    )
    assert abs(found.fun + lp.optimum) <= 1e-9
    assert abs(lp.optimum - otlp.solve(problem, "linear-program").acceptance) <= 1e-9


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_problems(name: str, form: str, tmp_path: Path) -> None:
    lp = lp_arrays(DEGENERATE[name], form)
    write_mps(lp, tmp_path / "a.mps", "several\nlines \u2192 and \x1b[31m signs")
    assert abs(minimum(tmp_path / "a.mps") + lp.optimum) <= 1e-9


def test_names_say_which_tokens_are_meant() -> None:
    target, draft = np.zeros(50), np.zeros(50)
    target[[7, 40, 9]], draft[[7, 40]] = [0.2, 0.3, 0.5], [0.6, 0.4]
    problem = otlp.Problem(target, otlp.IID(draft, 2))
    lp = lp_arrays(problem)
    assert lp.rows_ub == ("token_7", "token_40", "token_rest", "set_7", "set_40", "set_7_40")
    assert lp.variables == ("x_7_set_7", "x_40_set_40", "x_7_set_7_40", "x_40_set_7_40")
    assert lp.rows_eq == ()
    full = lp_arrays(problem, "full")
    assert full.rows_eq == ("tuple_7_7", "tuple_7_40", "tuple_40_7", "tuple_40_40")
    assert "x_rest_tuple_40_7" in full.variables
    # A variable is in the two rows named in its name.
    both = full.A_ub[:, [5]].toarray(), full.A_eq[:, [5]].toarray()
    token, tuple_ = (int(np.flatnonzero(rows)[0]) for rows in both)
    name = full.rows_ub[token].removeprefix("token_")
    assert full.variables[5] == f"x_{name}_{full.rows_eq[tuple_]}"


@pytest.mark.parametrize("form", FORMS)
def test_long_names_become_numbers(form: str) -> None:
    drafts = otlp.Greedy(np.full(120, 1 / 120), 100)
    lp = lp_arrays(otlp.Problem(np.full(120, 1 / 120), drafts), form)
    names = lp.variables + lp.rows_ub + lp.rows_eq
    assert len(set(names)) == len(names) and max(map(len, names)) <= 255
    assert "_number_0" in names[0]


def same(one: LPArrays, path: Path) -> None:
    stored = np.load(path, allow_pickle=False)
    for name in ("A_ub", "A_eq"):
        parts = tuple(stored[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
        array = scipy.sparse.csr_array(parts, shape=stored[f"{name}_shape"])
        np.testing.assert_array_equal(array.toarray(), getattr(one, name).toarray())
    for name in ("c", "b_ub", "b_eq", "bounds", "variables", "rows_ub", "rows_eq", "optimum"):
        np.testing.assert_array_equal(stored[name], getattr(one, name))
    assert str(stored["form"]) == one.form


@pytest.mark.parametrize("form", FORMS)
def test_arrays_in_a_file_are_read_by_numpy_alone(form: str, tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "row.npz"
    words = ("--top-k", 5, "--scheme", "without-replacement", "--form", form)
    done("export", *words, "--to", path)
    target, draft = builtin().distributions(0, top_k=5)
    lp = lp_arrays(otlp.Problem(target, otlp.WithoutReplacement(draft, 2)), form)
    same(lp, path)
    write_arrays(lp, tmp_path / "again.npz")
    same(lp, tmp_path / "again.npz")


def test_what_is_too_large_is_refused_by_name() -> None:
    uniform = np.full(300, 1 / 300)
    with pytest.raises(SizeLimitError, match=r"full .* 27,090,000 variables .*2,048 MiB"):
        lp_arrays(otlp.Problem(uniform, otlp.IID(uniform, 2)), "full")
    with pytest.raises(SizeLimitError, match=r"memory_limit = 1 MiB.*top_k"):
        lp_arrays(otlp.Problem(uniform, otlp.IID(uniform, 2)), memory_limit=2**20)
    with pytest.raises(SizeLimitError, match="CVXPY's program of 27,000,000 variables"):
        cvxpy_problem(otlp.Problem(uniform, otlp.IID(uniform, 2)))
    with pytest.raises(InvalidInputError, match="did you mean 'relaxed'"):
        lp_arrays(otlp.Problem(uniform, otlp.IID(uniform, 2)), "relax")
    with pytest.raises(InvalidInputError, match=r"otlp\.Problem"):
        lp_arrays("problem")


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    lp = lp_arrays(DEGENERATE["uniform"])
    path = tmp_path / "a.mps"
    path.write_text("old")
    broken = LPArrays(**{**vars(lp), "rows_ub": lp.rows_ub[1:]})
    with pytest.raises(IndexError):
        write_mps(broken, path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
