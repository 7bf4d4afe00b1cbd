"""Sweep of all rules over all settings and rows, with a journal.

A setting is a draft scheme, n, a temperature and a top-k.  `otlp.studies.compare` measures each
combination of row and setting.  Passages are the independent units of the intervals.
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
"""Maximum number of combinations of row and setting per task, except for a single row."""

Task = tuple[Iterable[tuple[int, Capture]], Sequence["SweepSetting"]]
"""Rows, and the settings to measure on each row."""


@dataclass(frozen=True)
class Grid:
    """Settings and rules of a sweep: the Cartesian product of all lists.

    Parameters
    ----------
    n : sequence of int
    temperature : sequence of float
    top_k : sequence of int or None
    schemes : sequence of str
    rules : sequence of str
        Names in `otlp.solvers.SOLVERS`.  May be empty, because optimum and information bound are
        always measured.
    draft_temperature, top_p, sampling_top_k, sampling_top_p, sampling_min_p : float, optional
        The same for all settings; see `otlp.captures.Capture.distributions`.
    whole_draft : bool
        The same for all settings; see `otlp.captures.Capture.distributions`.
    time_limit : float
        Seconds per solve, for solvers with a time limit.

    Raises
    ------
    InvalidInputError, UnknownSolverError
        If a list other than `rules` is empty, a value is out of range, or a scheme or a rule does
        not exist.
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
                raise InvalidInputError(f"{name} must be a list such as [1, 2], got {values!r}")
            if not values and name != "rules":
                raise InvalidInputError(f"{name} must not be empty: give at least one value")
            object.__setattr__(self, name, tuple(dict.fromkeys(map(checked, values))))
        if self.draft_temperature is not None:
            object.__setattr__(self, "draft_temperature", _temperature(self.draft_temperature))
        # The constructors check the values.
        SamplingCuts(None, self.top_p)
        SamplingCuts(self.sampling_top_k, self.sampling_top_p, self.sampling_min_p)
        if not real_number(self.time_limit, "time_limit") > 0.0:
            raise InvalidInputError(f"time_limit must be above 0, got {self.time_limit!r}")

    @property
    def cuts(self) -> dict[str, Any]:
        """Options of `otlp.captures.Capture.distributions` that are the same for all settings."""
        names = ("draft_temperature", "top_p", *SAMPLING, "whole_draft")
        return {name: getattr(self, name) for name in names}

    @property
    def settings(self) -> tuple[SweepSetting, ...]:
        """All settings; settings with the same distributions are adjacent."""
        return tuple(
            SweepSetting(scheme, n, temperature, top_k)
            for temperature, top_k, scheme, n in itertools.product(
                self.temperature, self.top_k, self.schemes, self.n
            )
        )


def _temperature(value: float) -> float:
    softmax(np.ones(1), value)  # checks the temperature
    return float(value)


def _size(top_k: int | None) -> int | None:
    return None if top_k is None else whole_number(top_k, "top_k")


def _scheme(name: str) -> str:
    if not isinstance(name, str) or name not in SCHEMES:
        make_scheme(name, np.ones(1), 1)  # raises an error that lists the schemes
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
        File with one line per measured row and setting (`Journal`).  An existing journal must be
        of the same rows, rules and options; its results are read, and missing results, such as
        those of a new n, are measured and appended.
    jobs, executor : optional
        Number of worker processes, and their executor; see `otlp.parallel.workers.in_order`.
    progress : callable
        Called with a label and the number of finished combinations of row and setting.
    each : callable
        Called with the result of each row and setting, in the format of the journal.

    Returns
    -------
    list of SweepPoint
        For each setting, the rules, then the optimum and the information bound.  Bitwise the same
        for any number of workers and interruptions, except for solves that reached a time limit
        or whose worker died.

    Raises
    ------
    InvalidInputError
        If `rows` is empty, or `rows` or `grid` has the wrong type.
    JournalError
        If the journal is of other rows, rules or limits, or cannot be written.

    Notes
    -----
    Memory is 16 bytes for each row, setting and rule, and the rows being measured.

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
            "rows must be a Capture, CaptureRows or SyntheticRows and grid a Grid; got a "
            f"{type(rows).__name__} and a {type(grid).__name__}"
        )
    if not source.numbers:
        raise InvalidInputError("rows must not be empty: give at least one row")
    sums = _Sums(grid, source.passages, each)
    with ExitStack() as stack:
        book = None
        if journal is not None:
            book = stack.enter_context(Journal(journal, _heading(source, grid)))
            for entry in _checked_entries(book, source.numbers, grid):
                sums.add(entry)
                progress("reading the journal", sums.done)
        tasks = _tasks(source, grid.settings, dict(sums.measured))
        for entries in _run_tasks(partial(_measure_task, grid=grid), tasks, grid, jobs, executor):
            if book is not None:
                book.append(entries)
            for entry in entries:
                sums.add(entry)
            progress(f"row {entries[-1]['row']}", sums.done)
    return sums.points()


