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
"""Default paths, length and verification."""


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
    """Decode with a draft model, as ``custom_generate`` of transformers' ``generate``.

    Parameters
    ----------
    model, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs
        Arguments prepared by ``generate``: the target; prompts (B, T), with left padding according
        to ``attention_mask``; temperature, top-k, penalties, lengths, end tokens.
    draft_model : transformers.PreTrainedModel or Model
        Draft model with the same vocabulary: a network, which uses the same processors, or a model
        such as `NGram`, which uses its own `sampling`.
    paths, length : int
        Number of paths K and path length L.
    verification : str or Verification
        Algorithm for K i.i.d. paths, by name or as an object.
    tuned : Tuned, optional
        Setting written by ``otlp lab tune`` for these models on this device (`Tuned.read`).
        Replaces `paths`, `length` and `verification`.
    stop_strings, tokenizer, streamer
        Same as for ``generate``, which does not pass its own tokenizer and streamer to a function:
        bind them with ``custom_generate=functools.partial(otlp_lab.generation.generate,
        tokenizer=tokenizer)``.

    Returns
    -------
    torch.Tensor, shape (B, T + new), or GenerateDecoderOnlyOutput
        The latter if ``return_dict_in_generate``: sequences, and scores and logits if requested.

    Raises
    ------
    InvalidInputError
        If there is no draft, if the text exceeds the target's context, or for options whose output
        would not be distributed as without a draft; the message names the options.
    UnsupportedProblemError
        If the algorithm does not support K i.i.d. paths, or a model is unsupported
        (`HuggingFaceModel`).

    Notes
    -----
    ``transformers.set_seed`` sets the random seed.  The rows of a batch are decoded one by one, so
    their times add up.

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
        model_kwargs.pop("synced_gpus", None)  # transformers 4.56 passes it
    draft_model = _draft_of(generation_config, draft_model)
    check_options(input_ids, generation_config, logits_processor, model_kwargs)
    if stop_strings is not None:
        stopping_criteria = _stopping_at(stop_strings, tokenizer, stopping_criteria)
    wanted = iid_paths(paths, length)
    if tuned is not None:
        is_a(tuned, Tuned, "tuned")
        if (paths, length, verification) != UNTUNED:
            raise InvalidInputError(
                "tuned already sets paths, length and verification: leave out these, or tuned"
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
    """Return draft and target of each row; networks are shared, other drafts are copied."""
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
    """Start decoding each row at its prompt."""
    import torch

    algorithm = find_verification(verification)
    if isinstance(algorithm, Equality):
        raise InvalidInputError(
            "equality needs a target with seeded draws, which generate does not have: decode "
            "with otlp.decode.decode and GumbelMax, or use another verification"
        )
    check_round(*pairs[0], wanted, algorithm)
    rng = np.random.default_rng(int(torch.randint(2**62, (1,)).item()))
    for prompt, (draft, target) in zip(input_ids.cpu().numpy(), pairs, strict=True):
        text = prompt[len(target.place.padding) :]
        start(draft, target, text)
        check_room(target, max_length)
    return [decode_row(*pair, wanted, algorithm, max_length, rng) for pair in pairs]


def _draft_sampling(sampling: Sampling, tuned: Tuned | None, draft_model: Any) -> Sampling:
    """Return the draft's sampling; its logits are already divided by generate's temperature."""
    if tuned is None or tuned.draft_temperature is None or not sampling.temperature:
        return sampling
    if isinstance(draft_model, Model):
        raise InvalidInputError(
            f"tuned has the draft at temperature {tuned.draft_temperature:g}: pass the network of "
            "the draft as draft_model, or a Model with this temperature and a setting without "
            "draft_temperature"
        )
    return sampling.at(tuned.draft_temperature / (tuned.sampling.temperature or 1.0))


def _name(model: Any) -> str:
    """Return the name or path that a model was loaded from."""
    return model.name if isinstance(model, Model) else str(model.config._name_or_path)


def _decode(
    text: Any, rows: list[Iterator[RowStep]], criteria: Any, config: Any, streamer: Any
) -> Any:
    """Run the sampling loop of `generate`, one column of the batch at a time."""
    import torch

    kept: list[RowStep] = []
    keeps = config.return_dict_in_generate
    scores: tuple[Any, ...] | None = () if keeps and config.output_scores else None
    # Without an end token, rows continue until all rows are done, as in generate.
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
    """Stack the target's logits and scores of a column; zeros for rows that ended before."""
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
            "otlp_lab.generation.generate must be called by generate of transformers: "
            "model.generate(..., custom_generate=otlp_lab.generation.generate, "
            "draft_model=small_model)"
        )
    if draft_model is None:
        raise InvalidInputError(
            "generate needs draft_model=, a small model with the same vocabulary; assistant_model "
            "is not passed to a custom_generate function"
        )
    if not (hasattr(draft_model, "generate") or isinstance(draft_model, Model)):
        raise InvalidInputError(
            "draft_model must be a model of transformers or an otlp.decode.Model such as "
            f"NGram(vocab_size), got {type(draft_model).__name__}"
        )
    return draft_model


def _stopping_at(stop_strings: Any, tokenizer: Any, criteria: Any) -> Any:
    """Add a criterion for strings, in front of the criterion for end tokens as in generate."""
    from transformers import StoppingCriteriaList, StopStringCriteria

    if tokenizer is None:
        raise InvalidInputError(
            "stop_strings need the tokenizer, which generate does not pass to a function: use "
            "custom_generate=functools.partial(otlp_lab.generation.generate, tokenizer=tokenizer)"
        )
    return StoppingCriteriaList([StopStringCriteria(tokenizer, stop_strings), *criteria])


@contextmanager
def _evaluating(*models: Any) -> Iterator[None]:
    """Put networks and their modules into evaluation mode within the block."""
    networks = [model for model in models if not isinstance(model, Model)]
    modes = [(module, module.training) for network in networks for module in network.modules()]
    try:
        for network in networks:
            network.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training
