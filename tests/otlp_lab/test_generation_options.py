"""Every option of `generate` of transformers is honoured or refused by name, in any version."""

from __future__ import annotations

import copy
import inspect
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from transformers.generation import logits_process  # noqa: E402

from otlp.decode import (  # noqa: E402
    DraftTree,
    Sampling,
    ShapedDrafting,
    Tournament,
    iid_paths,
    prefix_tree,
    tree_shape,
)
from otlp.decode.models.cached import cache_argument  # noqa: E402
from otlp.errors import InvalidInputError, UnsupportedProblemError  # noqa: E402
from otlp_lab.generation import generate  # noqa: E402
from otlp_lab.generation.generated_row import ProcessedModel, RowPlace, decode_row  # noqa: E402
from otlp_lab.generation.generation_options import HONOURED, IDLE, PROCESSORS, check_options  # noqa: E402
from tests.tiny_models import SIZE, generated, tiny, tiny_pair  # noqa: E402

PROMPT = torch.tensor([[3, 9, 4, 9, 7]])
NEW = 10

VALUES: dict[str, dict[str, Any]] = {
    "max_length": {"max_length": 9, "max_new_tokens": None},
    "max_new_tokens": {"max_new_tokens": 3},
    "min_length": {"min_length": 14, "eos_token_id": list(range(20))},
    "min_new_tokens": {"min_new_tokens": 5, "eos_token_id": list(range(20))},
    "max_time": {"max_time": 1e6},
    "do_sample": {"do_sample": True, "top_k": 1},
    "temperature": {"do_sample": True, "temperature": 1e-4},
    "top_k": {"do_sample": True, "top_k": 1},
    "top_p": {"do_sample": True, "top_p": 1e-6},
    "top_h": {"do_sample": True, "top_h": 0.5, "temperature": 1e-4},
    "min_p": {"do_sample": True, "min_p": 1.0},
    "typical_p": {"do_sample": True, "typical_p": 0.5, "temperature": 1e-4},
    "epsilon_cutoff": {"do_sample": True, "epsilon_cutoff": 0.999},
    "eta_cutoff": {"do_sample": True, "eta_cutoff": 0.5, "temperature": 1e-4},
    "repetition_penalty": {"repetition_penalty": 3.0},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 0.2},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 1},
    "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 1},
    "bad_words_ids": {"bad_words_ids": [[31], [30, 7]]},
    "renormalize_logits": {"renormalize_logits": True},
    "forced_bos_token_id": {"forced_bos_token_id": 6},
    "forced_eos_token_id": {"forced_eos_token_id": 6},
    "remove_invalid_values": {"remove_invalid_values": True},
    "exponential_decay_length_penalty": {
        "exponential_decay_length_penalty": (2, 1.9),
        "eos_token_id": 6,
    },
    "suppress_tokens": {"suppress_tokens": list(range(20))},
    "begin_suppress_tokens": {"begin_suppress_tokens": [12]},
    "sequence_bias": {"sequence_bias": [[[5], 9.0], [[5, 8], 9.0]]},
    "watermarking_config": {
        "watermarking_config": transformers.WatermarkingConfig(bias=9.0, context_width=2)
    },
    "num_return_sequences": {"num_return_sequences": 2, "do_sample": True, "top_k": 1},
    "return_dict_in_generate": {"return_dict_in_generate": True},
    "output_scores": {"output_scores": True},
    "output_logits": {"output_logits": True},
    "pad_token_id": {"pad_token_id": 8},
    "bos_token_id": {"bos_token_id": 8},
    "eos_token_id": {"eos_token_id": list(range(20))},
    "use_cache": {"use_cache": False},
    "prefill_chunk_size": {"prefill_chunk_size": 2},
    "compile_config": {"compile_config": transformers.CompileConfig()},
    "disable_compile": {"disable_compile": True},
    "decoder_start_token_id": {"decoder_start_token_id": 3},
    "transformers_version": {"transformers_version": "0.0"},
}
QUIET = {
    "max_time",
    "renormalize_logits",
    "forced_bos_token_id",
    "remove_invalid_values",
    "return_dict_in_generate",
    "output_scores",
    "output_logits",
    "pad_token_id",
    "bos_token_id",
}
"""Honoured fields that do not change the greedy text of a prompt of several tokens."""
FIELDS = [name for name in vars(transformers.GenerationConfig()) if not name.startswith("_")]
ASKED = {
    "early_stopping": True,
    "length_penalty": 2.0,
    "diversity_penalty": 0.5,
    "dola_layers": "high",
    "penalty_alpha": 0.6,
    "prompt_lookup_num_tokens": 3,
    "guidance_scale": 1.5,
    "cache_implementation": "static",
    "num_beams": 3,
}
"""Values of the fields; other fields are set to a string."""


