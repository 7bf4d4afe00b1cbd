"""Gather acceptance statistics: what each drafting would give on texts that the target wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np

from otlp.checks import is_a, whole_number
from otlp.decode.design.node_acceptance import (
    MOST_CERTAIN,
    MOST_DRAWN,
    best_mixed_branching,
    best_mixed_shape,
    mean_acceptance,
)
from otlp.decode.design.profiles import tournament_profile
from otlp.decode.design.static_trees import best_static_tree
from otlp.decode.design.statistics import FAMILIES, Candidate, Statistics
from otlp.decode.design.text_renewal import Renewal, WrittenText
from otlp.decode.drafting import iid_paths
from otlp.decode.drafting.growing import check_slots
from otlp.decode.drafting.mixed import count_slots
from otlp.decode.models.model import Sampling
from otlp.distribution import FloatArray, invert_cdf
from otlp.errors import InvalidInputError

PATHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
"""Numbers of paths that are tried."""
THRESHOLDS = (0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002)
"""Of the paths' adaptive depth."""
COVERAGES = (0.5, 0.85)
"""Of adaptive branching."""
AHEAD = (1.0, 1.3)
"""See `best_mixed_shape`."""
STAND_INS = 32
"""Paths that are imitated from each place, for the mean number of drafted nodes."""


def passes(budgets: Sequence[int]) -> int:
    """How often `gather_statistics` calls `progress`."""
    trees = 2 + len(AHEAD) + len(COVERAGES)
    return 1 + sum(paths <= max(budgets) for paths in PATHS) + trees * len(set(budgets))


def gather_statistics(
    texts: Sequence[WrittenText],
    *,
    draft: str,
    target: str,
    sampling: Sampling,
    budgets: Sequence[int] = (8, 16, 32),
    length: int = 12,
    progress: Callable[[str], None] | None = None,
) -> Statistics:
    """Predict what draftings give from texts that the target wrote.

    Parameters
    ----------
    texts : sequence of WrittenText
        With the distributions that `sampling` gives; some twenty of a hundred tokens will do.
    draft, target : str
        Names of the models.
    sampling : Sampling
    budgets : sequence of int
        Numbers of nodes to find trees for; paths are tried up to the greatest.
    length : int
        Longest path.
    progress : callable, optional
        Called with what is looked at next.

    Returns
    -------
    Statistics

    Raises
    ------
    InvalidInputError
        If there is no text or budget, a budget is less than 1, or a text has no more than
        `length` tokens.

    Notes
    -----
    One pass over the text for each number of paths K, which gives every L and every adaptive
    depth, and one with `tournament` for each tree: O(V) a token and depth.  Trees are those that
    would be best if every node accepted as the mean (Sequoia's programme fed with the exact
    optimum); what they give is computed without that assumption.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode.design import WrittenText, gather_statistics
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # both say the same
    >>> text = WrittenText(np.array([0, 1, 0, 2, 0, 1, 1, 0]), model, model)
    >>> from otlp.decode import Sampling
    >>> statistics = gather_statistics(
    ...     [text, text], draft="d", target="t", sampling=Sampling(), budgets=(2,), length=2)
    >>> [str(candidate) for candidate in statistics.candidates][:2]
    ['iid_paths(1, 1)', 'iid_paths(1, 2)']
    """
    say = progress or (lambda _: None)
    most = _checked(texts, budgets, length)
    say("nodes")
    acceptance: list[float] = np.diff(mean_acceptance(texts, 0, min(most, 32))[0]).tolist()
    candidates: list[Candidate] = []
    for paths in [k for k in PATHS if k <= most]:
        say(f"{paths} paths")
        longest = min(length, most)
        longer = iid_paths(paths, longest)
        profiles = [tournament_profile(text, longer, longest) for text in texts]
        worths = [_worths(text, longest) for text in texts]
        candidates += _paths(profiles, paths, most)
        candidates += _deep(profiles, worths, texts, paths, longest, most)
    mixed = mean_acceptance(texts, MOST_CERTAIN, MOST_DRAWN)
    for nodes in sorted(set(budgets)):
        for family, parameters in _trees(acceptance, mixed, nodes, min(length, nodes)):
            say(f"{family}, {nodes} nodes")
            drafting = FAMILIES[family](*parameters)
            renewal = Renewal.of(tournament_profile(text, drafting, length) for text in texts)
            used = _most_nodes(family, parameters)
            candidates.append(_candidate(family, parameters, used, drafting.length, renewal))
    tokens = sum(len(text) for text in texts)
    found = len(texts), tokens, tuple(acceptance), tuple(candidates)
    return Statistics(draft, target, sampling, *found)


