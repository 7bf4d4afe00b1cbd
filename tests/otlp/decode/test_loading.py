"""Model folders that are damaged or have inconsistent weights are refused in one line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

from otlp.decode.models.huggingface import HuggingFaceModel  # noqa: E402
from otlp.decode.models.loading import (  # noqa: E402
    TRAINED_PAIR,
    find_model,
    load_model,
    load_pair,
)
from otlp.decode.tree import TokenTree  # noqa: E402
from otlp.errors import InvalidInputError, UnsupportedProblemError  # noqa: E402
from tests.tiny_models import tiny  # noqa: E402

Spoil = Callable[[Path], object]


def renamed(kept: int, prefix: str) -> Spoil:
    """Add a prefix to the names of all weights except the first few, as wrappers do."""

    def spoil(folder: Path) -> None:
        file = folder / "model.safetensors"
        found = load_file(file)
        named = {prefix * (at >= kept) + name: found[name] for at, name in enumerate(sorted(found))}
        save_file(named, file, {"format": "pt"})

    return spoil


def beside(folder: Path) -> None:
    """Add a weight that the model does not have."""
    file = folder / "model.safetensors"
    save_file({**load_file(file), "model.more": torch.zeros(2)}, file, {"format": "pt"})


def configured(**values: Any) -> Spoil:
    """Change the configuration."""

    def spoil(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return spoil


def emptied(folder: Path) -> None:
    """Replace the weights by an empty pickle file."""
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").touch()


SPOILT: dict[str, tuple[Spoil, str]] = {
    "prefixed": (renamed(0, "_orig_mod."), "lack .* and have in addition .*_orig_mod"),
    "one renamed": (renamed(3, "x."), r"lack model\.layers"),
    "more": (beside, r"have in addition model\.more;"),
    "deeper": (configured(num_hidden_layers=9), r"lack model\.layers\.[2-8].* more"),
    "wider": (configured(vocab_size=5000), "cannot load"),
    "cut": (lambda at: os.truncate(at / "model.safetensors", 5000), "cannot load"),
    "empty": (emptied, "cannot load .*EOFError"),
    "pointer": (
        lambda at: (at / "model.safetensors").write_text("version https://git-lfs"), "cannot load"
    ),
    "tokenizer": (lambda at: (at / "tokenizer.json").write_text('{"version": "1"}'), "cannot load"),
    "heads": (configured(num_attention_heads=7), "cannot load"),
    "activation": (configured(hidden_act="nonesuch"), "cannot load .*nonesuch"),
    "quantised": (
        configured(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
        "cannot load .*bitsandbytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
def test_a_folder_that_is_not_whole_is_refused(name: str, tmp_path: Path) -> None:
    folder, (spoil, words) = tmp_path / "model", SPOILT[name]
    shutil.copytree(find_model(TRAINED_PAIR[1]), folder)
    spoil(folder)
    with pytest.raises(InvalidInputError, match=words) as found:
        load_model(str(folder), device="cpu")
    assert str(folder) in str(found.value) and "\n" not in str(found.value)


def test_tied_weights_are_not_missing(tmp_path: Path) -> None:
    """A head tied to the embedding is saved once."""
    model = tiny("llama", tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(find_model(TRAINED_PAIR[1])).save_pretrained(
        tmp_path
    )
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    loaded = load_model(str(tmp_path), device="cpu").model
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)


def test_a_model_that_overflows_is_told_its_precision() -> None:
    model = tiny("llama")
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight *= 3e6
    HuggingFaceModel(model.bfloat16(), name="mine")
    with pytest.raises(UnsupportedProblemError, match=r"mine .* in float16: .*bfloat16"):
        HuggingFaceModel(model.float().half(), name="mine")


@pytest.mark.parametrize("text", ["a\ud83db", "\udc00"])
def test_half_of_a_surrogate_pair_is_named(text: str, trained: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"U\+D[8C][03][0D]"):
        trained[0].encode(text)


@pytest.mark.parametrize("padded", TRAINED_PAIR)
def test_padding_of_a_pair_is_cut_and_said(padded: str, tmp_path: Path, caplog) -> None:
    wide = load_model(padded, device="cpu")
    wide.model.resize_token_embeddings(4160, mean_resizing=False)
    with torch.no_grad():
        head = wide.model.get_output_embeddings().weight
        head[4096:] = head[:64]  # as likely as real tokens
    wide.model.save_pretrained(tmp_path)
    wide.tokenizer.save_pretrained(tmp_path)
    names = {"target": TRAINED_PAIR[0], "draft": TRAINED_PAIR[1]}
    names[padded.removeprefix("trained:")] = str(tmp_path)
    pair = load_pair(**names, device="cpu")
    assert "4,096 logits are kept, and the padding" in caplog.text
    for model, source in zip(pair, TRAINED_PAIR[::-1], strict=True):
        plain = load_model(source, device="cpu")
        tree = TokenTree(np.array([-1, 17]), np.array([-1, 0]))
        for one in (model, plain):
            one.start(np.array([300, 301]))
        found, expected = (one.distributions(tree, np.arange(2)) for one in (model, plain))
        assert found.shape == (2, 4096)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_other_sizes_than_padding_are_refused(tmp_path: Path) -> None:
    short = load_model(TRAINED_PAIR[1], device="cpu")
    short.model.resize_token_embeddings(4000)
    short.model.save_pretrained(tmp_path)
    short.tokenizer.save_pretrained(tmp_path)  # its vocabulary has 4,096 tokens
    with pytest.raises(InvalidInputError, match="4000 tokens and the target"):
        load_pair(str(tmp_path), device="cpu")


def test_other_vocabularies_are_refused_before_weights_are_read(tmp_path: Path) -> None:
    folder = shutil.copytree(find_model(TRAINED_PAIR[1]), tmp_path / "draft")
    configured(vocab_size=4000)(folder)
    (folder / "model.safetensors").write_bytes(b"")  # reading it fails
    with pytest.raises(InvalidInputError, match="4000 tokens and the target"):
        load_pair(str(folder), device="cpu")
