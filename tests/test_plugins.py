"""The plug-ins' own functions on a CPU, without the engines that they are for."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

PLUGINS = Path(__file__).parent.parent / "plugins"
sys.path += [str(PLUGINS / "vllm"), str(PLUGINS / "sglang")]

from otlp_sglang.verification import verify_sampled_paths  # noqa: E402
from otlp_vllm.sampling import expand_batch_to_tokens, verify_requests  # noqa: E402

from otlp import Verdict, audit_rounds  # noqa: E402
from otlp.auditing import DraftedPaths  # noqa: E402
from otlp.decode import random_pair  # noqa: E402


def slots(paths: int, length: int, rounds: int) -> Any:
    return torch.arange(rounds * (1 + paths * length)).view(rounds, -1)


def sglang_rule(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """As SGLang would call it; outputs read as it reads them."""
    rounds, paths, length = draft_tokens.shape
    index = slots(paths, length, rounds)
    width = index.shape[1]
    tokens = torch.as_tensor(draft_tokens).flatten(1)
    target = torch.as_tensor(p)
    predicts = torch.zeros(rounds * width, dtype=torch.int32)
    accepted = torch.full((rounds, length + 1), -1, dtype=torch.int32)
    count = torch.zeros(rounds, dtype=torch.int32)
    verify_sampled_paths(
        predicts,
        accepted,
        count,
        torch.nn.functional.pad(tokens, (1, 0)),
        index,
        None,
        None,
        torch.from_numpy(rng.random((rounds, width), dtype="float32")),
        torch.from_numpy(rng.random(rounds, dtype="float32")),
        torch.cat([target[:, :1, 0], target[:, :, 1:].flatten(1, 2)], 1),
        torch.as_tensor(q).flatten(1, 2),
        1.0,
        1.0,
    )
    assert ((accepted >= 0).sum(1) == count + 1).all()
    return torch.where(accepted >= 0, predicts[accepted.clamp(min=0).long()], -1)


def vllm_rule(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """As vLLM calls it, the bonus token sampled before."""
    rounds, _, length = draft_tokens.shape
    torch.manual_seed(int(rng.integers(2**31)))
    target = torch.as_tensor(p)[:, 0]
    return verify_requests(
        torch.as_tensor(draft_tokens).flatten().int(),
        [length] * rounds,
        length,
        torch.as_tensor(q)[:, 0].flatten(0, 1).float(),
        target[:, :-1].flatten(0, 1).log().float(),
        target[:, -1].multinomial(1),
        settings([1.0] * rounds),
    )


def settings(temperature: list[float], **generators: Any) -> Any:
    found = {int(name[1:]): value for name, value in generators.items()}
    return SimpleNamespace(
        all_greedy=not any(temperature), temperature=torch.tensor(temperature), generators=found
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "paths", "length"), [(sglang_rule, 1, 2), (sglang_rule, 2, 2), (vllm_rule, 1, 2)]
)
def test_rules_are_not_rejected(rule: Any, paths: int, length: int) -> None:
    """G-test of 20,000 rounds at a false-alarm rate of 1e-6, as the auditor has it."""
    draft, target = random_pair(3, length + 1, np.random.default_rng(4))
    report = audit_rounds(
        rule,
        target.tables,
        draft.tables,
        DraftedPaths(paths, length),
        batch=1000,
        samples=20_000,
        max_paths=0,
    )
    assert report.verdict is Verdict.NOT_REJECTED


def test_two_paths_that_agree_are_accepted_whole() -> None:
    law = np.full((1, 2, 3, 4), 0.25)
    paths = np.array([[[0, 1], [2, 3]]])
    found = sglang_rule(paths, law, law[:, :, :-1], np.random.default_rng(0))
    assert found.shape == (1, 3) and found[0, :2].tolist() in ([0, 1], [2, 3])


def test_thresholds_and_slots_are_refused() -> None:
    rest: tuple[Any, ...] = (torch.zeros(1, 3), torch.zeros(1), torch.ones(1, 3, 2))
    front = (
        torch.zeros(3),
        torch.zeros(1, 3),
        torch.zeros(1),
        torch.zeros(1, 3),
        torch.zeros(1, 3),
    )
    with pytest.raises(ValueError, match=r"threshold_acc 0\.5"):
        verify_sampled_paths(*front, None, None, *rest, torch.ones(1, 2, 2), 1.0, 0.5)
    with pytest.raises(ValueError, match="no paths of 2 tokens"):
        verify_sampled_paths(*front, None, None, *rest, torch.ones(1, 3, 2), 1.0, 1.0)


def test_requests_of_every_kind() -> None:
    """Greedy, without drafts, padded with -1, and drafted by n-grams, in one batch."""
    logits = torch.full((6, 4), -torch.inf)
    logits[torch.arange(6), torch.tensor([1, 2, 3, 0, 1, 2])] = 0.0
    drafted = torch.tensor([1, 0, 3, 0, -1, 2], dtype=torch.int32)
    found = verify_requests(
        drafted,
        [2, 0, 3, 1],
        3,
        None,
        logits,
        torch.tensor([[3], [2], [1], [0]]),
        settings([0.0, 1.0, 1.0, 1.0]),
    )
    # a point-mass target says what comes out: the arg max, one after the other
    assert found.tolist() == [[1, 2, -1, -1], [2, -1, -1, -1], [3, 0, 1, -1], [2, 0, -1, -1]]


def test_a_seeded_request_repeats() -> None:
    rng = np.random.default_rng(0)
    p, q = (torch.from_numpy(rng.dirichlet(np.ones(5), size=8)).float() for _ in range(2))

    def play() -> Any:
        given = settings([1.0, 1.0], _0=torch.Generator().manual_seed(7))
        drafted = torch.arange(8, dtype=torch.int32) % 5
        bonus = torch.tensor([[0], [1]])
        return verify_requests(drafted, [4, 4], 4, q, p.log(), bonus, given)[0].tolist()

    assert len({tuple(play()) for _ in range(10)}) == 1


def test_values_are_repeated_for_drafted_tokens() -> None:
    found = expand_batch_to_tokens(
        torch.tensor([0.0, 0.5, 2.0]), torch.tensor([2, 2, 5]), 5, replace_from=0, replace_to=1
    )
    assert found.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("name", "group"), [("vllm", "vllm.general_plugins"), ("sglang", "sglang.srt.plugins")]
)
def test_entry_points(name: str, group: str) -> None:
    project = tomllib.loads((PLUGINS / name / "pyproject.toml").read_text())["project"]
    package, function = project["entry-points"][group]["otlp"].split(":")
    module = sys.modules[package]
    assert callable(getattr(module, function)) and module.KNOWN