pair = pytest.fixture(tiny_pair, scope="module")


@pytest.fixture(scope="module")
def unasked(pair: tuple[Any, Any]) -> Any:
    """Return the output of plain `generate` without further options."""
    given = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    return pair[1].generate(PROMPT, attention_mask=torch.ones_like(PROMPT), **given)


def ours(pair: tuple[Any, Any], **asked: Any) -> Any:
    """Return the output of `generate` with the function of otlp."""
    mask = torch.ones_like(PROMPT)
    own = {"custom_generate": generate, "draft_model": pair[0]}
    return pair[1].generate(PROMPT, attention_mask=mask, **own, **asked)


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_honoured_or_refused(pair: tuple[Any, Any], unasked: Any, name: str) -> None:
    """The fields are those of the installed transformers."""
    if name in HONOURED | IDLE:
        plain, found = generated(pair, PROMPT, **VALUES[name])
        if name == "return_dict_in_generate":
            plain, found = plain.sequences, found.sequences
        assert torch.equal(plain, found)
        if name not in QUIET | IDLE and not VALUES[name].get("do_sample"):
            assert not torch.equal(plain, unasked), "a value that would not be noticed"
        return
    config = transformers.GenerationConfig()
    config.num_beams = 1
    setattr(config, name, ASKED.get(name, "something"))
    with pytest.raises(InvalidInputError, match=name):
        check_options(PROMPT, config, [], {})


SYNTHID = transformers.SynthIDTextWatermarkingConfig(keys=[654, 400, 836], ngram_len=3)
BY_GENERATE = ("diversity_penalty", "penalty_alpha", "num_beams")
"""Fields that `generate` refuses by itself, or that select another decoding method."""
REFUSED: list[tuple[str, dict[str, Any]]] = [
    *((name, {name: value}) for name, value in ASKED.items() if name not in BY_GENERATE),
    ("penalty_alpha", {"penalty_alpha": 0.6, "top_k": 4}),
    ("paths K must be .*, got 0", {"paths": 0}),
    ("length L must be .*, got 0", {"length": 0}),
    ("'blocks'", {"verification": "blocks"}),
    ("equality needs a target with seeded draws", {"verification": "equality"}),
    ("output_attentions", {"output_attentions": True, "return_dict_in_generate": True}),
    ("position_ids", {"position_ids": torch.arange(2, 7)[None]}),
    ("stop_strings", {"stop_strings": ["x"]}),
    ("SynthIDTextWatermarkLogitsProcessor", {"watermarking_config": SYNTHID}),
]


@pytest.mark.parametrize(("name", "asked"), REFUSED, ids=[name for name, _ in REFUSED])
def test_from_within_generate(pair: tuple[Any, Any], name: str, asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=name):
        ours(pair, max_new_tokens=2, **asked)


def test_a_cache_to_go_on_from_is_refused(pair: tuple[Any, Any]) -> None:
    """By its old name, which transformers 5.24 passes on as the new name."""
    read = transformers.DynamicCache()
    with torch.no_grad():
        pair[1](PROMPT[:, :3], **{cache_argument(pair[1]): read})
    assert read.get_seq_length() == 3
    with pytest.raises(InvalidInputError, match=r"cache|past_key_values"):
        ours(pair, max_new_tokens=2, past_key_values=read)


def test_what_does_not_go_together_is_refused(pair: tuple[Any, Any]) -> None:
    with pytest.raises(UnsupportedProblemError, match=r"one i\.i\.d\. path"):
        ours(pair, verification="block")


def test_inputs_that_are_not_known_are_refused() -> None:
    config = transformers.GenerationConfig(num_beams=1)
    with pytest.raises(InvalidInputError, match="token_type_ids"):
        check_options(PROMPT, config, [], {"token_type_ids": torch.zeros_like(PROMPT)})


def test_stop_strings_as_stopping_criteria(pair: tuple[Any, Any]) -> None:
    class Stop(transformers.StoppingCriteria):  # type: ignore[name-defined]
        def __init__(self) -> None:
            self.seen: list[int] = []

        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            self.seen.append(input_ids.shape[1])
            return torch.tensor([self.seen == [6, 7, 8, 9]])

    criteria = transformers.StoppingCriteriaList([Stop()])
    plain, found = generated(pair, PROMPT, stopping_criteria=copy.deepcopy(criteria))
    assert plain.shape[1] == 9
    assert torch.equal(plain, found)


