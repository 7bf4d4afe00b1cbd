"""Rounds with shared noise: draft trees grown from the noise, verified by equality."""

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


class NoiseBuffers(NamedTuple):
    """Buffers of a round: the rows of noise, the draft tree and the draws of the target."""

    noise: Tensor
    grown: Grown
    drawn: Tensor


class NoiseRounds(Rounds):
    """Rounds with a `TopTree` drafted from the noise of seeds, verified by equality.

    The seeds determine the draws of the target, and the draft model uses the same seeds; see
    `otlp.decode.Equality`.  Without a draft model each round is one draw of the target.

    Parameters
    ----------
    models : LoopModels
        The target and its draft model.
    drafting : TopTree, optional
        Draft tree, default ``top_tree(4, 4)``.
    calibration : Calibration, optional
        Default `Calibration()`.  Whether the calibration was fitted to these models is not checked,
        because the models have no names.
    clock : callable
        `time.perf_counter`, or `time.process_time` on a CPU shared with other processes.

    Raises
    ------
    InvalidInputError
        If `drafting` or `calibration` is passed without a draft model, or an argument has the wrong
        type.
    UnsupportedProblemError
        If `drafting` is not a `TopTree` with at least one node.

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
                    f"{name} must be left out if there is no draft model, got {value!r:.80}"
                )
        drafting = FOUR_NODES if drafting is None else drafting
        if not isinstance(drafting, TopTree) or not drafting.nodes:
            raise UnsupportedProblemError(
                "drafting must be top_tree(N, L) with at least one node for equality on the "
                f"device, got {drafting!r:.80}; use otlp.decode for other drafts"
            )
        self.models, self.clock = models, check_function(clock, "clock")
        self.calibration = Calibration() if calibration is None else calibration
        is_a(self.calibration, Calibration, "calibration")
        self.vocab_size, self.device = models.target.vocab_size, models.device
        self.shape = GrownShape(drafting, self.vocab_size)
        self.length = drafting.length if drafts else 0
        self.nodes = self.shape.nodes if drafts else 0
        # At least one slot, since `commit` gathers slots even if no node is expanded.
        self.slots = (self.nodes, max(1, sum(self.shape.widths[1:])))[: len(models.all)]

    @property
    def bytes_a_text(self) -> int:
        """Bytes per text of the rows of noise and of the distributions of the target."""
        kind = torch.promote_types(self.models.target.dtype, torch.float32)
        return self.vocab_size * (8 * (self.length + 1) + kind.itemsize * (self.nodes + 1))

    def steps(self) -> dict[str, Step]:
        """Return the steps of a round: five, or two without a draft model."""
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

    def tensors(self, batch: int, context: int) -> tuple[Tensor, NoiseBuffers]:
        """Return the buffer of noise keys and the buffers of a round."""

        def whole(*shape: int) -> Tensor:
            return torch.zeros(batch, *shape, dtype=torch.long, device=self.device)

        shape = batch, self.length + 1, self.vocab_size
        noise = torch.ones(shape, dtype=torch.float64, device=self.device)
        grown = Grown(*(whole(self.nodes) for _ in Grown._fields))
        return whole(1), NoiseBuffers(noise, grown, whole(1 + self.nodes))

    def numbers(self, given: Any, state: RoundState) -> Iterator[Tensor]:
        """Return the keys of the seeds, equal in every round."""
        batch = len(state.numbers)
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != batch:
            raise InvalidInputError(
                f"generator must be a list of {batch} seeds for NoiseRounds, one per prompt, got "
                f"{given!r:.60}"
            )
        keys = [[seed_key(seed)] for seed in given]
        return repeat(torch.tensor(keys, dtype=torch.long, device=self.device))

    def play(self, state: RoundState) -> None:
        """Compute noise, draft, draw, verify and commit; or decode one token without a draft."""
        steps, progress, (noise, grown, drawn) = state.steps, state.progress, state.buffers
        begin = self.clock()
        steps["noise"](state.numbers, progress.seq_lens, noise)
        if not self.length:
            steps["plain"](state.caches[0], progress, noise)
            state.add_times(begin, begin, *[self.clock()] * 3)
            return
        here = progress.text, progress.seq_lens, noise, grown
        steps["draft"](state.caches[1], *here)
        drafted = self.clock()
        steps["target"](state.caches[0], *here, drawn)
        scored = self.clock()
        found = steps["verify"](grown, drawn, self.length)
        verified = self.clock()
        moving = [] if self.shape.is_chain else state.caches
        steps["commit"](moving, progress, grown, *found)
        state.add_times(begin, drafted, scored, verified, self.clock())
