"""Decoding of a batch of texts on the device; the host reads one flag per round.

Text, caches, distributions and drafts are tensors of fixed shapes that a round changes in place.
For the same random numbers or seeds, the tokens are those of `otlp.decode.decode`.
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
from otlp.device.steps import Progress, read_text
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError, SizeLimitError
from otlp.numerics.exponentials import Seed

SLOTS = 128
"""Multiple to which the number of slots is rounded up, so that similar lengths share a shape."""

PREFILL_TOKENS = 128
"""Maximum number of tokens of each prompt in one call of the prefill."""

Capture = Callable[[Callable[[], None], torch.device], Callable[[], None]]


class DeviceLoop:
    """Decoder for batches of texts on one device.

    Parameters
    ----------
    rounds : IidRounds or NoiseRounds
        The models, the drafting and the verification.
    ends : sequence of int
        Ids of end-of-sequence tokens.
    slots : int, optional
        Number of cache slots for the text.  Default: the number needed, rounded up to a multiple of
        128.  A fixed value keeps the shapes of all calls equal.
    compiled : bool
        Whether to compile the steps of the models.  A step that cannot be compiled runs eagerly,
        with one warning.
    capture : callable
        Function of a round and a device that returns the function to call for each round; the
        default `captured` captures a CUDA graph on a GPU.

    Attributes
    ----------
    target : Llama
        Target model, whose distribution the texts follow.
    length : int
        Length L of the longest drafted path; 0 without a draft model.
    nodes : int
        Number of drafted tokens per round and text.
    numbers_a_round : int
        Number of random numbers per round and text; 1 (a key) for `NoiseRounds`.

    Raises
    ------
    InvalidInputError
        If an argument has the wrong type or is out of range.

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
        self.target, self.length, self.nodes = rounds.models.target, rounds.length, rounds.nodes
        self.numbers_a_round = rounds.numbers_a_round
        self.slots = slots if slots is None else whole_number(slots, "the number of slots")
        self.ends = self._tensor(token_ids(list(ends), "ends", self.target.vocab_size).tolist())
        self._steps: dict[tuple[int, int], dict[str, Any]] = {}
        self._kept: tuple[tuple[int, int], RoundState, Callable[[], None]] | None = None

    @property
    def uncompiled(self) -> list[str]:
        """Names of the steps whose compilation failed and that run eagerly."""
        made = [one for steps in self._steps.values() for one in steps.items()]
        return sorted({name for name, step in made if not getattr(step, "compiled", True)})

    def decode(
        self,
        prompts: Sequence[Any],
        tokens: int,
        generator: torch.Generator | Iterator[Tensor] | Sequence[Seed] | None = None,
    ) -> Decoded:
        """Continue each prompt by a number of tokens, or until an end token.

        Parameters
        ----------
        prompts : sequence of int sequences
            Token ids of each prompt, at least one.  Lengths may differ.
        tokens : int
            Maximum number of new tokens per prompt.
        generator : torch.Generator or iterator of Tensor, optional
            Generator on the device, or the uniform random numbers of each round, float64 of shape
            (B, `numbers_a_round`).  For `NoiseRounds` a sequence of one seed per prompt, required.

        Returns
        -------
        Decoded

        Raises
        ------
        InvalidInputError
            If a prompt is empty, has invalid token ids, or is too long for the caches or the
            models; or if the random numbers end early or are invalid, or a seed is invalid.
        SizeLimitError
            If the device has no memory for the caches; the message names their size.
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
                _prefill(model, cache, state.progress.text, longest)
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
        """Return the number of slots for the longest prompt, the new tokens and one more path."""
        needed = longest + tokens + self.length + 1
        context = self.slots or -(-needed // SLOTS) * SLOTS
        if needed > context:
            raise InvalidInputError(
                f"slots must be at least {needed} for a prompt of {longest} tokens, {tokens} new "
                f"tokens and a path of {self.length}, got {context}; shorten the prompt, or pass "
                f"slots={needed}"
            )
        return context

    def _prepared(self, batch: int, context: int) -> tuple[RoundState, Callable[[], None]]:
        """Return the state for a shape and a function that runs a round, compiled and captured.

        The last result is cached.
        """
        if self._kept is not None and self._kept[0] == (batch, context):
            return self._kept[1:]
        self._kept = None
        slots = [context + own for own in self.rounds.slots]
        models = list(zip(self.models, slots, strict=True))
        try:
            seq_lens, goal, calls = (
                torch.ones(batch, dtype=torch.long, device=self.device) for _ in range(3)
            )
            text = torch.zeros(batch, context, dtype=torch.long, device=self.device)
            done = torch.zeros((), dtype=torch.bool, device=self.device)
            state = RoundState(
                Progress(text, seq_lens, goal, calls, done, self.ends),
                [model.new_cache(batch, own) for model, own in models],
                self._steps_of((batch, context)),
                *self.rounds.tensors(batch, context),
            )
            for _ in range(2):  # Compile the steps for this shape.
                self.rounds.play(state)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            size = self.rounds.bytes_a_text
            size += sum(own * model.slot_bytes for model, own in models)
            raise SizeLimitError(
                f"{self.device} has no memory for {batch} texts: caches of {max(slots)} slots and "
                f"the distributions of a round need {batch * size / 2**20:,.0f} MiB "
                f"({size / 2**20:,.1f} MiB per text); decode fewer or shorter texts at a time, or "
                "load the models in half precision"
            ) from error
        play = self.capture(lambda: self.rounds.play(state), self.device)
        self._kept = (batch, context), state, play
        return state, play

    def _steps_of(self, shape: tuple[int, int]) -> dict[str, Any]:
        """Return the steps for a batch size and a context; each shape is compiled separately."""
        if shape not in self._steps:
            steps: dict[str, Any] = self.rounds.steps()
            if self.compiled:
                # The GPU compiler fuses operations and rounds once; the CPU compiler does not.
                eager = () if self.device.type == "cpu" else self.rounds.rounded
                steps = {
                    name: step if name in eager else CompiledStep(step, self.device)
                    for name, step in steps.items()
                }
            self._steps[shape] = steps
        return self._steps[shape]

    def _check_lengths(self, texts: Sequence[IntArray], tokens: int) -> int:
        if not texts:
            raise InvalidInputError("prompts must have at least one prompt, got none")
        for number, text in enumerate(texts, start=1):
            if not text.size:
                raise InvalidInputError(f"prompt {number} must have at least one token, got none")
            for model in self.models:
                most = model.most_tokens
                if most is not None and text.size + tokens + self.length > most:
                    raise InvalidInputError(
                        f"prompt {number} has {text.size} tokens; with {tokens} new tokens and a "
                        f"path of {self.length} it exceeds the context of the model, {most}"
                    )
        return max(text.size for text in texts)

    def _reset(self, state: RoundState, texts: Sequence[IntArray], tokens: int) -> None:
        """Reset the state to the prompts; old cache entries are overwritten or masked."""
        text, seq_lens, goal, calls, _, _ = state.progress
        for row, prompt in enumerate(texts):
            text[row, : prompt.size] = self._tensor(prompt.tolist())
        seq_lens.copy_(self._tensor([prompt.size for prompt in texts]))
        goal.copy_(seq_lens + tokens)
        calls.zero_()
        state.parts.update(dict.fromkeys(PARTS, 0.0))

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.device)


def _prefill(model: Llama, cache: Cache, text: Tensor, longest: int) -> None:
    """Write the prompts to the cache in chunks; entries after shorter prompts are overwritten."""
    for start in range(0, longest, PREFILL_TOKENS):
        stop = min(start + PREFILL_TOKENS, longest)
        positions = torch.arange(start, stop, device=text.device).expand(len(text), -1)
        read_text(model, cache, text, positions)
