"""Input of `generate` of transformers: batches, scores, stop strings, options."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from torch.overrides import TorchFunctionMode  # noqa: E402

from otlp.auditing.gtest import g_test  # noqa: E402
from otlp.decode import NGram  # noqa: E402
from otlp.errors import InvalidInputError  # noqa: E402
from otlp_lab.generation import generate  # noqa: E402
from tests.tiny_models import SIZE, generated, tiny_pair  # noqa: E402

PADDED = torch.tensor([[0, 0, 3, 9, 4], [5, 3, 9, 4, 7], [0, 0, 0, 0, 8]])
"""A batch, padded on the left with zeros."""
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])
ONE = torch.tensor([[3, 9, 4, 9, 7]])


pair = pytest.fixture(tiny_pair, scope="module")


@pytest.fixture(scope="module")
def padding(trained: Any) -> tuple[Any, Any, Any]:
    """Return the models of the trained pair, and a tokenizer that pads."""
    draft, target = trained
    target.tokenizer.pad_token = target.tokenizer.eos_token
    target.tokenizer.padding_side = "left"
    return draft.model, target.model, target.tokenizer


def drafted(draft: Any, **settings: Any) -> Any:
    """Return the function with bound arguments, as transformers 4.56 needs it."""
    return partial(generate, draft_model=draft, **settings)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repetition_penalty": 2.0},
        {"no_repeat_ngram_size": 1},
        {"encoder_no_repeat_ngram_size": 1},
        {"encoder_repetition_penalty": 0.2},
        {"min_length": 9, "eos_token_id": list(range(20))},
        {"eos_token_id": list(range(32)), "max_new_tokens": 30},
        {"do_sample": True, "top_k": 1, "num_return_sequences": 3},
        {"prefix_allowed_tokens_fn": lambda row, text: [row, 20 + len(text)]},
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_greedy_batches_are_those_of_plain_generate(
    pair: tuple[Any, Any], options: dict[str, Any]
) -> None:
    plain, found = generated(pair, PADDED, MASK, **options)
    assert torch.equal(plain, found)


class Late(transformers.StoppingCriteria):  # type: ignore[name-defined]
    """Ends each row at a different length."""

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.tensor([input_ids.shape[1] >= 8 + 2 * row for row in range(len(input_ids))])


@pytest.mark.parametrize("end", [None, 63])
def test_rows_that_end_before_others(pair: tuple[Any, Any], end: int | None) -> None:
    """Without an end token, `generate` continues a finished row; with one, it pads the row."""
    criteria = transformers.StoppingCriteriaList([Late()])
    plain, found = generated(pair, PADDED, MASK, stopping_criteria=criteria, eos_token_id=end)
    assert torch.equal(plain, found) and plain.shape[1] == 12


def test_scores_and_logits(pair: tuple[Any, Any]) -> None:
    """Equal to plain `generate` up to rounding: a tree changes the order of summation."""
    asked = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    plain, found = generated(pair, PADDED, MASK, repetition_penalty=1.5, **asked)
    assert torch.equal(plain.sequences, found.sequences)
    for name in ("scores", "logits"):
        ours, theirs = (torch.stack(getattr(one, name)) for one in (found, plain))
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-4)
    assert found.get("cache", found.get("past_key_values")) is None


def test_a_mask_of_another_length(pair: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidInputError, match="must have the shape of input_ids"):
        generated(pair, ONE[:, 3:], MASK[:1])


@pytest.mark.parametrize("mask", [[1, 1, 1, 1, 0], [1, 0, 1, 1, 1], [2, 2, 2, 2, 2]])
def test_masks_that_are_no_padding_on_the_left(pair: tuple[Any, Any], mask: list[int]) -> None:
    with pytest.raises(InvalidInputError, match=r"attention_mask .* pad on the left"):
        generated(pair, ONE, torch.tensor([mask]))


def test_drafts_without_a_network_have_a_text_a_row(pair: tuple[Any, Any]) -> None:
    corpus = np.arange(40) % SIZE
    plain, found = generated((NGram(SIZE, corpus=corpus), pair[1]), PADDED, MASK)
    assert torch.equal(plain, found)


def test_stop_strings_with_a_tokenizer_that_is_bound(padding: tuple[Any, Any, Any]) -> None:
    draft, target, tokenizer = padding
    batch = tokenizer(["def main(argv):\n", "The"], return_tensors="pt", padding=True)
    options, stop = {"max_new_tokens": 14, "do_sample": False}, ["e", "("]
    plain = target.generate(**batch, **options, stop_strings=stop, tokenizer=tokenizer)
    ours = drafted(draft, tokenizer=tokenizer, stop_strings=stop)
    assert torch.equal(plain, target.generate(**batch, **options, custom_generate=ours))
    for more, printed in (
        ({"stop_strings": "e"}, "need the tokenizer"),
        ({"num_beams": 2}, "num_beams"),
    ):
        with pytest.raises(InvalidInputError, match=printed):
            target.generate(**batch, **options, custom_generate=drafted(draft), **more)


def test_a_pipeline(padding: tuple[Any, Any, Any]) -> None:
    draft, target, tokenizer = padding
    pipe = transformers.pipeline("text-generation", model=target, tokenizer=tokenizer)
    options = {"max_new_tokens": 8, "do_sample": False, "batch_size": 2}
    prompts = ["def main", "for i in the"]
    plain = pipe(prompts, **options)
    assert pipe(prompts, **options, custom_generate=drafted(draft)) == plain


def test_an_iterator_of_text_ends(padding: tuple[Any, Any, Any]) -> None:
    draft, target, tokenizer = padding
    inputs = tokenizer("import", return_tensors="pt")
    options = {"max_new_tokens": 8, "do_sample": False}
    text = tokenizer.decode(target.generate(**inputs, **options)[0])
    # with a time limit, a streamer that is never ended raises Empty
    streamer = transformers.TextIteratorStreamer(tokenizer, timeout=10.0)
    streamer.put(inputs["input_ids"])
    own = drafted(draft, streamer=streamer)
    target.generate(**inputs, custom_generate=own, **options)
    assert "".join(streamer) == text


@pytest.mark.slow
@pytest.mark.parametrize("which", ["pair", pytest.param("padding", marks=pytest.mark.long)])
def test_sampled_batches_follow_the_law_of_the_target(
    request: pytest.FixtureRequest, which: str
) -> None:
    """Two tokens after two prompts of different lengths, 100 rows each; false alarm 1e-3 each.

    A law with an error of 0.2 nats (an ignored mask or position) is detected nine times in ten.
    """
    draft, target, *tokenizer = request.getfixturevalue(which)
    torch.manual_seed(20241122)
    rows, prompt, mask = 100, PADDED[:2], MASK[:2]
    if tokenizer:
        texts = ["def main(argv):\n    ", "The"]
        batch = tokenizer[0](texts, return_tensors="pt", padding=True)
        prompt, mask = batch["input_ids"], batch["attention_mask"]
    found = target.generate(
        prompt, attention_mask=mask, num_return_sequences=rows, do_sample=True, top_k=4,
        max_new_tokens=2, pad_token_id=0, custom_generate=drafted(draft, length=1),
    )  # fmt: skip
    for number in range(2):
        start = prompt[number][mask[number] == 1].tolist()
        law = {
            (one, two): chance * more
            for one, chance in top_4(target, start).items()
            for two, more in top_4(target, [*start, one]).items()
        }
        drawn = found[number * rows : (number + 1) * rows, -2:].tolist()
        counts = np.array([drawn.count(list(text)) for text in law])
        assert counts.sum() == rows
        assert not g_test(counts, np.array([*law.values()]), rate=1e-3 / 2).rejected


def top_4(model: Any, text: list[int]) -> dict[int, float]:
    """Return the four most likely tokens after a text, with their probabilities."""
    with torch.no_grad():
        found = model(torch.tensor([text])).logits[0, -1].double().topk(4)
    return dict(zip(found.indices.tolist(), found.values.softmax(0).tolist(), strict=True))


# --- random options, against the loop of transformers with the same tokens ----------------------

OPTIONS: dict[str, list[Any]] = {
    "temperature": [0.3, 0.9, 1.7],
    "top_k": [3, 20],
    "top_p": [0.5, 0.95],
    "min_p": [0.05],
    "typical_p": [0.8],
    "epsilon_cutoff": [1e-3],
    "repetition_penalty": [1.3, 3.0],
    "encoder_repetition_penalty": [0.5],
    "no_repeat_ngram_size": [1, 2],
    "bad_words_ids": [[[31], [30, 7]]],
    "suppress_tokens": [list(range(20))],
    "sequence_bias": [[[[5], 4.0], [[5, 8], 9.0]]],
    "forced_eos_token_id": [6],
    "eos_token_id": [6, list(range(12))],
    "min_new_tokens": [4],
    "renormalize_logits": [True],
    "num_return_sequences": [2],
}
RULES = ["two-slice", "tournament", "traversal", "k-seq", "greedy-multipath"]


class Forced(TorchFunctionMode):
    """Returns given draws, one column at a time."""

    def __init__(self, columns: Any) -> None:
        self.columns = iter(columns.T)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.multinomial:
            return next(self.columns)[:, None]
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_random_options(pair: tuple[Any, Any], seed: int) -> None:
    """The same end and scores at every position, and no excluded token."""
    rng = np.random.default_rng(seed)
    names = rng.choice(sorted(OPTIONS), size=rng.integers(1, 6), replace=False)
    asked = {name: OPTIONS[name][rng.integers(len(OPTIONS[name]))] for name in names}
    rows = slice(None) if rng.random() < 0.5 else slice(1, 2)
    given = {
        "max_new_tokens": int(rng.integers(1, 12)), "do_sample": True, "pad_token_id": 0,
        "attention_mask": MASK[rows], "return_dict_in_generate": True, "output_scores": True,
        "output_logits": True, **asked,
    }  # fmt: skip
    torch.manual_seed(seed)
    found = pair[1].generate(
        PADDED[rows], custom_generate=generate, draft_model=pair[0], paths=int(rng.integers(1, 4)),
        length=int(rng.integers(1, 5)), verification=str(rng.choice(RULES)), **copy.deepcopy(given),
    )  # fmt: skip
    tokens = found.sequences[:, PADDED.shape[1] :]
    with Forced(tokens):
        plain = pair[1].generate(PADDED[rows], **copy.deepcopy(given))
    assert torch.equal(plain.sequences, found.sequences)
    going = torch.ones(len(tokens), dtype=torch.bool)
    ends = torch.as_tensor(asked.get("eos_token_id", SIZE)).reshape(-1)
    for at, (ours, theirs) in enumerate(zip(found.scores, plain.scores, strict=True)):
        torch.testing.assert_close(ours[going], theirs[going], atol=1e-3, rtol=1e-4)
        chosen = ours.gather(1, tokens[:, at : at + 1])[going]
        assert torch.isfinite(chosen).all()
        going &= ~torch.isin(tokens[:, at], ends)
