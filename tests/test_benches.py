"""Commands of bench/ that need what a test machine may not have, at small size."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.mark.slow
def test_the_gpu_command_runs_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    path = tmp_path / "gpu.json"
    command = [sys.executable, str(BENCH / "gpu.py"), "--small", "--json", str(path)]
    subprocess.run(command, check=True, cwd=BENCH.parent)
    found = json.loads(path.read_text())
    assert {row["paths"] for row in found["rounds"]} == {1, 2}
    for factor in ("1", "2"):
        ways = found[f"widened {factor}"]["widths"][factor]["ways"]
        names = {way["name"] for way in ways}
        assert {"plain loop", "block 1 x 1", "martingale 2 x 2", "generate, assisted"} <= names
        assert all(sum(way["tokens"]) == 12 for way in ways)


def test_training_goes_on_where_it_stopped(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    spec = importlib.util.spec_from_file_location("train_pair", BENCH / "train_pair.py")
    assert spec is not None and spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    sys.modules["train_pair"] = bench
    spec.loader.exec_module(bench)
    stream = torch.randint(0, 64, (4 * bench.CONTEXT,), generator=torch.Generator().manual_seed(0))
    checkpoint = bench.Checkpoint(tmp_path / "draft.pt")

    def seconds(minutes: float) -> tuple[float, int]:
        recipe = bench.Recipe("draft", 8, 8, 1, 1, learning_rate=1e-3, batch=1, minutes=minutes)
        model = bench.build_model(recipe, 0)
        teacher = bench.build_model(recipe, 0).eval()
        seen = bench.train(
            recipe, model, stream, checkpoint,
            lambda tokens: bench.distillation_loss(model, teacher, tokens, 2.0),
        )  # fmt: skip
        kept = checkpoint.load("cpu")
        assert seen == kept["steps"] * bench.CONTEXT
        return kept["seconds"], kept["steps"]

    first, later = seconds(0.005), seconds(0.01)
    assert 0.3 <= first[0] <= later[0] and 0 < first[1] <= later[1]
    # with nothing left of the time, nothing is learned and nothing is lost
    assert seconds(0.005)[1] == later[1]
