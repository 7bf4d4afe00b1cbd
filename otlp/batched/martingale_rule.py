"""The `martingale` plan of i.i.d. drafts: bins of p / q, prefix sums, binary searches."""

from __future__ import annotations

import torch
from torch import Tensor

from otlp.batched.coupling import Coupling, couple, scores
from otlp.batched.kernels import supports_kernels
from otlp.batched.martingale_on_cpu import verify_on_cpu
from otlp.batched.ratio_bins import SIZE, layout_for, masses
from otlp.batched.rejection import accept_or_replace
from otlp.batched.rows import Rows, by_rows, prepare
from otlp.batched.sampling import uniforms

BIN_ARRAYS = 4
"""Arrays over the bins of a row, for each that is as long as the vocabulary."""


def martingale(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    generator: torch.Generator | Tensor | None = None,
    *,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """Verify n i.i.d. drafts a row, losslessly and with the best acceptance.

    Parameters
    ----------
    target, draft : Tensor, shape (B, V)
        Probabilities p and q in float16, bfloat16, float32 or float64, on one device; for
        logits see `otlp.batched.softmax`.  q must be the distribution that the drafts came from,
        as stored: sample them with `otlp.batched.sample`, and round nothing afterwards.
    draft_tokens : Tensor of int, shape (B, N)
        Drafted tokens; -1, at any place, is padding, so a row has n <= N drafts (with n = 0 its
        token is drawn from p).  The output of a row of n drafts follows p exactly if n was
        settled before they were drawn; drafts that are padded for what they are, repeated ones
        say, are not i.i.d. any more.
    generator : torch.Generator, Tensor or None
        Source of randomness on the same device; None is PyTorch's own.  In compiled code and
        CUDA graphs pass the numbers themselves, see `otlp.batched.uniforms`.
    validate : bool
        Look at the values of the input, which waits for the device.  Left out under
        `torch.compile` and CUDA graph capture.

    Returns
    -------
    tokens : Tensor, shape (B,), int64
        The verified tokens, each distributed exactly as its row of p.
    accepted : Tensor, shape (B,), bool
        Whether the verified token is a drafted one.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        On bad input, naming the argument and the row.

    Notes
    -----
    p and q of a row are read once to add them up in 2,048 bins of p / q, and once more if the
    selected draft is rejected.  The plan is that of `otlp.solvers.Martingale` on the bins.  Where
    tokens of different ratios share a bin, some acceptance may be lost: at most 2^-8, and on the
    built-in capture less than 1e-6 (see `otlp.batched.acceptance`).  The output is exact however
    many tokens share a bin.

    All sums are of integers, in units of 2^-60.  So for the same random numbers a row gives the
    same token in every batch and in every run (engines call this batch invariance).

    On a CPU and on a GPU of NVIDIA the function runs as kernels, and in compiled code and elsewhere
    as PyTorch's operations: see `otlp.batched.supports_kernels`.  PyTorch's operations work on
    chunks of 2^22 entries (2^18 on a CPU) or of one row, so memory does not grow with B.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> generator = torch.Generator().manual_seed(0)
    >>> target = torch.tensor([[0.1, 0.6, 0.3]])
    >>> draft = torch.tensor([[0.5, 0.3, 0.2]])
    >>> drafts = batched.sample(draft, 2, generator)
    >>> tokens, accepted = batched.martingale(target, draft, drafts, generator)
    >>> tokens.shape, accepted.dtype
    (torch.Size([1]), torch.bool)
    """
    rows = prepare(target, draft, draft_tokens, validate)
    numbers = uniforms(draft_tokens, generator, validate=validate)
    if torch.compiler.is_compiling() or not supports_kernels(target.device):
        return verify_in_pytorch(rows, numbers)
    if target.device.type == "cpu":
        return verify_on_cpu(rows, numbers)
    # Triton is imported where it is used alone: it takes long
    from otlp.batched.martingale_on_gpu import verify_on_gpu

    return verify_on_gpu(rows, numbers)


def verify_in_pytorch(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Verify rows, as they were passed, in PyTorch alone: on every device, and compiled."""
    beside = BIN_ARRAYS * SIZE
    tokens, accepted = by_rows(_verify, rows, numbers, beside=beside)
    return tokens, accepted


def _verify(rows: Rows, numbers: Tensor) -> tuple[Tensor, Tensor]:
    coupling, bins = martingale_plan(rows)
    own = rows.at_drafts(bins)
    ratio = coupling.ratios(own, rows.at_drafts(rows.target), rows.at_drafts(rows.draft))
    score = scores(coupling, coupling.cell(own), ratio, numbers[:, :-2])
    best = score.masked_fill(~rows.drafted, -1.0).argmax(1, keepdim=True)
    selected = rows.tokens.clamp(min=0).gather(1, best)
    level = coupling.level.gather(1, bins)
    return accept_or_replace(rows, level, selected, numbers[:, -2], numbers[:, -1])


def martingale_plan(rows: Rows, size: int = SIZE) -> tuple[Coupling, Tensor]:
    """The plan of some rows, optimal but for tokens that share one of `size` bins.

    Returns
    -------
    coupling : Coupling
        Of the bins: the draft of the largest score is selected.
    bins : Tensor, shape (B, V), int64
        That of each token.
    """
    most = rows.tokens.shape[1]
    layout = layout_for(most, size)
    bins = layout.bins(rows.target, rows.draft)
    target, draft = (masses(part, bins, layout.size) for part in (rows.target, rows.draft))
    return couple(target, draft, rows.n.clamp(min=1), most, layout), bins
