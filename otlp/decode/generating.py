"""Speculative decoding inside ``model.generate`` of transformers, through ``custom_generate``.

The target's distribution is what generate's own sampling loop would sample from: the logits after
all of its processors, or their arg max without ``do_sample``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from otlp.decode.checks import is_a
from otlp.decode.drafting import Drafting, iid_paths, no_draft
from otlp.decode.generation_options import check_options, kept_back
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.model import Model, Sampling
from otlp.decode.round import check_round, play_round
from otlp.decode.tree import TokenTree
from otlp.decode.tuned import Tuned
from otlp.decode.verification import Autoregressive, Verification, find_verification
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError


class _ProcessedModel(HuggingFaceModel):
    """A model whose distributions come through generate's logits processors."""

    def __init__(self, model: Any, processors: Any, sampling: Sampling) -> None:
        super().__init__(model, sampling=sampling)
        self.processors = processors

    def distributions(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Process the logits of each node with the text before it, then normalise."""
        import torch

        logits = torch.from_numpy(self.logits(tree, nodes)).to(self.model.device)
        rows = []
        for node, row in zip(nodes, logits, strict=True):
            text = self.tensor([[*self._context, *tree.path(int(node)).tolist()]])
            rows.append(self.processors(text, row[None])[0])
        return self.sampling.distributions(torch.stack(rows).float().cpu().numpy())


def generate(
    model: Any,
    input_ids: Any,
    logits_processor: Any = None,
    stopping_criteria: Any = None,
    generation_config: Any = None,
    draft_model: Any = None,
    paths: int = 2,
    length: int = 4,
    verification: str | Verification = "martingale",
    tuned: Tuned | None = None,
    stop_strings: Any = None,
    **model_kwargs: Any,
) -> Any:
    """Decode with a draft model; hand it to ``generate`` as ``custom_generate``.

    ::

        model.generate(**inputs, do_sample=True, max_new_tokens=100,
                       custom_generate=otlp.decode.generate, draft_model=small_model, paths=4)

    Parameters
    ----------
    model : transformers.PreTrainedModel
        The target.
    input_ids : torch.Tensor, shape (1, T)
    logits_processor, stopping_criteria, generation_config
        As ``generate`` prepares them: temperature, top-k, penalties, lengths, end tokens.
    draft_model : transformers.PreTrainedModel or Model
        Drafts over the same vocabulary: a network with the same processors, or a model such as
        `NGram` with its own `sampling`.
    paths, length : int
        K and L.
    verification : str or Verification
        One of `otlp.decode.ALGORITHMS` by name, or an object, that takes K i.i.d. paths.
    tuned : Tuned, optional
        What ``otlp tune`` wrote for these two models (`Tuned.read`): its paths, length and
        algorithm in place of the three arguments.  The sampling is generate's own.
    stop_strings
        Refused: ``generate`` keeps its tokenizer from a ``custom_generate``.  Give
        ``stopping_criteria=[StopStringCriteria(tokenizer, stop_strings)]``, which is the same.
    **model_kwargs
        What else ``generate`` prepares.

    Returns
    -------
    torch.Tensor, shape (1, T + new), or GenerateDecoderOnlyOutput
        With ``return_dict_in_generate`` the latter, holding the sequences.

    Raises
    ------
    InvalidInputError
        Without a draft model, for more than one sequence, for padding and beams, for a length
        that the target's context does not hold, and for every option that does not come to the
        same as without a draft (`otlp.decode.generation_options`), by name.
    UnsupportedProblemError
        If the algorithm does not take K i.i.d. paths, or a model does not fit (`HuggingFaceModel`).

    Notes
    -----
    Random numbers come from a generator seeded by torch's, so ``transformers.set_seed`` fixes
    them.  A round near the limit drafts shorter paths; beyond the draft model's context nothing is
    drafted.  Both models decode in evaluation mode and are left in the mode they came in.

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
    ...     custom_generate=decode.generate, draft_model=small, paths=2, length=2,
    ... )
    >>> text.shape
    torch.Size([1, 8])
    """
    import torch

    hidden = kept_back()
    _check_call(generation_config, draft_model, stop_strings)
    check_options(input_ids, generation_config, logits_processor, model_kwargs, hidden)
    if tuned is not None:
        is_a(tuned, Tuned, "tuned")
        tuned.check_models(*(_name(one) for one in (model, draft_model)))
        paths, length, verification = tuned.paths, tuned.length, tuned.algorithm
    wanted = iid_paths(paths, length) if paths and length else no_draft()
    verification = find_verification(verification)
    sampling = Sampling(1.0 if generation_config.do_sample else 0.0)
    networks = [one for one in (draft_model, model) if not isinstance(one, Model)]
    with _evaluating(*networks):
        target = _ProcessedModel(model, logits_processor, sampling)
        draft = draft_model
        if not isinstance(draft, Model):
            draft = _ProcessedModel(draft_model, logits_processor, sampling)
        check_round(draft, target, wanted, verification)
        rng = np.random.default_rng(int(torch.randint(2**62, (1,)).item()))
        for one in (draft, target):
            one.start(input_ids[0].cpu().numpy())
        _check_room(target, generation_config.max_length)
        text, done, streamer = input_ids, False, hidden.get("streamer")
        while not done:
            room = generation_config.max_length - target.context.size
            drafting = _drafting(draft, target, wanted, room)
            algorithm = verification if drafting.paths else Autoregressive()
            for token in play_round(draft, target, drafting, algorithm, rng).tokens.tolist():
                new = text.new_tensor([token])
                text = torch.cat([text, new[None]], dim=-1)
                if streamer is not None:
                    streamer.put(new.cpu())
                done = bool(stopping_criteria(text, None).all())
                if done:
                    break
    if streamer is not None:
        streamer.end()
    if not generation_config.return_dict_in_generate:
        return text
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    return GenerateDecoderOnlyOutput(sequences=text)


def _name(model: Any) -> str:
    """What a model was loaded from."""
    return model.name if isinstance(model, Model) else str(model.config._name_or_path)


def _check_call(config: Any, draft_model: Any, stop_strings: Any) -> None:
    if config is None:
        raise InvalidInputError(
            "otlp.decode.generate is called by generate of transformers: "
            "model.generate(..., custom_generate=otlp.decode.generate, draft_model=small_model)"
        )
    if draft_model is None:
        raise InvalidInputError("generate needs draft_model=, a small model of the same vocabulary")
    if not (hasattr(draft_model, "generate") or isinstance(draft_model, Model)):
        raise InvalidInputError(
            f"draft_model is {type(draft_model).__name__}: give a model of transformers, or an "
            "otlp.decode.Model such as NGram(vocab_size)"
        )
    if stop_strings is not None:
        raise InvalidInputError(
            "stop_strings need the tokenizer, which generate keeps back: give "
            "stopping_criteria=[transformers.StopStringCriteria(tokenizer, stop_strings)], which "
            "stops at the same place"
        )


def _check_room(target: HuggingFaceModel, wanted: int) -> None:
    """Refuse, before a token is decoded, a text that the target cannot hold."""
    limit, held = target.context_limit, target.context.size
    if limit is not None and wanted > limit:
        raise InvalidInputError(
            f"the text would grow to {wanted} tokens and the context of {target.name} is {limit}: "
            f"give max_new_tokens of at most {limit - held}"
        )


def _drafting(draft: Model, target: HuggingFaceModel, wanted: Drafting, room: int) -> Drafting:
    """Draft no longer than the wanted text and the models' contexts leave room for."""
    for one in (draft, target):
        if one.context_limit is not None:
            room = min(room, one.context_limit - target.context.size)
    length = min(wanted.length, room - 1)
    return iid_paths(wanted.paths, length) if length > 0 else no_draft()


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
