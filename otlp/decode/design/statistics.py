"""Acceptance statistics of one pair of models: what each drafting would give on text of the target.

They are gathered once and kept: a small value that knows its pair and its sampling, goes through
JSON, and is all that `design` looks at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from otlp.checks import is_a, number, whole_number
from otlp.decode.design.candidates import FAMILIES, Candidate, candidate, most_nodes, tuples
from otlp.decode.design.node_acceptance import (
    MOST_CERTAIN,
    MOST_DRAWN,
    best_mixed_branching,
    best_mixed_shape,
    mean_acceptance,
)
from otlp.decode.design.profiles import tournament_profile
from otlp.decode.design.static_trees import best_static_tree
from otlp.decode.design.text_renewal import Renewal, WrittenText
from otlp.decode.drafting import iid_paths
from otlp.decode.drafting.growing import check_slots
from otlp.decode.json_files import from_json, read_text, to_json
from otlp.decode.models.model import Model, Sampling
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
FORMAT = "otlp-acceptance-1"
STAND_INS = 32
"""Paths that are imitated from each place, for the mean number of drafted nodes."""


@dataclass(frozen=True)
class Statistics:
    """What draftings would give for one pair of models and one way of sampling.

    Attributes
    ----------
    draft, target : str
        Names of the models.
    sampling : Sampling
        Of both models, and of the text.
    texts, tokens : int
        How many texts, and how many tokens these have together.
    acceptance : tuple of float
        Mean acceptance of the exact optimum that 1, 2, ... i.i.d. children add.
    candidates : tuple of Candidate
        Not empty.

    Raises
    ------
    InvalidInputError
        If there is no candidate, or a value is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp.decode.design import WrittenText, Statistics, gather_statistics
    >>> model = np.tile([0.5, 0.3, 0.2], (8, 1))              # both say the same
    >>> text = WrittenText(np.array([0, 1, 0, 2, 0, 1, 1, 0]), model, model)
    >>> from otlp.decode import Sampling
    >>> statistics = gather_statistics(
    ...     [text, text], draft="d", target="t", sampling=Sampling(), budgets=(2,), length=2)
    >>> statistics.texts, statistics.tokens
    (2, 16)
    >>> Statistics.from_json(statistics.to_json()) == statistics
    True
    """

    draft: str
    target: str
    sampling: Sampling
    texts: int
    tokens: int
    acceptance: tuple[float, ...]
    candidates: tuple[Candidate, ...]

    def __post_init__(self) -> None:
        is_a(self.sampling, Sampling, "sampling")
        for name in ("draft", "target"):
            is_a(getattr(self, name), str, name)
        if not self.candidates:
            raise InvalidInputError(
                "the acceptance statistics are empty: gather them from text that the target wrote"
            )
        for one in self.candidates:
            is_a(one, Candidate, "a candidate")
            number(one.nodes, f"nodes of {one.family} {one.parameters!r:.40}", 1.0)
            number(one.efficiency, f"efficiency of {one.family} {one.parameters!r:.40}", 1.0)
            if one.family not in FAMILIES:
                raise InvalidInputError(
                    f"there is no family {one.family!r:.40}: choose from {', '.join(FAMILIES)}"
                )

    def check_pair(self, draft: Model, target: Model) -> None:
        """Refuse models that the statistics are not of.

        Raises
        ------
        InvalidInputError
            Naming both pairs, or both ways of sampling.
        """
        is_a(draft, Model, "the draft model")
        is_a(target, Model, "the target model")
        if (draft.name, target.name) != (self.draft, self.target):
            raise InvalidInputError(
                f"the statistics are of target {self.target} with draft {self.draft}, not of "
                f"target {target.name} with draft {draft.name}: gather them for this pair"
            )
        for model in (draft, target):
            if model.sampling != self.sampling:
                raise InvalidInputError(
                    f"the statistics are of {self.sampling}, and {model.name} samples with "
                    f"{model.sampling}: gather them for this sampling"
                )

    def to_json(self) -> str:
        """Write everything as JSON."""
        return to_json(self, FORMAT)

    @classmethod
    def from_json(cls, text: str) -> Statistics:
        """Read what `to_json` wrote.

        Raises
        ------
        InvalidInputError
            If it is something else, or a value is out of its range.
        """

        def make(found: dict[str, Any]) -> Statistics:
            found["sampling"] = Sampling(**found["sampling"])
            found["acceptance"] = tuple(map(float, found["acceptance"]))
            found["candidates"] = tuple(
                Candidate(**{**one, "parameters": tuples(one["parameters"])})
                for one in found["candidates"]
            )
            return cls(**found)

        return from_json(
            text, FORMAT, make, "these are no acceptance statistics ({reason}): give what otlp "
            "design --statistics wrote",
        )  # fmt: skip

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file.

        Raises
        ------
        InvalidInputError
            If it cannot be written.
        """
        try:
            Path(path).write_text(self.to_json(), encoding="utf-8")
        except (OSError, ValueError, TypeError) as error:
            raise InvalidInputError(f"cannot write {path!r:.60}: {error}") from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Statistics:
        """Read a JSON file.

        Raises
        ------
        InvalidInputError
            If it cannot be read, or holds something else.
        """
        return cls.from_json(read_text(path))


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
    say("nodes")
    acceptance = np.diff(mean_acceptance(texts, 0, min(most, 32))[0])
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
        depth = min(length, nodes)
        asked: dict[str, list[tuple[Any, ...]]] = {
            "tree": [best_static_tree(acceptance, nodes, depth)[0]],
            "mixed": [best_mixed_branching(mixed, nodes, depth)[0]],
            "mixed-shape": [best_mixed_shape(mixed, nodes, depth, ahead)[0] for ahead in AHEAD],
            "adaptive-branching": [(nodes, depth, coverage) for coverage in COVERAGES],
        }
        for family, all_parameters in asked.items():
            for parameters in all_parameters:
                say(f"{family}, {nodes} nodes")
                drafting = FAMILIES[family](*parameters)
                renewal = Renewal.of(tournament_profile(text, drafting, length) for text in texts)
                used = most_nodes(family, parameters)
                candidates.append(candidate(family, parameters, used, drafting.length, renewal))
    tokens = sum(len(text) for text in texts)
    kept = tuple(float(a) for a in acceptance)
    return Statistics(draft, target, sampling, len(texts), tokens, kept, tuple(candidates))


def _paths(profiles: Sequence[FloatArray], paths: int, most: int) -> Iterator[Candidate]:
    """K paths of every length."""
    for length in range(1, min(profiles[0].shape[1] - 1, most // paths) + 1):
        renewal = Renewal.of(profile[:, : length + 1] for profile in profiles)
        yield candidate("paths", (paths, length), paths * length, length, renewal)


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
        yield candidate("adaptive-depth", parameters, nodes, length, Renewal.of(cut))


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
