"""Logs of serving engines: the same tokens as in the capture that they come from."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otlp.data.captures import TopCapture, from_logprobs, keep_top
from otlp.errors import CaptureError
from tests.example_captures import example

V, K = 4096, 5


def steps(capture: TopCapture, model: str) -> list[dict[int, float]]:
    """Ids and log-probabilities of each row, with one that was chosen though it is not among k."""
    rows = getattr(capture, f"{model}_logits")
    found = []
    for number in range(len(capture)):
        row = rows.row(number)
        step = dict(zip(row.ids.tolist(), row.logs.tolist(), strict=True))
        spare = next(token for token in range(V) if token not in step)
        found.append({**step, spare: min(step.values()) - 2.0})
    return found


def prompt_form(found: list[dict[int, float]]) -> dict[str, Any]:
    return {
        "prompt_logprobs": [
            None,
            *(
                {str(i): {"logprob": x, "rank": 1, "decoded_token": "?"} for i, x in one.items()}
                for one in found
            ),
        ]
    }


def choice_form(found: list[dict[int, float]]) -> dict[str, Any]:
    return {"choices": [prompt_form(found) | {"logprobs": None}]}


def completion_form(found: list[dict[int, float]]) -> dict[str, Any]:
    top = [None, *({f"token_id:{token}": x for token, x in one.items()} for one in found)]
    return {"choices": [{"logprobs": {"top_logprobs": top}}]}


@pytest.mark.parametrize("form", [prompt_form, choice_form, completion_form])
def test_a_log_is_the_capture_it_comes_from(tmp_path: Path, form: Any) -> None:
    top = keep_top(example(6, V), K)
    paths = {name: tmp_path / name for name in ("target", "draft")}
    for name, path in paths.items():
        found = steps(top, name)
        lines = [json.dumps(form(found[:4])), "", json.dumps(form(found[4:]))]
        path.write_text("\n".join(lines))
    read = from_logprobs(**paths, k=K, vocab_size=V, target_model="large")
    assert (len(read), read.kept, read.target_model, read.synthetic) == (6, K, "large", False)
    assert read.positions.tolist() == [1, 2, 3, 4, 1, 2]  # type: ignore[union-attr]
    for row in range(6):
        for mine, its in zip(read.distributions(row), top.distributions(row), strict=True):
            np.testing.assert_allclose(mine, its, atol=2e-6)


def test_a_masked_token_has_no_mass(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(json.dumps({"prompt_logprobs": [{"3": 0.0, "1": -9999.0, "2": -9999.0}]}))
    read = from_logprobs(path, path, k=3, vocab_size=9)
    for temperature in (0.5, 1.0):
        p, q = read.distributions(0, temperature)
        np.testing.assert_allclose(p, np.eye(10)[3], atol=2e-6)
        np.testing.assert_array_equal(q, np.eye(10)[3])


TOKEN = {"0": math.log(0.5), "1": math.log(0.25)}
GOOD = json.dumps({"prompt_logprobs": [None, TOKEN]})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 has no log-prob"),
        ("[]", "line 1 has no log-prob"),
        ("3", "line 1 has no log-prob"),
        ("[" * 99_999, "line 1 has no log-prob"),
        ("{}", "line 1 has no log-prob"),
        ('{"choices": []}', "line 1 has no log-prob"),
        ('{"prompt_logprobs": [null, {"word": -1.0}]}', "line 1 has no log-prob"),
        ('{"prompt_logprobs": [null, {"1": null}]}', "line 1 has no log-prob"),
        ('{"prompt_logprobs": [null, 3]}', "line 1 has no log-prob"),
        (json.dumps({"prompt_logprobs": [None, {"0": -0.1}]}), "token 1 of request 1 has 1 ids"),
        (json.dumps({"prompt_logprobs": [None, {**TOKEN, "9": -3.0}]}), "has 3 ids, to 9"),
        (
            json.dumps({"prompt_logprobs": [None, {"0": -3.0, "1": -3.0}]}),
            "bad: token 1 of request 1 holds more in the rest",
        ),
        (json.dumps({"prompt_logprobs": [None, {"0": 3.0, "1": -3.0}]}), "do not add up"),
        (json.dumps({"prompt_logprobs": [None, {"0": math.nan, "1": -3.0}]}), "do not add up"),
        (json.dumps({"prompt_logprobs": [None, TOKEN, TOKEN]}), "request 1 has 3 tokens .* 2 in"),
        (f"{GOOD}\n{GOOD}", "request 2 has 2 tokens in the one and no in the other"),
        ("", "request 1 has no tokens in the one and 2"),
        (b"\xff", "line 1 has no log-prob"),
    ],
)
def test_a_log_that_is_none_is_named(tmp_path: Path, line: str | bytes, message: str) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(GOOD)
    bad.write_bytes(line if isinstance(line, bytes) else line.encode())
    with pytest.raises(CaptureError, match=message):
        from_logprobs(bad, good, k=2, vocab_size=5)
    with pytest.raises(CaptureError, match="no such file"):
        from_logprobs(good, tmp_path / "nowhere", k=2, vocab_size=5)
