"""A sweep: every rule at every setting on every row, kept in a journal, read as curves.

A setting is a draft scheme, n, a temperature and a top-k; what is measured there is what
`otlp.studies.compare` measures.  Passages are the independent units of the intervals.
"""

from __future__ import annotations

import itertools
import math
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

import numpy as np

import otlp
from otlp.checks import check_n, real_number, whole_number
from otlp.data.capture import Capture
from otlp.data.sampling_cuts import SAMPLING, SamplingCuts
from otlp.distribution import IntArray, softmax
from otlp.drafts.by_name import SCHEMES, make_scheme
from otlp.errors import InvalidInputError, JournalError, OTLPError
from otlp.parallel.journal import Entry, Journal
from otlp.parallel.rows import CaptureRows, RowSource
from otlp.parallel.workers import in_order, one_by_one
from otlp.solvers import make_solver
from otlp.studies.compare import (
    BOUND,
    EQUALITIES,
    OPTIMUM,
    RuleResult,
    measure_rules,
    no_results,
)
from otlp.studies.points import SweepPoint, SweepSetting

FORMAT = "otlp-sweep-2"

CHUNK = 32
"""Combinations of row and setting in a task, if a row has not more."""

Task = tuple[Iterable[tuple[int, Capture]], Sequence["SweepSetting"]]
"""Rows, and the settings to measure on each."""


@dataclass(frozen=True)
class Grid:
    """Settings and rules: every value of each list with every value of the others.

    Parameters
    ----------
    n : sequence of int
    temperature : sequence of float
    top_k : sequence of int or None
    schemes : sequence of str
    rules : sequence of str
        Names in `otlp.solvers.SOLVERS`; may be empty, as optimum and information bound are always
        measured.
    draft_temperature, top_p, sampling_top_k, sampling_top_p, sampling_min_p : float, optional
        The same everywhere; see `otlp.captures.Capture.distributions`.
    whole_draft : bool
        Likewise.
    time_limit : float
        Seconds a solve, for solvers that have such an option.

    Raises
    ------
    InvalidInputError, UnknownSolverError
        If a list is empty, a value is out of its range, or a scheme or a rule does not exist.
    """

    n: Sequence[int] = (1, 2, 3, 4)
    temperature: Sequence[float] = (1.0,)
    top_k: Sequence[int | None] = (None,)
    schemes: Sequence[str] = ("iid",)
    rules: Sequence[str] = ("naive", "recursive-rejection", "k-seq")
    draft_temperature: float | None = None
    top_p: float | None = None
    sampling_top_k: int | None = None
    sampling_top_p: float | None = None
    sampling_min_p: float | None = None
    whole_draft: bool = False
    time_limit: float = 10.0

    def __post_init__(self) -> None:
        lists: dict[str, Callable[[Any], Any]] = {
            "n": check_n,
            "temperature": _temperature,
            "top_k": _size,
            "schemes": _scheme,
            "rules": _rule,
        }
        for name, checked in lists.items():
            values = getattr(self, name)
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise InvalidInputError(f"{name} is {values!r}: it must be a list, as in [1, 2]")
            if not values and name != "rules":
                raise InvalidInputError(f"{name} is empty: give at least one value")
            object.__setattr__(self, name, tuple(dict.fromkeys(map(checked, values))))
        if self.draft_temperature is not None:
            object.__setattr__(self, "draft_temperature", _temperature(self.draft_temperature))
        # which check them
        SamplingCuts(None, self.top_p)
        SamplingCuts(self.sampling_top_k, self.sampling_top_p, self.sampling_min_p)
        if not real_number(self.time_limit, "time_limit") > 0.0:
            raise InvalidInputError(f"time_limit is {self.time_limit!r}: it must be above 0")

    @property
    def sampling(self) -> dict[str, Any]:
        """The cuts of both models, by name, for `otlp.captures.Capture.distributions`."""
        return {name: getattr(self, name) for name in (*SAMPLING, "whole_draft")}

    @property
    def settings(self) -> tuple[SweepSetting, ...]:
        """All of them, those with the same distributions behind one another."""
        return tuple(
            SweepSetting(scheme, n, temperature, top_k)
            for temperature, top_k, scheme, n in itertools.product(
                self.temperature, self.top_k, self.schemes, self.n
            )
        )


def _temperature(value: float) -> float:
    softmax(np.ones(1), value)  # raises if it is none
    return float(value)


def _size(top_k: int | None) -> int | None:
    return None if top_k is None else whole_number(top_k, "top_k")


def _scheme(name: str) -> str:
    if not isinstance(name, str) or name not in SCHEMES:
        make_scheme(name, np.ones(1), 1)  # says which there are
    return name


