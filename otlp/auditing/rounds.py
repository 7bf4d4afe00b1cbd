"""The audit of a round: rules over several tokens, paths and trees, and the texts that they give.

A round is lossless if its output, completed by the target to L + 1 tokens, follows the target's
law of L + 1 tokens.  The models are tables over few tokens, in which every mistake shows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from otlp.auditing.draft_check import DraftCheck
from otlp.auditing.drafted_tree import DraftedRound, Tables, as_tables
from otlp.auditing.enumeration import NotEnumerableError, enumerate_law
from otlp.auditing.gtest import g_test, total_variation_interval
from otlp.auditing.report import commonest
from otlp.auditing.round_report import RoundReport
from otlp.auditing.subject import Failure, Progress, check_signature, one_line
from otlp.auditing.torch_source import seeded_torch
from otlp.distribution import FloatArray, IntArray, total_variation, whole_number
from otlp.errors import InvalidInputError, SizeLimitError
from otlp.solvers.limits import check_number

RoundRule: TypeAlias = Callable[[IntArray, FloatArray, FloatArray, Any], Any]
RoundSampler: TypeAlias = Callable[[Sequence[FloatArray], Any], Any]

PADDING = -1
"""Ends a row of output tokens that is shorter than the longest."""

MOST_TEXTS = 1_000_000


class _Played(NamedTuple):
    """What was drafted, and what the rule made of it."""

    drafted: tuple[int, ...]
    output: tuple[int, ...] | Failure

    def __str__(self) -> str:
        what = self.output if isinstance(self.output, Failure) else list(self.output)
        return f"{what} for the drafts {list(self.drafted)}"


@dataclass(frozen=True, eq=False)
class _Subject:
    """A rule, the models, and how tokens are drafted."""

    rule: RoundRule
    name: str
    target: Tables
    draft: Tables
    drafts: DraftedRound
    sampler: RoundSampler | None
    batch: int | None
    tolerance: float

    @property
    def vocab_size(self) -> int:
        return int(self.target[0].shape[-1])

    def sampled(self, rng: Any) -> IntArray:
        """Tokens from the user's sampler, shape (N,)."""
        assert self.sampler is not None
        size = self.vocab_size
        tables = [table.reshape((size,) * (t + 1)).copy() for t, table in enumerate(self.draft)]
        try:
            tokens = np.asarray(self.sampler(tables, rng)).reshape(-1)
        except (Exception, SystemExit) as error:
            raise InvalidInputError(f"the sampler of the drafts: {one_line(error)}") from error
        whole = tokens.dtype.kind in "iu" and tokens.shape == (len(self.drafts.parents),)
        if not whole or not ((tokens >= 0) & (tokens < size)).all():
            raise InvalidInputError(
                f"the sampler of the drafts returns {one_line(tokens)}: it must return "
                f"{len(self.drafts.parents)} tokens in [0, {size})"
            )
        return tokens.astype(np.int64)

    def play(self, tokens: IntArray, rng: Any) -> list[tuple[int, ...] | Failure]:
        """Outputs of the rule on rows of drafted tokens, of which it may take many at once."""
        p, q = (self.drafts.at_nodes(tables, tokens) for tables in (self.target, self.draft))
        told = self.drafts.present(tokens.copy(), p, q)
        if self.batch is None:
            rows = zip(*told, strict=True)
            return [self._outputs([self._call(*row, rng)])[0] for row in rows]
        answer = self._call(*told, rng)
        if isinstance(answer, Failure):
            return [answer] * len(tokens)
        try:
            outputs = self._outputs(list(answer))
        except TypeError:
            outputs = []
        if len(outputs) != len(tokens):
            return [Failure(f"returns {one_line(answer)}, not a row for each round")] * len(tokens)
        return outputs

    def _call(self, *given: Any) -> Any:
        try:
            return self.rule(*given)
        except (Exception, SystemExit) as error:
            return Failure(f"raises {type(error).__name__}: {one_line(error)}".rstrip(": "))

    def _outputs(self, rows: list[Any]) -> list[tuple[int, ...] | Failure]:
        return [row if isinstance(row, Failure) else self._output(row) for row in rows]

    def _output(self, row: Any) -> tuple[int, ...] | Failure:
        """The tokens of a row, without the padding at its end."""
        try:
            tokens = np.asarray(row)
        except Exception:
            return Failure(f"returns {one_line(row)}, which is no list of tokens")
        if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
            return Failure(f"returns {one_line(row)}, which is no list of tokens")
        kept = tokens[: np.argmax(tokens == PADDING)] if (tokens == PADDING).any() else tokens
        if (tokens[kept.size :] != PADDING).any():
            return Failure(f"returns {tokens.tolist()}, with tokens behind the padding")
        if not 1 <= kept.size <= self.drafts.depth + 1:
            return Failure(f"returns {kept.size} tokens, not 1 to {self.drafts.depth + 1}")
        if not ((kept >= 0) & (kept < self.vocab_size)).all():
            return Failure(
                f"returns {kept.tolist()}, outside the vocabulary [0, {self.vocab_size})"
            )
        return tuple(kept.tolist())


