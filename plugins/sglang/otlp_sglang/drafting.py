"""K sampled paths of a request in SGLang's EAGLE worker, where ``--speculative-eagle-topk`` is K.

SGLang grows a tree of the likeliest tokens: at each step K tokens a branch, of which K go on.  Here
each of K branches goes on by one token sampled for it, and its distribution q is kept.  The
functions around SGLang's own, `original`, leave greedy batches to it: those commit the arg max, and
no q is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def draw_tokens(
    logits: Tensor, temperatures: Tensor, top_ks: Tensor | None, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw i.i.d. tokens of each row from its distribution q.

    Parameters
    ----------
    logits : Tensor, shape (R, V)
        R is B, or B K: the branches of a request side by side.
    temperatures : Tensor, shape (B, 1)
    top_ks : Tensor, shape (B,), or None
        A request of top-k 1 is greedy, and drafts its likeliest token: its target is a point mass.
    count : int

    Returns
    -------
    q : Tensor, shape (R, V)
    chances, tokens : Tensor, shape (R, count)
    """
    branches = len(logits) // max(len(temperatures), 1)
    q = (logits.float() / temperatures.repeat_interleave(branches, 0)).softmax(-1)
    tokens = q.multinomial(count, replacement=count > 1)
    if top_ks is not None:
        greedy = top_ks.repeat_interleave(branches)[:, None] <= 1
        tokens = torch.where(greedy, q.argmax(-1, keepdim=True), tokens)
    return q, q.gather(1, tokens), tokens


def path_tree(paths: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where K paths of L tokens lie among the candidates of SGLang's tree.

    Step 0 has the candidates 0 to K - 1, and every later one K for each of K branches, numbered on.
    A branch goes on by the first of its own.

    Returns
    -------
    parents : Tensor, shape (1 + (L - 1) K,)
        The candidate that each branch has come to, step after step, behind the root.
    chosen : Tensor, shape (K L,)
        The candidates of the paths, path after path.
    """
    path, level = (torch.arange(size, device=device) for size in (paths, length))
    later = paths + (level - 1) * paths**2 + path[:, None] * paths
    candidate = torch.where(level == 0, path[:, None], later)
    parents = candidate[:, :-1].T.flatten()
    return torch.nn.functional.pad(parents, (1, 0), value=-1), candidate.flatten()


def propose(
    original: Callable[..., Any],
    next_token_logits: Tensor,
    temperatures: Tensor,
    top_ks: Tensor | None = None,
    *,
    draft_step: int = 0,
    **seeded: Any,
) -> Any:
    """For `sample_draft_proposal`: K first tokens of a request, then one for each branch."""
    paths = _paths(seeded)
    if paths == 1:
        return original(next_token_logits, temperatures, top_ks, draft_step=draft_step, **seeded)
    return draw_tokens(next_token_logits, temperatures, top_ks, 1 if draft_step else paths)


def first_tokens(
    original: Callable[..., Any], probs: Tensor, num_samples: int = 1, **seeded: Any
) -> Any:
    """For `fast_sample` behind a prompt: K first tokens of a request."""
    paths = _paths(seeded)
    if paths == 1:
        return original(probs, num_samples, **seeded)
    tokens = probs.multinomial(paths, replacement=True)
    return probs.gather(1, tokens), tokens


def go_on(
    original: Callable[..., Any],
    i: int,
    topk_p: Tensor,
    topk_index: Tensor,
    hidden_states: Tensor | None,
    scores: Tensor | None,
    topk: int,
) -> Any:
    """For `select_top_k_tokens`: each branch goes on by its own token."""
    if i == 0 or topk == 1 or topk_index.shape[1] > 1:
        return original(i, topk_p, topk_index, hidden_states, scores, topk)
    tree = topk_p.view(-1, 1, topk), topk_index.view(-1, topk), topk_index.view(-1, topk)
    return topk_index.flatten(), hidden_states, scores, tree


def organize(
    original: Callable[..., Any],
    score_list: list[Tensor],
    token_list: list[Tensor],
    parents_list: list[Tensor],
    num_draft_token: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """For `organize_draft_results`: all tokens, path after path."""
    rows, paths = token_list[0].shape
    if paths == 1 or token_list[-1].shape[1] > paths:
        return original(score_list, token_list, parents_list, num_draft_token)
    tokens = torch.stack(token_list, 2).flatten(1)
    parents, chosen = (
        part.expand(rows, -1).contiguous()
        for part in path_tree(paths, len(token_list), tokens.device)
    )
    return parents, chosen, tokens


def draft_forward(original: Callable[..., Any], worker: Any, forward_batch: Any) -> Any:
    """For the worker's `draft_forward`: q of every branch in place of one a request."""
    spec = forward_batch.spec_info
    first = spec.draft_probs
    if first is None or forward_batch.forward_mode.is_idle():
        return original(worker, forward_batch)
    spec.draft_probs = first.repeat_interleave(worker.topk, 0)
    try:
        parents, chosen, tokens, q = original(worker, forward_batch)
    finally:
        spec.draft_probs = first
    return parents, chosen, tokens, None if q is None else q.view(len(first), -1, q.shape[-1])


def start(original: Callable[..., Any], worker: Any, *args: Any, **settings: Any) -> None:
    """For the worker's `__init__`: turn on, behind the checks that refuse it, that q is kept.

    Raises
    ------
    ValueError
        If the draft tokens of a round are not K paths and one slot before them.
    """
    from sglang.srt.runtime_context import get_context

    original(worker, *args, **settings)
    if worker.topk > 1:
        slots = 1 + worker.topk * worker.speculative_num_steps
        if worker.speculative_num_draft_tokens != slots:
            raise ValueError(
                f"--speculative-num-draft-tokens is {worker.speculative_num_draft_tokens}: "
                f"{worker.topk} paths of {worker.speculative_num_steps} tokens need {slots}"
            )
        get_context().override("otlp", speculative_use_rejection_sampling=True)


def _paths(seeded: dict[str, Any]) -> int:
    """K; ValueError for seeds: SGLang's hash of them would give all branches the same token."""
    from sglang.srt.runtime_context import get_spec

    paths = int(get_spec().speculative_eagle_topk)
    if paths > 1 and seeded.get("sampling_seed") is not None:
        raise ValueError(
            f"otlp-sglang does not draft {paths} paths from seeds: leave out "
            "--enable-deterministic-inference, or draft one path"
        )
    return paths
