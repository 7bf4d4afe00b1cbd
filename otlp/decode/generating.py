"""Speculative decoding inside ``model.generate`` of transformers, through ``custom_generate``.

The target's law is what generate's own sampling loop would sample from: the logits after all of
its processors, or their arg max without ``do_sample``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from otlp.decode.drafting import Drafting, iid_paths, no_draft
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.model import Sampling, check_pair
from otlp.decode.round import check_round, play_round
from otlp.decode.tree import TokenTree
from otlp.decode.verification import ALGORITHMS, Autoregressive, Verification
from otlp.distribution import FloatArray, IntArray
from otlp.errors import InvalidInputError

__all__ = ["generate"]

IGNORED = {"attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep"}


class _ProcessedModel(HuggingFaceModel):
    """A model whose laws come through generate's logits processors."""

    def __init__(self, model: Any, processors: Any, sampling: Sampling) -> None:
        super().__init__(model, sampling=sampling)
        self.processors = processors

    def distributions(self, tree: TokenTree, nodes: IntArray) -> FloatArray:
        """Process the logits of each node with the text before it, then normalise."""
        return self.sampling.distributions(self._processed(tree, nodes))

    def _processed(self, tree: TokenTree, nodes: IntArray) -> npt.NDArray[np.float32]:
        import torch

        logits = torch.from_numpy(self.logits(tree, nodes)).to(self.model.device)
        rows = []
        for node, row in zip(nodes, logits, strict=True):
            text = self._tensor([[*self._context, *tree.path(int(node)).tolist()]])
            rows.append(self.processors(text, row[None])[0])
        found: npt.NDArray[np.float32] = torch.stack(rows).float().cpu().numpy()
        return found


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
    draft_model : transformers.PreTrainedModel
        Drafts with the same processors, over the same vocabulary.
    paths, length : int
        K and L.
    verification : str or Verification
        One of `otlp.decode.ALGORITHMS` by name, or an object, that takes K i.i.d. paths.
    **model_kwargs
        What else ``generate`` prepares.

    Returns
    -------
    torch.Tensor, shape (1, T + new), or GenerateDecoderOnlyOutput
        With ``return_dict_in_generate`` the latter, holding the sequences.

    Raises
    ------
    InvalidInputError
        Without a draft model, for more than one sequence, for padding, beams, or outputs that
        speculative decoding does not have (scores, logits, attentions, hidden states).
    UnsupportedProblemError
        If the algorithm does not take K i.i.d. paths.

    Notes
    -----
    Random numbers come from a generator seeded by torch's, so ``transformers.set_seed`` fixes
    them.  A round near the limit drafts shorter paths.
    """
    import torch

    _refuse(input_ids, generation_config, draft_model, model_kwargs)
    if isinstance(verification, str):
        if verification not in ALGORITHMS:
            raise InvalidInputError(
                f"there is no verification algorithm {verification!r}: choose from "
                f"{', '.join(ALGORITHMS)}"
            )
        verification = ALGORITHMS[verification]
    sampling = Sampling(1.0 if generation_config.do_sample else 0.0)
    draft, target = (
        _ProcessedModel(one.eval(), logits_processor, sampling) for one in (draft_model, model)
    )
    check_pair(draft, target)
    check_round(draft, target, iid_paths(paths, length), verification)
    rng = np.random.default_rng(int(torch.randint(2**62, (1,)).item()))
    context = input_ids[0].cpu().numpy()
    for one in (draft, target):
        one.start(context)
    text, done = input_ids, False
    while not done:
        drafting, algorithm = _round(draft, target, paths, length, generation_config, verification)
        for token in play_round(draft, target, drafting, algorithm, rng).tokens.tolist():
            text = torch.cat([text, text.new_tensor([[token]])], dim=-1)
            done = bool(stopping_criteria(text, None).all())
            if done:
                break
    if not generation_config.return_dict_in_generate:
        return text
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    return GenerateDecoderOnlyOutput(sequences=text)


def _round(
    draft: HuggingFaceModel,
    target: HuggingFaceModel,
    paths: int,
    length: int,
    config: Any,
    verification: Verification,
) -> tuple[Drafting, Verification]:
    """Draft no longer than the models' context and the wanted text leave room for."""
    limits = [draft.context_limit, target.context_limit, config.max_length]
    known = [limit for limit in limits if limit is not None]
    room = min(known, default=target.context.size + length + 1) - target.context.size
    if min(length, room - 1) < 1:
        return no_draft(), Autoregressive()
    return iid_paths(paths, min(length, room - 1)), verification


def _refuse(input_ids: Any, config: Any, draft_model: Any, model_kwargs: dict[str, Any]) -> None:
    """Refuse what would be silently left out."""
    if draft_model is None:
        raise InvalidInputError("generate needs draft_model=, a small model of the same vocabulary")
    if input_ids.shape[0] != 1 or (config.num_beams or 1) > 1:
        raise InvalidInputError(
            f"input_ids holds {input_ids.shape[0]} sequences and num_beams is {config.num_beams}: "
            "generate decodes one sequence by sampling or greedily"
        )
    mask = model_kwargs.get("attention_mask")
    if mask is not None and not bool((mask == 1).all()):
        raise InvalidInputError("attention_mask masks tokens: give the sequence without padding")
    wanted = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
    asked = [name for name in wanted if getattr(config, name, None)]
    unknown = sorted(
        name for name, value in model_kwargs.items() if name not in IGNORED and value is not None
    )
    if asked or unknown:
        raise InvalidInputError(
            f"generate with a draft model does not take {', '.join(asked + unknown)}: leave it out"
        )
