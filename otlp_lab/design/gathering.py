"""Gather acceptance statistics: what each drafting would give on texts that the target wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from otlp.checks import is_a, number, whole_number
from otlp.decode.drafting import TopTree, delayed_paths, iid_paths, tree_shape
from otlp.decode.drafting.growing import check_slots
from otlp.decode.models.calibration import Calibration, calibration_of
from otlp.decode.models.model import Model, Sampling
from otlp.distribution import FloatArray, IntArray, invert_cdf
from otlp.errors import InvalidInputError
from otlp_lab.design.mixed_nodes import count_slots
from otlp_lab.design.node_acceptance import (
    MOST_CERTAIN,
    MOST_DRAWN,
    best_mixed_branching,
    best_mixed_shape,
    mean_acceptance,
)
from otlp_lab.design.profiles import tournament_profile
from otlp_lab.design.rejection_profiles import acceptance_by_try, rejection_profile
from otlp_lab.design.shared_noise import shared_noise_renewal
from otlp_lab.design.static_trees import best_static_tree
from otlp_lab.design.statistics import FAMILIES, Candidate, Statistics
from otlp_lab.design.text_renewal import Renewal, WrittenText, without_undrafted
from otlp_lab.design.top_trees import top_tree_renewal

PATHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
"""Numbers of paths that are tried."""
THRESHOLDS = (0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002)
"""Of the paths' adaptive depth."""
COVERAGES = (0.5, 0.85)
"""Of adaptive branching."""
AHEAD = (1.0, 1.3)
"""See `best_mixed_shape`."""
TRUNKS, BELOW = (1, 2, 3), (2, 3, 4, 6, 8)
"""Tokens before delayed paths branch, and into how many."""
MOST_TRIES = 16
"""Siblings of a tree whose siblings are drawn without replacement."""
STAND_INS = 32
"""Paths that are imitated from each place, for the mean number of drafted nodes."""


def passes(budgets: Sequence[int], temperatures: int = 1, top: bool = True) -> int:
    """How often `gather_statistics` calls `progress`."""
    trees = 3 + len(AHEAD) + len(COVERAGES)
    most = max(budgets)
    paths = sum(k <= most for k in PATHS) + len(list(_delays(most)))
    every = temperatures * (1 + paths + trees * len(set(budgets)))
    return every + 2 * top * len(set(budgets))