def _checked(texts: Sequence[WrittenText], budgets: Sequence[int], length: int) -> int:
    """Refuse what nothing can be gathered from; the greatest budget."""
    if not isinstance(texts, (list, tuple)) or not texts:
        raise InvalidInputError(
            f"texts is {texts!r:.60}: give a list of at least one text that the target wrote"
        )
    for text in texts:
        is_a(text, WrittenText, "a text")
        text.starts(length)
    if not isinstance(budgets, (list, tuple)) or not budgets:
        raise InvalidInputError(f"budgets is {budgets!r:.60}: give a list of numbers of nodes")
    most = max(whole_number(nodes, "a budget of nodes") for nodes in budgets)
    check_slots(most)
    return most


def _trees(
    acceptance: Sequence[float], mixed: FloatArray, nodes: int, depth: int
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Families and parameters of the trees of so many nodes that are looked at."""
    yield "tree", best_static_tree(acceptance, nodes, depth)[0]
    yield "mixed", best_mixed_branching(mixed, nodes, depth)[0]
    for ahead in AHEAD:
        yield "mixed-shape", best_mixed_shape(mixed, nodes, depth, ahead)[0]
    for coverage in COVERAGES:
        yield "adaptive-branching", (nodes, depth, coverage)


def _candidate(
    family: str, parameters: tuple[Any, ...], nodes: float, depth: int, renewal: Renewal
) -> Candidate:
    error = renewal.error
    return Candidate(
        family, parameters, nodes, depth, renewal.efficiency, error if isfinite(error) else 0.0
    )


def _most_nodes(family: str, parameters: tuple[Any, ...]) -> int:
    if family == "tree":
        return len(parameters) - 1
    if family == "mixed":
        return int(np.cumprod([sum(pair) for pair in parameters]).sum())
    if family == "mixed-shape":
        return count_slots(parameters) - 1
    return int(parameters[0])


def _paths(profiles: Sequence[FloatArray], paths: int, most: int) -> Iterator[Candidate]:
    """K paths of every length."""
    for length in range(1, min(profiles[0].shape[1] - 1, most // paths) + 1):
        renewal = Renewal.of(profile[:, : length + 1] for profile in profiles)
        yield _candidate("paths", (paths, length), paths * length, length, renewal)


def _worths(text: WrittenText, length: int) -> FloatArray:
    """The draft's probability of the next l tokens at each place, shape (starts, L)."""
    chances = text.drafts[np.arange(len(text)), text.tokens].astype(np.float64)
    starts = text.starts(length)
    ahead = np.stack([chances[at : at + starts] for at in range(length)], axis=1)
    found: FloatArray = np.cumprod(ahead, axis=1, dtype=np.float64)
    return found


def _deep(
    profiles: Sequence[FloatArray],
    worths: Sequence[FloatArray],
    texts: Sequence[WrittenText],
    paths: int,
    length: int,
    most: int,
) -> Iterator[Candidate]:
    """K paths of adaptive depth: their prefixes are those of plain paths, as far as they go.

    How far they go off the text is not known from it: the draft's distributions along the text
    stand for those along its own paths.
    """
    for threshold in THRESHOLDS:
        nodes = paths * (1.0 + float(np.mean([_levels(t, length, threshold) for t in texts])))
        if nodes > most:
            break
        cut = []
        for profile, worth in zip(profiles, worths, strict=True):
            goes_on = np.ones(profile.shape)
            goes_on[:, 2:] = worth[: len(profile), : profile.shape[1] - 2] >= threshold
            cut.append(profile * goes_on)
        parameters = (paths, length, threshold)
        yield _candidate("adaptive-depth", parameters, nodes, length, Renewal.of(cut))


def _levels(text: WrittenText, length: int, threshold: float) -> float:
    """Mean number of tokens after the first of a path of adaptive depth."""
    rng = np.random.default_rng(0)
    starts = text.starts(length)
    cumulative = np.cumsum(text.drafts, axis=1)
    uniform = rng.random((len(text), STAND_INS))
    drawn = np.stack([invert_cdf(row, at) for row, at in zip(cumulative, uniform, strict=True)])
    chances = np.take_along_axis(text.drafts, drawn, axis=1)
    worth, levels = np.ones((starts, STAND_INS)), 0.0
    for depth in range(length - 1):
        worth = worth * chances[depth : depth + starts]
        levels += float(np.mean(worth >= threshold))
    return levels