def audit_rounds(
    rule: RoundRule,
    target: Sequence[npt.ArrayLike],
    draft: Sequence[npt.ArrayLike],
    drafts: DraftedRound,
    *,
    sampler: RoundSampler | None = None,
    batch: int | None = None,
    samples: int = 20_000,
    false_alarm_rate: float = 1e-6,
    confidence: float = 0.99,
    tolerance: float = 1e-6,
    max_paths: int = 20_000,
    name: str | None = None,
    rng: np.random.Generator | None = None,
    progress: Progress = lambda label, done: None,
) -> RoundReport:
    """Say whether a rule over several drafted tokens, paths or a tree is lossless.

    The law of the rule's output is computed where its random draws, NumPy's or PyTorch's, can be
    followed (see `otlp.auditing.enumeration`); otherwise texts are sampled and tested.

    Parameters
    ----------
    rule : callable
        ``rule(draft_tokens, p, q, rng) -> tokens``: the accepted tokens and one more; -1 may pad
        the end.  `p` and `q` are the target's and the draft's distributions at the drafted
        places; for shapes see `drafts`.  `rng` is a `numpy.random.Generator`; a rule may draw
        with PyTorch's functions instead.  It may write to its arguments.
    target, draft : sequence of array_like
        The models: distributions after prefixes of 0, 1, ... tokens, of shape (V,), (V, V), ...
        such as `otlp.decode.TabularModel.tables`: L + 1 tables of the target, L of the draft.
    drafts : DraftedPaths or DraftedTree
        How tokens are drafted from the draft model.
    sampler : callable, optional
        ``sampler(draft_tables, rng) -> tokens``, node by node (path by path): what really draws
        the drafts, checked against `drafts`.
    batch : int, optional
        The rule takes several rounds at once: every array has a leading axis, of this length at
        most when sampled and 1 when followed, and a row of tokens a round is returned.
    samples : int
        Rounds, where the law cannot be computed.
    false_alarm_rate : float
        Probability that a correct rule with correct drafts is rejected by the tests together.
    confidence : float
        Of the interval for the total variation, if sampled.
    tolerance : float
        Largest exact total variation that is called lossless.
    max_paths : int
        Sample instead if the enumeration needs more paths; 0 samples always.
    name : str, optional
        What the report calls the rule.
    rng : numpy.random.Generator, optional
        By default ``numpy.random.default_rng(0)``.
    progress : callable
        Called with a label and the share done.

    Returns
    -------
    RoundReport
        ``str(report)`` is a summary in plain words.

    Raises
    ------
    InvalidInputError, InvalidDistributionError
        If an argument has the wrong type or range, or the sampler raises or returns no tokens.
    SizeLimitError
        If there are more than a million texts of L + 1 tokens.

    Notes
    -----
    Enumeration runs the rule twice a path and 2,000 times more; there are about V^N paths for N
    drafted tokens, times those of the rule.

    Examples
    --------
    Each token of a path accepted with min(1, p / q), as it should be:

    >>> import numpy as np, otlp
    >>> def rule(draft_tokens, p, q, rng):
    ...     for i, token in enumerate(draft_tokens[0]):
    ...         if rng.random() * q[0, i, token] >= p[0, i, token]:
    ...             left = np.maximum(p[0, i] - q[0, i], 0)
    ...             return [*draft_tokens[0, :i], rng.choice(left.size, p=left / left.sum())]
    ...     return [*draft_tokens[0], rng.choice(p.shape[-1], p=p[0, -1])]
    >>> from otlp.auditing import DraftedPaths
    >>> from otlp.decode import random_pair
    >>> draft, target = random_pair(3, 3, np.random.default_rng(0))
    >>> report = otlp.audit_rounds(rule, target.tables, draft.tables, DraftedPaths(1, 2))
    >>> report.verdict.name
    'LOSSLESS'
    """
    for what, count, least in (("samples", samples, 1000), ("max_paths", max_paths, 0)):
        whole_number(count, what, least)
    if batch is not None:
        batch = whole_number(batch, "batch", 1)
    for what, share in (("false_alarm_rate", false_alarm_rate), ("confidence", confidence)):
        check_number(what, share, lambda x: 0.0 < x < 1.0, "be a number between 0 and 1")
    check_number("tolerance", tolerance, lambda x: 0.0 <= x < 2**63, "be a number >= 0")
    rng = np.random.default_rng(0) if rng is None else rng
    if not isinstance(rng, np.random.Generator):
        raise InvalidInputError(f"rng is a {type(rng).__name__}: pass a numpy.random.Generator")
    for what, function in (("rule", rule), ("progress", progress), ("sampler", sampler)):
        if not callable(function) and (what, function) != ("sampler", None):
            raise InvalidInputError(f"{what} is a {type(function).__name__}: pass a callable")
    check_signature(rule)
    subject = _subject(rule, target, draft, drafts, sampler, batch, float(tolerance), name)
    try:
        if max_paths == 0:
            raise NotEnumerableError("max_paths is 0")
        return _exact(subject, max_paths, rng, progress)
    except NotEnumerableError as reason:
        return _by_sampling(
            subject, samples, false_alarm_rate, confidence, rng, progress, str(reason)
        )


