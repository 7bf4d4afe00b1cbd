"""Rounds by shared noise: a tree that grows by it, and equality with what the target draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otlp.checks import is_a
from otlp.decode.drafting import Drafting, TopTree, top_tree
from otlp.decode.models.calibration import Calibration
from otlp.device.loop_models import LoopModels
from otlp.device.noise_steps import (
    Grown,
    GrownShape,
    commit,
    grow_step,
    noise_step,
    plain_step,
    score_step,
    walk,
)
from otlp.device.round_state import Rounds, RoundState, check_function
from otlp.device.steps import Step
from otlp.errors import InvalidInputError, UnsupportedProblemError
from otlp.numerics.exponentials import seed_key

FOUR_NODES = top_tree(4, 4)


class Raced(NamedTuple):
    """The rows of noise of a round, what is drafted, and what the target draws."""

    noise: Tensor
    grown: Grown
    drawn: Tensor


class NoiseRounds(Rounds):
    """A `TopTree` by the noise of seeds, or without a draft the target's draws.

    The target draws by seeds, and the draft knows them: see `otlp.decode.Equality`.

    Parameters
    ----------
    models : LoopModels
    drafting : TopTree, optional
        By default ``top_tree(4, 4)``.
    calibration : Calibration, optional
        By default `Calibration()`.  Models have no names here: that it was fitted to them is not
        checked.
    clock : callable
        `time.perf_counter`, or `time.process_time` on a CPU that other work shares.

    Raises
    ------
    InvalidInputError
        If there is a drafting or a calibration without a draft, or a value is of another type.
    UnsupportedProblemError
        If the drafting is no `TopTree` of one node at least.

    Examples
    --------
    >>> from otlp.decode import top_tree
    >>> from otlp.decode.models.loading import load_model
    >>> from otlp.device import DeviceLoop, Llama, LoopModels, NoiseRounds
    >>> target, draft = (Llama(load_model(f"trained:{name}", device="cpu").model)
    ...                  for name in ("target", "draft"))
    >>> drafted = NoiseRounds(LoopModels(target, draft), top_tree(4, 2))
    >>> plain = NoiseRounds(LoopModels(target))
    >>> first, second = (DeviceLoop(rounds, compiled=False).decode([[5, 9]], 6, [7]).texts[0]
    ...                  for rounds in (drafted, plain))
    >>> first.tolist() == second.tolist()          # the text of the seed 7
    True
    """

    rounded = ("noise",)
    numbers_a_round = 1

    def __init__(
        self,
        models: LoopModels,
        drafting: Drafting | None = None,
        calibration: Calibration | None = None,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        is_a(models, LoopModels, "models")
        drafts = models.draft is not None
        for name, value in (("drafting", drafting), ("calibration", calibration)):
            if value is not None and not drafts:
                raise InvalidInputError(
                    f"{name} is {value!r:.80}, and there is no draft: leave it out"
                )
        drafting = FOUR_NODES if drafting is None else drafting
        if not isinstance(drafting, TopTree) or not drafting.nodes:
            raise UnsupportedProblemError(
                f"drafting is {drafting!r:.80}: with equality the loop on the device drafts "
                "top_tree(N, L); others are drafted by otlp.decode"
            )
        self.models, self.clock = models, check_function(clock, "clock")
        self.calibration = Calibration() if calibration is None else calibration
        is_a(self.calibration, Calibration, "calibration")
        self.vocab_size, self.device = models.target.vocab_size, models.device
        self.shape = GrownShape(drafting, self.vocab_size)
        self.length = drafting.length if drafts else 0
        self.nodes = self.shape.nodes if drafts else 0
        # what is moved comes from somewhere, even where nothing is expanded
        self.slots = (self.nodes, max(1, sum(self.shape.widths[1:])))[: len(models.all)]

    @property
    def bytes_a_text(self) -> int:
        """Of the rows of noise, and of the target's distributions."""
        kind = torch.promote_types(self.models.target.dtype, torch.float32)
        return self.vocab_size * (8 * (self.length + 1) + kind.itemsize * (self.nodes + 1))

    def steps(self) -> dict[str, Step]:
        """Two, or five."""
        noise = noise_step(self.vocab_size, self.length + 1)
        models = self.models
        if models.draft is None:
            return {"noise": noise, "plain": plain_step(models.target, models.sampling)}
        return {
            "noise": noise,
            "draft": grow_step(models.draft, models.draft_sampling, self.calibration, self.shape),
            "target": score_step(models.target, models.sampling, self.shape),
            "verify": walk,
            "commit": commit,
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
        """Make the noise, draft, draw, walk and commit; or decode a token."""
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
        steps["commit"](moving, progress, grown, *found)
        state.took(begin, drafted, scored, verified, self.clock())
