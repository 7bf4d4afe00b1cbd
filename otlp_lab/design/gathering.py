"""Gathering of acceptance statistics of draftings on texts decoded from the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from otlp.checks import is_a, number, whole_number
from otlp.decode.drafting import TopTree, delayed_paths, iid_paths, tree_shape
from otlp.decode.drafting.growing import check_slots
from otlp.decode.models.calibration import calibration_of
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
from otlp_lab.design.shared_noise import along_texts
from otlp_lab.design.static_trees import best_static_tree
from otlp_lab.design.statistics import FAMILIES, Candidate, Statistics
from otlp_lab.design.text_renewal import Renewal, WrittenText, without_undrafted
from otlp_lab.design.top_trees import top_tree_renewals

PATHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
"""Numbers of paths of candidates."""
THRESHOLDS = (0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002)
"""Thresholds of adaptive depth."""
COVERAGES = (0.5, 0.85)
"""Coverages of adaptive branching."""
AHEAD = (1.0, 1.3)
"""Values of `ahead` of `best_mixed_shape`."""
TRUNKS, BELOW = (1, 2, 3), (2, 3, 4, 6, 8)
"""Trunk lengths and numbers of paths of delayed paths."""
MOST_TRIES = 16
"""Maximum number of siblings drawn without replacement."""
SIMULATED_PATHS = 32
"""Number of simulated paths per position, for the mean number of drafted nodes."""


def passes(budgets: Sequence[int], temperatures: int = 1, top: bool = True) -> int:
    """Return the number of `progress` calls of `gather_statistics`."""
    trees = 3 + len(AHEAD) + len(COVERAGES)
    most = max(budgets)
    paths = sum(k <= most for k in PATHS) + len(list(_delays(most)))
    every = temperatures * (1 + paths + trees * len(set(budgets)))
    return every + 2 * top


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
    """Predict the efficiency of draftings from texts decoded from the target.

    Parameters
    ----------
    texts : sequence of WrittenText
        Texts with the distributions under `sampling`; about twenty texts of a hundred tokens
        suffice.
    draft, target : str
        Names of the models.
    sampling : Sampling
    budgets : sequence of int
        Node budgets of trees; paths are evaluated up to the largest budget.
    length : int
        Maximum path length.
    draft_temperatures : sequence of float or None
        Temperatures of the draft; None is the temperature of `sampling`.
    begun : callable, optional
        Maps the index of a text to the draft model at the beginning of the text, and its token ids.
        Deterministic trees and trees with shared noise need this draft, and are omitted without it.
    progress : callable, optional
        Called with a label before each step.

    Returns
    -------
    Statistics

    Raises
    ------
    InvalidInputError
        If `texts` or `budgets` is empty, a budget is less than 1, or a text has at most `length`
        tokens.

    Notes
    -----
    There is one pass over the text for each number of paths K, which covers every L and every
    adaptive depth, and one pass with `tournament` for each tree: O(V) per token and depth.  The
    trees are optimal if all nodes have the mean acceptance (Sequoia's dynamic program with the
    exact optimum, or with the acceptance of each attempt).  Their efficiency is computed without
    this assumption; for siblings without replacement it is an unbiased estimate with a fixed seed.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab.design import WrittenText, gather_statistics
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # the draft equals the target
    >>> text = WrittenText(np.array([0, 1, 0, 2, 0, 1, 1, 0]), model, model)
    >>> from otlp.decode import Sampling
    >>> statistics = gather_statistics(
    ...     [text, text], draft="d", target="t", sampling=Sampling(), budgets=(2,), length=2)
    >>> [str(candidate) for candidate in statistics.candidates][:2]
    ['iid_paths(1, 1)', 'iid_paths(1, 2)']
    """
    say = progress or (lambda _: None)
    _check(texts, budgets, length)
    budgets = sorted(set(budgets))
    whole, texts = texts, [without_undrafted(text) for text in texts]
    candidates: list[Candidate] = []
    for one in draft_temperatures:
        drafted = texts if one is None else [at_temperature(text, sampling, one) for text in texts]
        candidates += (
            replace(candidate, draft_temperature=one)
            for candidate in _sampling_drafts(drafted, budgets, length, say)
        )
    if begun is not None:
        calibration = calibration_of(target, draft)
        noisy = along_texts(begun, whole, calibration)
        for family, drafts in (("top", begun), ("shared-noise", noisy)):
            say(f"{family.replace('-', ' ')} trees")
            tree = TopTree(max(budgets), length)
            renewals = top_tree_renewals(drafts, texts, tree, length, budgets)
            for nodes, renewal in zip(budgets, renewals, strict=True):
                depth = min(length, nodes)
                candidates.append(_candidate(family, (nodes, depth), nodes, depth, renewal))
    tokens = sum(len(text) for text in texts)
    return Statistics(draft, target, sampling, len(texts), tokens, tuple(candidates))


def at_temperature(text: WrittenText, sampling: Sampling, temperature: float) -> WrittenText:
    """Return the text with the draft at another temperature.

    Raises
    ------
    InvalidInputError
        If a temperature is not positive, or the sampling uses top-p or min-p, whose cuts depend on
        the temperature.
    """
    own = number(temperature, "the draft's temperature", 0.0)
    if not own or not sampling.temperature or sampling.top_p < 1.0 or sampling.min_p:
        raise InvalidInputError(
            "another draft temperature needs positive temperatures and no top-p or min-p, got "
            f"draft temperature {own:g} and {sampling}"
        )
    # The largest entry is 1, so no row underflows to zero.
    scaled = text.drafts / text.drafts.max(axis=1, keepdims=True)
    sharper = scaled ** (sampling.temperature / own)
    return replace(text, drafts=sharper / sharper.sum(axis=1, keepdims=True))


def _sampling_drafts(
    texts: Sequence[WrittenText], budgets: Sequence[int], length: int, say: Callable[[str], None]
) -> Iterator[Candidate]:
    """Yield the candidates that sample tokens from the draft."""
    most = max(budgets)
    say("nodes")
    acceptance: list[float] = np.diff(mean_acceptance(texts, 0, min(most, 32))[0]).tolist()
    longest = min(length, most)
    worths = [_path_probabilities(text, longest) for text in texts]
    drawn = [_drawn_chances(text) for text in texts]
    for paths in [k for k in PATHS if k <= most]:
        say(f"{paths} paths")
        longer = iid_paths(paths, longest)
        profiles = [tournament_profile(text, longer, longest) for text in texts]
        yield from _paths(profiles, paths, most)
        yield from _adaptive_depths(profiles, worths, drawn, paths, longest, most)
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
    for nodes in budgets:
        for family, parameters, used in _trees(acceptance, mixed, nodes, min(length, nodes)):
            say(f"{family}, {nodes} nodes")
            drafting = FAMILIES[family](*parameters)
            renewal = Renewal.of(tournament_profile(text, drafting, length) for text in texts)
            yield _candidate(family, parameters, used, drafting.length, renewal)
    tries = acceptance_by_try(texts, min(MOST_TRIES, most), np.random.default_rng(0))
    for nodes in budgets:
        say(f"without replacement, {nodes} nodes")
        rng = np.random.default_rng(nodes)
        shape, _ = best_static_tree(tries.clip(0.0, 1.0).tolist(), nodes, min(length, nodes))
        tree = tree_shape(shape)
        renewal = Renewal.of(
            rejection_profile(text, tree, length, "traversal", rng) for text in texts
        )
        made = shape, "without-replacement"
        yield _candidate("without-replacement", made, len(shape) - 1, tree.length, renewal)


def _delays(most: int) -> Iterator[tuple[int, int]]:
    """Return trunk lengths and numbers of paths with at most `most` nodes at path length 1."""
    return ((trunk, paths) for trunk in TRUNKS for paths in BELOW if trunk + paths <= most)


def _check(texts: Sequence[WrittenText], budgets: Sequence[int], length: int) -> None:
    """Check the arguments of `gather_statistics`."""
    if not isinstance(texts, (list, tuple)) or not texts:
        raise InvalidInputError(
            f"texts must be a nonempty list of texts decoded from the target, got {texts!r:.60}"
        )
    for text in texts:
        is_a(text, WrittenText, "a text")
        text.starts(length)
    if not isinstance(budgets, (list, tuple)) or not budgets:
        raise InvalidInputError(f"budgets must be a list of numbers of nodes, got {budgets!r:.60}")
    check_slots(max(whole_number(nodes, "a budget of nodes") for nodes in budgets))


def _trees(
    acceptance: Sequence[float], mixed: FloatArray, nodes: int, depth: int
) -> Iterator[tuple[str, tuple[Any, ...], int]]:
    """Yield families, parameters and numbers of nodes of trees of at most `nodes` nodes."""
    tree, _ = best_static_tree(acceptance, nodes, depth)
    yield "tree", (tree, "iid"), len(tree) - 1
    branching, _ = best_mixed_branching(mixed, nodes, depth)
    yield "mixed", (branching,), int(np.cumprod([sum(pair) for pair in branching]).sum())
    for ahead in AHEAD:
        shape, _ = best_mixed_shape(mixed, nodes, depth, ahead)
        yield "mixed-shape", (shape,), count_slots(shape) - 1
    for coverage in COVERAGES:
        yield "adaptive-branching", (nodes, depth, coverage), nodes


def _candidate(
    family: str, parameters: tuple[Any, ...], nodes: float, depth: int, renewal: Renewal
) -> Candidate:
    error = renewal.error
    return Candidate(
        *(family, parameters, nodes, depth, renewal.efficiency, error if isfinite(error) else 0.0),
        tokens=renewal.tokens,
        calls=renewal.calls,
    )


def _paths(profiles: Sequence[FloatArray], paths: int, most: int) -> Iterator[Candidate]:
    """Yield K paths of each length."""
    for length in range(1, min(profiles[0].shape[1] - 1, most // paths) + 1):
        renewal = Renewal.of(profile[:, : length + 1] for profile in profiles)
        yield _candidate("paths", (paths, length), paths * length, length, renewal)


def _path_probabilities(text: WrittenText, length: int) -> FloatArray:
    """Return the draft's probability of the next l tokens at each start, shape (starts, L)."""
    chances = text.drafts[np.arange(len(text)), text.tokens].astype(np.float64)
    starts = text.starts(length)
    ahead = np.stack([chances[at : at + starts] for at in range(length)], axis=1)
    return np.cumprod(ahead, axis=1, dtype=np.float64)


