"""Every command accepts captures of whole rows and of the most likely tokens."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from otlp.cli.options import ByteCount
from otlp.data.captures import keep_top, save
from otlp.data.synthetic import generate
from tests.otlp.cli.command import done, refused

COMMANDS = {
    "solve": "CAPTURE --row 3 --top-k 10",
    "check": "CAPTURE --rows 2 --solvers martingale,max-flow",
    "bench": "CAPTURE --rows 2 --top-k 10 --n 2 --solvers martingale",
    "compare": "CAPTURE --rows 2 --n 2 --schemes iid --rules naive --top-k 10",
    "sweep": "CAPTURE --rows 2 --n 2 --temperature 1,0.7 --rules naive --top-k 5,10",
    "info": "CAPTURE",
    "audit": "martingale --capture CAPTURE --row 1 --top-k 5",
}

FORMS = ("one.safetensors", "top.safetensors")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("captures")
    capture = generate(8, 4096, dtype="float16")
    save(capture, made / "one.safetensors")
    save(keep_top(capture, 30), made / "top.safetensors")
    return made


def words_of(command: str, capture: Path) -> list[str]:
    return [command, *(word.replace("CAPTURE", str(capture)) for word in COMMANDS[command].split())]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *((command, name) for command in COMMANDS if command != "audit" for name in FORMS),
        pytest.param("audit", FORMS[-1], marks=pytest.mark.slow),
    ],
)
def test_a_capture_of_any_form_is_taken(command: str, name: str, folder: Path) -> None:
    done(*words_of(command, folder / name))


@pytest.mark.parametrize("command", ["solve", "check", "bench", "compare", "sweep"])
def test_what_a_cut_capture_leaves_open_is_said(command: str, folder: Path) -> None:
    printed = " ".join(done(*words_of(command, folder / "top.safetensors")).split())
    assert "stores the 30 most likely tokens" in printed and "higher by at most" in printed
    assert "most likely" not in done(*words_of(command, folder / "one.safetensors"))


def test_the_bound_of_solve_holds(folder: Path, tmp_path: Path) -> None:
    whole, top = (tmp_path / name for name in ("whole", "top"))
    cut = ("--top-k", "30")
    done(*words_of("solve", folder / "one.safetensors"), *cut, "--json", whole)
    done(*words_of("solve", folder / "top.safetensors"), *cut, "--json", top)
    best, least = (json.loads(path.read_text()) for path in (whole, top))
    assert least["truncation"] > 0.0
    low = least["acceptance"]
    assert low - 1e-6 <= best["acceptance"] <= low + least["truncation"] + 1e-6


@pytest.mark.parametrize("command", ["solve", "bench", "compare", "sweep"])
def test_more_tokens_than_were_kept_are_refused(command: str, folder: Path) -> None:
    printed = refused(*words_of(command, folder / "top.safetensors"), "--top-k", 31)
    assert "--top-k must be at most 30, the number of tokens per row in this capture" in printed


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ("5GB", 5 * 10**9), ("500mb", 5 * 10**8), ("2 GiB", 2**31), ("1.5k", 1500), ("7", 7),
        ("1T", 10**12),
    ],
)  # fmt: skip
def test_sizes_have_units(words: str, size: int) -> None:
    assert ByteCount().convert(words, None, None) == size


@pytest.mark.parametrize(
    "words", ["", "GB", "0", "-1", "5 apples", "1iB", "1e9", "nan", "0.0001", "9" * 99]
)
def test_no_sizes_are_refused(words: str) -> None:
    with pytest.raises(click.BadParameter):
        ByteCount().convert(words, None, None)


def test_what_a_capture_cannot_be_is_said_before_models_are_loaded(tmp_path: Path) -> None:
    there = tmp_path / "there.safetensors"
    there.write_bytes(b"mine")
    none = "--target /nowhere", "--device tpu9"
    assert "already exists" in refused("capture", there, *" ".join(none).split())
    new = tmp_path / "new.safetensors"
    for draft in ("lookup", "copying:lookup"):
        assert f"--draft must be a network, or a network after copying:, got {draft}" in refused(
            "capture", new, "--draft", draft, *none[0].split()
        )
