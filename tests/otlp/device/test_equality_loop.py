"""Equality on the device: the texts of plain decoding with the same seeds, and reference rounds.

Models are in float64, as in `test_device_loop`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
pytest.importorskip("transformers", reason="needs transformers: pip install -e .[decode]")
from otlp.decode import (  # noqa: E402
    Calibration,
    Copying,
    Equality,
    Sampling,
    decode,
    iid_paths,
    top_tree,
    with_shared_noise,
)
from otlp.device import Llama, LoopModels, NoiseRounds  # noqa: E402
from otlp.device.noise_steps import noise_step  # noqa: E402
from otlp.errors import InvalidInputError, UnsupportedProblemError  # noqa: E402
from otlp.numerics.exponentials import noise_row, seed_key  # noqa: E402
from tests.otlp.device.loops import PROMPTS, pair, raced, uncompiled  # noqa: E402
from tests.otlp.device.test_device_loop import ReadBacks, SameLaws  # noqa: E402

DRAFTINGS = {
    "tree": top_tree(5, 3),
    "chain": top_tree(3, 3, 1),
    "narrow tree": top_tree(8, 4, 2),
    "whole tree": top_tree(12, 2),
    "one level": top_tree(4, 1),
    "threshold": top_tree(8, 4, 3, least=0.1),
}
SAMPLINGS = (
    Sampling(), Sampling(0.4), Sampling(2.0, top_k=2), Sampling(top_p=0.7), Sampling(0.0),
)  # fmt: skip
SEEDS = (7, (8, 1), 9)


@cache
def small(vocab: int) -> tuple[Any, Any]:
    return pair(vocab_size=vocab, pad_token_id=None, bos_token_id=None)


@pytest.mark.parametrize("vocab", [2, 3, 4, 5, 6])
def test_a_batch_of_texts_is_that_of_plain_decoding(vocab: int) -> None:
    """Eight texts per case, 200 in total; every second text has end tokens."""
    prompts = [[1] * (1 + row % 3) + [row % 2] for row in range(8)]
    for number, sampling in enumerate(SAMPLINGS):
        seeds = [(number, vocab, row) for row in range(8)]
        options: dict[str, Any] = {"sampling": sampling, "ends": [vocab - 1] if number % 2 else []}
        options["make"], calibration = raced, Calibration(0.5, 0.3) if number < 3 else None
        drafting = list(DRAFTINGS.values())[(number + vocab) % 6]
        drafts: dict[str, Any] = {"calibration": calibration, "draft_temperature": 0.7}
        loop = uncompiled(*small(vocab), drafting=drafting, **drafts, **options)
        found = loop.decode(prompts, 9, seeds)
        plain = uncompiled(small(vocab)[0], **options).decode(prompts, 9, seeds)
        assert [text.tolist() for text in found.texts] == [text.tolist() for text in plain.texts]
        assert plain.calls.sum() == plain.tokens > found.calls.sum()


@pytest.mark.parametrize("shares", [(), (0.3, 0.8)], ids=["alone", "copying"])
@pytest.mark.parametrize(
    ("vocab", "name", "sampling"),
    [
        (64, "tree", Sampling()),
        (64, "chain", Sampling(1.3)),
        (64, "narrow tree", Sampling(0.7, 5)),
        (3, "threshold", Sampling(0.6)),
        (6, "whole tree", Sampling(1.0, 2)),
        (2, "whole tree", Sampling()),
        (5, "tree", Sampling(0.8, None, 0.7)),
        (4, "one level", Sampling(0.0)),
    ],
)
def test_the_rounds_of_the_reference(
    vocab: int, name: str, sampling: Sampling, shares: tuple[float, ...]
) -> None:
    """Texts and numbers of calls are equal."""
    target, draft = pair() if vocab == 64 else small(vocab)
    prompts = PROMPTS if vocab == 64 else ([1, 0, 1], [0], [1, 1])
    loop = raced(
        Llama(target), Llama(draft, shares), sampling=sampling, draft_temperature=0.9,
        drafting=DRAFTINGS[name], compiled=False,
    )  # fmt: skip
    found = loop.decode(prompts, 12, SEEDS)
    how: dict[str, Any] = {"drafting": DRAFTINGS[name], "verification": Equality()}
    for row, seed in enumerate(SEEDS):
        own = SameLaws(draft, sampling=sampling.at(0.9))
        drafts = Copying(own, shares) if shares else own
        models = with_shared_noise(drafts, SameLaws(target, sampling=sampling), seed)
        rng = np.random.default_rng()
        (text,) = decode(models[1], [np.array(prompts[row])], 12, rng, draft=models[0], **how)
        assert found.texts[row].tolist() == text.tokens.tolist()
        assert found.calls[row] == len(text.rounds)


def test_rows_of_noise_are_those_of_arrays() -> None:
    seeds, held = (3, (4, 5)), torch.tensor([17, 1000])
    rows = torch.ones(2, 3, 700, dtype=torch.float64)
    noise_step(700, 3)(torch.tensor([[seed_key(seed)] for seed in seeds]), held, rows)
    for row, (seed, place) in enumerate((((3,), 17), ((4, 5), 1000))):
        for at in range(3):
            wanted = noise_row(seed, place + at, 700)
            assert rows[row, at].numpy().tobytes() == wanted.tobytes()


def test_one_flag_is_read_a_round() -> None:
    loop = uncompiled(*pair(), make=raced, drafting=top_tree(6, 3))
    assert (loop.nodes, loop.length, loop.numbers_a_round) == (6, 3, 1)
    counts = []
    for tokens in (1, 25):
        with ReadBacks() as read:
            found = loop.decode([[1, 2], [3]], tokens, [0, 1])
        counts.append(read.found - found.rounds)
    assert counts[0] == counts[1]


def test_half_precision_decodes_with_a_draft_that_is_the_target() -> None:
    target = pair()[0].bfloat16()
    loop = uncompiled(
        target, target, make=raced, calibration=Calibration(0.1, 0.0), drafting=top_tree(3, 3, 1)
    )
    assert loop.decode([[5, 9]], 12, [3]).calls[0] <= 6


@pytest.mark.slow
@pytest.mark.long  # compilation takes a minute
@pytest.mark.parametrize("name", ["tree", "chain"])
def test_compiled_steps_make_the_same_noise_and_texts(name: str) -> None:
    models, found = [Llama(one) for one in pair()], []
    for compiled in (False, True):
        loop = raced(*models, drafting=DRAFTINGS[name], compiled=compiled)
        decoded = loop.decode(PROMPTS, 40, SEEDS)
        noise = loop._prepared(3, 128)[0].buffers.noise.numpy().tobytes()
        found.append(([one.tolist() for one in decoded.texts], decoded.calls.tolist(), noise))
    assert found[0] == found[1]
    assert not loop.uncompiled


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda models: NoiseRounds(LoopModels(models.target), top_tree(2, 2)),
            "left out if there is no",
        ),
        (lambda models: NoiseRounds(LoopModels(models.target), None, Calibration()), "no draft"),
        (lambda models: NoiseRounds(models, iid_paths(2, 2)), "drafting must be top_tree.*, got "),
        (lambda models: NoiseRounds(models, top_tree(0, 2)), "drafting must be top_tree.*, got "),
        (
            lambda models: NoiseRounds(models, calibration=0.1),
            "calibration must be a Calibration, got 0.1",
        ),
        (lambda models: NoiseRounds(models.draft), "models must be a LoopModels"),
        (lambda models: NoiseRounds(models, clock=3), "clock must be a function, got 3"),
    ],
)
def test_options_that_do_not_go_together(make: Any, words: str) -> None:
    with pytest.raises((InvalidInputError, UnsupportedProblemError), match=words):
        make(LoopModels(*map(Llama, pair())))


@pytest.mark.parametrize("seeds", [None, 3, "7", [], [1, 2], [-1], [0.5], torch.Generator()])
def test_seeds_that_are_none(seeds: Any) -> None:
    loop = uncompiled(pair()[0], make=raced)
    with pytest.raises(InvalidInputError, match="seed"):
        loop.decode([[1]], 2, seeds)
