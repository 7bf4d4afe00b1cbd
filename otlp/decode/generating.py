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
from otlp.decode.drafting import iid_paths
from otlp.decode.generated_row import ProcessedModel, RowPlace, RowStep, check_room, decode_row
from otlp.decode.generation_options import check_options, given_cache, kept_back
from otlp.decode.models.model import Model, Sampling
from otlp.decode.round import check_round
from otlp.decode.tuned import Tuned
from otlp.decode.verification import Verification, find_verification
from otlp.errors import InvalidInputError


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
    **model_kwargs: Any,
) -> Any:
    """Decode with a draft model; hand it to ``generate`` as ``custom_generate``.

    In one call:

        model.generate(**inputs, do_sample=True, max_new_tokens=100,
                       custom_generate=otlp.decode.generate, draft_model=small_model, paths=4)

    Parameters
    ----------
    model : transformers.PreTrainedModel
        The target.
    input_ids : torch.Tensor, shape (B, T)
        Prompts, padded on the left where ``attention_mask`` says so, each as often as
        ``num_return_sequences``.
    logits_processor, stopping_criteria, generation_config
        As ``generate`` prepares them: temperature, top-k, penalties, lengths, end tokens.
    draft_model : transformers.PreTrainedModel or Model
        Drafts over the same vocabulary: a network with the same processors, or a model such as
        `NGram` with its own `sampling`.  ``assistant_model=`` is another name of it.
    paths, length : int
        K and L.
    verification : str or Verification
        One of `otlp.decode.ALGORITHMS` by name, or an object, that takes K i.i.d. paths.
    tuned : Tuned, optional
        What ``otlp tune`` wrote for these two models (`Tuned.read`): its paths, length and
        algorithm in place of the three arguments.  The sampling is generate's own.
    stop_strings : str or list of str
        Where to stop, with the `tokenizer`.
    tokenizer : transformers.PreTrainedTokenizerBase
        ``generate`` keeps the one that it is given from a function: hand it over as
        ``custom_generate=functools.partial(otlp.decode.generate, tokenizer=tokenizer)``.
    **model_kwargs
        What else ``generate`` prepares.

    Returns
    -------
    torch.Tensor, shape (B, T + new), or GenerateDecoderOnlyOutput
        With ``return_dict_in_generate`` the latter: sequences, scores and logits if asked for,
        and for one sequence the cache, to go on from.

    Raises
    ------
    InvalidInputError
        Without a draft model, for beams and for padding on the right, for a length that the
        target's context does not hold, and for every option that does not come to the
        same as without a draft (`otlp.decode.generation_options`), by name.
    UnsupportedProblemError
        If the algorithm does not take K i.i.d. paths, or a model does not fit (`HuggingFaceModel`).

    Notes
    -----
    Random numbers come from a generator seeded by torch's, so ``transformers.set_seed`` fixes
    them.  A round near the limit drafts shorter paths; beyond the draft model's context nothing is
    drafted.  Both models decode in evaluation mode and are left in the mode they came in.

    The rows of a batch have rounds of their own, one after the other: a batch is decoded in the
    time of its rows, not faster.  A draft that is no network is copied for each row.

    Examples
    --------
    >>> import torch, transformers
    >>> from otlp import decode
    >>> config = transformers.LlamaConfig(
    ...     vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
    ...     num_attention_heads=2, bos_token_id=None, eos_token_id=None,
    ... )
    >>> _ = torch.manual_seed(0)
    >>> large, small = (transformers.LlamaForCausalLM(config).eval() for _ in range(2))
    >>> text = large.generate(
    ...     torch.tensor([[1, 2, 3]]), do_sample=True, max_new_tokens=5, pad_token_id=0,
    ...     num_return_sequences=4,
    ...     custom_generate=decode.generate, draft_model=small, paths=2, length=2,
    ... )
    >>> text.shape
    torch.Size([4, 8])
    """
    import torch

    hidden = kept_back()
    for name in ("streamer", "synced_gpus"):
        model_kwargs.pop(name, None)  # transformers 4.56 hands them over, others keep them back
    draft_model = _draft_of(generation_config, draft_model, hidden.get("assistant_model"))
    check_options(input_ids, generation_config, logits_processor, model_kwargs, hidden)
    if stop_strings is not None:
        stopping_criteria = _stopping_at(stop_strings, tokenizer, stopping_criteria)
    if tuned is not None:
        is_a(tuned, Tuned, "tuned")
        tuned.check_models(*(_name(one) for one in (model, draft_model)))
        verification = tuned.algorithm
    wanted = iid_paths(paths, length) if tuned is None else tuned.drafting
    verification = find_verification(verification)
    sampling = Sampling(1.0 if generation_config.do_sample else 0.0)
    draft_sampling = _draft_sampling(sampling, tuned, draft_model)
    max_length = generation_config.max_length
    networks = [one for one in (draft_model, model) if not isinstance(one, Model)]
    with _evaluating(*networks):
        places = _places(input_ids, model_kwargs.get("attention_mask"))
        targets = [ProcessedModel(model, logits_processor, sampling, place) for place in places]
        drafts = (
            [draft_model, *(copy.deepcopy(draft_model) for _ in places[1:])]
            if isinstance(draft_model, Model)
            else [
                ProcessedModel(draft_model, logits_processor, draft_sampling, one) for one in places
            ]
        )
        check_round(drafts[0], targets[0], wanted, verification)
        rng = np.random.default_rng(int(torch.randint(2**62, (1,)).item()))
        for prompt, draft, target in zip(input_ids.cpu().numpy(), drafts, targets, strict=True):
            for one in (draft, target):
                one.start(prompt[len(target.place.padding) :])
            check_room(target, max_length)
        cache = given_cache(hidden)
        if cache is not None:
            targets[0].adopt(cache)
        rows = [
            decode_row(draft, target, wanted, verification, max_length, rng)
            for draft, target in zip(drafts, targets, strict=True)
        ]
        text, steps = _decode(
            input_ids, rows, stopping_criteria, generation_config, hidden.get("streamer")
        )
        held: Any = targets[0].release(text.shape[1] - 1) if _is_whole(places) else None
    if cache is not None:
        # a model that scores paths may have begun another one
        cache.layers = held.layers
    if not generation_config.return_dict_in_generate:
        return text
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    return GenerateDecoderOnlyOutput(
        sequences=text,
        scores=tuple(step.scores for step in steps) if generation_config.output_scores else None,
        logits=tuple(step.logits for step in steps) if generation_config.output_logits else None,
        past_key_values=held if generation_config.use_cache else None,
    )


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
) -> tuple[Any, list[RowStep]]:
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
    return text, kept


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


