"""Functions of the plug-ins on a CPU, without their engines."""

from __future__ import annotations

import sys
import tomllib
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.append(str(EXAMPLES / "vllm"))

import otlp_vllm  # noqa: E402
from otlp_vllm.sampling import (  # noqa: E402
    expand_batch_to_tokens,
    instead_of,
    verify_blocks,
)

from otlp.auditing import AuditSettings, DraftedPaths, Verdict  # noqa: E402
from otlp.testing import assert_lossless  # noqa: E402


def vllm_rule(draft_tokens: Any, p: Any, q: Any, rng: Any) -> Any:
    """Call the rule as vLLM does, with the bonus token sampled before."""
    rounds, _, length = draft_tokens.shape
    torch.manual_seed(int(rng.integers(2**31)))
    target = torch.as_tensor(p)[:, 0]
    return verify_blocks(
        torch.as_tensor(draft_tokens).flatten().int(),
        [length] * rounds,
        length,
        length * torch.arange(1, rounds + 1),
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
def test_the_rule_is_not_rejected() -> None:
    """G-tests with false-alarm rate 1e-6 and all kinds of zeros; a planted 0.1 is detected."""
    how: dict[str, Any] = {"vocab_sizes": [3], "dtypes": ["float64"]}
    how["settings"] = AuditSettings(20_000, max_paths=0)
    control, *found = assert_lossless(vllm_rule, DraftedPaths(1, 2), batch=1000, **how)
    assert control.verdict is Verdict.NOT_LOSSLESS
    assert {report.verdict for report in found} == {Verdict.NOT_REJECTED}


def test_requests_of_every_kind() -> None:
    """Greedy, without drafts, padded with -1, and drafted by n-grams, in one batch."""
    logits = torch.full((6, 4), -torch.inf)
    logits[torch.arange(6), torch.tensor([1, 2, 3, 0, 1, 2])] = 0.0
    drafted = torch.tensor([1, 0, 3, 0, -1, 2], dtype=torch.int32)
    found = verify_blocks(
        drafted,
        [2, 0, 3, 1],
        3,
        torch.tensor([2, 2, 5, 6]),
        None,
        logits,
        torch.tensor([[3], [2], [1], [0]]),
        settings([0.0, 1.0, 1.0, 1.0]),
    )
    # A point-mass target determines the output: the arg max at each position.
    assert found.tolist() == [[1, 2, -1, -1], [2, -1, -1, -1], [3, 0, 1, -1], [2, 0, -1, -1]]


def test_what_replaces_vllm_s_function_takes_its_arguments() -> None:
    """By position or by name; synthetic mode is passed to vLLM."""

    def shipped(
        draft_token_ids: Any, num_draft_tokens: Any, max_spec_len: Any, cu_num_draft_tokens: Any,
        draft_probs: Any, target_logits: Any, bonus_token_ids: Any, sampling_metadata: Any,
        synthetic_mode: bool = False, synthetic_conditional_rates: Any = None,
        use_fp64_gumbel: bool = False,
    ) -> Any:  # fmt: skip
        return "shipped"

    assert tuple(signature(shipped).parameters) == otlp_vllm.PARAMETERS
    rule = instead_of(shipped, verify_blocks, lambda call: not call["synthetic_mode"])
    assert signature(rule) == signature(shipped)
    logits = torch.full((2, 4), -torch.inf)
    logits[torch.arange(2), torch.tensor([1, 2])] = 0.0
    drafted, ends = torch.tensor([1, 0], dtype=torch.int32), torch.tensor([2])
    given = (drafted, [2], 2, ends, None, logits, torch.tensor([[3]]))
    assert rule(*given, settings([0.0])).tolist() == [[1, 2, -1]]
    assert rule(*given, sampling_metadata=settings([0.0])).tolist() == [[1, 2, -1]]
    assert rule(*given, settings([0.0]), synthetic_mode=True) == "shipped"


def test_a_seeded_request_repeats() -> None:
    rng = np.random.default_rng(0)
    p, q = (torch.from_numpy(rng.dirichlet(np.ones(5), size=8)).float() for _ in range(2))

    def play() -> Any:
        given = settings([1.0, 1.0], _0=torch.Generator().manual_seed(7))
        drafted = torch.arange(8, dtype=torch.int32) % 5
        bonus = torch.tensor([[0], [1]])
        return verify_blocks(drafted, [4, 4], 4, torch.tensor([4, 8]), q, p.log(), bonus, given)[
            0
        ].tolist()

    assert len({tuple(play()) for _ in range(10)}) == 1


def test_a_request_without_drafts_draws_nothing() -> None:
    """Its text must not depend on other requests; by itself it would not be verified here."""
    generator = torch.Generator().manual_seed(7)
    state, given = generator.get_state(), settings([1.0, 1.0], _0=generator)
    logits, ends = torch.zeros(2, 5), torch.tensor([0, 2])
    drafted, bonus = torch.tensor([1, 2], dtype=torch.int32), torch.tensor([[3], [4]])
    found = verify_blocks(drafted, [0, 2], 2, ends, None, logits, bonus, given)
    assert found[0].tolist() == [3, -1, -1]
    assert (generator.get_state() == state).all()


def test_values_are_repeated_for_drafted_tokens() -> None:
    found = expand_batch_to_tokens(
        torch.tensor([0.0, 0.5, 2.0]), torch.tensor([2, 2, 5]), 5, replace_from=0, replace_to=1
    )
    assert found.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]


def test_the_entry_point() -> None:
    project = tomllib.loads((EXAMPLES / "vllm" / "pyproject.toml").read_text())["project"]
    package, function = project["entry-points"]["vllm.general_plugins"]["otlp"].split(":")
    module = sys.modules[package]
    assert callable(getattr(module, function)) and module.KNOWN
