"""Rounds by shared noise: a tree that grows by it, and equality with what the target draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otlp.decode.drafting import Drafting, TopTree
from otlp.decode.models.calibration import Calibration
from otlp.decode.models.model import Sampling
from otlp.device.llama import Llama
from otlp.device.noise_steps import (
    Grown,
    GrownShape,
    grow_step,
    noise_step,
    plain_step,
    score_step,
    settle,
    walk,
)
from otlp.device.round_state import Rounds, RoundState
from otlp.device.steps import Step
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.numerics.exponentials import seed_key


class Raced(NamedTuple):
    """The rows of noise of a round, what is drafted, and what the target draws."""

    noise: Tensor
    grown: Grown
    drawn: Tensor


class NoiseRounds(Rounds):
    """A `TopTree` by the noise of seeds, or without a draft the target's draws.

    Parameters
    ----------
    models : list of Llama
    sampling, draft_sampling : Sampling
    clock : callable
    drafting : Drafting
    calibration : Calibration

    Raises
    ------
    UnsupportedProblemError
        If the drafting is no `TopTree` of one node at least.
    """

    rounded = ("noise",)
    numbers_a_round = 1

    def __init__(
        self,
        models: list[Llama],
        sampling: Sampling,
        draft_sampling: Sampling,
        clock: Callable[[], float],
        drafting: Drafting,
        calibration: Calibration,
    ) -> None:
        if not isinstance(drafting, TopTree) or not drafting.nodes:
            raise UnsupportedProblemError(
                f"drafting is {drafting!r:.80}: with equality the loop on the device drafts "
                "top_tree(N, L); others are drafted by otlp.decode"
            )
        self.models, self.clock, self.calibration = models, clock, calibration
        self.sampling, self.draft_sampling = sampling, draft_sampling
        self.vocab_size, self.device = models[0].vocab_size, models[0].device
        self.shape = GrownShape(drafting, self.vocab_size)
        drafts = len(models) > 1
        self.length = drafting.length if drafts else 0
        self.nodes = self.shape.nodes if drafts else 0
        # what is moved comes from somewhere, even where nothing is expanded
        self.slots = (self.nodes, max(1, sum(self.shape.widths[1:])))[: len(models)]

    @property
    def bytes_a_text(self) -> int:
        """Of the rows of noise, and of the target's distributions."""
        kind = torch.promote_types(self.models[0].dtype, torch.float32)
        return self.vocab_size * (8 * (self.length + 1) + kind.itemsize * (self.nodes + 1))

    def steps(self) -> dict[str, Step]:
        """Two, or five."""
        noise = noise_step(self.vocab_size, self.length + 1)
        if not self.length:
            return {"noise": noise, "plain": plain_step(self.models[0], self.sampling)}
        target, draft = self.models
        return {
            "noise": noise,
            "draft": grow_step(draft, self.draft_sampling, self.calibration, self.shape),
            "target": score_step(target, self.sampling, self.shape),
            "verify": walk,
            "settle": settle,
        }

    def tensors(self, batch: int, context: int) -> tuple[Tensor, Raced]:
        """Keys of the texts' noise, and where a round keeps what it finds."""

        def whole(*shape: int) -> Tensor:
            return torch.zeros(batch, *shape, dtype=torch.long, device=self.device)

        shape = batch, self.length + 1, self.vocab_size
        noise = torch.ones(shape, dtype=torch.float64, device=self.device)
        grown = Grown(*(whole(self.nodes) for _ in Grown._fields))
        return whole(1), Raced(noise, grown, whole(1 + self.nodes))

    def numbers(self, given: Any, state: RoundState) -> Iterator[Tensor]:
        """The keys of the seeds, in every round."""
        batch = len(state.numbers)
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != batch:
            raise InvalidInputError(
                f"with equality the target draws by seeds, and {given!r:.60} is given: give a list "
                f"of {batch}, one for each prompt"
            )
        keys = [[seed_key(seed)] for seed in given]
        return repeat(torch.tensor(keys, dtype=torch.long, device=self.device))

    def play(self, state: RoundState) -> None:
        """Make the noise, draft, draw, walk and settle; or decode a token."""
        steps, progress, (noise, grown, drawn) = state.steps, state.progress, state.kept
        begin = self.clock()
        steps["noise"](state.numbers, progress.held, noise)
        if not self.length:
            steps["plain"](state.caches[0], progress, noise)
            state.took(begin, begin, *[self.clock()] * 3)
            return
        here = progress.text, progress.held, noise, grown
        steps["draft"](state.caches[1], *here)
        drafted = self.clock()
        steps["target"](state.caches[0], *here, drawn)
        scored = self.clock()
        found = steps["verify"](grown, drawn, self.length)
        verified = self.clock()
        moving = [] if self.shape.is_chain else state.caches
        steps["settle"](moving, progress, grown, *found)
        state.took(begin, drafted, scored, verified, self.clock())
