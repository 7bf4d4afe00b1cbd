"""Speculative decoding as a folder: ``custom_generate=FOLDER`` of ``generate`` in transformers.

A folder, or a model's repository, gets every argument of ``generate``, the tokenizer included; from
there the call goes on to `otlp.decode.generate`.
"""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

from otlp.decode.generating import generate
from otlp.errors import InvalidInputError

FILE = '''"""Speculative decoding with several drafts: lossless, see otlp.decode.generate."""

from otlp.decode.generate_folder import generate_in_folder as generate
'''
"""All that the folder holds."""

OURS = ("paths", "length", "verification")
"""Arguments of `otlp.decode.generate` that no `generate` of transformers knows."""


def write_generate_folder(folder: str | Path) -> Path:
    """Write ``custom_generate/generate.py`` into a folder, or into a model's.

    Parameters
    ----------
    folder : str or Path
        Made if it is not there.  In the folder of a model, `from_pretrained` with
        ``trust_remote_code=True`` replaces the model's ``generate`` by it.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidInputError
        If there is another ``generate.py``, or the folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from otlp.decode import write_generate_folder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_generate_folder(folder)
    ...     file.name, file.parent.name, file.is_file()
    ('generate.py', 'custom_generate', True)
    """
    file = Path(folder).expanduser() / "custom_generate" / "generate.py"
    try:
        if file.exists() and file.read_text(encoding="utf-8") != FILE:
            raise InvalidInputError(
                f"{file} holds something else: give another folder, or take it away"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(FILE, encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"cannot write {file}: {reason}") from error
    return file


def generate_in_folder(
    *arguments: Any,
    model: Any,
    draft_model: Any = None,
    assistant_model: Any = None,
    tokenizer: Any = None,
    assistant_tokenizer: Any = None,
    generation_config: Any = None,
    stop_strings: Any = None,
    **options: Any,
) -> Any:
    """``generate`` with all its arguments, decoded by `otlp.decode.generate`.

    Parameters
    ----------
    *arguments, **options
        As for ``generate`` of transformers; ``paths``, ``length``, ``verification`` as for
        `otlp.decode.generate`.
    model : transformers.PreTrainedModel
        The target.
    draft_model, assistant_model
        Two names of the draft.
    tokenizer
        For `stop_strings`.
    assistant_tokenizer
        Refused: drafts are over the target's tokens.
    generation_config : GenerationConfig
        Its ``stop_strings`` count where none are given.
    stop_strings : str or list of str

    Raises
    ------
    InvalidInputError
        As `otlp.decode.generate`.
    """
    from transformers import GenerationMixin

    decode: Any = GenerationMixin.generate
    if arguments[1:]:
        raise InvalidInputError(
            "generate with a draft model takes the prompt and named arguments: name the others"
        )
    if assistant_tokenizer is not None:
        raise InvalidInputError(
            "generate with a draft model does not take assistant_tokenizer: give a draft of the "
            "same vocabulary"
        )
    if draft_model is not None and assistant_model is not None:
        raise InvalidInputError(
            "assistant_model is another name of draft_model: give one of them, not both"
        )
    config = model.generation_config if generation_config is None else generation_config
    if stop_strings is None:
        stop_strings = config.stop_strings
    if config.stop_strings is not None:
        # generate would look for a tokenizer, which it keeps from a function
        generation_config = copy.deepcopy(config)
        generation_config.stop_strings = None
    ours = {name: options.pop(name) for name in OURS if name in options}
    return decode(
        model,
        *arguments,
        generation_config=generation_config,
        # what is bound here no version of generate looks at
        custom_generate=partial(
            generate,
            draft_model=assistant_model if draft_model is None else draft_model,
            tokenizer=tokenizer,
            stop_strings=stop_strings,
            **ours,
        ),
        **options,
    )
