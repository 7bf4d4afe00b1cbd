"""``otlp lab design`` on a capture of a tabular pair: table, choice, stored statistics."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from otlp.data.captures import load, save
from otlp.decode import Sampling, random_pair
from otlp.decode.models.fingerprint import files_fingerprint
from otlp.studies.capturing import DECODED, source_of
from otlp_lab.design import Statistics
from otlp_lab.design.written_texts import write_text
from tests.example_captures import make
from tests.otlp.cli import command

done, refused = partial(command.done, "lab", "design"), command.refused


def save_pair(path: Path, source: str) -> Path:
    draft, target = random_pair(3, 9, np.random.default_rng(0))
    rng, none = np.random.default_rng(1), np.empty(0, dtype=np.int64)
    texts = [write_text(draft, target, none, 8, rng) for _ in range(3)]
    laws = ([text.targets for text in texts], [text.drafts for text in texts])
    logits = (np.log(np.concatenate(rows)).astype(np.float32) for rows in laws)
    tokens = np.concatenate([text.tokens for text in texts])
    positions = np.tile(np.arange(8), 3)
    save(make(*logits, source=source, positions=positions, next_tokens=tokens), path)
    return path


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    return save_pair(tmp_path / "pair.safetensors", source_of(Sampling()))


def test_text_of_another_temperature_is_refused(captured: Path, tmp_path: Path) -> None:
    printed = command.refused(
        "lab", "design", captured, *"--nodes 2 --length 3 --temperature 0.5".split()
    )
    assert "at temperature 0.5, got text decoded from the target at temperature 1:" in printed
    unsaid = save_pair(tmp_path / "unsaid.safetensors", DECODED)
    output = done(unsaid, "--nodes", 2, "--length", 3, "--temperature", 0.5)
    assert "temperature of the captured text is unknown" in " ".join(output.split())


def test_budgets_beyond_the_statistics_are_warned_of(captured: Path, tmp_path: Path) -> None:
    options = (captured, "--length", 3, "--statistics", tmp_path / "kept.json")
    assert "trees of at most" not in done(*options, "--nodes", 4)
    output = done(*options, "--nodes", 40)
    assert "trees of at most 4 nodes" in " ".join(output.split())


def test_a_capture_is_enough(captured: Path, tmp_path: Path) -> None:
    kept = tmp_path / "statistics.json"
    options = (captured, "--nodes", "2,4", "--length", 3, "--statistics", kept)
    first = done(*options)
    assert "N = 4: " in first and "large / small, 3 texts, 24 tokens" in first
    assert Statistics.read(kept).texts == 3
    before = kept.stat().st_mtime_ns
    assert "in the time of one target call" in done(*options, "--draft-cost", 0.1)
    assert kept.stat().st_mtime_ns == before


def test_statistics_of_another_pair_are_refused(captured: Path, tmp_path: Path) -> None:
    kept = tmp_path / "statistics.json"
    done(captured, "--nodes", 2, "--length", 3, "--statistics", kept)
    kept.write_text(kept.read_text().replace('"large"', '"huge"'))
    words = ("lab", "design", captured, "--nodes", 2, "--statistics", kept)
    printed = command.refused(*words)
    assert "of target huge with draft small" in printed
    assert "not of target large with draft small" in printed
    command.refused(*words, "--temperature", 0.5)


def test_statistics_of_other_rows_or_weights_are_refused(captured: Path, tmp_path: Path) -> None:
    kept = tmp_path / "statistics.json"
    words = ("lab", "design", captured, "--nodes", 2, "--length", 3, "--statistics", kept)
    command.done(*words)
    capture = load(captured)
    logits = np.array(capture.target_logits)
    logits[-1, 0] += 1.0
    captured.unlink()
    save(replace(capture, target_logits=logits), captured)
    assert "must be of the current weights or rows" in " ".join(command.refused(*words).split())


@pytest.mark.slow
def test_statistics_gathered_with_other_settings_are_refused(tmp_path: Path) -> None:
    prompts, kept = tmp_path / "prompts.txt", tmp_path / "kept.json"
    prompts.write_text("Once upon a time\nThe town was\n")
    words = ["lab", "design", "--draft", "ngram", "--prompts", prompts, "--statistics", kept]
    words += "--nodes 2 --tokens 8 --length 3".split()
    first = command.done(*words)
    assert command.done(*words) == first
    for option in ("--tokens 9", "--length 2", "--seed 1", "--dtype float64"):
        printed = " ".join(command.refused(*words, *option.split()).split())
        assert f"gathered with other values of {option.split()[0]}: " in printed
    prompts.write_text("Once upon a time\nThe town is\n")
    assert "other values of --prompts: " in " ".join(command.refused(*words).split())


def test_options_of_the_text_are_refused_beside_a_capture(captured: Path) -> None:
    words = ("lab", "design", captured, "--tokens", 9, "--prompts", "nowhere.txt")
    assert "leave out --prompts, --tokens" in " ".join(command.refused(*words).split())


def test_fingerprints_of_files_are_of_contents(tmp_path: Path) -> None:
    folder, corpus = tmp_path / "model", tmp_path / "corpus.txt"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(300_000))
    corpus.write_text("one")
    source = f"0.5*{folder}+0.5*ngram:{corpus}"
    found = {files_fingerprint(source)}
    (folder / "model.safetensors").write_bytes(bytes(299_999) + b"x")
    found.add(files_fingerprint(source))
    corpus.write_text("two")
    found |= {files_fingerprint(source), files_fingerprint(f"copying:{folder}")}
    corpus.write_text("a" * 1_000_000)
    found.add(files_fingerprint(source))
    corpus.write_text("a" * 500_001 + "b" + "a" * 499_998)
    found.add(files_fingerprint(source))
    assert len(found) == 6 and files_fingerprint("lookup") == files_fingerprint("lookup")


@pytest.mark.parametrize(
    "options", ["--nodes 0", "--length 8", "--temperature -1", "--draft-cost -1"]
)
def test_bad_options(captured: Path, options: str) -> None:
    command.refused("lab", "design", captured, *options.split())


def test_how_a_file_is_read_is_refused_without_a_file() -> None:
    found = refused("lab", "design", "--logits")
    assert "need a .npz or .npy or .csv file: give such a FILE" in found


def test_the_best_chain_stands_beside_the_trees(captured: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[plot]")
    written, figure = tmp_path / "designs.json", tmp_path / "designs.svg"
    words = ("--nodes", "2,4", "--length", 3, "--json", written, "--figure", figure)
    output = done(captured, *words)
    for budget in json.loads(written.read_text())["budgets"]:
        chains = [one for one in budget["designs"] if one["chain"]]
        assert len(chains) == 1 and chains[0]["candidate"].startswith("iid_paths(1, ")
        for one in budget["designs"]:
            ratio = one["tokens_per_call"] / chains[0]["tokens_per_call"]
            assert one["over_chain"][0] == pytest.approx(ratio)
            assert one["over_chain"][1] <= ratio <= one["over_chain"][2]
        assert chains[0]["over_chain"] == pytest.approx([1.0, 1.0, 1.0])
    assert "over the" in output and ">chain</text>" in figure.read_text()