def gather_statistics(
    texts: Sequence[WrittenText],
    *,
    draft: str,
    target: str,
    sampling: Sampling,
    budgets: Sequence[int] = (8, 16, 32),
    length: int = 12,
    draft_temperatures: Sequence[float | None] = (None,),
    begun: Callable[[int], tuple[Model, IntArray]] | None = None,
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
    draft_temperatures : sequence of float or None
        At which the draft may sample; None is the sampling's own.
    begun : callable, optional
        From the number of a text to the draft model at its beginning, and the text's token ids.
        Deterministic trees, and those that grow by shared noise, are drafted by it; without it
        they are left out.
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
    optimum, or with what each try accepts); what they give is computed without that assumption,
    for siblings without replacement as an unbiased estimate, with a fixed seed.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.design import WrittenText, gather_statistics
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # both say the same
    >>> text = WrittenText(np.array([0, 1, 0, 2, 0, 1, 1, 0]), model, model)
    >>> from otlp.decode import Sampling
    >>> statistics = gather_statistics(
    ...     [text, text], draft="d", target="t", sampling=Sampling(), budgets=(2,), length=2)
    >>> [str(candidate) for candidate in statistics.candidates][:2]
    ['iid_paths(1, 1)', 'iid_paths(1, 2)']
    """
    say = progress or (lambda _: None)
    _check(texts, budgets, length)
    whole, texts = texts, [without_undrafted(text) for text in texts]
    candidates: list[Candidate] = []
    for one in draft_temperatures:
        drafted = texts if one is None else [at_temperature(text, sampling, one) for text in texts]
        candidates += (
            replace(candidate, draft_temperature=one)
            for candidate in _sampled(drafted, budgets, length, say)
        )
    if begun is not None:
        candidates += _certain(texts, budgets, length, begun, say)
        calibration = calibration_of(target, draft)
        candidates += _noisy(whole, budgets, length, begun, calibration, say)
    tokens = sum(len(text) for text in texts)
    return Statistics(draft, target, sampling, len(texts), tokens, tuple(candidates))


def at_temperature(text: WrittenText, sampling: Sampling, temperature: float) -> WrittenText:
    """The same text with the draft at a temperature of its own.

    Raises
    ------
    InvalidInputError
        If either temperature is not positive, or the sampling cuts by top-p or min-p, whose
        cuts are others at another temperature.
    """
    own = number(temperature, "the draft's temperature", 0.0)
    if not own or not sampling.temperature or sampling.top_p < 1.0 or sampling.min_p:
        raise InvalidInputError(
            f"the draft's temperature is {own:g} and the sampling {sampling}: drafts at another "
            "temperature follow from those along the text where both temperatures are positive "
            "and there is no top-p or min-p"
        )
    # the largest is 1: no row vanishes
    scaled = text.drafts / text.drafts.max(axis=1, keepdims=True)
    sharper = scaled ** (sampling.temperature / own)
    return replace(text, drafts=sharper / sharper.sum(axis=1, keepdims=True))


def _sampled(
    texts: Sequence[WrittenText], budgets: Sequence[int], length: int, say: Callable[[str], None]
) -> Iterator[Candidate]:
    """Everything that draws tokens."""
    most = max(budgets)
    say("nodes")
    acceptance: list[float] = np.diff(mean_acceptance(texts, 0, min(most, 32))[0]).tolist()
    longest = min(length, most)
    worths = [_worths(text, longest) for text in texts]
    drawn = [_drawn_chances(text) for text in texts]
    for paths in [k for k in PATHS if k <= most]:
        say(f"{paths} paths")
        longer = iid_paths(paths, longest)
        profiles = [tournament_profile(text, longer, longest) for text in texts]
        yield from _paths(profiles, paths, most)
        yield from _deep(profiles, worths, drawn, paths, longest, most)
    for trunk, paths in _delays(most):
        say(f"{paths} paths after {trunk}")
        below = min((most - trunk) // paths, length - trunk)
        if below < 1:
            continue
        longer = delayed_paths(trunk, paths, below)
        profiles = [tournament_profile(text, longer, length) for text in texts]
        for deep in range(1, below + 1):
            renewal = Renewal.of(profile[:, : trunk + deep + 1] for profile in profiles)
            parameters = trunk, paths, deep
            yield _candidate("delayed", parameters, trunk + paths * deep, trunk + deep, renewal)
    mixed = mean_acceptance(texts, MOST_CERTAIN, MOST_DRAWN)
    for nodes in sorted(set(budgets)):
        for family, parameters in _trees(acceptance, mixed, nodes, min(length, nodes)):
            say(f"{family}, {nodes} nodes")
            drafting = FAMILIES[family](*parameters)
            renewal = Renewal.of(tournament_profile(text, drafting, length) for text in texts)
            used = _most_nodes(family, parameters)
            yield _candidate(family, parameters, used, drafting.length, renewal)
    tries = acceptance_by_try(texts, min(MOST_TRIES, most), np.random.default_rng(0))
    for nodes in sorted(set(budgets)):
        say(f"without replacement, {nodes} nodes")
        rng = np.random.default_rng(nodes)
        shape, _ = best_static_tree(tries.clip(0.0, 1.0).tolist(), nodes, min(length, nodes))
        tree = tree_shape(shape)
        renewal = Renewal.of(
            rejection_profile(text, tree, length, "traversal", rng) for text in texts
        )
        made = shape, "without-replacement"
        yield _candidate("without-replacement", made, len(shape) - 1, tree.length, renewal)


def _certain(
    texts: Sequence[WrittenText],
    budgets: Sequence[int],
    length: int,
    begun: Callable[[int], tuple[Model, IntArray]],
    say: Callable[[str], None],
) -> Iterator[Candidate]:
    """Trees of the draft's likeliest tokens, which are drafted along the text."""
    for nodes in sorted(set(budgets)):
        say(f"top, {nodes} nodes")
        deep = min(length, nodes)
        renewal = top_tree_renewal(begun, texts, TopTree(nodes, deep), length)
        yield _candidate("top", (nodes, deep), nodes, deep, renewal)


