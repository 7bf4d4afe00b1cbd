"""`Copying` on the device: tokens that followed earlier occurrences of the longest suffix."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def copies(texts: Tensor, seq_lens: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Find the tokens that followed earlier occurrences of the longest suffix of each text.

    Parameters
    ----------
    texts : Tensor, shape (..., C), int64
        Token ids.
    seq_lens : Tensor, shape (...), int64
        Number of tokens of each text.
    longest : int
        Maximum length of the suffix.

    Returns
    -------
    weights : Tensor, shape (..., C), float32
        Equal weights of sum one at the tokens found, 0 elsewhere; all 0 if the last token of the
        text does not occur earlier.
    lengths : Tensor, shape (...), int64
        Length of the repeated suffix, 0 to `longest`.

    Examples
    --------
    >>> import torch
    >>> from otlp.device.copying import copies
    >>> weights, length = copies(torch.tensor([0, 1, 2, 0, 1, 3, 0, 1]), torch.tensor(8), 4)
    >>> weights.tolist(), int(length)
    ([0.0, 0.0, 0.5, 0.0, 0.0, 0.5, 0.0, 0.0], 2)
    """
    place = torch.arange(texts.shape[-1], device=texts.device)
    same = place < seq_lens[..., None]
    lengths = torch.zeros_like(texts)
    for back in range(1, longest + 1):
        # The length of a finished text may exceed the context; clamp it.
        last = texts.gather(-1, (seq_lens - back).clamp(0, texts.shape[-1] - 1)[..., None])
        same = same & (place >= back) & (texts.roll(back, -1) == last)
        lengths = lengths + same
    most = lengths.amax(-1)
    found = ((lengths == most[..., None]) & (most[..., None] > 0)).float()
    return found / found.sum(-1, keepdim=True).clamp(min=1.0), most


def copied_logits(
    logits: Tensor, text: Tensor, seq_lens: Tensor, prefixes: Tensor, shares: Sequence[float]
) -> Tensor:
    """Mix the distribution of a model with copied tokens; see `Copying`.

    Parameters
    ----------
    logits : Tensor, shape (B, W, V)
        Logits after each of W prefixes.
    text : Tensor, shape (B, C), int64
        Token ids, with room for a prefix after the text of each row.
    seq_lens : Tensor, shape (B,), int64
        Number of tokens of each text.
    prefixes : Tensor, shape (B, W, n), int64
        Drafted prefixes.
    shares : sequence of float
        Weight of the copied tokens in the mixture, by the length of the repeated suffix, from 1.

    Returns
    -------
    Tensor, shape (B, W, V)
        Logarithms of the mixture, in float32 or float64.
    """
    width, count = prefixes.shape[1:]
    texts = text[:, None].expand(-1, width, -1)
    positions = seq_lens[:, None, None] + torch.arange(count, device=text.device)
    where = positions.expand_as(prefixes).clamp(max=text.shape[1] - 1)
    texts = texts.scatter(2, where, prefixes)
    own = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1)
    weights, lengths = copies(texts, (seq_lens[:, None] + count).expand(-1, width), len(shares))
    share = torch.zeros_like(own[..., :1])
    for length, one in enumerate(shares, start=1):
        share = share.masked_fill((lengths == length)[..., None], one)
    mixed = (own * (1.0 - share)).scatter_add(2, texts, weights.to(own.dtype) * share)
    return mixed.log()
