"""The plug-ins' own functions on a CPU, without the engines that they are for."""

from __future__ import annotations

import pkgutil
import sys
import tomllib
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

PLUGINS = Path(__file__).parent.parent / "plugins"
sys.path += [str(PLUGINS / "vllm"), str(PLUGINS / "sglang")]

import otlp_sglang  # noqa: E402
import otlp_vllm  # noqa: E402
from otlp_sglang.drafting import draft_forward, draw_tokens, go_on, organize, path_tree  # noqa: E402
from otlp_sglang.verification import verify_sampled_paths  # noqa: E402
from otlp_vllm.sampling import (  # noqa: E402
    block_instead_of,
    expand_batch_to_tokens,
    verify_requests,
)

from otlp.auditing import DraftedPaths, Verdict  # noqa: E402
from otlp.auditing.engines.engine import module_of_file  # noqa: E402
from otlp.auditing.gtest import g_test  # noqa: E402
from otlp.decode import random_pair  # noqa: E402
from otlp.testing import assert_lossless  # noqa: E402


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
    """G-tests at a false-alarm rate of 1e-6 each, zeros of every kind; .1 is planted and found."""
    how: dict[str, Any] = {"vocab_sizes": [3], "dtypes": ["float64"], "max_paths": 0}
    control, *found = assert_lossless(rule, DraftedPaths(paths, length), batch=1000, **how)
    assert control.verdict is Verdict.NOT_LOSSLESS
    assert {report.verdict for report in found} == {Verdict.NOT_REJECTED}


def test_two_paths_that_agree_are_accepted_whole() -> None:
    law = np.full((1, 2, 3, 4), 0.25)
    paths = np.array([[[0, 1], [2, 3]]])
    found = sglang_rule(paths, law, law[:, :, :-1], np.random.default_rng(0))
    assert found.shape == (1, 3) and found[0, :2].tolist() in ([0, 1], [2, 3])


def test_an_unknown_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    law = np.full((1, 2, 3, 4), 0.25)
    monkeypatch.setenv("OTLP_SGLANG_BACKEND", "cuda")
    with pytest.raises(ValueError, match="OTLP_SGLANG_BACKEND is 'cuda'"):
        sglang_rule(np.array([[[0, 1], [2, 3]]]), law, law[:, :, :-1], np.random.default_rng(0))


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


class DraftWorker:
    """Calls the plug-in's functions in the order in which SGLang's draft worker does."""

    def __init__(self, tables: Any, topk: int) -> None:
        self.tables, self.topk = [torch.as_tensor(table) for table in tables], topk

    def draft_extend(self, rounds: int) -> Any:
        logits = self.tables[0].log().expand(rounds, -1)
        q, chances, tokens = draw_tokens(logits, torch.ones(rounds, 1), None, self.topk)
        mode = SimpleNamespace(is_idle=lambda: False)
        spec = SimpleNamespace(draft_probs=q, topk_p=chances, topk_index=tokens)
        return SimpleNamespace(spec_info=spec, forward_mode=mode)

    def draft_forward(self, batch: Any) -> Any:
        spec = batch.spec_info
        chances, tokens, scores = spec.topk_p, spec.topk_index, None
        rounds = len(tokens)
        prefix = torch.zeros(rounds, 0, dtype=torch.int64)
        probs, trees = [spec.draft_probs], []
        for step in range(len(self.tables)):
            ids, prefix, scores, tree = go_on(
                first_step, step, chances, tokens, prefix, scores, self.topk
            )
            trees.append(tree)
            if step == len(self.tables) - 1:
                break
            prefix = torch.cat([prefix, ids[:, None]], 1)
            logits = self.tables[step + 1][tuple(prefix.T)].log()
            q, chances, tokens = draw_tokens(logits, torch.ones(rounds, 1), None, 1)
            probs.append(q)
        lists = [list(part) for part in zip(*trees, strict=True)]
        return *organize(refuse, *lists, 1 + self.topk * len(self.tables)), torch.stack(probs, 1)


def first_step(i: int, chances: Any, tokens: Any, hidden: Any, scores: Any, topk: int) -> Any:
    return tokens.flatten(), hidden.repeat_interleave(topk, 0), chances, (chances, tokens, None)


def refuse(*_: Any) -> Any:
    raise AssertionError("SGLang's own function, for likeliest tokens, was called")