def _rule(name: str) -> str:
    return name if name in EQUALITIES else make_solver(name).name


def sweep(
    rows: Capture | RowSource,
    grid: Grid | None = None,
    journal: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[str, int], None] = lambda words, done: None,
    each: Callable[[Entry], object] = lambda entry: None,
) -> list[SweepPoint]:
    """Measure the acceptance of every rule at every setting on every row.

    Parameters
    ----------
    rows : Capture, CaptureRows or SyntheticRows
    grid : Grid, optional
    journal : path-like, optional
        A file that takes a line for each row and setting once it is measured (`Journal`).  If it
        is there, it must be of the same rows and rules, measured in the same way; what it holds
        is read, and what it lacks, such as a further n, is measured and added.
    jobs, executor : optional
        Processes that work at the same time, and where: see `otlp.parallel.workers.in_order`.
    progress : callable
        Called with words, and with how many combinations of row and setting are done.
    each : callable
        Called with what was measured on a row at a setting, as the journal keeps it.

    Returns
    -------
    list of SweepPoint
        For each setting, the rules, then the optimum and the information bound.  The same to the
        bit whatever the number of workers and interruptions, but for solves that a time limit
        cut or whose worker died.

    Raises
    ------
    InvalidInputError
        If the rows are none.
    JournalError
        If the journal is of other rows, rules or limits, or cannot be written.

    Notes
    -----
    Memory is 16 bytes for each row, setting and rule, and the rows under way.

    Examples
    --------
    >>> import otlp
    >>> from otlp.studies.sweep import Grid, sweep
    >>> points = sweep(otlp.captures.builtin(), Grid(n=[4], rules=["k-seq"]))
    >>> [f"{point.rule} {point.acceptance}" for point in points]
    ['k-seq 0.52 ±0.05', 'optimum 0.53 ±0.05', 'information bound 0.54 ±0.05']
    """
    grid = Grid() if grid is None else grid
    source = CaptureRows(rows) if isinstance(rows, Capture) else rows
    if not isinstance(source, RowSource) or not isinstance(grid, Grid):
        raise InvalidInputError(
            f"there is a sweep of a {type(rows).__name__} over a {type(grid).__name__}: it is of "
            "a Capture, CaptureRows or SyntheticRows, over a Grid"
        )
    if not source.numbers:
        raise InvalidInputError("there are no rows: there is nothing to sweep")
    sums = _Sums(grid, source.passages, each)
    with ExitStack() as stack:
        book = None
        if journal is not None:
            book = stack.enter_context(Journal(journal, _heading(source, grid)))
            for entry in _held(book, source.numbers, grid):
                sums.add(entry)
                progress("reading the journal", sums.done)
        tasks = _tasks(source, grid.settings, dict(sums.measured))
        for entries in _finished(partial(_measured, grid=grid), tasks, grid, jobs, executor):
            if book is not None:
                book.append(entries)
            for entry in entries:
                sums.add(entry)
            progress(f"row {entries[-1]['row']}", sums.done)
    return sums.points()


def _held(book: Journal, numbers: Sequence[int], grid: Grid) -> Iterator[Entry]:
    """The lines of a journal, which must belong there."""
    held: Counter[SweepSetting] = Counter()
    for line, entry in enumerate(book.entries(), start=2):
        setting = _setting_of(entry, numbers, grid, held)
        if setting is None:
            raise JournalError(
                f"{book.path}: line {line} is not one that belongs there: the file was changed; "
                "name another file, or cut it off before that line"
            )
        held[setting] += 1
        yield entry


def _heading(rows: RowSource, grid: Grid) -> Entry:
    """What must be the same for two sweeps to share a journal: all but the settings."""
    lists = ("n", "temperature", "top_k", "schemes")
    same = {name: kept for name, kept in asdict(grid).items() if name not in lists}
    return {"format": FORMAT, "otlp": otlp.__version__, **rows.heading(), **same}


