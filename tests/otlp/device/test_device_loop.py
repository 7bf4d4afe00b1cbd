"""The loop on the device: the tokens of the reference, the law of the target, few transfers.

The reference is `play_round` with the plain forward pass of transformers.  Both use float64 models
and round logits to float32 before the softmax, so laws differ by about 1e-15, and a uniform number
falls between two thresholds about once in 1e12 rounds.
"""

from __future__ import annotations

import os
import warnings
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
pytest.importorskip("transformers", reason="needs transformers: pip install -e .[decode]")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from otlp.auditing.gtest import g_test  # noqa: E402
from otlp.decode import (  # noqa: E402
    Block,
    Chooser,
    Copying,
    Sampling,
    TextModel,
    iid_paths,
    prefix_tree,
    rounds,
)
from otlp.decode.models.frequent_draft import FrequentHead  # noqa: E402
from otlp.decode.models.huggingface import HuggingFaceModel  # noqa: E402
from otlp.decode.tree import ROOT  # noqa: E402
from otlp.device import (  # noqa: E402
    DeviceLoop,
    IidRounds,
    Llama,
    LoopModels,
    compiling,
    verify_on_device,
)
from otlp.device.copying import copies  # noqa: E402
from otlp.device.steps import logits_to_probs  # noqa: E402
from otlp.distribution import invert_cdf  # noqa: E402
from otlp.errors import InvalidInputError, UnsupportedProblemError  # noqa: E402
from tests.otlp.device.loops import (  # noqa: E402
    PROMPTS,
    loop_of,
    numbers,
    pair,
    uncompiled,
    verifiers,
)
from tests.processes import run_python  # noqa: E402
from tests.tiny_models import tiny  # noqa: E402


class SameLaws(HuggingFaceModel):
    """The models of the reference, with the softmax of the device."""

    def distributions(self, tree, nodes):
        rows = logits_to_probs(torch.from_numpy(self.logits(tree, nodes)), self.sampling).double()
        return (rows / rows.sum(-1, keepdim=True)).numpy()


class Given(Chooser):
    """Makes the decisions of each round with the numbers of the loop."""

    def __init__(self, length: int) -> None:
        self.length = length

    def take(self, uniform) -> None:
        self.drafting, self.uniform = list(uniform[: self.length]), uniform[self.length :]
        self.level = self.length

    def draws(self, distribution, n):
        return invert_cdf(np.cumsum(distribution), np.array([self.drafting.pop(0)]))

    def accept(self, probability):
        self.level -= 1
        return bool(self.uniform[self.level + 2] < probability)

    def choose(self, masses):
        return int(invert_cdf(np.cumsum(masses), self.uniform[-1]))


def rounds_of_reference(target, draft, prompt, length, tokens, source, row):
    large, small = (SameLaws(one, sampling=Sampling()) for one in (target, draft))
    for one in (large, small):
        one.start(np.array(prompt))
    found: list[int] = []
    chooser = Given(length)
    chooser.take(next(source)[row].numpy())
    plan = small, large, iid_paths(1, length), Block(), chooser
    for played in rounds(*plan, held=len(prompt), tokens=tokens):
        found += played.tokens.tolist()
        chooser.take(next(source)[row].numpy())
    return found[:tokens]


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("known", [64, 20], ids=["whole head", "frequent tokens"])
def test_the_tokens_of_the_reference(length: int, known: int) -> None:
    target, draft = pair()
    if known < target.config.vocab_size:
        kept = torch.arange(0, 3 * known, 3)
        draft.lm_head = FrequentHead(draft.lm_head.weight[kept], kept, target.config.vocab_size)
    loop = uncompiled(target, draft, branching=(1,) * length)
    found = loop.decode(PROMPTS, 60, numbers(loop, 3, 4))
    for row, prompt in enumerate(PROMPTS):
        source = numbers(loop, 3, 4)
        wanted = rounds_of_reference(target, draft, prompt, length, 60, source, row)
        assert found.texts[row].tolist() == wanted
    assert found.calls.max() == found.rounds
    assert found.tokens / found.calls.sum() > 1.1  # drafts are also accepted


def forced(rows, tokens):
    """Return numbers that draw the given tokens: the midpoints of their steps."""
    cumulative = rows.cumsum(-1)
    middle = cumulative - 0.5 * rows
    return middle.gather(-1, tokens[..., None])[..., 0] / cumulative[..., -1]


