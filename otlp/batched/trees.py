"""A round on trees on the device: the slots of a drafted tree play for the path that is verified.

`otlp.decode.Tournament` for the trees of many rows.  The winner is found by drawing the scores
that the CPU integrates over; everything else is the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from otlp.batched.branches import BatchedDraws, NodeStates, branch, drawn_masses
from otlp.batched.checks import reads_values
from otlp.batched.numerics import SECTIONS, TINY, draw_index
from otlp.batched.rows import PADDING, in_chunks, row_sums
from otlp.batched.sampling import uniforms
from otlp.batched.score_chains import ChainScores, draw_places, root_scores
from otlp.batched.tree_checks import check_tree_form, check_tree_values
from otlp.batched.tree_shapes import ENDING, ON, Branching, TreePlan, TreeShape


class TreeRound(NamedTuple):
    """What a round gives each row.

    Attributes
    ----------
    tokens : Tensor, shape (B, L + 1), int64
        The accepted path, then the correction (or bonus) token, then -1.
    accepted : Tensor, shape (B,), int64
        Length of the accepted path, 0 to L.
    path : Tensor, shape (B, L), int64
        Slots of the accepted path, then -1: where its cache comes from.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> shape = batched.TreeShape(torch.tensor([[-1, 0, 0, 1]]))
    >>> model = torch.tensor([0.5, 0.3, 0.2]).expand(1, 4, 3)
    >>> tokens, numbers = torch.tensor([[0, 0, 1, 2]]), torch.Generator().manual_seed(0)
    >>> played = batched.verify_tree(model, model, tokens, shape, numbers)
    >>> played.path.shape
    torch.Size([1, 2])
    """

    tokens: Tensor
    accepted: Tensor
    path: Tensor


class Nodes(NamedTuple):
    """Rows of the two models, and which of them each slot has.

    Attributes
    ----------
    target, draft : Tensor, shape (B N, V)
        As passed.
    target_sum, draft_sum : Tensor, shape (B N, 1), float64
    of_slot, tokens : Tensor, shape (B S + 1,), int64
        Row and token of each slot, by number; the last stands for none.
    """

    target: Tensor
    draft: Tensor
    target_sum: Tensor
    draft_sum: Tensor
    of_slot: Tensor
    tokens: Tensor

    def at(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Both p and q after some slots, in float64; shape (M, V) each."""
        rows = self.of_slot[slots]
        return (
            self.target[rows] / self.target_sum[rows],
            self.draft[rows] / self.draft_sum[rows],
        )


class TreeState(NamedTuple):
    """Who plays in B trees, by number of slot; B S stands for none.

    Attributes
    ----------
    candidates : list of (NodeStates, Tensor)
        Scores that can win, and the slots whose they are: drawn ones with nothing below, or such
        as have certain children that end a path, for all of those.
    weight, share : Tensor, shape (B S + 1,), float64
        Weight of each slot, and the share of each certain one in the wins of its parent.
    draws, last : Tensor, shape (5, B S + 1, 1), float64
        How each slot's drawn children share out their score: the first fields of `BatchedDraws`.
    """

    candidates: list[tuple[NodeStates, Tensor]]
    weight: Tensor
    share: Tensor
    draws: Tensor
    last: Tensor


def verify_tree(
    target: Tensor,
    draft: Tensor,
    draft_tokens: Tensor,
    shape: TreeShape,
    generator: torch.Generator | Tensor | None = None,
    *,
    nodes: Tensor | None = None,
    validate: bool = True,
) -> TreeRound:
    """Verify a drafted tree a row: lossless, tournament selection, then block verification.

    Parameters
    ----------
    target : Tensor, shape (B, N, V)
        Next-token distributions of the target after each node, in float16, bfloat16, float32 or
        float64.
    draft : Tensor, shape (B, N, V)
        Those of the draft model, which the children were drawn from; not looked at where a node
        has none.
    draft_tokens : Tensor of int, shape (B, S)
        The token in each slot; not looked at in the root, slot 0, nor where a row has no slot.
    shape : TreeShape
        The slots of each row.
    generator : torch.Generator, Tensor or None
        On the same device; None is PyTorch's own; or uniform numbers, float64 of shape
        (B, S + L + 3), drawn outside: see `otlp.batched.uniforms`.
    nodes : Tensor of int, shape (B, S), optional
        The node that each slot became, 0 to N - 1: equal draws may share one.  By default slot s is
        node s, and rows of equal prefixes must be equal.
    validate : bool
        Look at the values of the input, which waits for the device.  Left out under
        `torch.compile` and CUDA graph capture.

    Returns
    -------
    TreeRound
        Accepted tokens and one more, distributed as if the target had been sampled.

    Raises
    ------
    InvalidInputError, InvalidDistributionError, TokenOutOfRangeError, ZeroProbabilityError
        On bad input, naming the argument, the row and the slot.

    Notes
    -----
    Two-slice steps for all slots of one depth at once, L of them in sequence, then block
    verification of one path a row: some 40 passes over the vocabulary for each slot with drawn
    children, none for one whose children are all certain.  Slots that hold the same path know the
    same, and are worked out each for itself, to keep shapes fixed.

    Source: this project; see `otlp.decode.Tournament`.

    Examples
    --------
    >>> import torch
    >>> from otlp import batched
    >>> shape = batched.TreeShape(torch.tensor([[-1, 0, 0, 1]]))
    >>> model = torch.tensor([0.5, 0.3, 0.2]).expand(1, 4, 3)
    >>> tokens, numbers = torch.tensor([[0, 0, 1, 2]]), torch.Generator().manual_seed(0)
    >>> played = batched.verify_tree(model, model, tokens, shape, numbers)
    >>> bool(played.accepted >= 1)        # draft and target agree: some path is accepted
    True
    """
    check_tree_form(target, draft, draft_tokens, shape, nodes)
    numbers = uniforms(draft_tokens, generator, shape=shape, validate=validate)
    plan = shape.plan(target.device)
    target, draft, tokens = target.detach(), draft.detach(), draft_tokens.long()
    if nodes is None:
        nodes = torch.arange(shape.slots, device=target.device).expand_as(tokens)
    known = _nodes(target, draft, tokens.masked_fill(plan.parents < 0, 0), nodes.long())
    if reads_values(validate, target):
        check_tree_values(target, draft, tokens, nodes.long(), plan)
    return _decide(play(known, plan), known, plan, numbers)