def test_drafted_paths_are_verified() -> None:
    """From drafting to output: G-tests of 2,000 rounds at a false-alarm rate of 1e-7 each."""
    vocab, paths, length, rounds = 3, 2, 2, 2_000
    draft, target = random_pair(vocab, length + 1, np.random.default_rng(2))
    torch.manual_seed(3)
    worker = DraftWorker(draft.tables[:length], paths)
    _, _, tokens, q = draft_forward(DraftWorker.draft_forward, worker, worker.draft_extend(rounds))
    law = (draft.tables[0][:, None] * draft.tables[1]).ravel()
    drafted = tokens.view(rounds, paths, length)
    cells = (drafted[..., 0] * vocab + drafted[..., 1]) @ torch.tensor([vocab**length, 1])
    counts = torch.bincount(cells, minlength=law.size**2).numpy()
    assert not g_test(counts, np.outer(law, law).ravel(), 1e-7).rejects(1e-7)

    p = [torch.as_tensor(target.tables[0]).expand(rounds, paths, -1)]
    p += [torch.as_tensor(table)[tuple(drafted[..., :i].movedim(-1, 0))]
          for i, table in enumerate(target.tables[1:], 1)]  # fmt: skip
    found = sglang_rule(
        drafted, torch.stack(p, 2), q.unflatten(1, (paths, length)), np.random.default_rng(4)
    )
    first = torch.bincount(found[:, 0], minlength=vocab).numpy()
    assert not g_test(first, target.tables[0], 1e-7).rejects(1e-7)
    assert (found[:, 1] >= 0).float().mean() > 0.5


def test_greedy_requests_draft_their_likeliest_token() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0]]).expand(4, 3)
    _, chances, tokens = draw_tokens(logits, torch.ones(2, 1), torch.tensor([1, 50]), 3)
    assert (tokens[:2] == 1).all()
    assert torch.equal(chances[0], logits[0].softmax(0)[1].expand(3))


@pytest.mark.parametrize(("paths", "length"), [(2, 1), (2, 2), (3, 4)])
def test_paths_in_the_tree_of_candidates(paths: int, length: int) -> None:
    parents, chosen = (part.tolist() for part in path_tree(paths, length, torch.device("cpu")))
    for place, one in enumerate(chosen):
        # the candidates after the root are the first K; their parents are found by number
        behind = parents[one // paths] if one >= paths else -1
        assert behind == (chosen[place - 1] if place % length else -1)


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("sglang") is None or find_spec("triton") is None, reason="needs sglang and triton"
)
@pytest.mark.parametrize(("paths", "length"), [(2, 1), (2, 2), (3, 4)])
def test_sglang_sees_the_paths(paths: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask and the positions of SGLang's own kernel, in Triton's interpreter."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    # what that file imports of SGLang needs a GPU, or packages that are not here
    never = dict.fromkeys(("cuda", "hip", "musa", "npu", "xpu", "cpu"), lambda: False)
    for name, has in {
        "sglang.srt.platforms": {"current_platform": None},
        "sglang.srt.platforms.interface": {"reject_out_of_tree_path": None},
        "sglang.srt.utils": {f"is_{kind}": no for kind, no in never.items()},
    }.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**has))
    kernels = module_of_file("sglang", "kernels/ops/speculative/spec_tree.py")
    parents, chosen = path_tree(paths, length, torch.device("cpu"))
    width, before = 1 + paths * length, 7
    mask = torch.zeros(width, before + width, dtype=torch.bool)
    positions, *links = torch.full((4, 1, width), -1)
    kernels.sgl_build_tree_kernel_triton(
        parents[None], chosen[None], torch.tensor([before]), mask, positions, *links,
        paths, length, width,
    )  # fmt: skip
    depth = torch.cat([torch.zeros(1, dtype=torch.int64), torch.arange(length).repeat(paths) + 1])
    assert torch.equal(positions[0], before + depth)
    path = (torch.arange(width) - 1) // length
    behind = (path[:, None] == path) & (depth[:, None] >= depth) | (depth == 0)
    assert torch.equal(mask[:, before:], behind)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sglang") is None, reason="needs sglang")
def test_hooked_functions_are_there() -> None:
    """By name, in SGLang's source: importing it needs a GPU's packages."""
    import ast

    root = Path(find_spec("sglang").origin).parent  # type: ignore[union-attr, arg-type]
    for target, (_, function, parameters) in otlp_sglang.HOOKS.items():
        assert callable(pkgutil.resolve_name(f"otlp_sglang.{function}"))
        name, defined = target.split(".")[-1], []
        for file in (root / "srt/speculative").glob("*.py"):
            defined += [
                [one.arg for one in (*node.args.args, *node.args.kwonlyargs)]
                for node in ast.walk(ast.parse(file.read_text()))
                if isinstance(node, ast.FunctionDef) and node.name == name
            ]
        if name != "chain_speculative_sampling_triton":
            assert parameters.split() in defined


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


def test_what_replaces_vllm_s_function_takes_its_arguments() -> None:
    """In their places or by name; a synthetic mode is vLLM's own."""

    def shipped(
        draft_token_ids: Any, num_draft_tokens: Any, max_spec_len: Any, cu_num_draft_tokens: Any,
        draft_probs: Any, target_logits: Any, bonus_token_ids: Any, sampling_metadata: Any,
        synthetic_mode: bool = False, synthetic_conditional_rates: Any = None,
        use_fp64_gumbel: bool = False,
    ) -> Any:  # fmt: skip
        return "shipped"

    assert tuple(signature(shipped).parameters) == otlp_vllm.PARAMETERS
    rule = block_instead_of(shipped)
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
