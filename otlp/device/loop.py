"""Decoding that stays on the device: a batch of texts, one flag read back a round.

Text, caches, distributions and drafts are tensors of fixed shapes that a round changes in place.
It is `otlp.decode.decode` with static tensors: for the same random numbers, or seeds, both write
the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor

from otlp.checks import is_a, token_ids, whole_number
from otlp.decode.models.memory import is_out_of_memory
from otlp.device.compiling import CompiledStep, captured
from otlp.device.decoded import Decoded
from otlp.device.llama import Cache, Llama
from otlp.device.round_state import PARTS, Rounds, RoundState, check_function
from otlp.device.steps import Progress
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError, SizeLimitError
from otlp.numerics.exponentials import Seed

SLOTS = 128
"""Caches have a multiple of so many slots, so that texts of like lengths share a shape."""

READ_AT_ONCE = 128
"""Tokens of each prompt that go through a model in one call."""

Capture = Callable[[Callable[[], None], torch.device], Callable[[], None]]


class DeviceLoop:
    """Decodes batches of texts by rounds of one kind.

    Parameters
    ----------
    rounds : IidRounds or NoiseRounds
        The models, the drafting and its verification.
    ends : sequence of int
        Tokens that end a text.
    slots : int, optional
        Slots of the caches for text; by default as many as the texts need, rounded up to a multiple
        of `SLOTS`.  One value for all calls keeps one shape for all.
    compiled : bool
        Whether the models' steps are compiled; where that fails they run as they are, and a warning
        says so once.
    capture : callable
        From a round and the device to what plays it: `captured` makes it a CUDA graph on a GPU.

    Raises
    ------
    InvalidInputError
        If a value is of another type or out of its range.

    Examples
    --------
    >>> import torch
    >>> from otlp.decode.models.loading import load_model
    >>> from otlp.device import DeviceLoop, IidRounds, Llama, LoopModels
    >>> target, draft = (Llama(load_model(f"trained:{name}", device="cpu").model)
    ...                  for name in ("target", "draft"))
    >>> rounds = IidRounds(LoopModels(target, draft), branching=(2, 1))
    >>> loop = DeviceLoop(rounds, compiled=False)
    >>> found = loop.decode([[5, 9], [7]], 4, torch.Generator().manual_seed(0))
    >>> [text.size for text in found.texts]
    [4, 4]
    """

    def __init__(
        self,
        rounds: Rounds,
        *,
        ends: Sequence[int] = (),
        slots: int | None = None,
        compiled: bool = True,
        capture: Capture = captured,
    ) -> None:
        is_a(rounds, Rounds, "rounds")
        is_a(compiled, bool, "compiled")
        self.rounds, self.compiled = rounds, compiled
        self.capture = check_function(capture, "capture")
        self.models, self.device = rounds.models.all, rounds.models.device
        self.slots = slots if slots is None else whole_number(slots, "the number of slots")
        self.ends = self._tensor(token_ids(list(ends), "ends", self.target.vocab_size).tolist())
        self._steps: dict[tuple[int, int], dict[str, Any]] = {}
        self._kept: tuple[tuple[int, int], RoundState, Callable[[], None]] | None = None

    @property
    def target(self) -> Llama:
        """The model whose distribution the texts follow."""
        return self.models[0]

    @property
    def length(self) -> int:
        """Length L of the longest path; 0 without a draft."""
        return self.rounds.length

    @property
    def nodes(self) -> int:
        """Drafted tokens a round."""
        return self.rounds.nodes

    @property
    def numbers_a_round(self) -> int:
        """Uniform numbers that a round takes for each text; with `NoiseRounds` its key, one."""
        return self.rounds.numbers_a_round

    @property
    def uncompiled(self) -> list[str]:
        """Names of the steps that were to be compiled and run as they are: see `compiled`."""
        made = [one for steps in self._steps.values() for one in steps.items()]
        return sorted({name for name, step in made if not getattr(step, "compiled", True)})

    def decode(
        self,
        prompts: Sequence[Any],
        tokens: int,
        generator: torch.Generator | Iterator[Tensor] | Sequence[Seed] | None = None,
    ) -> Decoded:
        """Go on with each prompt by so many tokens, or until an end token.

        Parameters
        ----------
        prompts : sequence of int sequences
            Token ids, at least one each; of any lengths.
        tokens : int
        generator : torch.Generator or iterator of Tensor, optional
            On the device; or the uniform numbers of each round, float64 of shape
            (B, `numbers_a_round`).  With equality a seed for each prompt, and no default.

        Returns
        -------
        Decoded

        Raises
        ------
        InvalidInputError
            If a prompt is empty, holds no token ids, or is too long for the caches or the models;
            or if the numbers end, or are none of those that a round takes, or a seed is none.
        SizeLimitError
            If the device has no room for the caches; says how much they take.
        """
        whole_number(tokens, "tokens")
        texts = [token_ids(one, f"prompt {n}", self.target.vocab_size)
                 for n, one in enumerate(prompts, start=1)]  # fmt: skip
        longest = self._check_lengths(texts, tokens)
        with torch.no_grad():
            state, play = self._prepared(len(texts), self._context(longest, tokens))
            draw = self.rounds.numbers(generator, state)
            self._reset(state, texts, tokens)
            for model, cache in zip(self.models, state.caches, strict=True):
                _read(model, cache, state.progress.text, longest)
            rounds = 0
            begin, begin_processor = perf_counter(), process_time()
            done = False
            while not done:
                state.numbers.copy_(next(draw))
                play()
                rounds += 1
                done = bool(state.progress.done)
            seconds, processor = perf_counter() - begin, process_time() - begin_processor
        text, goal = state.progress.text.cpu().numpy(), state.progress.goal.cpu().numpy()
        new = tuple(
            row[prompt.size : end].copy()
            for row, prompt, end in zip(text, texts, goal, strict=True)
        )
        calls = state.progress.calls.cpu().numpy()
        parts = {} if state.numbers.is_cuda else dict(state.parts)
        return Decoded(new, calls, rounds, seconds, processor, parts)

    def _context(self, longest: int, tokens: int) -> int:
        """Slots for text: enough for the longest prompt, the new tokens and a path beyond."""
        needed = longest + tokens + self.length + 1
        context = self.slots or -(-needed // SLOTS) * SLOTS
        if needed > context:
            raise InvalidInputError(
                f"the longest prompt has {longest} tokens: with {tokens} new ones and a path of "
                f"{self.length} it needs {needed} slots, and the caches have {context}; shorten "
                f"it, or give slots={needed}"
            )
        return context

    def _prepared(self, batch: int, context: int) -> tuple[RoundState, Callable[[], None]]:
        """The state of a shape, and a round on it, compiled and captured; the last is kept."""
        if self._kept is not None and self._kept[0] == (batch, context):
            return self._kept[1:]
        self._kept = None
        slots = [context + own for own in self.rounds.slots]
        models = list(zip(self.models, slots, strict=True))
        try:
            held, goal, calls = (
                torch.ones(batch, dtype=torch.long, device=self.device) for _ in range(3)
            )
            text = torch.zeros(batch, context, dtype=torch.long, device=self.device)
            done = torch.zeros((), dtype=torch.bool, device=self.device)
            state = RoundState(
                Progress(text, held, goal, calls, done, self.ends),
                [
                    model.new_cache(batch, own)
                    for model, own in zip(self.models, slots, strict=True)
                ],
                self._steps_of((batch, context)),
                *self.rounds.tensors(batch, context),
            )
            for _ in range(2):  # what is not compiled for this shape is compiled
                self.rounds.play(state)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            size = self.rounds.bytes_a_text
            size += sum(own * model.slot_bytes for model, own in models)
            raise SizeLimitError(
                f"{self.device} has no room for {batch} texts: caches of {max(slots)} slots and "
                f"the distributions of a round take {batch * size / 2**20:,.0f} MiB "
                f"({size / 2**20:,.1f} MiB a text): decode fewer or shorter texts at a time, or "
                "load the models in half precision"
            ) from error
        self._kept = (
            (batch, context),
            state,
            self.capture(lambda: self.rounds.play(state), self.device),
        )
        return self._kept[1:]

    def _steps_of(self, shape: tuple[int, int]) -> dict[str, Any]:
        """The steps for a batch and a context: what is compiled is for one shape."""
        if shape not in self._steps:
            steps: dict[str, Any] = self.rounds.steps()
            if self.compiled:
                # a CPU's compiler fuses no two operations into one rounding, and a GPU's does
                kept = () if self.device.type == "cpu" else self.rounds.rounded
                steps = {
                    name: step if name in kept else CompiledStep(step, self.device)
                    for name, step in steps.items()
                }
            self._steps[shape] = steps
        return self._steps[shape]

    def _check_lengths(self, texts: Sequence[IntArray], tokens: int) -> int:
        if not texts:
            raise InvalidInputError("there are no prompts: give at least one")
        for number, text in enumerate(texts, start=1):
            if not text.size:
                raise InvalidInputError(f"prompt {number} is empty: give at least one token")
            for model in self.models:
                most = model.most_tokens
                if most is not None and text.size + tokens + self.length > most:
                    raise InvalidInputError(
                        f"prompt {number} has {text.size} tokens: with {tokens} new ones and a "
                        f"path of {self.length} that is more than the model's context of {most}"
                    )
        return max(text.size for text in texts)

    def _reset(self, state: RoundState, texts: Sequence[IntArray], tokens: int) -> None:
        """Begin with the prompts; what the caches hold of another text is overwritten or unseen."""
        text, held, goal, calls, _, _ = state.progress
        for row, prompt in enumerate(texts):
            text[row, : prompt.size] = self._tensor(prompt.tolist())
        held.copy_(self._tensor([prompt.size for prompt in texts]))
        goal.copy_(held + tokens)
        calls.zero_()
        state.parts.update(dict.fromkeys(PARTS, 0.0))

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.device)


def _read(model: Llama, cache: Cache, text: Tensor, longest: int) -> None:
    """Read the prompts, some tokens at a time; what is behind a shorter one is overwritten."""
    batch, device = text.shape[0], text.device
    slots = torch.arange(cache[0][0].shape[2], device=device)
    for start in range(0, longest, READ_AT_ONCE):
        places = torch.arange(start, min(start + READ_AT_ONCE, longest), device=device)
        places = places.expand(batch, -1)
        model.forward(cache, text.gather(1, places), places, places, slots <= places[..., None])
