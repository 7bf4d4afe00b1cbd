"""What followed the longest repeated end of each text, as tensors: `Copying` on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def copies(texts: Tensor, held: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Find the tokens that followed the longest repeated end of each text before.

    Parameters
    ----------
    texts : Tensor, shape (..., C), int64
    held : Tensor, shape (...), int64
        How much of each is text.
    longest : int
        How many last tokens are looked for at most.

    Returns
    -------
    weights : Tensor, shape (..., C), float32
        Equal where such a token stands, 0 elsewhere, of sum one; all 0 where the last token is new.
    lengths : Tensor, shape (...), int64
        Of the end that was repeated, 0 to `longest`.

    Examples
    --------
    >>> import torch
    >>> from otlp.device.copying import copies
    >>> weights, length = copies(torch.tensor([0, 1, 2, 0, 1, 3, 0, 1]), torch.tensor(8), 4)
    >>> weights.tolist(), int(length)
    ([0.0, 0.0, 0.5, 0.0, 0.0, 0.5, 0.0, 0.0], 2)
    """
    place = torch.arange(texts.shape[-1], device=texts.device)
    same = place < held[..., None]
    lengths = torch.zeros_like(texts)
    for back in range(1, longest + 1):
        # a text that is done may be held beyond its end
        last = texts.gather(-1, (held - back).clamp(0, texts.shape[-1] - 1)[..., None])
        same = same & (place >= back) & (texts.roll(back, -1) == last)
        lengths = lengths + same
    most = lengths.amax(-1)
    found = ((lengths == most[..., None]) & (most[..., None] > 0)).float()
    return found / found.sum(-1, keepdim=True).clamp(min=1.0), most


def copied_logits(
    logits: Tensor, text: Tensor, held: Tensor, prefixes: Tensor, shares: Sequence[float]
) -> Tensor:
    """Mix what a network says with what followed the longest repeated end; see `Copying`.

    Parameters
    ----------
    logits : Tensor, shape (B, W, V)
        After each of W prefixes.
    text : Tensor, shape (B, C), int64
        With room for a prefix behind the `held` tokens of each row.
    held : Tensor, shape (B,), int64
    prefixes : Tensor, shape (B, W, n), int64
        What was drafted.
    shares : sequence of float
        Of the copied tokens, by the length of the end that was repeated, from 1.

    Returns
    -------
    Tensor, shape (B, W, V)
        Logarithms of the mixture, in float32 at least.
    """
    width, count = prefixes.shape[1:]
    texts = text[:, None].expand(-1, width, -1)
    behind = held[:, None, None] + torch.arange(count, device=text.device)
    where = behind.expand_as(prefixes).clamp(max=text.shape[1] - 1)
    texts = texts.scatter(2, where, prefixes)
    own = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1)
    weights, lengths = copies(texts, (held[:, None] + count).expand(-1, width), len(shares))
    share = torch.zeros_like(own[..., :1])
    for length, one in enumerate(shares, start=1):
        share = share.masked_fill((lengths == length)[..., None], one)
    mixed = (own * (1.0 - share)).scatter_add(2, texts, weights.to(own.dtype) * share)
    return mixed.log()