def law(model: Any, text: list[int]):
    with torch.no_grad():
        row = logits_to_probs(model(torch.tensor([text])).logits[0, -1], Sampling()).double()
    return row / row.sum()


def prefixes(branching: tuple[int, ...], tokens) -> list[list[int]]:
    """Return the prefix of each slot of a drafted tree, the root first."""
    found: list[list[int]] = [[]]
    for slot, parent in enumerate(prefix_tree(branching).shape[1:]):
        found.append([*found[parent], int(tokens[slot])])
    return found


@pytest.mark.parametrize(
    ("vocab", "branching"),
    [(2, (2, 1)), (3, (1, 1)), (4, (2,)), (2, (2, 2)), (3, (1, 2)), (4, (1, 2)), (2, (1, 2, 1))],
)
def test_all_that_can_be_drafted(vocab: int, branching: tuple[int, ...]) -> None:
    """One batch with a row per possible draft: tokens are as drawn, laws are those of the models.

    tests/otlp/batched enumerates that verification is lossless given these.
    """
    target, draft = pair(vocab_size=vocab, pad_token_id=None, bos_token_id=None)
    prompt, seen = [1, 0], []
    laws_of = {
        model: cache(lambda *prefix, model=model: law(model, [*prompt, *prefix]))
        for model in (target, draft)
    }
    parents = prefix_tree(branching).shape
    tokens = torch.tensor(list(product(range(vocab), repeat=len(parents) - 1)))
    wanted_q = torch.zeros(len(tokens), max(parents) + 1, vocab, dtype=torch.float64)
    wanted_p = torch.zeros(len(tokens), len(parents), vocab, dtype=torch.float64)
    for at, row in enumerate(tokens):
        for slot, prefix in enumerate(prefixes(branching, row)):
            wanted_p[at, slot] = laws_of[target](*prefix)
            if slot <= max(parents):
                wanted_q[at, slot] = laws_of[draft](*prefix)
    drawing = forced(wanted_q[:, list(parents[1:])], tokens)

    def recording(*parts):
        seen.append(parts)
        return verify(*parts)

    verify = verifiers(branching)[0]
    loop = uncompiled(target, draft, branching=branching, verify=recording)
    rest = torch.full((len(tokens), loop.numbers_a_round - loop.nodes), 0.5)
    given = torch.cat([drawing, rest], 1)
    loop.decode([prompt] * len(tokens), 1, iter([given]))
    p, q, drafted, _ = seen[-1]
    assert (drafted == tokens).all()
    assert float((p - wanted_p).abs().max()) < 1e-6  # rows are float32
    assert float((q - wanted_q).abs().max()) < 1e-6


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            [],
            r"ended before the texts; those of each round must be a float64 tensor of "
            r"shape \(1, 5\)",
        ),
        ([torch.zeros(1, 3).double()], r"round 1 must be .*, got torch.float64 of shape \(1, 3\)"),
        ([torch.zeros(1, 5)], "got torch.float32"),
        ([torch.zeros(1, 5).double(), 3], "round 2 must be .*, got 3"),
        ([torch.ones(1, 5).double()], r"must be .* in \[0, 1\), got entry 1.0"),
        ([torch.full((1, 5), float("nan")).double()], "got entry nan"),
        ([torch.full((1, 5), -1e-300, dtype=torch.float64)], "got entry -1"),
    ],
)
def test_numbers_that_a_round_does_not_take(given: list[Any], words: str) -> None:
    loop = uncompiled(*pair(), branching=(1,))
    assert loop.numbers_a_round == 5
    with pytest.raises(InvalidInputError, match=words):
        loop.decode([[1]], 9, iter(given))
    with pytest.raises(InvalidInputError, match=r"^generator must be a torch\.Generator.* or None"):
        loop.decode([[1]], 9, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda models: DeviceLoop(IidRounds(models), compiled="no"), "compiled"),
        (lambda models: DeviceLoop(IidRounds(models), capture=None), "capture"),
        (lambda models: DeviceLoop(models), "rounds must be a Rounds, got LoopModels"),
        (lambda models: IidRounds(models, verify=3), "verify"),
        (lambda models: IidRounds(models, clock=3), "clock"),
        (lambda models: IidRounds(models.target), "models must be a LoopModels"),
        (lambda models: IidRounds(LoopModels(models.target), (2, 1)), "branching must be left out"),
        (lambda models: LoopModels(models.target, models.draft, sampling=1.0), "sampling"),
        (lambda models: LoopModels(models.target, 3), "the draft must be a Llama, got 3"),
        (lambda models: LoopModels(models.target, draft_temperature=1.0), "there is no draft"),
        (lambda models: IidRounds(LoopModels(models.target), verify=print), "there is no draft"),
    ],
)
def test_options_that_are_none(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make(LoopModels(*map(Llama, pair())))


class Network(TextModel):
    """A network that processes each text without a cache."""

    def __init__(self, model: Any) -> None:
        super().__init__(model.config.vocab_size, "network")
        self.model = model

    def distribution(self, text):
        return law(self.model, text.tolist()).numpy()


@pytest.mark.parametrize("shares", [(), (0.3, 0.8)], ids=["alone", "copying"])
@pytest.mark.parametrize("branching", [(1, 1), (3, 1), (2, 3), (1, 2, 1)])
def test_the_laws_along_a_text(branching: tuple[int, ...], shares: tuple[float, ...]) -> None:
    """After rejections and whole paths, the caches are as after processing the text anew."""
    target, draft = pair()
    text, lengths = [], []
    drafts = Copying(Network(draft), shares) if shares else Network(draft)

    def drafting(here: list[int]):
        drafts.start(np.array(here))
        return torch.from_numpy(drafts.distributions(ROOT, np.array([0]))[0])

    def checking(p, q, tokens, numbers):
        found = verify(p, q, tokens, numbers)
        if text:
            for slot, prefix in enumerate(prefixes(branching, tokens[0])):
                here = text + prefix
                assert float((p[0, slot] - law(target, here)).abs().max()) < 1e-6
                if slot < q.shape[1]:
                    assert float((q[0, slot] - drafting(here)).abs().max()) < 1e-6
            lengths.append(int(found.accepted))
            text.extend(found.tokens[0, : lengths[-1] + 1].tolist())
        return found

    verify = verifiers(branching)[0]
    models = Llama(target), Llama(draft, shares)
    loop = loop_of(*models, branching=branching, verify=checking, compiled=False)
    # The warm-up rounds of a new shape do not change any text.
    loop.decode([PROMPTS[0]], 30, numbers(loop, 1, 0))
    text += PROMPTS[0]
    decoded = loop.decode([PROMPTS[0]], 30, numbers(loop, 1, 2))
    assert text[3:33] == decoded.texts[0].tolist()
    assert {0, len(branching)} <= set(lengths)


@pytest.mark.parametrize(
    ("branching", "shares"),
    [((1, 1), ()), ((2, 1), (0.3, 1.0)), ((2, 2), (0.3, 1.0))],
)
def test_the_law_of_the_next_tokens(branching: tuple[int, ...], shares: tuple[float, ...]) -> None:
    """G-test of two tokens after 2,000 rounds; false-alarm rate 1e-6, fixed seed."""
    target, draft = pair(vocab_size=4, pad_token_id=None, bos_token_id=None)
    models, prompt = (Llama(target), Llama(draft, shares)), [1, 0, 2, 1, 0]
    loop = loop_of(*models, branching=branching, compiled=False)
    found = loop.decode([prompt] * 2000, 2, torch.Generator().manual_seed(3))
    drawn = np.array([4 * first + second for first, second in found.texts])
    wanted = [law(target, prompt)[x] * law(target, [*prompt, x]) for x in range(4)]
    test = g_test(np.bincount(drawn, minlength=16), torch.cat(wanted).numpy(), 1e-6)
    assert not test.rejected


def test_a_text_that_is_done_copies_from_within_the_cache() -> None:
    """A finished text accepts a whole round and waits beyond the slots while another continues."""
    target, _ = pair(vocab_size=4, pad_token_id=None, bos_token_id=None)
    loop = loop_of(Llama(target), Llama(target, (0.0, 0.5)), slots=16, compiled=False)
    found = loop.decode([[1, 0, 1], [2]], 8, torch.Generator().manual_seed(0))
    assert [text.size for text in found.texts] == [8, 8]
    texts = torch.tensor([[1, 0, 1, 2]])
    _, lengths = copies(texts, torch.tensor([9]), 2)
    assert lengths.tolist() == [0]


class ReadBacks(TorchDispatchMode):
    """Counts transfers of numbers from tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        name = function._schema.name.removeprefix("aten::")
        if name in ("_local_scalar_dense", "item", "is_nonzero", "nonzero", "equal", "allclose"):
            self.found += 1
        return function(*arguments, **(keywords or {}))


@pytest.mark.parametrize("vocab", [8, 512])
def test_one_flag_is_read_a_round_whatever_the_vocabulary(vocab: int) -> None:
    verify = partial(verify_on_device, (1, 1, 1))
    loop = uncompiled(*pair(vocab_size=vocab), branching=(1, 1, 1), verify=verify)
    counts = []
    for tokens in (1, 25):
        with ReadBacks() as read:
            found = loop.decode([[1, 2], [3]], tokens, torch.Generator().manual_seed(0))
        counts.append(read.found - found.rounds)
    assert counts[0] == counts[1]  # other transfers do not grow with rounds


def test_plain_decoding_is_a_draft_of_nothing() -> None:
    target, _ = pair()
    loop = uncompiled(target)
    found = loop.decode([[5, 9]], 12, numbers(loop, 1, 2))
    source, text = numbers(loop, 1, 2), [5, 9]
    for _ in range(12):
        text.append(int(invert_cdf(np.cumsum(law(target, text).numpy()), next(source).item())))
    assert found.texts[0].tolist() == text[2:]
    assert found.calls.tolist() == [12]


@pytest.mark.parametrize(
    "sampling",
    [Sampling(0.0), Sampling(0.7, 5, 0.9), Sampling(1.3, None, 0.5), Sampling(0.9, 9, 0.9, 0.1)],
)
def test_laws_are_those_of_the_sampling(sampling: Sampling) -> None:
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(0)) * 3
    found = logits_to_probs(logits, sampling).double().numpy()
    assert np.abs(found - sampling.distributions(logits.numpy())).max() < 1e-6


def test_a_text_ends_with_an_end_token() -> None:
    models = pair()
    free = uncompiled(*models, branching=(1, 1, 1))
    whole = free.decode(PROMPTS, 40, numbers(free, 3, 4)).texts
    end = int(whole[0][7])
    loop = uncompiled(*models, branching=(1, 1, 1), ends=[end])
    ended = loop.decode(PROMPTS, 40, numbers(loop, 3, 4)).texts
    for found, longer in zip(ended, whole, strict=True):
        places = np.flatnonzero(longer == end)
        stop = places[0] + 1 if places.size else 40
        assert found.tolist() == longer[:stop].tolist()


def test_half_precision_and_other_kinds() -> None:
    for kind in ("qwen2", "qwen3"):
        loop = uncompiled(*[tiny(kind)] * 2, branching=(1, 1))
        found = loop.decode([[1, 2]], 9, numbers(loop, 1, 0))
        assert found.calls[0] <= 4  # draft = target: two accepted, up to rounding
    loop = uncompiled(*[tiny("llama").bfloat16()] * 2, branching=(2, 1))
    assert loop.decode([[1, 2]], 9, numbers(loop, 1, 0)).texts[0].size == 9


def test_a_step_that_cannot_be_compiled_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_warned", set())

    def looks(values):
        return values + (1 if values.sum().item() > 0 else 2)

    with warnings.catch_warnings(record=True) as printed:
        warnings.simplefilter("always")
        steps = [compiling.CompiledStep(looks) for _ in range(2)]
        found = [step(torch.ones(2)).tolist() for step in steps for _ in range(2)]
    assert found == [[2.0, 2.0]] * 4
    assert not any(step.compiled for step in steps)
    assert len([w for w in printed if "not compiled" in str(w.message)]) == 1


WITHOUT_COMPILER = """
import warnings
from tests.otlp.device.loops import Llama, loop_of, numbers, pair
loop = loop_of(*map(Llama, pair()), branching=(1, 1))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(loop.decode([[1, 2]], 10, numbers(loop, 1, 0)).texts[0].tolist())
print(len([w for w in said if "not compiled" in str(w.message)]))
print(*loop.uncompiled)
"""


@pytest.mark.slow
@pytest.mark.long
def test_without_a_compiler_steps_run_as_they_are() -> None:
    """In a separate process: compiler failures are remembered."""
    loop = uncompiled(*pair(), branching=(1, 1))
    wanted = loop.decode([[1, 2]], 10, numbers(loop, 1, 0)).texts[0]
    environment = {"CXX": "no-such-compiler", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    printed = run_python(WITHOUT_COMPILER, **environment)
    assert printed.splitlines() == [str(wanted.tolist()), "1", "commit draft target"]
    assert loop.uncompiled == []  # no compilation was requested


@pytest.mark.slow
@pytest.mark.long  # Compilation takes a minute; test_llama.py tests the compiled model.
@pytest.mark.parametrize(
    ("branching", "batches"),
    [
        ((1, 1), (PROMPTS,)),
        ((2, 2), (PROMPTS,)),
        # another shape, then a compiled shape again
        ((1, 1), (PROMPTS, PROMPTS[:1], PROMPTS)),
    ],
)
def test_compiled_steps_decode_the_same_tokens(
    branching: tuple[int, ...], batches: tuple[tuple[list[int], ...], ...]
) -> None:
    models, texts = [Llama(one) for one in pair()], []
    for compiled in (False, True):
        loop = loop_of(*models, branching=branching, compiled=compiled)
        own = []
        for prompts in batches:
            own += loop.decode(prompts, 40, numbers(loop, len(prompts), 4)).texts
        texts.append(own)
    assert all((one == other).all() for one, other in zip(*texts, strict=True))
    steps = [step for steps in loop._steps.values() for step in steps.values()]
    assert len(steps) == 3 * len(set(map(len, batches)))
    assert all(step.compiled for step in steps)


@pytest.mark.slow
@pytest.mark.long
def test_each_loop_has_compiled_steps_of_its_own() -> None:
    prompt = [[5, 9, 3]]
    for seed in range(10):  # more than the number of versions that the compiler caches per function
        model = Llama(tiny("llama", seed).double())
        texts = []
        for compiled in (False, True):
            loop = loop_of(model, compiled=compiled)
            texts.append(loop.decode(prompt, 20, numbers(loop, 1, 0)).texts[0])
        assert (texts[0] == texts[1]).all()
        assert next(iter(loop._steps.values()))["plain"].compiled


def test_what_is_refused() -> None:
    large, small = map(Llama, pair())
    for model, words in ((tiny("gpt2"), "'gpt2'"), (tiny("mistral"), "sliding window")):
        with pytest.raises(UnsupportedProblemError, match=words):
            Llama(model)
    for odd in ((1.5,), (float("nan"),)):
        with pytest.raises(InvalidInputError, match="shares"):
            Llama(pair()[0], odd)
    with pytest.raises(InvalidInputError, match="the target must have no shares"):
        LoopModels(Llama(pair()[0], (0.5,)), small)
    with pytest.raises(InvalidInputError, match="same vocabulary, got 64 tokens and 32"):
        LoopModels(Llama(tiny("llama", vocab_size=32)), small)
    for branching in ((), (2, 0), (2.5,)):
        with pytest.raises(InvalidInputError):
            IidRounds(LoopModels(large, small), branching)
    loop = loop_of(large, small, branching=(1, 1), slots=32, compiled=False)
    free = loop_of(large, small, branching=(1, 1), compiled=False)
    for decoding, prompts, words in (
        (loop, [[1] * 20], "slots must be at least 33 .*, got 32"),
        (free, [[1], [1] * 120], "prompt 2 has 120 tokens"),
        (free, [], "prompts must have at least one prompt, got none"),
        (free, [[]], "prompt 1 must have at least one token, got none"),
        (free, [[64]], "token ids in .*, got 64"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            decoding.decode(prompts, 10)


IN_A_CACHE = """
import torch
from otlp.device.compiling import CompiledStep
def doubled(values):
    return values + values
step = CompiledStep(doubled)
print(step(torch.ones(3)).tolist(), step(torch.ones(3)).tolist(), step.compiled)
"""


@pytest.mark.slow
@pytest.mark.long
def test_with_a_broken_file_in_the_cache_steps_run_all_the_same(tmp_path: Path) -> None:
    """A process killed during a write leaves such a file."""
    for _ in range(2):
        printed = run_python(IN_A_CACHE, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
        assert printed.split()[:-1] == "[2.0, 2.0, 2.0] [2.0, 2.0, 2.0]".split()
        # The largest is that of the step; the others query the processor.
        os.truncate(max(tmp_path.rglob("*.so"), key=lambda one: one.stat().st_size), 100)
