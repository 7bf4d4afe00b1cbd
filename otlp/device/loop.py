"""Decoding that stays on the device: a batch of texts, one flag read back a round.

Text, caches, distributions and drafts are tensors of fixed shapes that a round changes in place.
It is `otlp.decode.decode` with static tensors: for the same random numbers both write the same
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor

from otlp.checks import is_a, token_ids, whole_number
from otlp.decode.drafting import no_draft, prefix_tree
from otlp.decode.models.memory import is_out_of_memory
from otlp.decode.models.model import Sampling
from otlp.device.compiling import CompiledStep, captured
from otlp.device.decoded import Decoded
from otlp.device.llama import Cache, Llama
from otlp.device.round_state import PARTS, Drafted, RoundState
from otlp.device.steps import (
    Progress,
    draft_step,
    is_chain,
    own_slots,
    plain_step,
    settle,
    target_step,
)
from otlp.device.verifying import (
    TreeRound,
    check_paths,
    verification_on_cpu,
    verify_on_device,
)
from otlp.distribution import IntArray
from otlp.errors import InvalidInputError, SizeLimitError

SLOTS = 128
"""Caches have a multiple of so many slots, so that texts of like lengths share a shape."""

READ_AT_ONCE = 128
"""Tokens of each prompt that go through a model in one call."""

Capture = Callable[[Callable[[], None], torch.device], Callable[[], None]]
Verify = Callable[[Tensor, Tensor, Tensor, Tensor], TreeRound]


class DeviceLoop:
    """Decodes batches of texts with one target, one draft and one setting.

    Parameters
    ----------
    target : Llama
    draft : Llama, optional
        Over the same vocabulary and on the same device; without one the target decodes plainly,
        a token a call.
    paths, length : int
        K i.i.d. paths of L tokens: block verification for one path, the two-slice rule for more.
    branching : sequence of int, optional
        In their place a prefix tree of i.i.d. children, so many of each token by depth, and the
        tournament; K, 1, ..., 1 are K paths.  Other trees are verified on a CPU alone.
    sampling : Sampling, optional
        From logits to next-token distributions, of both models.
    draft_temperature : float, optional
        Of the draft alone, which any serves; by default that of `sampling`.
    ends : sequence of int
        Tokens that end a text.
    slots : int, optional
        Slots of the caches for text; by default as many as the texts need, rounded up to a multiple
        of `SLOTS`.  One value for all calls keeps one shape for all.
    compiled : bool
        Whether the models' steps are compiled; where that fails they run as they are, and a warning
        says so once.
    verify : callable, optional
        `verify_on_cpu` or `verify_on_device`, without their first argument; by default the first
        on a CPU, as `verification_on_cpu`, and the second elsewhere.
    clock : callable
        What the parts of rounds are timed by: `time.perf_counter`, or `time.process_time` on a CPU
        that other work shares.
    capture : callable
        From a round and the device to what plays it: `captured` makes it a CUDA graph on a GPU.

    Raises
    ------
    InvalidInputError
        If the models do not go together, or a number is out of its range.

    Examples
    --------
    >>> import torch
    >>> from otlp.decode.models.loading import load_model
    >>> from otlp.device import DeviceLoop, Llama
    >>> target, draft = (Llama(load_model(f"trained:{name}", device="cpu").model)
    ...                  for name in ("target", "draft"))
    >>> loop = DeviceLoop(target, draft, paths=2, length=2, compiled=False)
    >>> found = loop.decode([[5, 9], [7]], 4, torch.Generator().manual_seed(0))
    >>> [text.size for text in found.texts]
    [4, 4]
    """

    def __init__(
        self,
        target: Llama,
        draft: Llama | None = None,
        *,
        paths: int = 1,
        length: int = 4,
        branching: Sequence[int] | None = None,
        sampling: Sampling | None = None,
        draft_temperature: float | None = None,
        ends: Sequence[int] = (),
        slots: int | None = None,
        compiled: bool = True,
        verify: Verify | None = None,
        clock: Callable[[], float] = perf_counter,
        capture: Capture = captured,
    ) -> None:
        is_a(target, Llama, "the target")
        if target.shares:
            raise InvalidInputError("the target copies: texts follow a model as it is, drafts may")
        self.models = [target]
        if draft is not None:
            is_a(draft, Llama, "the draft")
            _check_pair(draft, target)
            self.models.append(draft)
        self.sampling = Sampling() if sampling is None else sampling
        is_a(self.sampling, Sampling, "sampling")
        self.draft_sampling = self.sampling.at(draft_temperature)
        if branching is None:
            whole_number(paths, "the number of paths K")
            branching = (paths, *[1] * (whole_number(length, "the path length L") - 1))
        self.tree = no_draft() if draft is None else prefix_tree(branching)
        self.branching = () if draft is None else tuple(branching)
        self.slots = slots if slots is None else whole_number(slots, "the number of slots")
        self.device = target.device
        if verify is None and self.device.type != "cpu":
            check_paths(self.branching)
        self.ends = self._tensor(token_ids(list(ends), "ends", target.vocab_size).tolist())
        is_a(compiled, bool, "compiled")
        for name, value in (("verify", verify), ("clock", clock), ("capture", capture)):
            if not callable(value) and not (name == "verify" and value is None):
                raise InvalidInputError(f"{name} is {value!r:.60}: it must be a function")
        self.verify = verify
        self.compiled = compiled
        self.clock = clock
        self.capture = capture
        self._steps: dict[tuple[int, int], dict[str, Any]] = {}
        self._kept: tuple[tuple[int, int], RoundState, Callable[[], None]] | None = None

    @property
    def target(self) -> Llama:
        """The model whose distribution the texts follow."""
        return self.models[0]

    @property
    def length(self) -> int:
        """Length L of the longest path; 0 without a draft."""
        return len(self.branching)

    @property
    def nodes(self) -> int:
        """Drafted tokens a round."""
        return len(self.tree.shape) - 1

    @property
    def numbers_a_round(self) -> int:
        """Uniform numbers that a round takes for each text."""
        if not self.length:
            return 1
        return self.nodes + prod(self.branching) + self.length + 2

    @property
    def uncompiled(self) -> list[str]:
        """Names of the steps that were to be compiled and run as they are: see `compiled`."""
        made = [one for steps in self._steps.values() for one in steps.items()]
        return sorted({name for name, step in made if not getattr(step, "compiled", True)})

    def decode(
        self,
        prompts: Sequence[Any],
        tokens: int,
        generator: torch.Generator | Iterator[Tensor] | None = None,
    ) -> Decoded:
        """Go on with each prompt by so many tokens, or until an end token.

        Parameters
        ----------
        prompts : sequence of int sequences
            Token ids, at least one each; of any lengths.
        tokens : int
        generator : torch.Generator or iterator of Tensor, optional
            On the device; or the uniform numbers of each round, float64 of shape
            (B, `numbers_a_round`).

        Returns
        -------
        Decoded

        Raises
        ------
        InvalidInputError
            If a prompt is empty, holds no token ids, or is too long for the caches or the models;
            or if the numbers end, or are none of those that a round takes.
        SizeLimitError
            If the device has no room for the caches; says how much they take.
        """
        whole_number(tokens, "tokens")
        texts = [token_ids(one, f"prompt {n}", self.target.vocab_size)
                 for n, one in enumerate(prompts, start=1)]  # fmt: skip
        longest = self._check_lengths(texts, tokens)
        with torch.no_grad():
            state, play = self._prepared(len(texts), self._context(longest, tokens))
            if isinstance(generator, Iterator):
                draw = _checked(generator, state)
            else:
                draw = self._random(state, generator)
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
        slots = context + self.nodes
        try:
            held, goal, calls = (
                torch.ones(batch, dtype=torch.long, device=self.device) for _ in range(3)
            )
            text = torch.zeros(batch, context, dtype=torch.long, device=self.device)
            done = torch.zeros((), dtype=torch.bool, device=self.device)
            numbers = torch.zeros(
                batch, self.numbers_a_round, dtype=torch.float64, device=self.device
            )
            caches = [model.new_cache(batch, slots) for model in self.models]
            state = RoundState(
                Progress(text, held, goal, calls, done, self.ends),
                numbers,
                self._drafted(numbers) if self.length else None,
                self._steps_of((batch, context)),
                own_slots(self.tree.shape, context, self.device),
                caches,
                [] if is_chain(self.branching) else caches,
            )
            state.numbers.fill_(0.5)
            for _ in range(2):  # what is not compiled for this shape is compiled
                self._round(state)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            size = slots * sum(model.slot_bytes for model in self.models)
            size += sum(count * tokens * kind.itemsize for count, tokens, kind in self._laws())
            raise SizeLimitError(
                f"{self.device} has no room for {batch} texts: caches of {slots} slots and the "
                f"distributions of a round take {batch * size / 2**20:,.0f} MiB "
                f"({size / 2**20:,.1f} MiB a text): decode fewer or shorter texts at a time, or "
                "load the models in half precision"
            ) from error
        self._kept = (batch, context), state, self.capture(lambda: self._round(state), self.device)
        return self._kept[1:]

    def _steps_of(self, shape: tuple[int, int]) -> dict[str, Any]:
        """The steps for a batch and a context: what is compiled is for one shape."""
        if shape not in self._steps:
            steps: dict[str, Any] = {"plain": plain_step(self.target, self.sampling)}
            if self.length:
                target, draft = self.models
                steps = {
                    "draft": draft_step(draft, self.draft_sampling, self.branching),
                    "target": target_step(target, self.sampling, self.branching),
                    "settle": settle,
                }
            if self.compiled:
                steps = {name: CompiledStep(step, self.device) for name, step in steps.items()}
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

    def _round(self, state: RoundState) -> None:
        """Change the state by one round."""
        (self._speculate if self.length else self._decode_one)(state)

    def _decode_one(self, state: RoundState) -> None:
        begin = self.clock()
        state.steps["plain"](state.caches[0], state.progress, state.numbers)
        _add(state.parts, target=self.clock() - begin)

    def _speculate(self, state: RoundState) -> None:
        assert state.drafted is not None
        tokens, q, p, drawing, verify = state.drafted
        target_cache, draft_cache = state.caches
        here = state.progress.text, state.progress.held, state.own
        begin = self.clock()
        state.steps["draft"](draft_cache, *here, drawing, q, tokens)
        drafted = self.clock()
        state.steps["target"](target_cache, *here, tokens, p)
        scored = self.clock()
        found = verify()
        verified = self.clock()
        state.steps["settle"](state.moving, state.progress, *found)
        _add(
            state.parts,
            draft=drafted - begin,
            target=scored - drafted,
            verification=verified - scored,
            rest=self.clock() - verified,
        )

    def _laws(self) -> list[tuple[int, int, torch.dtype]]:
        """What a round keeps of each model: distributions, their tokens, and the type."""
        if not self.length:
            return []
        parents = self.tree.shape[1:]
        kinds = [torch.promote_types(model.dtype, torch.float32) for model in self.models]
        sizes = [model.vocab_size for model in self.models]
        return list(zip((1 + len(parents), 1 + max(parents)), sizes, kinds, strict=True))

    def _drafted(self, numbers: Tensor) -> Drafted:
        p, q = (
            torch.empty((len(numbers), count, size), dtype=kind, device=self.device)
            for count, size, kind in self._laws()
        )
        tokens = torch.empty((len(numbers), self.nodes), dtype=torch.long, device=self.device)
        drawing, verifying = numbers[:, : self.nodes], numbers[:, self.nodes :]
        verify: Callable[[], TreeRound]
        if self.verify is not None:
            verify = partial(self.verify, p, q, tokens, verifying)
        elif self.device.type == "cpu":
            verify = verification_on_cpu(self.branching, p, q, tokens, numbers)
        else:
            verify = partial(verify_on_device, self.branching, p, q, tokens, verifying)
        return Drafted(tokens, q, p, drawing, verify)

    def _random(self, state: RoundState, generator: torch.Generator | None) -> Iterator[Tensor]:
        if generator is not None:
            is_a(generator, torch.Generator, "numbers")
            if generator.device.type != self.device.type:
                raise InvalidInputError(
                    f"numbers is a generator on {generator.device}: make one on {self.device}"
                )
        drawn = torch.empty_like(state.numbers)
        while True:
            yield drawn.uniform_(generator=generator)

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.device)


def _checked(numbers: Iterator[Any], state: RoundState) -> Iterator[Tensor]:
    """Numbers of each round, if they are such."""
    shape = tuple(state.numbers.shape)
    must = f"must be a float64 tensor of shape {shape}, in [0, 1), for each round"
    for rounds, given in enumerate(numbers, start=1):
        if not isinstance(given, Tensor):
            raise InvalidInputError(f"numbers of round {rounds} are {given!r:.60}: there {must}")
        if tuple(given.shape) != shape or given.dtype != torch.float64:
            raise InvalidInputError(
                f"numbers of round {rounds} have shape {tuple(given.shape)} and type "
                f"{given.dtype}: there {must}"
            )
        if not bool(((given >= 0.0) & (given < 1.0)).all()):
            odd = given[~((given >= 0.0) & (given < 1.0))][0].item()
            raise InvalidInputError(f"numbers of round {rounds} hold {odd}: there {must}")
        yield given
    raise InvalidInputError(f"numbers ended before the texts: there {must}")


def _read(model: Llama, cache: Cache, text: Tensor, longest: int) -> None:
    """Read the prompts, some tokens at a time; what is behind a shorter one is overwritten."""
    batch, device = text.shape[0], text.device
    slots = torch.arange(cache[0][0].shape[2], device=device)
    for start in range(0, longest, READ_AT_ONCE):
        places = torch.arange(start, min(start + READ_AT_ONCE, longest), device=device)
        places = places.expand(batch, -1)
        model.read(cache, text.gather(1, places), places, places, slots <= places[..., None])


def _add(parts: dict[str, float], **seconds: float) -> None:
    for name, value in seconds.items():
        parts[name] += value


def _check_pair(draft: Llama, target: Llama) -> None:
    if draft.vocab_size != target.vocab_size:
        raise InvalidInputError(
            f"the draft has {draft.vocab_size} tokens and the target {target.vocab_size}: both "
            "must be over the same vocabulary"
        )
    if draft.device != target.device:
        raise InvalidInputError(
            f"the draft lies on {draft.device} and the target on {target.device}: move both to "
            "one device"
        )