def _nodes(target: Tensor, draft: Tensor, tokens: Tensor, nodes: Tensor) -> Nodes:
    batch, size, vocab_size = target.shape
    flat = target.reshape(-1, vocab_size), draft.reshape(-1, vocab_size)
    rows = nodes + size * torch.arange(batch, device=nodes.device)[:, None]
    by_slot = (torch.nn.functional.pad(part.flatten(), (0, 1)) for part in (rows, tokens))
    return Nodes(*flat, *(row_sums(part) for part in flat), *by_slot)


def play(nodes: Nodes, plan: TreePlan) -> TreeState:
    """Give every slot its state, from the roots down."""
    batch, slots = plan.parents.shape
    sums = nodes.target_sum
    weight, share = sums.new_zeros(2, batch * slots + 1)
    draws, last = sums.new_zeros(2, 5, batch * slots + 1, 1)
    weight[torch.arange(batch, device=sums.device) * slots] = 1.0
    one = sums.new_ones(batch, 1)
    known = NodeStates(root_scores(batch, sums), one, one > 0)
    candidates = []
    for generation in plan.generations:
        below = []
        for family in generation.families:
            found = _family(nodes, family, _take(known, family.source), generation.parted)
            children, end, (shares, *masses) = _made(found[:9]), _made(found[9:18]), found[18:]
            below.append(children)
            at = family.children.flatten()
            weight[at], share[at] = children.weight[:, 0], shares.flatten()
            draws[:, family.slots], last[:, family.slots] = torch.stack(masses).chunk(2)
            if family.ending:
                candidates.append((end, family.slots))
        known = _made([torch.cat(parts) for parts in zip(*map(_parts, below), strict=True)])
        if generation.leaves.numel():
            candidates.append((_take(known, generation.places), generation.leaves))
    return TreeState(candidates, weight, share, draws, last)