class Streamer:
    def __init__(self) -> None:
        self.got: list[Any] = []

    def put(self, value: Any) -> None:
        self.got.append(value.tolist())

    def end(self) -> None:
        self.got.append("end")


def test_a_streamer_gets_every_token_and_an_end(pair: tuple[Any, Any]) -> None:
    plain, streamed = Streamer(), Streamer()
    given = {"max_new_tokens": 7, "do_sample": False, "pad_token_id": 0}
    mask = torch.ones_like(PROMPT)
    pair[1].generate(PROMPT, attention_mask=mask, streamer=plain, **given)
    bound = partial(generate, draft_model=pair[0], streamer=streamed)
    streamed.put(PROMPT)  # as `generate` does with a given cache
    pair[1].generate(PROMPT, attention_mask=mask, custom_generate=bound, **given)
    assert streamed.got == plain.got


# processors

CALLS: dict[str, tuple[Any, ...]] = {
    "MinLengthLogitsProcessor": (7, [2]),
    "MinNewTokensLengthLogitsProcessor": (3, 4, [2]),
    "TemperatureLogitsWarper": (0.7,),
    "RepetitionPenaltyLogitsProcessor": (1.5,),
    "EncoderRepetitionPenaltyLogitsProcessor": (1.5, PROMPT),
    "TopPLogitsWarper": (0.6,),
    "TopKLogitsWarper": (5,),
    "TopHLogitsWarper": (0.5,),
    "MinPLogitsWarper": (0.3,),
    "TypicalLogitsWarper": (0.6,),
    "EpsilonLogitsWarper": (0.01,),
    "EtaLogitsWarper": (0.01,),
    "NoRepeatNGramLogitsProcessor": (2,),
    "EncoderNoRepeatNGramLogitsProcessor": (2, PROMPT),
    "SequenceBiasLogitsProcessor": ([[[4], 2.0], [[3, 5], 3.0]],),
    "NoBadWordsLogitsProcessor": ([[4], [3, 5]], [2]),
    "PrefixConstrainedLogitsProcessor": (lambda _, text: [int(text[-1]), 1], 1),
    "ForcedBOSTokenLogitsProcessor": (4,),
    "ForcedEOSTokenLogitsProcessor": (7, 4),
    "InfNanRemoveLogitsProcessor": (),
    "ExponentialDecayLengthPenalty": ((2, 1.5), [2], 4),
    "LogitNormalization": (),
    "SuppressTokensAtBeginLogitsProcessor": ([1, 2], 5),
    "SuppressTokensLogitsProcessor": ([1, 2],),
    "WatermarkLogitsProcessor": (SIZE, "cpu"),
}
CLASSES = {
    name: kind
    for name, kind in vars(logits_process).items()
    if inspect.isclass(kind)
    and issubclass(kind, logits_process.LogitsProcessor)
    and kind is not logits_process.LogitsProcessor
}


@pytest.mark.parametrize("name", CLASSES)
def test_every_processor_has_no_memory_or_is_refused(name: str) -> None:
    """Accepted processors give the same result for a text after any earlier calls."""
    kind = CLASSES[name]
    if name not in PROCESSORS:
        with pytest.raises(InvalidInputError, match=name):
            check_options(
                PROMPT, transformers.GenerationConfig(num_beams=1), [object.__new__(kind)], {}
            )
        return
    rng = np.random.default_rng(0)
    texts = [torch.from_numpy(rng.integers(SIZE, size=(1, n))) for n in (4, 1, 6, 6, 5, 7, 6)]
    scores = [torch.from_numpy(rng.normal(size=(1, SIZE)).astype(np.float32)) for _ in texts]
    fresh = [kind(*CALLS[name])(t, s.clone()) for t, s in zip(texts, scores, strict=True)]
    used = kind(*CALLS[name])
    for _ in range(4):
        for at in rng.permutation(len(texts)):
            assert torch.equal(used(texts[at], scores[at].clone()), fresh[at])


class Remembering(transformers.LogitsProcessor):  # type: ignore[name-defined]
    """Adds a bonus that grows with every call."""

    calls = 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.calls += 1
        scores[:, self.calls % SIZE] += 50.0
        return scores


class OfText(transformers.LogitsProcessor):  # type: ignore[name-defined]
    """A user-defined function of the text."""

    function_of_text = True

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        scores[:, (7 * int(input_ids[0, -1]) + input_ids.shape[1]) % SIZE] += 50.0
        return scores


class Derived(OfText):
    """A subclass that does not declare itself stateless."""


