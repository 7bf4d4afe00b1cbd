"""``otlp lab calibrate``, and the use of its file by ``otlp decode``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from otlp.cli.decode import command as decode
from otlp.decode import Calibration
from otlp.errors import InvalidInputError
from otlp_lab.commands.calibrate import command


def test_a_capture_is_fitted_and_its_pair_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    asked = ["--rows", "10", "--races", "1", "--temperature", "0.6,1", "--json", str(path)]
    ran = CliRunner().invoke(command, asked, catch_exceptions=False)
    assert ran.exit_code == 0 and "sigma T" in ran.output
    found = Calibration.read(path)
    assert 0.3 < found.scale < 4.0 and 0.0 < found.unknown < 0.6
    with pytest.raises(InvalidInputError, match="--calibration needs equality"):
        CliRunner().invoke(
            decode, ["--algorithms", "block", "--calibration", str(path)], catch_exceptions=False
        )


def test_the_calibration_of_another_pair_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e .[decode]")
    pytest.importorskip("transformers", reason="needs transformers: pip install -e .[decode]")
    path = tmp_path / "mine.json"
    path.write_text(Calibration(1.0, 0.1, "smollm2", "copying:smollm2-draft").to_json())
    with pytest.raises(
        InvalidInputError, match="calibration was fitted to target smollm2 with draft"
    ):
        CliRunner().invoke(
            decode,
            ["--algorithms", "equality", "--calibration", str(path)],
            catch_exceptions=False,
        )


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": "otlp calibration 1"', '{"format": "otlp calibration 1"}', "null"],
)
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=r"cannot read .* as a calibration"):
        Calibration.read(path)
    with pytest.raises(InvalidInputError, match=r"cannot read .* as a calibration"):
        Calibration.read(tmp_path / "absent.json")