def _subject(
    rule: RoundRule,
    target: Any,
    draft: Any,
    drafts: DraftedRound,
    sampler: RoundSampler | None,
    batch: int | None,
    tolerance: float,
    name: Any,
) -> _Subject:
    if not isinstance(drafts, DraftedRound):
        raise InvalidInputError(
            f"drafts is a {type(drafts).__name__}: pass DraftedPaths(paths, length) or "
            "DraftedTree(parents), of otlp.auditing"
        )
    targets = as_tables(target, drafts.depth + 1, "target")
    proposals = as_tables(draft, drafts.depth, "draft")
    size = targets[0].shape[-1]
    if proposals[0].shape[-1] != size:
        raise InvalidInputError(
            f"target has {size} tokens and draft {proposals[0].shape[-1]}: pass two models over "
            "the same vocabulary"
        )
    if float(size) ** (drafts.depth + 1) > MOST_TEXTS:
        raise SizeLimitError(
            f"there are {size}^{drafts.depth + 1} texts of {drafts.depth + 1} tokens, more than "
            f"{MOST_TEXTS:,}: take fewer tokens or shorter paths"
        )
    most = drafts.most_siblings
    if drafts.siblings != "iid" and any((table > 0.0).sum(1).min() < most for table in proposals):
        raise InvalidInputError(
            f"a row of draft has fewer than {most} tokens of positive probability: {most} "
            "different siblings cannot be drafted"
        )
    called = name if isinstance(name, str) else getattr(rule, "__name__", type(rule).__name__)
    return _Subject(rule, called, targets, proposals, drafts, sampler, batch, tolerance)


