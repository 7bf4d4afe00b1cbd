"""Verifiers of serving engines: called if installed, otherwise named in an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otlp import audit_rounds
from otlp.auditing import AuditSettings, DraftedPaths, Verdict
from otlp.auditing.gtest import g_test
from otlp.decode import random_pair
from otlp.decode.models.loading import TRAINED_PAIR, load_model
from otlp.errors import EngineNotFoundError
from otlp_lab.engines import ENGINES, assisted_texts
from otlp_lab.engines.candidate_generators import judge_candidates, shipped
from otlp_lab.engines.engine import Engine, EngineRounds, target_tables
from otlp_lab.engines.random_models import audit_engine
from otlp_lab.engines.vllm import unprocessed
from tests.otlp.cli.command import run

pytestmark = pytest.mark.usefixtures("few_repetitions")


def report_on(name: str):
    engine = ENGINES[name]
    draft, target = random_pair(3, 3, np.random.default_rng(0))
    return audit_rounds(
        engine.rule(),
        target.tables,
        draft.tables,
        DraftedPaths(1, 2),
        batch=engine.batch,
        name=engine.label,
    )


def test_hugging_face_is_lossless() -> None:
    pytest.importorskip("transformers")
    report = report_on("hugging-face")
    assert report.method == "enumeration"
    assert report.verdict is Verdict.LOSSLESS
    assert "_speculative_sampling" in str(report)


def test_drafts_and_the_q_that_is_handed_over() -> None:
    pytest.importorskip("transformers")
    draws = shipped(seed=0)
    honest = draws["AssistedCandidateGenerator"]

    def before_the_temperature(samples: int, warpers: Mapping[str, float]):
        tokens, logits = honest(samples, warpers)
        return tokens, logits * warpers.get("temperature", 1.0)

    reports = judge_candidates(
        {**draws, "wrong": before_the_temperature}, samples=5_000, seed=1, rate=1e-6
    )
    found = {report.generator: report for report in reports}
    assert found["AssistedCandidateGenerator"].passed
    rejected = [what for what, test in found["wrong"].tests.items() if test.rejected]
    assert rejected == ["temperature 0.5", "temperature 0.5, top-k 3"]
    assert "DRAFTS_DIFFER" in str(found["wrong"])
    if "SinglePositionMultiTokenCandidateGenerator" in draws:  # the most likely tokens, as released
        assert not found["SinglePositionMultiTokenCandidateGenerator"].passed


def test_the_command_tells_of_candidates(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    path = tmp_path / "report.json"
    options = ["--length", "1", "--samples", "2000"]
    result = run("lab", "audit-engine", "hugging-face", *options, "--json", path)
    written = json.loads(path.read_text())
    assert result.output.startswith(written["verdict"])
    assert (written["verdict"] == "LOSSLESS") == written["passed"]
    assert "LOSSLESS" in result.output  # that of the verifier
    assert written["passed"] == (result.exit_code == 0) == ("DRAFTS_DIFFER" not in result.output)
    for found in written["candidate_generators"]:
        assert f"Candidate generator {found['generator']}: drafts" in result.output


def ranked(token: int, law: Any, rng: np.random.Generator) -> float:
    """Return a number that is uniform if the token follows the law; likely tokens are first."""
    order = np.argsort(-law, kind="stable")
    place = int(np.flatnonzero(order == token)[0])
    return float(law[order[:place]].sum() + rng.random() * law[token])


PROMPT = "def __init__(self"
TEXTS = 800
SETTINGS: tuple[dict[str, Any], ...] = ({"top_k": 0}, {"top_k": 5, "temperature": 0.5})


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("honest", "warpers"),
    [
        (True, SETTINGS[0]),
        (True, SETTINGS[1]),
        (False, SETTINGS[0]),
    ],
    ids=str,
)
def test_assisted_generation_of_the_trained_pair(
    honest: bool, warpers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of three tokens follow the target: a G-test of 27 cells, false alarms at 1e-6.

    Tests drafts and cuts of the generator and the verifier, as combined by `generate`.  A generator
    with logits of another temperature is detected.
    """
    torch = pytest.importorskip("torch")
    generators = pytest.importorskip("transformers.generation.candidate_generator")
    target, draft = (load_model(name, device="cpu") for name in TRAINED_PAIR)
    prompt = torch.tensor(target.encode(PROMPT))[None]
    made = generators.AssistedCandidateGenerator.get_candidates

    def flatter(self: Any, input_ids: Any, **more: Any) -> Any:
        tokens, logits = made(self, input_ids, **more)
        return tokens, None if logits is None else 0.1 * logits

    if not honest:
        monkeypatch.setattr(generators.AssistedCandidateGenerator, "get_candidates", flatter)
    torch.manual_seed(0)
    settings = {"do_sample": True, "max_new_tokens": 3, "eos_token_id": None, **warpers}
    texts = torch.cat(
        [
            target.model.generate(prompt, assistant_model=draft.model, **settings)
            for _ in range(TEXTS)
        ]
    )
    with torch.no_grad():
        logits = target.model(texts).logits[:, prompt.shape[1] - 1 : -1].double()
    logits /= warpers.get("temperature", 1.0)
    if warpers["top_k"]:
        least = logits.topk(warpers["top_k"]).values[..., -1:]
        logits[logits < least] = -torch.inf
    rng = np.random.default_rng(0)
    cells = np.zeros((3, 3, 3), dtype=np.int64)
    for text, laws in zip(texts[:, prompt.shape[1] :].tolist(), logits.softmax(-1), strict=True):
        drawn = zip(text, laws.numpy(), strict=True)
        cells[tuple(min(int(3 * ranked(token, law, rng)), 2) for token, law in drawn)] += 1
    test = g_test(cells.ravel(), np.full(27, 1 / 27), 1e-6)
    assert test.detectable < 0.16
    assert test.rejected != honest, str(test)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", sorted(n for n in ENGINES if not n.startswith("hugging-face")))