def _tasks(
    rows: RowSource, settings: Sequence[SweepSetting], measured: Mapping[SweepSetting, int]
) -> Iterator[Task]:
    """What is left to do, row by row, once each setting is done on so many first rows."""
    ends = sorted({len(rows.numbers), *measured.values()})
    for first, last in itertools.pairwise(ends):
        left = tuple(setting for setting in settings if measured[setting] <= first)
        step = max(1, CHUNK // len(left))
        for start in range(first, last, step):
            yield rows.part(start, min(start + step, last)), left


def _finished(
    work: Callable[[Task], list[Entry]],
    tasks: Iterable[Task],
    grid: Grid,
    jobs: int | None,
    executor: Executor | None,
) -> Iterator[list[Entry]]:
    """The entries of each task; where a worker died of one, it is tried again in single pieces."""
    asked, given = itertools.tee(tasks)
    for found, task in zip(in_order(work, asked, jobs, executor=executor), given, strict=True):
        if not isinstance(found, OTLPError):
            yield found
            continue
        pieces = [([row], (setting,)) for row in task[0] for setting in task[1]]
        for single, piece in zip(one_by_one(work, pieces), pieces, strict=True):
            if isinstance(single, OTLPError):
                row, setting = piece[0][0][0], piece[1][0]
                single = [_entry(row, setting, no_results(grid.rules, str(single)))]
            yield single


def _measured(task: Task, grid: Grid) -> list[Entry]:
    """Measure the settings on the rows, in the worker."""
    rows, settings = task
    entries = []
    for number, capture in rows:
        for (temperature, top_k), group in itertools.groupby(
            settings, lambda setting: (setting.temperature, setting.top_k)
        ):
            pair = None
            for setting in group:
                try:
                    pair = pair or capture.distributions(
                        0, temperature, grid.draft_temperature, top_k, grid.top_p, **grid.sampling
                    )
                    where = pair, setting.scheme, setting.n
                    results = measure_rules(*where, grid.rules, grid.time_limit)
                except Exception as error:  # whatever is wrong with a row, the others go on
                    kind = "" if isinstance(error, OTLPError) else f"{type(error).__name__}: "
                    results = no_results(grid.rules, f"{kind}{error}")
                entries.append(_entry(number, setting, results))
    return entries


def _entry(row: int, setting: SweepSetting, results: Iterable[RuleResult]) -> Entry:
    rules: dict[str, dict[str, Any]] = {}
    for found in results:
        acceptance = None if math.isnan(found.acceptance) else found.acceptance
        said = {k: v for k, v in asdict(found).items() if k not in ("rule", "acceptance")}
        kept = {k: v for k, v in said.items() if v not in ("", None)}
        rules[found.rule] = {"acceptance": acceptance, **kept}
    return {"row": row, **asdict(setting), "rules": rules}


def _setting(entry: Entry) -> SweepSetting:
    return SweepSetting(**{field.name: entry[field.name] for field in fields(SweepSetting)})


def _setting_of(
    entry: Entry, numbers: Sequence[int], grid: Grid, held: Mapping[SweepSetting, int]
) -> SweepSetting | None:
    """The setting of a journal's line, asked for now or before; None if it does not belong there.

    The lines of a setting are in the order of the rows, whatever stands between them.
    """
    try:
        setting = _setting(entry)
        place = held.get(setting, 0)
    except (KeyError, TypeError):
        return None
    rules = entry.get("rules")
    right = (
        place < len(numbers)
        and entry == {"row": numbers[place], **asdict(setting), "rules": rules}
        and isinstance(rules, dict)
        and list(rules) == [*grid.rules, OPTIMUM, BOUND]
        and all(isinstance(found, dict) for found in rules.values())
        and all(isinstance(found.get("acceptance", ""), float | None) for found in rules.values())
    )
    return setting if right else None


class _Sums:
    """Acceptances by setting and rule, in the order of the rows."""

    def __init__(self, grid: Grid, passages: IntArray, each: Callable[[Entry], object]) -> None:
        self._each = each
        self.measured = dict.fromkeys(grid.settings, 0)
        self._passages = passages
        keys = itertools.product(grid.settings, (*grid.rules, OPTIMUM, BOUND))
        self._values = {key: (array("d"), array("d")) for key in keys}
        self._reasons: dict[tuple[SweepSetting, str], str] = {}

    @property
    def done(self) -> int:
        """How many combinations of row and setting are done."""
        return sum(self.measured.values())

    def add(self, entry: Entry) -> None:
        """Take the next entry of a setting; one that is not asked for is left out."""
        setting = _setting(entry)
        if setting not in self.measured:
            return
        for rule, found in entry["rules"].items():
            acceptance = found["acceptance"]
            low, high = found.get("acceptance_interval", (0.0, 0.0))
            values, errors = self._values[setting, rule]
            values.append(math.nan if acceptance is None else acceptance)
            errors.append((high - low) / 2.0)
            if "reason" in found:
                self._reasons.setdefault((setting, rule), found["reason"])
        self.measured[setting] += 1
        self._each(entry)

    def points(self) -> list[SweepPoint]:
        """Average over the rows."""
        return [
            SweepPoint.of(
                *key,
                np.asarray(values),
                self._reasons.get(key, ""),
                self._passages,
                # as if they were all off in one direction
                float(np.sum(errors)) / max(1, sum(map(math.isfinite, values))),
            )
            for key, (values, errors) in self._values.items()
        ]