def _family(
    nodes: Nodes, family: Branching, states: NodeStates, parted: bool
) -> tuple[Tensor, ...]:
    """Find what the children of a family know, some slots at a time, as plain tensors."""

    def step(slots: Tensor, children: Tensor, kinds: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        tokens = nodes.tokens[children]
        p = rest = None
        if family.drawn or family.last:
            p, rest = nodes.at(slots)
            wanted = p.gather(1, tokens)
            if family.certain:
                rest = _without(rest, tokens, (kinds == ON) | (kinds == ENDING))
        else:
            rows = nodes.of_slot[slots]
            wanted = nodes.target[rows[:, None], tokens] / nodes.target_sum[rows]
        below, end, shares, draws, last = branch(
            _made(parts), kinds, tokens, wanted, p, rest,
            parted=parted, drawn=family.drawn, last=family.last,
        )  # fmt: skip
        return *_parts(below), *_parts(end), shares, *draws, *last

    width = nodes.target.shape[1] if family.drawn or family.last else 1
    parts = family.slots, family.children, family.kinds, *_parts(states)
    return in_chunks(step, max(width, SECTIONS * family.kinds.shape[1]), *parts)


def ending_at(
    nodes: Nodes, plan: TreePlan, field: TreeState, slots: Tensor
) -> tuple[Tensor, Tensor]:
    """Block verification on a path, at slots above its end.

    Returns
    -------
    stop : Tensor, shape (M, 1), float64
        Probability that the path to a slot is accepted if no longer one is; 1 at a root.
    residual : Tensor, shape (M, V), float64
        Weights of the token that follows, if it is the longest accepted.

    Notes
    -----
    After a slot of weight w, whose children win with the masses Gamma, the residual is
    (w p - Gamma)^+, of mass e; the path is accepted with probability e / (e + 1 - w) (Sun et al.
    2024, Block Verification Accelerates Speculative Decoding, Algorithm 2).
    """
    size = plan.parents.shape[1]
    rows = torch.div(slots, size, rounding_mode="floor")
    p, rest = nodes.at(slots)
    weight = field.weight[slots, None]
    left = wanted = weight * p
    mine = plan.certain[rows] & (plan.parents[rows] == (slots - rows * size)[:, None])
    tokens = nodes.tokens[:-1].view(-1, size)[rows]
    if plan.has("certain"):
        rest = _without(rest, tokens, mine)
        share = field.share[:-1].view(-1, size)[rows].masked_fill(~mine, 0.0)
        left = left.scatter_add(1, tokens, -share)
    if plan.has("drawn"):
        drawn = drawn_masses(BatchedDraws(*field.draws[:, slots]), wanted, rest)
        left = left - drawn
        wanted = (wanted - drawn).clamp_(min=0.0)
    if plan.has("last"):
        left = left - drawn_masses(BatchedDraws(*field.last[:, slots]), wanted, rest)
    left = left.clamp(min=0.0)
    mass = left.sum(1, keepdim=True)
    # 1 - w first: next to 1 a tiny mass would be lost, and the quotient exceed 1
    stop = mass / (mass + (1.0 - weight)).clamp(min=TINY)
    # nothing is left at a root by rounding only
    return torch.where(slots[:, None] == rows[:, None] * size, 1.0, stop), torch.where(
        mass > 0, left, p
    )


def _decide(field: TreeState, nodes: Nodes, plan: TreePlan, numbers: Tensor) -> TreeRound:
    """Draw the scores, find the winners, and verify their paths."""
    batch, size = plan.parents.shape
    score = torch.full_like(field.weight, -torch.inf)
    uniform = torch.nn.functional.pad(numbers[:, :size].flatten(), (0, 1))
    for states, slots in field.candidates:
        drawn = draw_places(states.scores, uniform[slots])
        score[slots] = drawn.masked_fill(~states.live[:, 0], -torch.inf)
    winner = score[:-1].view(batch, size).argmax(1, keepdim=True)
    # a score of certain tokens that end a path stands for all of them
    below = plan.ending & (plan.parents == winner)
    share = field.share[:-1].view(batch, size).masked_fill(~below, 0.0)
    among = draw_index(share, numbers[:, size : size + 1])
    end = torch.where((share > 0).any(1, keepdim=True), among, winner)
    index = end[..., None].expand(-1, 1, plan.ancestors.shape[2])
    path = plan.ancestors.gather(1, index)[:, 0]

    length = path.shape[1] - 1

    def verify(path: Tensor, start: Tensor, numbers: Tensor) -> tuple[Tensor, ...]:
        accepted = token = torch.zeros_like(start)
        for depth in range(length + 1):
            at = path[:, depth : depth + 1]
            stop, residual = ending_at(nodes, plan, field, (start + at.clamp(min=0))[:, 0])
            passed = (at >= 0) & (numbers[:, depth : depth + 1] < stop)
            anew = draw_index(residual, numbers[:, -1:])
            # the longest path that passes is accepted
            accepted, token = (
                torch.where(passed, new, old) for new, old in ((depth, accepted), (anew, token))
            )
        return accepted, token

    start = torch.arange(batch, device=path.device)[:, None] * size
    accepted, token = in_chunks(verify, nodes.target.shape[1], path, start, numbers[:, size + 1 :])
    path = path.masked_fill(torch.arange(length + 1, device=path.device) > accepted, PADDING)[:, 1:]
    drafted = nodes.tokens[(start + path.clamp(min=0)).flatten()].view_as(path)
    tokens = torch.nn.functional.pad(drafted.masked_fill(path < 0, PADDING), (0, 1), value=PADDING)
    return TreeRound(tokens.scatter(1, accepted, token), accepted[:, 0], path)


def _without(q: Tensor, tokens: Tensor, certain: Tensor) -> Tensor:
    """What q is without certain tokens among some, shape (M, V)."""
    gone = torch.where(certain, 0.0, torch.inf).to(q.dtype)
    rest = q.scatter_reduce(1, tokens, gone, "amin")
    return rest / rest.sum(1, keepdim=True).clamp(min=TINY)


def _parts(states: NodeStates) -> tuple[Tensor, ...]:
    return *states.scores, states.weight, states.live


def _made(parts: Sequence[Tensor]) -> NodeStates:
    return NodeStates(ChainScores(*parts[:-2]), *parts[-2:])


def _take(states: NodeStates, index: Tensor) -> NodeStates:
    return _made([part[index] for part in _parts(states)])