def _noisy(
    texts: Sequence[WrittenText],
    budgets: Sequence[int],
    length: int,
    begun: Callable[[int], tuple[Model, IntArray]],
    calibration: Calibration,
    say: Callable[[str], None],
) -> Iterator[Candidate]:
    """Trees of the tokens that are likeliest given the target's noise."""
    for nodes in sorted(set(budgets)):
        say(f"shared noise, {nodes} nodes")
        drafting = TopTree(nodes, min(length, nodes))
        renewal = shared_noise_renewal(begun, texts, drafting, length, calibration)
        yield _candidate("shared-noise", (nodes, drafting.most), nodes, drafting.most, renewal)


def _delays(most: int) -> Iterator[tuple[int, int]]:
    """Trunks, and numbers of paths below them, of at most so many nodes."""
    return ((trunk, paths) for trunk in TRUNKS for paths in BELOW if trunk + paths <= most)


def _check(texts: Sequence[WrittenText], budgets: Sequence[int], length: int) -> None:
    """Refuse what nothing can be gathered from."""
    if not isinstance(texts, (list, tuple)) or not texts:
        raise InvalidInputError(
            f"texts is {texts!r:.60}: give a list of at least one text that the target wrote"
        )
    for text in texts:
        is_a(text, WrittenText, "a text")
        text.starts(length)
    if not isinstance(budgets, (list, tuple)) or not budgets:
        raise InvalidInputError(f"budgets is {budgets!r:.60}: give a list of numbers of nodes")
    check_slots(max(whole_number(nodes, "a budget of nodes") for nodes in budgets))


def _trees(
    acceptance: Sequence[float], mixed: FloatArray, nodes: int, depth: int
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Families and parameters of the trees of so many nodes that are looked at."""
    yield "tree", (best_static_tree(acceptance, nodes, depth)[0], "iid")
    yield "mixed", (best_mixed_branching(mixed, nodes, depth)[0],)
    for ahead in AHEAD:
        yield "mixed-shape", (best_mixed_shape(mixed, nodes, depth, ahead)[0],)
    for coverage in COVERAGES:
        yield "adaptive-branching", (nodes, depth, coverage)


def _candidate(
    family: str, parameters: tuple[Any, ...], nodes: float, depth: int, renewal: Renewal
) -> Candidate:
    error = renewal.error
    return Candidate(
        *(family, parameters, nodes, depth, renewal.efficiency, error if isfinite(error) else 0.0),
        tokens=renewal.tokens,
        calls=renewal.calls,
    )


def _most_nodes(family: str, parameters: tuple[Any, ...]) -> int:
    if family == "tree":
        return len(parameters[0]) - 1
    if family == "mixed":
        return int(np.cumprod([sum(pair) for pair in parameters[0]]).sum())
    if family == "mixed-shape":
        return count_slots(parameters[0]) - 1
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
    drawn: Sequence[FloatArray],
    paths: int,
    length: int,
    most: int,
) -> Iterator[Candidate]:
    """K paths of adaptive depth: their prefixes are those of plain paths, as far as they go.

    How far they go off the text is not known from it: the draft's distributions along the text
    stand for those along its own paths.
    """
    for threshold in THRESHOLDS:
        nodes = paths * (1.0 + float(np.mean([_levels(one, length, threshold) for one in drawn])))
        if nodes > most:
            break
        cut = []
        for profile, worth in zip(profiles, worths, strict=True):
            goes_on = np.ones(profile.shape)
            goes_on[:, 2:] = worth[: len(profile), : profile.shape[1] - 2] >= threshold
            cut.append(profile * goes_on)
        parameters = (paths, length, threshold)
        yield _candidate("adaptive-depth", parameters, nodes, length, Renewal.of(cut))


def _drawn_chances(text: WrittenText) -> FloatArray:
    """Draw tokens from the draft at each place, and return their q, shape (T, STAND_INS)."""
    uniform = np.random.default_rng(0).random((len(text), STAND_INS))
    pairs = zip(text.places, uniform, strict=True)
    return np.stack([q[invert_cdf(np.cumsum(q), at)] for (_, _, q), at in pairs])


def _levels(chances: FloatArray, length: int, threshold: float) -> float:
    """Mean number of tokens after the first of a path of adaptive depth."""
    starts = len(chances) - length
    worth, levels = np.ones((starts, STAND_INS)), 0.0
    for depth in range(length - 1):
        worth = worth * chances[depth : depth + starts]
        levels += float(np.mean(worth >= threshold))
    return levels
