"""Options of transformers' `generate`: each option is honoured or rejected by name.

The lists are closed.  In any version of transformers, an option that is on none of the lists is
rejected unless it has its neutral value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from otlp.errors import InvalidInputError

HONOURED = frozenset(
    "max_length max_new_tokens min_length min_new_tokens max_time do_sample temperature top_k "
    "top_p top_h min_p typical_p epsilon_cutoff eta_cutoff repetition_penalty "
    "encoder_repetition_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids "
    "renormalize_logits forced_bos_token_id forced_eos_token_id remove_invalid_values "
    "exponential_decay_length_penalty suppress_tokens begin_suppress_tokens sequence_bias "
    "watermarking_config num_return_sequences return_dict_in_generate output_scores output_logits "
    "pad_token_id bos_token_id eos_token_id".split()
)
"""Fields of a generation config that `generate` turns into processors, criteria and lengths."""

IDLE = frozenset(
    "use_cache prefill_chunk_size compile_config disable_compile decoder_start_token_id "
    "transformers_version".split()
)
"""Fields that do not change the distribution of sampled or greedy sequences."""

NOTHING = {"guidance_scale": 1, "cache_implementation": "dynamic"}
"""Neutral values of fields, in addition to None, False and the default."""

PROCESSORS = frozenset(
    "MinLengthLogitsProcessor MinNewTokensLengthLogitsProcessor TemperatureLogitsWarper "
    "RepetitionPenaltyLogitsProcessor EncoderRepetitionPenaltyLogitsProcessor TopPLogitsWarper "
    "TopKLogitsWarper TopHLogitsWarper MinPLogitsWarper TypicalLogitsWarper EpsilonLogitsWarper "
    "EtaLogitsWarper NoRepeatNGramLogitsProcessor EncoderNoRepeatNGramLogitsProcessor "
    "SequenceBiasLogitsProcessor NoBadWordsLogitsProcessor PrefixConstrainedLogitsProcessor "
    "ForcedBOSTokenLogitsProcessor ForcedEOSTokenLogitsProcessor InfNanRemoveLogitsProcessor "
    "ExponentialDecayLengthPenalty LogitNormalization SuppressTokensAtBeginLogitsProcessor "
    "SuppressTokensLogitsProcessor WatermarkLogitsProcessor".split()
)
"""Processors of transformers that are functions of only the text and its logits.

Processors are called at all draft positions in the order of the tree, including rejected ones: a
processor that stores earlier calls would change the distribution.
"""

INPUTS = frozenset({"attention_mask", "use_cache", "logits_to_keep"})
CACHES = frozenset({"cache", "past_key_values"})
"""Names of the cache: since transformers 5.24, and before."""

PREPARED = INPUTS | CACHES | {"position_ids"}
"""Allowed arguments of the model's forward, given by the user or prepared by `generate`."""


def check_options(
    input_ids: Any,
    config: Any,
    processors: Iterable[Any],
    model_kwargs: Mapping[str, Any],
) -> None:
    """Check that all options of `generate` are honoured.

    Parameters
    ----------
    input_ids : torch.Tensor, shape (B, T)
    config : transformers.GenerationConfig
    processors : iterable of LogitsProcessor
    model_kwargs : mapping
        Arguments that `generate` would pass to the model.

    Raises
    ------
    InvalidInputError
        If an option is not honoured; the message names all such options.
    """
    if (config.num_beams or 1) > 1:
        raise InvalidInputError(
            f"num_beams must be 1 with a draft model, got {config.num_beams}: sample or decode "
            "greedily, without beams"
        )
    mask = model_kwargs.get("attention_mask")
    _check_padding(input_ids, mask)
    unsupported = [*_unsupported_fields(config), *_unsupported_inputs(input_ids, model_kwargs)]
    if unsupported:
        raise InvalidInputError(
            "generate with a draft model does not support "
            f"{', '.join(sorted(set(unsupported)))}: leave it out, or decode without a draft"
        )
    for processor in processors:
        if not _is_function_of_text(processor):
            raise InvalidInputError(
                f"generate with a draft model does not support the logits processor "
                f"{type(processor).__name__}: processors must be functions of the text and its "
                "logits without state; set function_of_text = True on your own class if it is "
                "such a function"
            )


def _unsupported_fields(config: Any) -> list[str]:
    """Return the fields of a generation config with unsupported values."""
    from transformers import GenerationConfig

    blank: Any = GenerationConfig()
    # Since transformers 5 a blank config contains None, and generate fills in the defaults.
    defaults = {**vars(blank), **getattr(blank, "_get_default_generation_params", dict)()}
    return [
        name
        for name, value in vars(config).items()
        if name not in HONOURED | IDLE
        and not name.startswith("_")
        and not _is_one_of(value, (None, False, defaults.get(name), NOTHING.get(name)))
    ]


def _unsupported_inputs(input_ids: Any, model_kwargs: Mapping[str, Any]) -> list[str]:
    """Return the inputs of the model other than those of plain texts."""
    found = [
        name for name, value in model_kwargs.items() if name not in PREPARED and value is not None
    ]
    # A nonempty cache is the user's; an empty cache was prepared by generate.
    found += [
        name
        for name in CACHES
        if (cache := model_kwargs.get(name)) is not None and cache.get_seq_length() > 0
    ]
    places, mask = (model_kwargs.get(name) for name in ("position_ids", "attention_mask"))
    if places is not None:
        shown = np.ones(input_ids.shape, dtype=bool) if mask is None else mask.cpu().numpy() == 1
        plain = shown.cumsum(1) - 1
        given = places.cpu().numpy()
        same = given.ndim == 2 and given.shape[1] == plain.shape[1]
        if not same or np.any((given != plain) & shown):
            found.append("position_ids")
    return found


def _check_padding(input_ids: Any, mask: Any) -> None:
    if mask is None:
        return
    if mask.ndim != 2 or mask.shape[1] != input_ids.shape[1]:
        raise InvalidInputError(
            "attention_mask must have the shape of input_ids (the whole texts), got "
            f"{tuple(mask.shape)} and {tuple(input_ids.shape)}"
        )
    shown = mask == 1
    left = (shown[:, 1:] >= shown[:, :-1]).all() and shown[:, -1].all()
    if not bool(left and (shown | (mask == 0)).all()):
        raise InvalidInputError(
            "attention_mask masks tokens that are not in front of a text: pad on the left, with "
            "zeros in the mask and then ones (tokenizer.padding_side = 'left'); without a mask, "
            "generate masks all tokens equal to pad_token_id: pass "
            "attention_mask=torch.ones_like(input_ids) if they are text"
        )


def _is_one_of(value: Any, known: tuple[Any, ...]) -> bool:
    simple = isinstance(value, (bool, int, float, str))
    return any(value is other or (simple and value == other) for other in known)


def _is_function_of_text(processor: Any) -> bool:
    kind = type(processor)
    known = kind.__module__ == "transformers.generation.logits_process"
    return (known and kind.__name__ in PROCESSORS) or vars(kind).get("function_of_text") is True