def _adaptive_depths(
    profiles: Sequence[FloatArray],
    worths: Sequence[FloatArray],
    drawn: Sequence[FloatArray],
    paths: int,
    length: int,
    most: int,
) -> Iterator[Candidate]:
    """Yield K paths of adaptive depth, whose prefixes are those of plain paths up to their ends.

    The text does not determine the lengths of drafted paths that leave the text.  Their mean is
    approximated with the draft's distributions along the text.
    """
    for threshold in THRESHOLDS:
        nodes = paths * (1.0 + float(np.mean([_levels(one, length, threshold) for one in drawn])))
        if nodes > most:
            break
        cut = []
        for profile, worth in zip(profiles, worths, strict=True):
            extended = np.ones(profile.shape)
            extended[:, 2:] = worth[: len(profile), : profile.shape[1] - 2] >= threshold
            cut.append(profile * extended)
        parameters = (paths, length, threshold)
        yield _candidate("adaptive-depth", parameters, nodes, length, Renewal.of(cut))


def _drawn_chances(text: WrittenText) -> FloatArray:
    """Draw tokens from the draft at each position; return their q, shape (T, SIMULATED_PATHS)."""
    uniform = np.random.default_rng(0).random((len(text), SIMULATED_PATHS))
    pairs = zip(text.places, uniform, strict=True)
    return np.stack([q[invert_cdf(np.cumsum(q), at)] for (_, _, q), at in pairs])


def _levels(chances: FloatArray, length: int, threshold: float) -> float:
    """Return the mean number of tokens after the first of a path of adaptive depth."""
    starts = len(chances) - length
    worth, levels = np.ones((starts, SIMULATED_PATHS)), 0.0
    for depth in range(length - 1):
        worth = worth * chances[depth : depth + starts]
        levels += float(np.mean(worth >= threshold))
    return levels