def _exact(
    subject: _Subject, max_paths: int, rng: np.random.Generator, progress: Progress
) -> RoundReport:
    """Follow the drafts and the rule over all random draws."""

    def program(source: Any) -> _Played:
        if subject.sampler is None:
            tokens = subject.drafts.draw(
                subject.draft, lambda laws: np.array([source.category(laws[0])]), 1
            )
        else:
            try:
                tokens = subject.sampled(source)[None]
            except InvalidInputError as error:  # perhaps since it cannot be followed: see there
                raise NotEnumerableError(str(error)) from error
        return _Played(tuple(tokens[0].tolist()), subject.play(tokens, source)[0])

    law = enumerate_law(
        program, max_paths, rng, lambda paths: progress("following paths", paths / max_paths)
    )
    outputs: defaultdict[tuple[int, ...], float] = defaultdict(float)
    failures: defaultdict[str, float] = defaultdict(float)
    drafted: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for played, weight in law.weights.items():
        drafted[played.drafted] += weight
        if isinstance(played.output, Failure):
            failures[played.output.what] += weight
        else:
            outputs[played.output] += weight
    texts, wanted = _completed(subject, outputs), _texts(subject)
    apart = total_variation(np.append(texts, sum(failures.values())), np.append(wanted, 0.0))
    slack = law.unexplored
    if apart - slack <= subject.tolerance < apart + slack:
        raise NotEnumerableError(f"its exact law is known up to {slack:.2g} only")
    check = None if subject.sampler is None else _exact_drafts(subject, drafted)
    return RoundReport(
        rule=subject.name,
        drafted=str(subject.drafts),
        method="enumeration",
        target=_shaped(subject, wanted),
        output=_shaped(subject, texts),
        tokens=sum(len(tokens) * weight for tokens, weight in outputs.items()),
        total_variation=apart,
        interval=(max(0.0, apart - slack), min(1.0, apart + slack)),
        tolerance=subject.tolerance,
        failures=commonest(failures),
        drafts=check,
        size=law.paths,
        repetitions=law.repetitions,
    )


def _by_sampling(
    subject: _Subject,
    samples: int,
    false_alarm_rate: float,
    confidence: float,
    rng: np.random.Generator,
    progress: Progress,
    why: str,
) -> RoundReport:
    """Draw rounds, complete their outputs, and test the texts."""
    outputs: list[tuple[int, ...] | Failure] = []
    drafted = np.empty((samples, len(subject.drafts.parents)), dtype=np.int64)
    step = subject.batch or 256
    with seeded_torch(rng):
        for start in range(0, samples, step):
            rows = drafted[start : start + step]
            if subject.sampler is None:
                rows[:] = subject.drafts.draw(
                    subject.draft, lambda laws: _draw(laws, rng), len(rows)
                )
            else:
                for row in rows:
                    row[:] = subject.sampled(rng)
            outputs += subject.play(rows, rng)
            progress("sampling", min(1.0, (start + step) / samples))
    failures = Counter(output.what for output in outputs if isinstance(output, Failure))
    share = false_alarm_rate / (1 + (subject.sampler is not None))
    law = np.append(_texts(subject), 0.0)
    cells = _cells(subject, outputs, rng)
    first, second = (np.bincount(half, minlength=law.size) for half in np.array_split(cells, 2))
    output = (first + second) / samples
    given = [len(tokens) for tokens in outputs if not isinstance(tokens, Failure)]
    return RoundReport(
        rule=subject.name,
        drafted=str(subject.drafts),
        method="sampling",
        why_sampled=why,
        target=_shaped(subject, law[:-1]),
        output=_shaped(subject, output[:-1]),
        tokens=sum(given) / samples,
        total_variation=total_variation(output, law),
        interval=total_variation_interval(first, second, law, confidence),
        confidence=confidence,
        tolerance=subject.tolerance,
        test=g_test(first + second, law, share),
        false_alarm_rate=false_alarm_rate,
        failures=commonest({what: count / samples for what, count in failures.items()}),
        drafts=None if subject.sampler is None else _sampled_drafts(subject, drafted, share),
        size=samples,
    )