def test_kernels_are_not_rejected(name: str) -> None:
    engine = ENGINES[name]
    module = engine.package.removesuffix("-cpu")
    if find_spec(module) is None or find_spec("triton") is None:
        pytest.skip(f"{engine.name} needs {engine.package} and triton")
    report, _ = audit_engine(engine, 2, 3, 0, settings=AuditSettings(1_000, max_paths=0))
    assert report.verdict is Verdict.NOT_REJECTED


def test_what_is_missing_is_said() -> None:
    absent = replace(ENGINES["sglang-chain"], package="no-such-package")
    with pytest.raises(EngineNotFoundError, match="pip install no-such-package"):
        absent.rule()


def test_versions_that_are_not_known_are_said() -> None:
    here = replace(ENGINES["hugging-face"], package="numpy", known=("0.1.",))
    assert "not audited before (known: 0.1.)" in here.label


def test_texts_with_processors_follow_plain_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    kept = "no pair twice"
    monkeypatch.setattr(assisted_texts, "PROCESSORS", {kept: assisted_texts.PROCESSORS[kept]})
    (right,) = assisted_texts.judge_texts(100, 0, 1e-6)
    assert right.verdict is Verdict.NOT_REJECTED

    def forgotten(target: Any, assistant: Any, samples: int, options: Mapping[str, Any]) -> Any:
        """Return an engine that ignores an option."""
        options = {**options, "no_repeat_ngram_size": 0}
        return assisted_texts.assisted(target, assistant, samples, options)

    (wrong,) = assisted_texts.judge_texts(100, 0, 1e-6, write=forgotten)
    assert wrong.verdict is Verdict.NOT_LOSSLESS and "REJECTED" in str(wrong)


def test_logits_from_which_processors_make_a_law() -> None:
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    laws = torch.distributions.Dirichlet(torch.ones(4)).sample((12, 3))
    logits, processors = unprocessed(laws.log())
    for row in range(12):
        made = logits[row] / processors["temperature"][row]
        assert torch.isfinite(made[:, -1]).all() == (row % 4 != 3)
        made = process.TopKLogitsWarper(int(processors["top_k"][row]))(None, made)
        top_p = float(processors["top_p"][row])
        if top_p < 1.0:
            made = process.TopPLogitsWarper(top_p)(None, made)
        torch.testing.assert_close(made.softmax(dim=-1)[:, :-1], laws[row])


def test_an_engine_without_the_function() -> None:
    def load():
        raise AttributeError("module has no attribute 'verify'")

    engine = replace(ENGINES["hugging-face"], package="numpy", load=load)
    with pytest.raises(EngineNotFoundError, match="no attribute 'verify'"):
        engine.rule()


def test_an_ensemble_is_held_to_the_law_that_it_aims_at() -> None:
    pytest.importorskip("transformers")
    engine = ENGINES["hugging-face-ensemble"]
    if not engine.version.startswith("5."):
        pytest.skip("no ensembles before transformers 5")
    judged = AuditSettings(2_000)
    report, _ = audit_engine(engine, 2, 3, 0, settings=judged)
    assert report.verdict is Verdict.LOSSLESS
    assert "which is lossy: audited against its own distribution, 0.5 p + 0.5 q" in str(report)
    raw, _ = audit_engine(replace(engine, expected_tables=target_tables), 2, 3, 0, settings=judged)
    assert raw.verdict is Verdict.NOT_LOSSLESS


@pytest.mark.parametrize("shared", [False, True])
def test_drafts_of_an_engine_that_go_on_with_its_state(shared: bool) -> None:
    """Drafts and residuals from one vector of Gumbel noise, and from two."""

    def load() -> EngineRounds:
        rng = np.random.default_rng(5)
        noise = np.zeros((0, 3))

        def draft(tables: Any, rows: int) -> Any:
            nonlocal noise
            noise = rng.gumbel(size=(rows, 3))
            return np.argmax(np.log(tables[0]) + noise, axis=1)[:, None]

        def verify(draft_tokens: Any, p: Any, q: Any, _: Any) -> Any:
            fresh = noise if shared else rng.gumbel(size=noise.shape)
            outputs = []
            for (token,), (p0, p1), (q0,), own in zip(
                draft_tokens[:, 0], p[:, 0], q[:, 0], fresh, strict=True
            ):
                if rng.random() * q0[token] < p0[token]:
                    outputs.append([token, rng.choice(3, p=p1)])
                    continue
                with np.errstate(divide="ignore"):
                    rest = np.log(np.maximum(p0 - q0, 0.0))
                outputs.append([int(np.argmax(rest + own)), -1])
            return outputs

        return EngineRounds(verify, draft)

    engine = Engine("twin", "numpy", "twin", ("",), load, batch=64)
    report, _ = audit_engine(engine, 1, 3, 5, settings=AuditSettings(10_000, max_paths=10_000))
    assert report.passed is not shared