def _is_whole(places: list[RowPlace]) -> bool:
    """Whether there is one sequence, without padding: its cache is that of the text."""
    return len(places) == 1 and not places[0].padding


def _draft_of(config: Any, draft_model: Any, assistant: Any) -> Any:
    """The draft, by either of its names."""
    if config is None:
        raise InvalidInputError(
            "otlp.decode.generate is called by generate of transformers: "
            "model.generate(..., custom_generate=otlp.decode.generate, draft_model=small_model)"
        )
    if draft_model is not None and assistant is not None:
        raise InvalidInputError(
            "assistant_model is another name of draft_model: give one of them, not both"
        )
    found = assistant if draft_model is None else draft_model
    if found is None:
        raise InvalidInputError("generate needs draft_model=, a small model of the same vocabulary")
    if not (hasattr(found, "generate") or isinstance(found, Model)):
        raise InvalidInputError(
            f"draft_model is {type(found).__name__}: give a model of transformers, or an "
            "otlp.decode.Model such as NGram(vocab_size)"
        )
    return found


def _stopping_at(stop_strings: Any, tokenizer: Any, criteria: Any) -> Any:
    """The criteria and one for strings, in front of that of the end token as in generate."""
    from transformers import StoppingCriteriaList, StopStringCriteria

    if tokenizer is None:
        raise InvalidInputError(
            "stop_strings need the tokenizer, which generate keeps back from a function: give "
            "custom_generate=functools.partial(otlp.decode.generate, tokenizer=tokenizer)"
        )
    return StoppingCriteriaList([StopStringCriteria(tokenizer, stop_strings), *criteria])


@contextmanager
def _evaluating(*models: Any) -> Iterator[None]:
    """Put models, and each of their modules, into evaluation mode for a while."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    try:
        for model in models:
            model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training
