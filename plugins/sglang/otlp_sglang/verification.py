"""K sampled paths of a request, verified with the arguments and results of SGLang's own kernel."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor


def verify_sampled_paths(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Any,
    retrive_next_sibling: Any,
    uniform_samples: Tensor,
    uniform_samples_for_final_sampling: Tensor,
    target_probs: Tensor,
    draft_probs: Tensor,
    threshold_single: float,
    threshold_acc: float,
    deterministic: bool = True,
    *,
    block_verification: bool = True,
) -> None:
    """Verify K i.i.d. paths of L tokens a request; N = 1 + K L slots, path after path.

    Parameters
    ----------
    predicts : Tensor, shape (B N,), int32
        Written: at each accepted slot the token that follows it.
    accept_index : Tensor, shape (B, L + 1), int32
        Written: the accepted slots, as `retrive_index` names them, the first one included.
    accept_token_num : Tensor, shape (B,)
        Written: how many drafted tokens were accepted.
    candidates : Tensor, shape (B, N)
        The token before the round, then the paths' tokens.
    retrive_index : Tensor, shape (B, N)
    retrive_next_token, retrive_next_sibling
        Not looked at: which slot follows which is known.
    uniform_samples : Tensor, shape (B, N)
    uniform_samples_for_final_sampling : Tensor, shape (B,)
    target_probs : Tensor, shape (B, N, V)
        After each slot's token.
    draft_probs : Tensor, shape (B, K L, V)
        Which each drafted token was sampled from.
    threshold_single, threshold_acc : float
        Must be 1: another value changes the distribution.
    deterministic, block_verification : bool
        Not looked at: the rule is block verification, and the order of sums is fixed.

    Raises
    ------
    ValueError
        For thresholds, for another OTLP_SGLANG_BACKEND than torch or triton, and for slots that
        are not K paths of L tokens.

    Notes
    -----
    The uniform numbers are float32, as SGLang's are: a threshold is met with a probability that is
    off by up to 6e-8.
    """
    from otlp.batched import verify_paths

    _check_thresholds(threshold_single, threshold_acc)
    slots = candidates.shape[1]
    length = accept_index.shape[1] - 1
    paths = _paths(slots, length, draft_probs.shape[1])
    # the slot of each path's prefix of 0, 1, ..., L tokens
    slot = torch.arange(1, slots, device=candidates.device).view(paths, length)
    slot = torch.nn.functional.pad(slot, (1, 0))
    found = verify_paths(
        target_probs[:, slot],
        draft_probs.unflatten(1, (paths, length)),
        candidates[:, 1:].long().unflatten(1, (paths, length)),
        _numbers(uniform_samples, uniform_samples_for_final_sampling, paths, length),
        validate=False,
        backend=_backend(),
    )
    index = retrive_index.gather(1, slot[found.path])
    here = torch.arange(length + 1, device=candidates.device) <= found.accepted[:, None]
    accept_index.copy_(torch.where(here, index, -1))
    accept_token_num.copy_(found.accepted)
    # slots that are not accepted write into one that is not there
    spare = torch.cat([predicts, predicts.new_zeros(1)])
    spare[torch.where(here, index, len(predicts))] = found.tokens.to(predicts.dtype)
    predicts.copy_(spare[:-1])


def _check_thresholds(single: float, joint: float) -> None:
    if single != 1.0 or joint != 1.0:
        raise ValueError(
            f"threshold_single is {single} and threshold_acc {joint}: other values than 1 accept "
            "tokens that the target does not want, so they are refused"
        )


def _paths(slots: int, length: int, drafted: int) -> int:
    paths, odd = divmod(slots - 1, length)
    if odd or drafted != slots - 1:
        raise ValueError(
            f"{slots} slots and {drafted} draft distributions are no paths of {length} tokens "
            "behind one slot"
        )
    return paths


def _backend() -> str:
    """PyTorch's functions; Triton's kernels, which have not run on a GPU yet, where asked for."""
    backend = os.environ.get("OTLP_SGLANG_BACKEND", "torch")
    if backend not in ("torch", "triton"):
        raise ValueError(f"OTLP_SGLANG_BACKEND is {backend!r}: it must be torch or triton")
    return backend


def _numbers(coins: Tensor, final: Tensor, paths: int, length: int) -> Tensor:
    """Scores of the paths, a number for each prefix and one for the token: (B, K + L + 2)."""
    wanted = paths + length + 1
    coins = coins.double()
    if coins.shape[1] < wanted:
        # a single path needs no score; two paths of one token need one number more than slots
        if paths > 1:
            more = torch.rand(
                len(coins), wanted - coins.shape[1], dtype=torch.float64, device=coins.device
            )
            coins = torch.cat([coins, more], 1)
        else:
            coins = torch.nn.functional.pad(coins, (wanted - coins.shape[1], 0), value=0.5)
    return torch.cat([coins[:, :wanted], final.double()[:, None]], 1)