def test_processors_of_the_users_own(pair: tuple[Any, Any]) -> None:
    take = transformers.LogitsProcessorList
    plain, found = generated(pair, PROMPT, logits_processor=take([OfText()]))
    assert torch.equal(plain, found)
    for processor in (Remembering(), Derived()):
        with pytest.raises(InvalidInputError, match=type(processor).__name__):
            generated(pair, PROMPT, logits_processor=take([processor]))


def test_lengths_beyond_the_context_are_refused_before_a_token(pair: tuple[Any, Any]) -> None:
    plain, found = generated(pair, PROMPT, max_new_tokens=64 - PROMPT.shape[1])
    assert torch.equal(plain, found) and found.shape[1] == 64
    with pytest.raises(InvalidInputError, match=r"65 tokens .* at most 59"):
        ours(pair, max_new_tokens=60)


def test_a_prompt_beyond_the_draft_is_decoded_without_drafts(pair: tuple[Any, Any]) -> None:
    short = tiny("gpt2", 1, max_position_embeddings=20, tie_word_embeddings=False)
    plain, found = generated((short, pair[1]), PROMPT.repeat(1, 6)[:, :24])
    assert torch.equal(plain, found)


def test_a_mask_that_generate_made_is_said_to_be_its_own(pair: tuple[Any, Any]) -> None:
    draft, target = pair
    text = torch.tensor([[1, 2, 0, 3]])
    how = {"max_new_tokens": 4, "pad_token_id": 0, "draft_model": draft}
    with pytest.raises(InvalidInputError, match=r"pad_token_id.*torch\.ones_like\(input_ids\)"):
        target.generate(text, custom_generate=generate, **how)
    with pytest.raises(InvalidInputError, match="pad on the left, with zeros"):
        target.generate(text, attention_mask=(text != 0).long(), custom_generate=generate, **how)


def test_models_keep_their_mode(pair: tuple[Any, Any]) -> None:
    draft, target = (copy.deepcopy(model) for model in pair)
    draft.train()
    target.transformer.h[0].train()
    before = [m.training for model in (draft, target) for m in model.modules()]
    generated((draft, target), PROMPT)
    assert before == [m.training for model in (draft, target) for m in model.modules()]
    with pytest.raises(InvalidInputError, match="num_beams"):
        target.generate(PROMPT, custom_generate=generate, draft_model=draft, num_beams=2)
    assert before == [m.training for model in (draft, target) for m in model.modules()]


def test_a_call_without_generate_is_told_how(pair: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidInputError, match="custom_generate="):
        generate(pair[1], PROMPT, draft_model=pair[0])
    for other in ({}, {"assistant_model": pair[0]}):
        with pytest.raises(InvalidInputError, match="draft_model"):
            pair[1].generate(PROMPT, custom_generate=generate, max_new_tokens=1, **other)
    with pytest.raises(InvalidInputError, match=r"draft_model must be .*, got str"):
        pair[1].generate(PROMPT, custom_generate=generate, draft_model="small")


def below(parents: Any, slot: int = 0) -> Any:
    """Return the subtree of a slot, independent of the order of siblings."""
    return sorted(below(parents, child) for child, above in enumerate(parents) if above == slot)


class Watching(Tournament):
    """Records the shape of every tree."""

    def __init__(self) -> None:
        object.__setattr__(self, "shapes", [])

    def verify(self, tree: DraftTree, targets: Any, chooser: Any) -> Any:
        self.shapes.append(below(tree.slots.parents))  # type: ignore[attr-defined]
        return super().verify(tree, targets, chooser)


@pytest.mark.parametrize(
    "wanted",
    [prefix_tree([3, 2]), iid_paths(2, 3), tree_shape([-1, 0, 0, 0, 1, 1, 2, 4], "iid")],
    ids=str,
)
def test_near_the_end_a_drafting_is_shortened_as_itself(
    pair: tuple[Any, Any], wanted: ShapedDrafting
) -> None:
    place, verification = RowPlace(0, 1, ()), Watching()
    draft, target = (ProcessedModel(m, lambda _, scores: scores, Sampling(), place) for m in pair)
    for model in (draft, target):
        model.start(PROMPT[0].numpy())
    most, room = PROMPT.shape[1] + 40, [40]
    for _ in decode_row(draft, target, wanted, verification, most, np.random.default_rng(0)):
        room.append(most - target.context.size)
        if room[-1] <= 0:
            break
    shapes = verification.shapes  # type: ignore[attr-defined]
    rooms = list(dict.fromkeys(room))
    expected = [below(wanted.shortened(left - 1).shape) for left in rooms if left > 1]
    assert shapes == expected and shapes[0] == below(wanted.shape)
