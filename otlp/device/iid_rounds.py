"""Rounds with i.i.d. draft trees, verified with uniform random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otlp.checks import is_a
from otlp.decode.drafting import no_draft, prefix_tree
from otlp.device.loop_models import LoopModels
from otlp.device.round_state import Rounds, RoundState, check_function
from otlp.device.steps import Step, commit, draft_step, is_chain, own_slots, plain_step, target_step
from otlp.device.verifying import TreeRound, check_paths, verification_on_cpu, verify_on_device
from otlp.errors import InvalidInputError

ONE_PATH = (1, 1, 1, 1)

Verify = Callable[[Tensor, Tensor, Tensor, Tensor], TreeRound]


class Drafted(NamedTuple):
    """Buffers of a round (draft tokens, distributions of both models) and its verification."""

    tokens: Tensor
    draft: Tensor
    target: Tensor
    drawing: Tensor
    own: Tensor
    verify: Callable[[], TreeRound]


class IidRounds(Rounds):
    """Rounds with a prefix tree of i.i.d. children, verified losslessly.

    One path is verified by block verification, K paths by the two-slice rule, and other trees by
    the tournament.

    Parameters
    ----------
    models : LoopModels
        The target and its draft model.
    branching : sequence of int, optional
        Number of i.i.d. children of each token, by depth; K, 1, ..., 1 are K paths.  Default: one
        path of four tokens.  Trees that branch below the root need a CPU.  Must be left out without
        a draft model; one token per round is then drawn from the target.
    verify : callable, optional
        `verify_on_cpu` or `verify_on_device` without their first argument.  Default:
        `verification_on_cpu` on a CPU, `verify_on_device` on other devices.
    clock : callable
        `time.perf_counter`, or `time.process_time` on a CPU shared with other processes.

    Raises
    ------
    InvalidInputError
        If `branching` is invalid, cannot be verified on the device of the models, or is passed
        without a draft model; or if `verify` or `clock` is not a function.

    Examples
    --------
    >>> from otlp.decode.models.loading import load_model
    >>> from otlp.device import IidRounds, Llama, LoopModels
    >>> target, draft = (Llama(load_model(f"trained:{name}", device="cpu").model)
    ...                  for name in ("target", "draft"))
    >>> rounds = IidRounds(LoopModels(target, draft), branching=(2, 1))   # two paths of two
    >>> rounds.nodes, rounds.length
    (4, 2)
    """

    def __init__(
        self,
        models: LoopModels,
        branching: Sequence[int] | None = None,
        *,
        verify: Verify | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        is_a(models, LoopModels, "models")
        if verify is not None:
            check_function(verify, "verify")
            if models.draft is None:
                raise InvalidInputError("verify must be left out if there is no draft model")
        self.models, self.clock = models, check_function(clock, "clock")
        drafts = models.draft is not None
        if branching is None:
            branching = ONE_PATH if drafts else ()
        elif not drafts:
            raise InvalidInputError(
                f"branching must be left out if there is no draft model, got {branching!r:.60}"
            )
        self.shape = (prefix_tree(branching) if drafts else no_draft()).shape
        self.branching = tuple(branching)
        self.length, self.nodes = len(self.branching), len(self.shape) - 1
        self.slots = (self.nodes,) * len(models.all)
        self.numbers_a_round = self.nodes + prod(self.branching) + self.length + 2 if drafts else 1
        self.device, self.verify = models.device, verify
        if verify is None and self.device.type != "cpu":
            check_paths(self.branching)

    @property
    def bytes_a_text(self) -> int:
        """Bytes per text of the distributions of the target and the draft model in a round."""
        return sum(count * size * kind.itemsize for count, size, kind in self._row_shapes())

    def steps(self) -> dict[str, Step]:
        """Return the steps of a round: three, or one without a draft model."""
        models = self.models
        if models.draft is None:
            return {"plain": plain_step(models.target, models.sampling)}
        return {
            "draft": draft_step(models.draft, models.draft_sampling, self.branching),
            "target": target_step(models.target, models.sampling, self.branching),
            "commit": commit,
        }

    def tensors(self, batch: int, context: int) -> tuple[Tensor, Drafted | None]:
        """Return the buffer of uniform random numbers and the buffers of the drafts."""
        shape = batch, self.numbers_a_round
        numbers = torch.full(shape, 0.5, dtype=torch.float64, device=self.device)
        if not self.length:
            return numbers, None
        p, q = (
            torch.empty((batch, count, size), dtype=kind, device=self.device)
            for count, size, kind in self._row_shapes()
        )
        tokens = torch.empty((batch, self.nodes), dtype=torch.long, device=self.device)
        drawing, verifying = numbers[:, : self.nodes], numbers[:, self.nodes :]
        verify: Callable[[], TreeRound]
        if self.verify is not None:
            verify = partial(self.verify, p, q, tokens, verifying)
        elif self.device.type == "cpu":
            verify = verification_on_cpu(self.branching, p, q, tokens, numbers)
        else:
            verify = partial(verify_on_device, self.branching, p, q, tokens, verifying)
        own = own_slots(self.shape, context, self.device)
        return numbers, Drafted(tokens, q, p, drawing, own, verify)

    def numbers(self, given: Any, state: RoundState) -> Iterator[Tensor]:
        """Return the random numbers of each round: those passed, checked, or newly drawn."""
        if isinstance(given, Iterator):
            return _checked(given, state)
        if given is not None:
            if not isinstance(given, torch.Generator):
                raise InvalidInputError(
                    "generator must be a torch.Generator, such as torch.Generator().manual_seed(0),"
                    f" an iterator of uniform random numbers or None, got {given!r:.60}"
                )
            if given.device.type != self.device.type:
                raise InvalidInputError(
                    f"generator must be on the device of the models, {self.device}, got "
                    f"{given.device}"
                )
        return _drawn(torch.empty_like(state.numbers), given)

    def play(self, state: RoundState) -> None:
        """Draft, score, verify and commit; or decode one token without a draft model."""
        begin = self.clock()
        if not self.length:
            state.steps["plain"](state.caches[0], state.progress, state.numbers)
            state.add_times(begin, begin, *[self.clock()] * 3)
            return
        tokens, q, p, drawing, own, verify = state.buffers
        target_cache, draft_cache = state.caches
        here = state.progress.text, state.progress.seq_lens, own
        state.steps["draft"](draft_cache, *here, drawing, q, tokens)
        drafted = self.clock()
        state.steps["target"](target_cache, *here, tokens, p)
        scored = self.clock()
        found = verify()
        verified = self.clock()
        moving = [] if is_chain(self.branching) else state.caches
        state.steps["commit"](moving, state.progress, *found)
        state.add_times(begin, drafted, scored, verified, self.clock())

    def _row_shapes(self) -> list[tuple[int, int, torch.dtype]]:
        """Return the number of distributions of each model, the vocabulary size and the dtype."""
        if not self.length:
            return []
        parents = self.shape[1:]
        kinds = [torch.promote_types(model.dtype, torch.float32) for model in self.models.all]
        sizes = [model.vocab_size for model in self.models.all]
        return list(zip((1 + len(parents), 1 + max(parents)), sizes, kinds, strict=True))


def _drawn(numbers: Tensor, generator: torch.Generator | None) -> Iterator[Tensor]:
    while True:
        yield numbers.uniform_(generator=generator)


def _checked(numbers: Iterator[Any], state: RoundState) -> Iterator[Tensor]:
    """Yield the random numbers of each round after checking them."""
    shape = tuple(state.numbers.shape)
    must = f"must be a float64 tensor of shape {shape} in [0, 1)"
    for rounds, given in enumerate(numbers, start=1):
        if not isinstance(given, Tensor):
            raise InvalidInputError(f"numbers of round {rounds} {must}, got {given!r:.60}")
        if tuple(given.shape) != shape or given.dtype != torch.float64:
            raise InvalidInputError(
                f"numbers of round {rounds} {must}, got {given.dtype} of shape {tuple(given.shape)}"
            )
        if not bool(((given >= 0.0) & (given < 1.0)).all()):
            invalid = given[~((given >= 0.0) & (given < 1.0))][0].item()
            raise InvalidInputError(f"numbers of round {rounds} {must}, got entry {invalid}")
        yield given
    raise InvalidInputError(f"numbers ended before the texts; those of each round {must}")
