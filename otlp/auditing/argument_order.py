"""Which argument of a rule is which: by its name, else by its place, and said in words.

Papers and engines agree on no order: vLLM's functions take the draft's probabilities before the
target's.  A rule that is handed p for q looks lossy, and is right.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from otlp.errors import InvalidInputError

_LAWS = ("{}", "{}_p", "p_{}", "{}_prob", "{}_probs", "{}_probabilities", "{}_dist", "{}_law")

NAMES: dict[str, frozenset[str]] = {
    "draft_tokens": frozenset(
        f"{kind}{what}"
        for kind in ("", "draft_", "drafted_", "candidate_")
        for what in ("token", "tokens", "token_id", "token_ids", "ids", "input_ids")
    )
    | {"drafted", "candidates"},
    "p": frozenset({"p", *(law.format("target") for law in _LAWS)}),
    "q": frozenset({"q", *(law.format("draft") for law in _LAWS[1:])}),
    "rng": frozenset({"rng", "gen", "generator", "random_state"}),
}
"""What a rule is handed, in the order in which it stands where names say nothing else."""

ENGINES = {
    frozenset({"cu_num_draft_tokens", "draft_probs"}): "vllm-v1",
    frozenset({"candidate_input_ids", "candidate_logits"}): "hugging-face",
}
"""Parameters by which an engine's own function is known, and what audits it."""

Parameters = list[inspect.Parameter]


def read_arguments(rule: Callable[..., Any]) -> tuple[Callable[..., Any], str]:
    """A rule to be called with (draft_tokens, p, q, rng), and how its own arguments were read.

    Parameters that are annotated as tensors are handed tensors.

    Returns
    -------
    rule, reading : callable, str
        No words where names say that the order is this one.

    Raises
    ------
    InvalidInputError
        If its signature is known and does not fit, or is that of an engine's own function.
    """
    try:
        signature = inspect.signature(rule)
    except (TypeError, ValueError):  # compiled code may have none
        return rule, ""
    for names, engine in ENGINES.items():
        if names <= set(signature.parameters):
            raise InvalidInputError(
                f"rule is {_name(rule)}, an engine's own function, over a batch: "
                f"`otlp lab audit-engine {engine}` audits it, or wrap it as docs/audit.md shows"
            )
    taken = _taken(signature)
    if any(one.kind is one.VAR_POSITIONAL for one in taken):
        return rule, ""
    roles = _roles(taken)
    if roles is None:
        raise InvalidInputError(
            f"rule is {_name(rule)}{signature}: it is called as rule(draft_tokens, p, q, rng), in "
            "another order where its names say so; wrap it in a function with these four"
        )
    pairs = list(zip(taken, roles, strict=True))
    known = all(one.name.lower() in NAMES[role] for one, role in pairs)
    places = [list(NAMES).index(role) for role in roles]
    tensors = ["Tensor" in str(one.annotation) for one in taken]
    called = rule
    if places != list(range(len(NAMES))) or any(tensors):

        def called(*handed: Any) -> Any:
            picked = zip((handed[at] for at in places), tensors, strict=True)
            return rule(*(_as_tensor(one) if wanted else one for one, wanted in picked))

    if known and called is rule:
        return rule, ""
    said = ", ".join(f"{one.name} is {role}" for one, role in pairs)
    return called, f"Its arguments were read by {'name' if known else 'position'}: {said}."


def swap_laws(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The same rule with p and q in each other's place."""
    return lambda tokens, p, q, rng: rule(tokens, q, p, rng)


def _taken(signature: inspect.Signature) -> Parameters:
    """The parameters that are handed something: all without a default, and others that are known.

    A `generator` with a default is one of PyTorch's, and is left out.
    """
    optional = frozenset().union(*NAMES.values()) - {"generator"}
    return [
        one
        for one in signature.parameters.values()
        if one.kind is not one.VAR_KEYWORD
        and (
            one.default is one.empty
            or (one.name.lower() in optional and one.kind is not one.KEYWORD_ONLY)
        )
    ]


def _roles(taken: Parameters) -> list[str] | None:
    """What each parameter is handed; None where that cannot be.  The generator may be left out."""
    if any(one.kind is one.KEYWORD_ONLY for one in taken):
        return None
    named = [
        next((role for role, names in NAMES.items() if one.name.lower() in names), "")
        for one in taken
    ]
    told = [role for role in named if role]
    if len(set(told)) < len(told):
        named = [""] * len(taken)
    left = [role for role in NAMES if role not in named]
    roles = [role or (left.pop(0) if left else "") for role in named]
    return roles if sorted(roles) in (sorted(NAMES), sorted({*NAMES} - {"rng"})) else None


def _as_tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array)


def _name(rule: object) -> str:
    return str(getattr(rule, "__name__", type(rule).__name__))
