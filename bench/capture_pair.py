"""Capture the logits of the trained pair on held-out text.

Several passages of held-out files are read token by token, as a decoder would, and the logits of
both models are kept at a run of consecutive positions of each passage::

    python bench/capture_pair.py

writes the capture `bench/data/standard-library.safetensors`, and the passages that are the default
prompts for decoding.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
import torch
from corpus import corpus_files, is_held_out, read_source, standard_library
from train_pair import encode
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging

from otlp.cli.info import command as info
from otlp.cli.options import OutputFile
from otlp.data.captures import Capture, save

BENCH = Path(__file__).parent
SHIPPED = BENCH.parent / "otlp" / "data"
CAPTURE = BENCH / "data" / "standard-library.safetensors"


@dataclass(frozen=True)
class Plan:
    """Rows to capture: `passages` runs of `steps` positions after `prefix` tokens."""

    passages: int
    steps: int
    prefix: int
    seed: int


def held_out_tokens(tokenizer: PreTrainedTokenizerBase, shortest: int) -> list[torch.Tensor]:
    """Encode the held-out files that are at least `shortest` tokens long."""
    root = standard_library()
    files = [path for path in corpus_files(root) if is_held_out(path)]
    encoded = [encode(tokenizer, [read_source(root / path)]) for path in files]
    return [tokens for tokens in encoded if len(tokens) >= shortest]


def choose_passages(files: Sequence[torch.Tensor], plan: Plan) -> torch.Tensor:
    """Choose windows of prefix and steps, cycling through the files."""
    rng = np.random.default_rng(plan.seed)
    length = plan.prefix + plan.steps
    order = rng.permutation(len(files))
    windows = []
    for passage in range(plan.passages):
        tokens = files[order[passage % len(files)]]
        start = int(rng.integers(len(tokens) - length + 1))
        windows.append(tokens[start : start + length])
    return torch.stack(windows)


@torch.inference_mode()
def run_model(folder: Path, passages: torch.Tensor, plan: Plan) -> npt.NDArray[np.float16]:
    """Return a model's logits, shape (rows, V), as float16."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    chunks = []
    for batch in passages.split(8):
        # The logits at a position are those of the token after it.
        logits = model(input_ids=batch[:, :-1]).logits[:, plan.prefix - 1 :]
        chunks.append(logits.to(torch.float16).flatten(0, 1).numpy())
    return np.concatenate(chunks)


def capture(models: Path, plan: Plan) -> Capture:
    """Run both models over the plan's passages."""
    tokenizer = AutoTokenizer.from_pretrained(models / "target")
    files = held_out_tokens(tokenizer, plan.prefix + plan.steps)
    passages = choose_passages(files, plan)
    positions = np.arange(plan.prefix, plan.prefix + plan.steps)
    return Capture(
        target_logits=run_model(models / "target", passages, plan),
        draft_logits=run_model(models / "draft", passages, plan),
        target_model="otlp_models/target",
        draft_model="otlp_models/draft",
        tokenizer=f"byte-level BPE of otlp_models/target, {len(tokenizer)} tokens",
        source="held-out files of the standard library of Python (PSF licence)",
        synthetic=False,
        note=(
            f"{plan.passages} passages of {plan.steps} consecutive positions, each after "
            f"{plan.prefix} tokens; contexts hold all the text that the models saw. Made by "
            "bench/capture_pair.py; temperature 1."
        ),
        contexts=tuple(
            str(tokenizer.decode(passage[:position]))
            for passage in passages
            for position in positions
        ),
        positions=np.tile(positions, plan.passages),
        next_tokens=passages[:, plan.prefix :].flatten().numpy(),
    )


def texts(models: Path, plan: Plan) -> list[dict[str, str]]:
    """Return the beginning of each passage, and the passage without its last token."""
    tokenizer = AutoTokenizer.from_pretrained(models / "target")
    files = held_out_tokens(tokenizer, plan.prefix + plan.steps)
    return [
        {
            "beginning": str(tokenizer.decode(passage[: plan.prefix])),
            "passage": str(tokenizer.decode(passage[:-1])),
        }
        for passage in choose_passages(files, plan)
    ]


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option(
    "--models",
    type=click.Path(file_okay=False, path_type=Path),
    default=BENCH.parent / "otlp_models",
    help="Folder with the folders target and draft.",
)
@click.option("--out", type=OutputFile(), default=CAPTURE, help="Output file of the capture.")
@click.option(
    "--passages",
    type=OutputFile(),
    default=SHIPPED / "passages.json",
    help="Output file of the passages.",
)
@click.option("--seed", default=7, help="Random seed of the choice.")
@click.pass_context
def main(context: click.Context, models: Path, out: Path, passages: Path, seed: int) -> None:
    """Choose the passages, and capture."""
    logging.disable_progress_bar()
    chosen = texts(models, Plan(passages=10, steps=16, prefix=128, seed=seed))
    written = json.dumps(chosen, indent=1, ensure_ascii=False) + "\n"
    passages.write_text(written, encoding="utf-8")
    save(capture(models, Plan(passages=45, steps=20, prefix=128, seed=seed + 1)), out)
    context.invoke(info, capture=str(out))


if __name__ == "__main__":
    main()
