"""Block efficiency, acceptance and time of verification algorithms on prompts.

A run is one prompt decoded with one algorithm and one seed; a measurement is all runs of one
setting.  Both models read the prompt before the clock starts, so the times are those of decoding.
Prompts are the independent units of intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from otlp.decode.drafting import Drafting, prefix_tree
from otlp.decode.loop import Text, decode
from otlp.decode.models.model import Model
from otlp.decode.round import check_round
from otlp.decode.verification import Verification, find_verification
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError
from otlp.studies.attempt import without_compiling
from otlp.studies.timed import Decoding, Timed, sum_decodings

BASELINE = "autoregressive"


@dataclass(frozen=True)
class Setting:
    """Setting of a measurement: an algorithm by name, K paths of length L, and the temperature.

    The temperature is only a label; the models' `Sampling` sets the temperature of decoding.
    `branching` is the number of children per token at each depth, for a prefix tree of K paths.
    `rule` replaces the algorithm of this name.
    """

    algorithm: str
    paths: int
    length: int
    temperature: float = 1.0
    branching: tuple[int, ...] = ()
    rule: Verification | None = None

    @property
    def verification(self) -> Verification:
        """Verification algorithm.

        Raises
        ------
        InvalidInputError
            If no algorithm has this name.
        """
        return self.rule or find_verification(self.algorithm)

    @property
    def drafting(self) -> Drafting:
        """Drafting of the algorithm.

        Raises
        ------
        InvalidInputError
            If K or L is less than 1.
        UnsupportedProblemError
            If the algorithm is SpecHub and K is not 2, or the tree is too large.
        """
        if self.branching:
            return prefix_tree(self.branching)
        return self.verification.drafting(self.paths, self.length)


@dataclass(frozen=True, eq=False)
class Run:
    """One prompt decoded once.

    Attributes
    ----------
    prompt : int
        Index of the prompt.
    seed : int
    tokens : ndarray of int64
        Decoded tokens.
    accepted : ndarray of int64, shape (rounds,)
        Number of accepted draft tokens in each round.
    draft_calls : int
        Calls of the draft, without reading the prompt.
    took : Decoding
        Counts and wall time, without reading the prompt.
    """

    prompt: int
    seed: int
    tokens: IntArray
    accepted: IntArray
    draft_calls: int
    took: Decoding


@dataclass(frozen=True, eq=False)
class Measurement:
    """All runs of one setting."""

    setting: Setting
    runs: tuple[Run, ...]

    @property
    def timed(self) -> Timed:
        """Counts and times of each prompt, summed over seeds."""
        prompts = dict.fromkeys(run.prompt for run in self.runs)
        runs = ([run.took for run in self.runs if run.prompt == one] for one in prompts)
        return Timed(runs=list(map(sum_decodings, runs)))

    @property
    def acceptance(self) -> FloatArray:
        """Share of rounds that accept at least 1, ..., L draft tokens; shape (L,)."""
        accepted = np.concatenate([run.accepted for run in self.runs])
        positions = np.arange(1, self.setting.length + 1)
        shares: FloatArray = (accepted[:, None] >= positions).mean(axis=0)
        return shares


def measure(
    draft: Model,
    target: Model,
    prompts: Sequence[IntArray],
    setting: Setting,
    *,
    max_tokens: int = 64,
    seeds: Sequence[int] = (0,),
    progress: Callable[[], None] = lambda: None,
) -> Measurement:
    """Decode all prompts with all seeds in one setting.

    Parameters
    ----------
    draft, target : Model
        Models; their `sampling` is used unchanged.
    prompts : sequence of ndarray of int64
    setting : Setting
    max_tokens : int
        Maximum number of tokens per run; the last round is completed and may exceed it.
    seeds : sequence of int
        Seeds; each prompt is decoded once per seed.  Prompt i and seed s use
        ``default_rng([s, i])`` in every setting, or the noise of (s, i).
    progress : callable, optional
        Called after each run.

    Raises
    ------
    InvalidInputError, UnsupportedProblemError
        If `prompts` or `seeds` is empty, or models, setting and prompts are incompatible.

    Notes
    -----
    A first round, which is not counted, loads weights and kernels; a run that compiles code is
    repeated.
    """
    if not prompts or not seeds:
        raise InvalidInputError("prompts and seeds must not be empty: give at least one of each")
    verification, drafting = setting.verification, setting.drafting
    check_round(draft, target, drafting, verification)

    def play(index: int, seed: int, tokens: int) -> Text:
        rng = np.random.default_rng([seed, index])
        small, large = verification.models(draft, target, (seed, index))
        how: dict[str, Any] = {"draft": small, "drafting": drafting, "verification": verification}
        (text,) = decode(large, [prompts[index]], tokens, rng, **how)
        return text

    for prompt in prompts:
        _check_room((draft, target), prompt, drafting)
    play(0, 0, 1)
    runs = []
    for index in range(len(prompts)):
        for seed in seeds:
            text = without_compiling(partial(play, index, seed, max_tokens))
            runs.append(whole_rounds(index, seed, text, target.ends))
            progress()
    return Measurement(setting, tuple(runs))


def _check_room(models: Sequence[Model], prompt: IntArray, drafting: Drafting) -> None:
    for model in models:
        limit = model.context_limit
        if limit is not None and prompt.size + drafting.length + 1 > limit:
            raise InvalidInputError(
                f"prompt of {prompt.size} tokens and a round of up to {drafting.length + 1} tokens "
                f"exceed the context of {model.name}, {limit} tokens: shorten the prompt or the "
                "paths"
            )


def whole_rounds(prompt: int, seed: int, text: Text, ends: Sequence[int]) -> Run:
    """Return the run of a decoded text: all rounds, with tokens cut after an end token."""
    rounds, seconds = text.rounds, text.seconds
    tokens = np.concatenate([one.tokens for one in rounds])
    found = np.flatnonzero(np.isin(tokens, ends))
    tokens = tokens[: found[0] + 1] if found.size else tokens
    parts = {
        "draft": sum(one.draft_seconds for one in rounds),
        "target": sum(one.target_seconds for one in rounds),
        "verification": sum(one.verify_seconds for one in rounds),
    }
    parts["rest"] = seconds - sum(parts.values())
    return Run(
        prompt,
        seed,
        tokens,
        np.array([one.accepted.size for one in rounds], dtype=np.int64),
        # The draft model is called once per level that has children.
        sum(len({int(r.tree.depths[node]) for node in r.tree.draws}) for r in rounds),
        Decoding(tokens.size, len(rounds), len(rounds), parts, seconds, math.nan),
    )


def record(measurement: Measurement, baseline: Measurement) -> dict[str, object]:
    """Return all results of a measurement as JSON values."""
    setting, timed = measurement.setting, measurement.timed
    return {
        "algorithm": setting.algorithm,
        "paths": setting.paths,
        "length": setting.length,
        "temperature": setting.temperature,
        "block_efficiency": timed.block_efficiency.record(),
        "speed_up": timed.speed_up(baseline.timed, "wall").record(),
        "acceptance": measurement.acceptance.tolist(),
        "seconds_per_token": 1.0 / timed.rate("wall").mean,
        "time_shares": timed.shares,
        "draft_calls": sum(run.draft_calls for run in measurement.runs),
        "target_calls": sum(run.took.rounds for run in measurement.runs),
        "runs": [
            {
                "prompt": run.prompt,
                "seed": run.seed,
                "tokens": run.tokens.tolist(),
                "accepted": run.accepted.tolist(),
                "seconds": run.took.wall,
            }
            for run in measurement.runs
        ],
    }