def _checked_entries(book: Journal, numbers: Sequence[int], grid: Grid) -> Iterator[Entry]:
    """Yield the entries of a journal after checking that they belong to this sweep."""
    counts: Counter[SweepSetting] = Counter()
    for line, entry in enumerate(book.entries(), start=2):
        setting = _setting_of(entry, numbers, grid, counts)
        if setting is None:
            raise JournalError(
                f"{book.path}: line {line} does not belong to this sweep: the file was changed; "
                "name another file, or truncate the file before this line"
            )
        counts[setting] += 1
        yield entry


def _heading(rows: RowSource, grid: Grid) -> Entry:
    """Return the values that sweeps with a common journal must share: all but the settings."""
    lists = ("n", "temperature", "top_k", "schemes")
    same = {name: kept for name, kept in asdict(grid).items() if name not in lists}
    return {"format": FORMAT, "otlp": otlp.__version__, **rows.heading(), **same}


def _tasks(
    rows: RowSource, settings: Sequence[SweepSetting], measured: Mapping[SweepSetting, int]
) -> Iterator[Task]:
    """Yield the remaining tasks; `measured` is the number of finished first rows per setting."""
    ends = sorted({len(rows.numbers), *measured.values()})
    for first, last in itertools.pairwise(ends):
        left = tuple(setting for setting in settings if measured[setting] <= first)
        step = max(1, CHUNK // len(left))
        for start in range(first, last, step):
            yield rows.part(start, min(start + step, last)), left


def _run_tasks(
    work: Callable[[Task], list[Entry]],
    tasks: Iterable[Task],
    grid: Grid,
    jobs: int | None,
    executor: Executor | None,
) -> Iterator[list[Entry]]:
    """Yield the entries of each task; if a worker dies, repeat its task in single pieces."""
    tasks, copies = itertools.tee(tasks)
    for found, task in zip(in_order(work, tasks, jobs, executor=executor), copies, strict=True):
        if not isinstance(found, OTLPError):
            yield found
            continue
        pieces = [([row], (setting,)) for row in task[0] for setting in task[1]]
        for single, piece in zip(one_by_one(work, pieces), pieces, strict=True):
            if isinstance(single, OTLPError):
                row, setting = piece[0][0][0], piece[1][0]
                single = [_entry(row, setting, no_results(grid.rules, str(single)))]
            yield single


def _measure_task(task: Task, grid: Grid) -> list[Entry]:
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
                    cuts = {"top_k": top_k, **grid.cuts}
                    pair = pair or capture.distributions(0, temperature, **cuts)
                    where = pair, setting.scheme, setting.n
                    results = measure_rules(*where, grid.rules, grid.time_limit)
                except Exception as error:  # an error on one row must not stop the other rows
                    kind = "" if isinstance(error, OTLPError) else f"{type(error).__name__}: "
                    results = no_results(grid.rules, f"{kind}{error}")
                entries.append(_entry(number, setting, results))
    return entries


def _entry(row: int, setting: SweepSetting, results: Iterable[RuleResult]) -> Entry:
    rules: dict[str, dict[str, Any]] = {}
    for found in results:
        acceptance = None if math.isnan(found.acceptance) else found.acceptance
        details = {k: v for k, v in asdict(found).items() if k not in ("rule", "acceptance")}
        kept = {k: v for k, v in details.items() if v not in ("", None)}
        rules[found.rule] = {"acceptance": acceptance, **kept}
    return {"row": row, **asdict(setting), "rules": rules}


def _setting(entry: Entry) -> SweepSetting:
    return SweepSetting(**{field.name: entry[field.name] for field in fields(SweepSetting)})


def _setting_of(
    entry: Entry, numbers: Sequence[int], grid: Grid, counts: Mapping[SweepSetting, int]
) -> SweepSetting | None:
    """Return the setting of a journal entry, or None if the entry does not belong to this sweep.

    Entries of a setting must be in the order of the rows; other settings may be between them.
    """
    try:
        setting = _setting(entry)
        place = counts.get(setting, 0)
    except (KeyError, TypeError):
        return None
    rules = entry.get("rules")
    valid = (
        place < len(numbers)
        and entry == {"row": numbers[place], **asdict(setting), "rules": rules}
        and isinstance(rules, dict)
        and list(rules) == [*grid.rules, OPTIMUM, BOUND]
        and all(isinstance(found, dict) for found in rules.values())
        and all(isinstance(found.get("acceptance", ""), float | None) for found in rules.values())
    )
    return setting if valid else None


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
        """Number of finished combinations of row and setting."""
        return sum(self.measured.values())

    def add(self, entry: Entry) -> None:
        """Add the next entry of a setting; skip settings that are not in the grid."""
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
                # Worst case: all errors have the same sign.
                float(np.sum(errors)) / max(1, sum(map(math.isfinite, values))),
            )
            for key, (values, errors) in self._values.items()
        ]
