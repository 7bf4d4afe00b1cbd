"""``otlp lab tune`` on the trained pair, and commands that read its file."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from otlp import decode
from otlp.decode import Sampling
from otlp.errors import InvalidInputError
from otlp_lab.generation import generate
from otlp_lab.tuning import Tuned
from tests.otlp.cli.command import done, refused
from tests.processes import run_python
from tests.tiny_models import SIZE, tiny

QUICK = "--limit 2 --text 10 --tokens 6 --paths 1,2 --length 1,2 --trees 2-2 --check 2".split()
NO_NETWORK = (
    "must be wall for a draft that is not a network" if find_spec("transformers") else "pip install"
)


def test_what_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "t.json"
    for options, words in (
        (["--trees", "2-0"], "tree must be children by depth, such as 3-2-1, got '2-0'"),
        (["--trees", "9-99999"], "at most 100,000"),
        (["--draft-temperature", "1,-1"], "temperature"),
        (["--text", 4], "--text must be more than the longest path, 6, got 4"),
        (["trained:target", "ngram", "--limit", 2, "--clock", "processor"], NO_NETWORK),
        (["--limit", 1], "--prompts and --limit must give at least 2 prompts, got 1"),
    ):
        assert words in refused("lab", "tune", *options, "--config", config)
    assert not config.exists()


def test_something_is_kept_before_the_target_has_written(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="pip install -e .[decode]")
    config, prompts = tmp_path / "t.json", tmp_path / "prompts.txt"
    prompts.write_text("the town\n" + "the town " * 166)  # the text exceeds the context
    words = "--tokens 4 --text 20 --paths 1,2 --length 1,3 --trees 2-2".split()
    words += ["--prompts", str(prompts)]
    assert "exceed the context" in refused("lab", "tune", *words, "--config", config)
    tuned = Tuned.read(config)
    assert (tuned.paths, tuned.length, tuned.predicted, tuned.measured) == (1, 1, None, None)
    warning = f"the setting in {config} was not timed"
    assert warning in done("lab", "decode", config, "--limit", 1, "--tokens", 4)
    better = replace(tuned, measured=50.0).to_json()
    config.write_text(better)
    refused("lab", "tune", *words, "--config", config)
    assert config.read_text() == better  # times of an earlier run are kept


@pytest.mark.slow
@pytest.mark.long
def test_the_trained_pair_is_timed_and_decoded_with_the_winner(tmp_path: Path) -> None:
    config = tmp_path / "t.json"
    output = done(
        "lab", "tune", *QUICK, "--draft-temperature", "0.9", "--clock", "processor", "--no-compile",
        "--config", config,
    )  # fmt: skip
    for words in ("rank correlation", "baseline after/before", "target-only on the most likely"):
        assert words in output
    tuned = Tuned.read(config)
    assert tuned.measured > 0.0 and tuned.device == "cpu" and tuned.dtype == "float32"
    done("lab", "decode", config, "--limit", 1, "--tokens", 4)
    printed = refused("lab", "decode", config, "--draft", "ngram")
    assert "tuned for target trained:target with draft trained:draft" in printed


@pytest.mark.slow
@pytest.mark.long
def test_the_loop_that_is_timed_copies_where_the_draft_does(tmp_path: Path) -> None:
    config, kept, prompts = (tmp_path / name for name in ("t.json", "found.json", "p.txt"))
    prompts.write_text(
        "a = b\na = b\na = b\na =" + "\n\nx = y\nx = y\nx = y\nx =", encoding="utf-8"
    )
    words = "--text 10 --tokens 12 --paths 1 --length 4 --trees 2-2 --check 2 --no-compile".split()
    found = {}
    for draft in ("trained:draft", "copying:trained:draft"):
        done(
            "lab", "tune", "trained:target", draft, "--prompts", prompts, *words,
            "--config", config, "--json", kept,
        )  # fmt: skip
        timed = json.loads(kept.read_text())["timed"]
        found[draft] = [way["block_efficiency"] for way in timed if way["block_efficiency"][0] > 1]
    assert found["trained:draft"] != found["copying:trained:draft"]
    done("lab", "decode", config, "--draft", draft, "--limit", 1, "--tokens", 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "draft",
    [
        "lookup",
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in ("ngram", "0.5*trained:draft+0.5*ngram")
        ),
    ],
)
def test_drafts_that_are_no_networks_are_tuned(draft: str, tmp_path: Path) -> None:
    config, kept = tmp_path / "t.json", tmp_path / "found.json"
    done(
        "lab", "tune", "trained:target", draft, *QUICK, "--config", config, "--json", kept,
        "--draft-temperature", "0.9,1",
    )  # fmt: skip
    content = json.loads(kept.read_text())
    assert len(content["timed"]) == 3 and len(content["predictions"]) == 11
    for way in content["timed"]:
        assert sum(way["shares"].values()) == pytest.approx(1.0)
        assert way["tokens_per_second"][0] > 0.0 and way["block_efficiency"][0] >= 1.0
    tuned = Tuned.read(config)
    assert tuned.draft == draft and tuned.measured > 0.0 and tuned.device == "cpu"
    done("lab", "decode", config, "--draft", draft, "--limit", 1, "--tokens", 4)


@pytest.mark.slow
@pytest.mark.long
def test_steps_that_stay_uncompiled_are_named(tmp_path: Path) -> None:
    """In a separate process, without a compiler."""
    found = tmp_path / "found.json"
    words = "--limit 2 --text 8 --tokens 4 --paths 1 --length 1 --trees 2-2 --check 1".split()
    printed = run_python(
        *("-m", "otlp", "lab", "tune", *words, "--config", tmp_path / "t.json", "--json", found),
        CXX="no-such-compiler", TORCHINDUCTOR_FORCE_DISABLE_CACHES="1",
    )  # fmt: skip
    steps = ["commit", "draft", "target"]
    wanted = {"plain": ["plain"], "block 1 x 1": steps, "tournament 2-2": steps}
    assert json.loads(found.read_text())["uncompiled"] == wanted
    assert "block 1 x 1 was timed with steps that could not be compiled" in printed


@pytest.mark.slow
def test_trees_and_the_drafts_temperature_are_decoded_as_tuned(tmp_path: Path) -> None:
    config, found = tmp_path / "t.json", tmp_path / "found.json"
    models = "trained:target", "trained:draft", "cpu", "float32", Sampling(0.9, 20, 0.9)
    names = *models, "tournament", 4, 2
    config.write_text(Tuned(*names, branching=(2, 2), draft_temperature=0.01).to_json())
    words = config, "--limit", 1, "--tokens", 12, "--json", found
    done("lab", "decode", *words)
    content = json.loads(found.read_text())
    assert (content["sampling_top_k"], content["sampling_top_p"]) == (20, 0.9)
    assert (content["draft_temperature"], content["branching"]) == (0.01, [2, 2])
    _, tree = content["measurements"]
    assert (tree["algorithm"], tree["paths"], tree["length"]) == ("tournament", 4, 2)


def test_files_that_are_no_settings_are_refused(tmp_path: Path) -> None:
    tuned = Tuned("large", "small", "cpu", "float32", Sampling(0.5, 3), "two-slice", 2, 3, 1.5)
    path = tmp_path / "t.json"
    path.write_text(tuned.to_json())
    assert Tuned.read(path) == tuned
    for right, wrong in (("two-slice", "magic"), ('"paths": 2', '"paths": 0'),
                         ('"length"', '"depth"'), ('"branching": []', '"branching": [2]'),
                         ('ft_temperature": null', '": -1')):  # fmt: skip
        assert right in tuned.to_json()
        path.write_text(tuned.to_json().replace(right, wrong))
        with pytest.raises(InvalidInputError):
            Tuned.read(path)
    with pytest.raises(InvalidInputError, match="cannot read"):
        Tuned.read(tmp_path / "none.json")
    for text, form in (('{"format": "other"}', "other"), ("{}", "none")):
        with pytest.raises(InvalidInputError, match=rf"\(has the format {form}, not otlp lab"):
            Tuned.from_json(text)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("--temperature", "0.3"), "No such option"),
        (("--dtype", "bfloat16"), "tuned in float32 on cpu, and the target is loaded in bfloat16"),
    ],
)
def test_what_a_tuned_setting_has_is_not_asked_for_again(
    words: tuple[str, ...], printed: str, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    names = "trained:target", "trained:draft", "cpu", "float32"
    path = tmp_path / "t.json"
    path.write_text(Tuned(*names, Sampling(0.6), "block", 1, 2).to_json())
    assert printed in refused("lab", "decode", path, "--limit", 1, "--tokens", 2, *words)


TREE = {"branching": (3, 2), "draft_temperature": 0.7}


@pytest.mark.parametrize(
    ("setting", "more"),
    [(("autoregressive", 0, 0), {}), (("block", 1, 2), {}), (("tournament", 6, 2), TREE)],
)
def test_generate_decodes_with_a_tuned_setting(
    setting: tuple[str, int, int], more: dict[str, Any]
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    target, draft = tiny("llama", 0), tiny("llama", 1)
    target.config._name_or_path, draft.config._name_or_path = "large", "small"
    options = {"do_sample": True, "max_new_tokens": 6, "custom_generate": generate}
    tuned = Tuned("large", "small", "cpu", "float32", Sampling(), *setting, **more)
    text = target.generate(torch.tensor([[1, 2]]), draft_model=draft, tuned=tuned, **options)
    assert text.shape == (1, 8)
    if more:
        counted, own = decode.NGram(SIZE), replace(tuned, draft="ngram")
        with pytest.raises(InvalidInputError, match="draft at temperature"):
            target.generate(torch.tensor([[1, 2]]), draft_model=counted, tuned=own, **options)
    for wrong in ({"dtype": "bfloat16"}, {"device": "cuda"}):
        with pytest.raises(InvalidInputError, match="is loaded in float32 on cpu"):
            one = replace(tuned, **wrong)
            target.generate(torch.tensor([[1, 2]]), draft_model=draft, tuned=one, **options)
    with pytest.raises(InvalidInputError, match="leave out these, or tuned"):
        options["paths"] = 3
        target.generate(torch.tensor([[1, 2]]), draft_model=draft, tuned=tuned, **options)
    del options["paths"]
    other = Tuned("large", "other", "cpu", "float32", Sampling(), *setting)
    with pytest.raises(InvalidInputError, match="with draft other, not for target large"):
        target.generate(torch.tensor([[1, 2]]), draft_model=draft, tuned=other, **options)
