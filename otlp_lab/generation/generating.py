"""Speculative decoding inside ``model.generate`` of transformers, through ``custom_generate``.

The target's distribution is what generate's own sampling loop would sample from: the logits after
all of its processors, or their arg max without ``do_sample``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from otlp.checks import is_a
from otlp.decode.drafting import Drafting, iid_paths
from otlp.decode.loop import start
from otlp.decode.models.model import Model, Sampling
from otlp.decode.round import check_round
from otlp.decode.verification import Equality, Verification, find_verification
from otlp.errors import InvalidInputError
from otlp_lab.generation.generated_row import (
    ProcessedModel,
    RowPlace,
    RowStep,
    check_room,
    decode_row,
)
from otlp_lab.generation.generation_options import check_options
from otlp_lab.tuning.tuned import Tuned

UNTUNED = 2, 4, "two-slice"
"""Paths, length and verification by default."""


def generate(
    model: Any,
    input_ids: Any,
    logits_processor: Any = None,
    stopping_criteria: Any = None,
    generation_config: Any = None,
    draft_model: Any = None,
    paths: int = 2,
    length: int = 4,
    verification: str | Verification = "two-slice",
    tuned: Tuned | None = None,
    stop_strings: Any = None,
    tokenizer: Any = None,
    streamer: Any = None,
    **model_kwargs: Any,
) -> Any:
    """Decode with a draft model; hand it to ``generate`` as ``custom_generate``.

    Parameters
    ----------
    model, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs
        As ``generate`` prepares them: the target; prompts (B, T), padded on the left where
        ``attention_mask`` says so; temperature, top-k, penalties, lengths, end tokens.
    draft_model : transformers.PreTrainedModel or Model
        Over the same vocabulary: a network with the same processors, or a model such as `NGram`
        with its own `sampling`.
    paths, length, verification
        K and L; an algorithm that takes K i.i.d. paths, by name or as an object.
    tuned : Tuned, optional
        What ``otlp lab tune`` wrote for these two models on this device (`Tuned.read`), in place of
        these three.
    stop_strings, tokenizer, streamer
        Where to stop, and who is shown each token.  ``generate`` keeps its own tokenizer and
        streamer from a function: bind them, ``custom_generate=functools.partial(
        otlp_lab.generation.generate, tokenizer=tokenizer)``.

    Returns
    -------
    torch.Tensor, shape (B, T + new), or GenerateDecoderOnlyOutput
        With ``return_dict_in_generate`` the latter: sequences, scores and logits if asked for.

    Raises
    ------
    InvalidInputError
        Without a draft, for a text beyond the target's context, and for every option that would
        not come to the same as without a draft, by name.
    UnsupportedProblemError
        If the algorithm does not take K i.i.d. paths, or a model does not fit (`HuggingFaceModel`).

    Notes
    -----
    ``transformers.set_seed`` fixes the random numbers.  A batch takes the time of its rows.

    Examples
    --------
    >>> import torch, transformers
    >>> from otlp_lab.generation import generate
    >>> config = transformers.GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=2)
    >>> large, small = (transformers.GPT2LMHeadModel(config).eval() for _ in range(2))
    >>> large.generate(
    ...     torch.tensor([[1, 2, 3]]), do_sample=True, max_new_tokens=5, pad_token_id=0,
    ...     custom_generate=generate, draft_model=small, paths=2, length=2,
    ... ).shape
    torch.Size([1, 8])
    """
    if not model_kwargs.get("synced_gpus"):
        model_kwargs.pop("synced_gpus", None)  # transformers 4.56 hands it over
    draft_model = _draft_of(generation_config, draft_model)
    check_options(input_ids, generation_config, logits_processor, model_kwargs)
    if stop_strings is not None:
        stopping_criteria = _stopping_at(stop_strings, tokenizer, stopping_criteria)
    wanted = iid_paths(paths, length)
    if tuned is not None:
        is_a(tuned, Tuned, "tuned")
        if (paths, length, verification) != UNTUNED:
            raise InvalidInputError(
                "tuned has paths, length and verification: leave these out, or tuned"
            )
        tuned.check_models(*(_name(one) for one in (model, draft_model)))
        tuned.check_loaded(model.device, model.dtype)
        wanted, verification = tuned.drafting, tuned.algorithm
    places = _places(input_ids, model_kwargs.get("attention_mask"))
    with _evaluating(model, draft_model):
        pairs = _pairs(model, draft_model, logits_processor, generation_config, tuned, places)
        rows = _rows(input_ids, pairs, wanted, verification, generation_config.max_length)
        return _decode(input_ids, rows, stopping_criteria, generation_config, streamer)


def _pairs(
    model: Any, draft_model: Any, processors: Any, config: Any, tuned: Tuned | None, places: Any
) -> list[tuple[Model, ProcessedModel]]:
    """Draft and target of each row: networks are shared, a draft that is none is copied."""
    sampling = Sampling(1.0 if config.do_sample else 0.0)
    draft_sampling = _draft_sampling(sampling, tuned, draft_model)

    def draft_at(place: RowPlace) -> Model:
        if isinstance(draft_model, Model):
            return copy.deepcopy(draft_model) if place.row else draft_model
        return ProcessedModel(draft_model, processors, draft_sampling, place)

    return [
        (draft_at(place), ProcessedModel(model, processors, sampling, place)) for place in places
    ]


def _rows(
    input_ids: Any,
    pairs: list[tuple[Model, ProcessedModel]],
    wanted: Drafting,
    verification: str | Verification,
    max_length: int,
) -> list[Iterator[RowStep]]:
    """Start every row at its prompt."""
    import torch

    algorithm = find_verification(verification)
    if isinstance(algorithm, Equality):
        raise InvalidInputError(
            "equality needs a target that draws by a seed, and generate draws by itself: decode "
            "with otlp.decode.decode and GumbelMax, or take another verification"
        )
    check_round(*pairs[0], wanted, algorithm)
    rng = np.random.default_rng(int(torch.randint(2**62, (1,)).item()))
    for prompt, (draft, target) in zip(input_ids.cpu().numpy(), pairs, strict=True):
        text = prompt[len(target.place.padding) :]
        start(draft, target, text)
        check_room(target, max_length)
    return [decode_row(*pair, wanted, algorithm, max_length, rng) for pair in pairs]


def _draft_sampling(sampling: Sampling, tuned: Tuned | None, draft_model: Any) -> Sampling:
    """That of the draft: the logits that it comes after have generate's temperature already."""
    if tuned is None or tuned.draft_temperature is None or not sampling.temperature:
        return sampling
    if isinstance(draft_model, Model):
        raise InvalidInputError(
            f"the setting was tuned with the draft at temperature {tuned.draft_temperature:g}: "
            "give its network as draft_model, or a Model with that temperature and a setting "
            "without draft_temperature"
        )
    return sampling.at(tuned.draft_temperature / (tuned.sampling.temperature or 1.0))


