"""Loading a causal language model, or a pair of them over one tokenizer."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.memory import is_out_of_memory
from otlp.decode.models.model import Sampling, check_pair
from otlp.errors import EngineNotFoundError, InvalidInputError, SizeLimitError

__all__ = ["TRAINED_PAIR", "check_tokenizers", "find_model", "load_model", "load_pair"]

TRAINED_PAIR = ("trained:target", "trained:draft")
"""Names of the pair that ships with the package: target and draft."""

MISSING = 'language models need torch and transformers: pip install "otlp[decode]"'


def load_model(
    source: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    sampling: Sampling | None = None,
    tree_attention: bool | None = None,
) -> HuggingFaceModel:
    """Load a causal language model and its tokenizer.

    Parameters
    ----------
    source : str
        A folder, a name on the hub, or one of `TRAINED_PAIR`, which ships with the package.
    device : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...; ``"auto"`` takes a GPU where there is one.
    dtype : str
        ``"float32"``, ``"bfloat16"`` or ``"float16"``; ``"auto"`` is float32 on the CPU and the
        precision of the stored weights elsewhere.
    sampling : Sampling, optional
        From logits to next-token distributions.
    tree_attention : bool, optional
        See `HuggingFaceModel`.

    Raises
    ------
    EngineNotFoundError
        If torch or transformers is not installed.
    InvalidInputError
        If there is no such model, device or precision.
    SizeLimitError
        If the weights do not fit.
    """
    torch, transformers = _engines()
    folder = find_model(source)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise InvalidInputError(
            f"dtype is {dtype!r}: it must be auto, float32, bfloat16 or float16"
        )
    if dtype == "auto" and device == "cpu":
        dtype = "float32"
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = model.to(device).eval()
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidInputError(f"cannot load {source}: {reason}") from error
    except (RuntimeError, MemoryError, AssertionError) as error:
        if is_out_of_memory(error):
            raise SizeLimitError(
                f"{source} does not fit on {device}: load it in half precision or on another device"
            ) from error
        reason = str(error).strip().splitlines()[0]
        raise InvalidInputError(
            f"cannot run {source} on {device!r}: {reason}; give cpu, cuda or auto"
        ) from error
    return HuggingFaceModel(model, tokenizer, sampling, source, tree_attention)


def load_pair(
    draft: str = TRAINED_PAIR[1],
    target: str = TRAINED_PAIR[0],
    *,
    device: str = "auto",
    dtype: str = "auto",
    sampling: Sampling | None = None,
    draft_sampling: Sampling | None = None,
) -> tuple[HuggingFaceModel, HuggingFaceModel]:
    """Load a draft and a target model over one tokenizer; by default the trained pair.

    Parameters
    ----------
    draft, target : str
        See `load_model`.
    device, dtype : str
        For both.
    sampling : Sampling, optional
        Of the target, and of the draft unless `draft_sampling` is given.
    draft_sampling : Sampling, optional
        Of the draft.

    Raises
    ------
    InvalidInputError
        If their vocabularies or tokenizers differ, and whatever `load_model` raises.
    """
    found = (
        load_model(draft, device=device, dtype=dtype, sampling=draft_sampling or sampling),
        load_model(target, device=device, dtype=dtype, sampling=sampling),
    )
    check_tokenizers(*found)
    return found


def find_model(source: str) -> str:
    """Folder of a model of the package, or the folder or hub name itself.

    Raises
    ------
    InvalidInputError
        If it is written as a path and there is no such folder.
    """
    if source in TRAINED_PAIR:
        kind = source.removeprefix("trained:")
        return str(resources.files("otlp") / "data" / "models" / kind)
    written_as_path = source.startswith((".", "/", "~")) or source.count("/") > 1 or not source
    folder = Path(source).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InvalidInputError(
                f"the folder {source} holds no config.json: give the folder of a Hugging Face model"
            )
        return str(folder)
    if written_as_path or folder.exists():
        raise InvalidInputError(
            f"there is no model folder {source!r}: give a folder, a name on the hub, or "
            f"{' or '.join(TRAINED_PAIR)}"
        )
    return source


def check_tokenizers(draft: HuggingFaceModel, target: HuggingFaceModel) -> None:
    """Refuse two models whose token ids do not mean the same.

    Raises
    ------
    InvalidInputError
        If the vocabulary sizes differ, or the tokenizers; says which token differs.
    """
    check_pair(draft, target)
    if draft.tokenizer is None or target.tokenizer is None:
        return
    ours, theirs = draft.tokenizer.get_vocab(), target.tokenizer.get_vocab()
    odd = sorted(set(ours.items()) ^ set(theirs.items()), key=lambda item: (item[1], item[0]))
    if odd:
        token, number = odd[0]
        raise InvalidInputError(
            f"the tokenizers of {draft.name} and {target.name} differ in {len(odd)} entries, first "
            f"in {token!r}, which is {ours.get(token, 'absent')} and {theirs.get(token, 'absent')}"
            f" (token {number}): speculative decoding needs one tokenizer for both models"
        )


def _engines() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise EngineNotFoundError(MISSING) from error
    return torch, transformers