def _texts(subject: _Subject) -> FloatArray:
    """The target's law of L + 1 tokens, as one vector."""
    law = np.ones(1)
    for table in subject.target:
        law = (law[:, None] * table).reshape(-1)
    return law


def _shaped(subject: _Subject, law: FloatArray) -> FloatArray:
    return law.reshape((subject.vocab_size,) * (subject.drafts.depth + 1))


def _index(tokens: Sequence[int], size: int) -> int:
    index = 0
    for token in tokens:
        index = index * size + token
    return index


def _completed(subject: _Subject, outputs: Mapping[tuple[int, ...], float]) -> FloatArray:
    """The law of texts of L + 1 tokens: outputs, continued by the target."""
    size = subject.vocab_size
    ending: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for tokens, weight in outputs.items():
        ending[len(tokens)].append((_index(tokens, size), weight))
    law = np.zeros(1)
    for level, table in enumerate(subject.target):
        law = (law[:, None] * table).reshape(-1)
        for index, weight in ending[level + 1]:
            law[index] += weight
    return law


def _cells(
    subject: _Subject, outputs: list[tuple[int, ...] | Failure], rng: np.random.Generator
) -> IntArray:
    """The text of each round, continued by the target; failures are a text of their own."""
    size = subject.vocab_size
    whole = [isinstance(output, tuple) for output in outputs]
    length = np.array([len(o) if isinstance(o, tuple) else 0 for o in outputs])
    index = np.array([_index(o, size) if isinstance(o, tuple) else 0 for o in outputs])
    for level in range(1, subject.drafts.depth + 1):
        short = np.array(whole) & (length == level)
        if short.any():
            laws = subject.target[level][index[short]]
            index[short] = index[short] * size + _draw(laws, rng)
            length[short] += 1
    return np.where(whole, index, size ** (subject.drafts.depth + 1))


def _draw(laws: FloatArray, rng: np.random.Generator) -> IntArray:
    """One token from each row, by inversion; never one of probability 0."""
    steps = np.cumsum(laws, axis=1)
    level = rng.random((len(laws), 1)) * steps[:, -1:]
    last = (steps < steps[:, -1:]).sum(axis=1)
    tokens: IntArray = np.minimum((steps <= level).sum(axis=1), last).astype(np.int64)
    return tokens


def _exact_drafts(subject: _Subject, drafted: Mapping[tuple[int, ...], float]) -> DraftCheck:
    size = subject.vocab_size
    tokens, mass = subject.drafts.listed(subject.draft)
    found = np.zeros(len(mass))
    for drawn, weight in drafted.items():
        found[_index(drawn, size)] += weight
    apart = total_variation(found, mass)
    never = (mass <= 0.0) & (found > 0.0)
    return DraftCheck(
        agrees=apart <= subject.tolerance,
        declared=str(subject.drafts),
        total_variation=apart,
        impossible=float(found[never].sum()),
        example=tuple(tokens[never][0].tolist()) if never.any() else (),
        repeats=np.nan,
        expected_repeats=np.nan,
        tests={},
    )


def _sampled_drafts(subject: _Subject, drafted: IntArray, rate: float) -> DraftCheck:
    size = subject.vocab_size
    tokens, mass = subject.drafts.listed(subject.draft)
    cells = drafted @ size ** np.arange(drafted.shape[1])[::-1]
    counts = np.bincount(cells, minlength=mass.size)
    test = g_test(counts, mass, rate)
    never = (mass <= 0.0) & (counts > 0)
    return DraftCheck(
        agrees=not test.rejected,
        declared=str(subject.drafts),
        total_variation=np.nan,
        impossible=test.impossible,
        example=tuple(tokens[never][0].tolist()) if never.any() else (),
        repeats=np.nan,
        expected_repeats=np.nan,
        tests={"drafted tokens": test},
    )