def _name(model: Any) -> str:
    """What a model was loaded from."""
    return model.name if isinstance(model, Model) else str(model.config._name_or_path)


def _decode(
    text: Any, rows: list[Iterator[RowStep]], criteria: Any, config: Any, streamer: Any
) -> Any:
    """The sampling loop of `generate`, a column of the batch at a time, from rows of tokens."""
    import torch

    kept: list[RowStep] = []
    keeps = config.return_dict_in_generate
    scores: tuple[Any, ...] | None = () if keeps and config.output_scores else None
    # without an end token, rows go on until all are done, as in generate
    pads = any(hasattr(criterion, "eos_token_id") for criterion in criteria)
    going = torch.ones(len(rows), dtype=torch.bool, device=text.device)
    while bool(going.any()):
        steps = [
            next(row) if on or not pads else None
            for row, on in zip(rows, going.tolist(), strict=True)
        ]
        column = text.new_tensor(
            [int(config._pad_token_tensor) if one is None else one.token for one in steps]
        )
        text = torch.cat([text, column[:, None]], dim=-1)
        if keeps:
            kept.append(_stacked(column, steps))
            scores = None if scores is None else (*scores, kept[-1].scores)
        if streamer is not None:
            streamer.put(column.cpu())
        going &= ~criteria(text, scores)
    if streamer is not None:
        streamer.end()
    if not keeps:
        return text
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    return GenerateDecoderOnlyOutput(
        sequences=text,
        scores=scores,
        logits=tuple(step.logits for step in kept) if config.output_logits else None,
    )


def _stacked(column: Any, steps: list[RowStep | None]) -> Any:
    """What the target said of a column; zeros for rows that ended before."""
    import torch

    blank = torch.zeros_like(next(one.logits for one in steps if one is not None))
    logits = torch.stack([blank if one is None else one.logits for one in steps])
    scores = torch.stack([blank if one is None else one.scores for one in steps])
    return RowStep(column, logits, scores)


def _places(input_ids: Any, mask: Any) -> list[RowPlace]:
    rows = len(input_ids)
    masked = [0] * rows if mask is None else (mask == 0).sum(1).tolist()
    return [
        RowPlace(row, rows, tuple(text[:pads].tolist()))
        for row, (text, pads) in enumerate(zip(input_ids, masked, strict=True))
    ]


def _draft_of(config: Any, draft_model: Any) -> Any:
    if config is None:
        raise InvalidInputError(
            "otlp_lab.generation.generate is called by generate of transformers: "
            "model.generate(..., custom_generate=otlp_lab.generation.generate, "
            "draft_model=small_model)"
        )
    if draft_model is None:
        raise InvalidInputError(
            "generate needs draft_model=, a small model of the same vocabulary; what is given as "
            "assistant_model is not handed to a function"
        )
    if not (hasattr(draft_model, "generate") or isinstance(draft_model, Model)):
        raise InvalidInputError(
            f"draft_model is {type(draft_model).__name__}: give a model of transformers, or an "
            "otlp.decode.Model such as NGram(vocab_size)"
        )
    return draft_model


def _stopping_at(stop_strings: Any, tokenizer: Any, criteria: Any) -> Any:
    """The criteria and one for strings, in front of that of the end token as in generate."""
    from transformers import StoppingCriteriaList, StopStringCriteria

    if tokenizer is None:
        raise InvalidInputError(
            "stop_strings need the tokenizer, which generate keeps back from a function: give "
            "custom_generate=functools.partial(otlp_lab.generation.generate, tokenizer=tokenizer)"
        )
    return StoppingCriteriaList([StopStringCriteria(tokenizer, stop_strings), *criteria])


@contextmanager
def _evaluating(*models: Any) -> Iterator[None]:
    """Put networks, and each of their modules, into evaluation mode for a while."""
    networks = [model for model in models if not isinstance(model, Model)]
    modes = [(module, module.training) for network in networks for module in network.modules()]
    try:
        for network in networks:
            network.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training
