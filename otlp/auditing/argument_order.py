"""Which argument of a rule is which: by its name, else by its place, and said in words.

Papers and engines agree on no order: vLLM's functions take the draft's probabilities before the
target's.  A rule that is handed p for q looks lossy, and is right.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from otlp.distribution import FloatArray
from otlp.errors import InvalidInputError

_LAWS = (
    "{}", "{}_p", "p_{}", "{}_prob", "{}_probs", "{}_probabilities", "{}_dist", "{}_law",
    "{}_distribution", "{}_distributions",
)  # fmt: skip

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

_LOG = (
    "logit", "logits", "logprob", "logprobs", "log_prob", "log_probs", "log_probabilities", "log",
)  # fmt: skip

LOGARITHMS: dict[str, frozenset[str]] = {
    role: frozenset({f"log{role}"})
    | {name for log in _LOG for law in laws for name in (f"{law}_{log}", f"{log}_{law}")}
    for role, laws in {"p": ("p", "target"), "q": ("q", "draft")}.items()
}
"""Names of what is handed log p and log q, which are logits, too: their softmax is p and q."""

OTHER_WORDS: dict[str, frozenset[str]] = {
    "draft_tokens": frozenset({"prob", "probs", "probabilities", "dist", "law", "target"}),
    "p": frozenset({"draft", "drafted", "proposal", "candidate", "token", "tokens", "ids"}),
    "q": frozenset({"target", "token", "tokens", "ids"}),
    "rng": frozenset({"prob", "probs", "probabilities", "dist", "law", "token", "tokens", "ids"}),
}
"""Words of a name that is not known which say that it is not what its place is handed."""

OTHER_THINGS = frozenset(
    "log logit logits logprob logprobs score scores weights entropy hidden "
    "temperature temp top topk topp min minp max penalty threshold tau eps epsilon "
    "seed seeds uniform uniforms noise device dtype stream "
    "mask masks parents tree size sizes count counts num number len length lengths position "
    "positions step steps batch vocab eos bonus cache config args params options".split()
)
"""Words of a name that say what no place is handed."""

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
    if roles is not None:
        _check_unknown(rule, taken, roles)
    if roles is None:
        raise InvalidInputError(
            f"rule is {_name(rule)}{signature}: it is called as rule(draft_tokens, p, q, rng), in "
            "another order where its names say so; wrap it in a function with these four"
        )
    pairs = list(zip(taken, roles, strict=True))
    known = all(one.name.lower() in _names(role) for one, role in pairs)
    places = [list(NAMES).index(role) for role in roles]
    tensors = ["Tensor" in str(one.annotation) for one in taken]
    logs = [one.name.lower() in LOGARITHMS.get(role, ()) for one, role in pairs]
    reads = list(map(_reader, places, logs, tensors))
    called = rule
    if places != list(range(len(NAMES))) or any(tensors) or any(logs):

        def called(*handed: Any) -> Any:
            return rule(*(read(handed) for read in reads))

    if known and called is rule:
        return rule, ""
    said = ", ".join(
        f"{one.name} is {'log ' if log else ''}{role}"
        for (one, role), log in zip(pairs, logs, strict=True)
    )
    return called, f"Its arguments were read by {'name' if known else 'position'}: {said}."


def read_sampler(sampler: Callable[..., Any]) -> Callable[[FloatArray, Any], Any]:
    """A sampler of drafts to be called with (q, rng), which is handed log q where its name says so.

    Raises
    ------
    InvalidInputError
        If its first argument says that it is something else than q.
    """
    try:
        first = next(iter(inspect.signature(sampler).parameters.values()), None)
    except (TypeError, ValueError):  # compiled code may have none
        first = None
    if first is None:
        return sampler
    if first.name.lower() in LOGARITHMS["q"]:
        read = _reader(0, True, "Tensor" in str(first.annotation))
        return lambda q, rng: sampler(read((q,)), rng)
    _check_unknown(sampler, [first], ["q"])
    return sampler


def swap_laws(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The same rule with p and q in each other's place."""
    return lambda tokens, p, q, rng: rule(tokens, q, p, rng)


def _taken(signature: inspect.Signature) -> Parameters:
    """The parameters that are handed something: all without a default, and others that are known.

    A `generator` with a default is one of PyTorch's, and is left out.
    """
    optional = frozenset().union(*map(_names, NAMES)) - {"generator"}
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
        next((role for role in NAMES if one.name.lower() in _names(role)), "") for one in taken
    ]
    told = [role for role in named if role]
    if len(set(told)) < len(told):
        named = [""] * len(taken)
    left = [role for role in NAMES if role not in named]
    roles = [role or (left.pop(0) if left else "") for role in named]
    return roles if sorted(roles) in (sorted(NAMES), sorted({*NAMES} - {"rng"})) else None


def _names(role: str) -> frozenset[str]:
    return NAMES[role] | LOGARITHMS.get(role, frozenset())


def _check_unknown(rule: Callable[..., Any], taken: Parameters, roles: list[str]) -> None:
    """Refuse a name that is read by its place and says what is not there.

    A rule that is handed what its names do not say is judged for a mistake that it does not make.
    """
    for one, role in zip(taken, roles, strict=True):
        words = set(one.name.lower().strip("_").split("_"))
        if one.name.lower() not in _names(role) and words & (OTHER_WORDS[role] | OTHER_THINGS):
            raise InvalidInputError(
                f"rule is {_name(rule)}, whose argument {one.name} would be handed {role} by its "
                "place: a rule is handed draft_tokens, p, q and rng, or log p and log q as "
                f"target_logits and draft_logits; rename {one.name}, give it a default, or wrap "
                "the rule"
            )


def _reader(place: int, log: bool, tensor: bool) -> Callable[[tuple[Any, ...]], Any]:
    """What picks an argument from those that a rule is handed."""

    def read(handed: tuple[Any, ...]) -> Any:
        picked = handed[place]
        if log:
            with np.errstate(divide="ignore"):
                picked = np.log(picked)
        return _as_tensor(picked) if tensor else picked

    return read


def _as_tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array)


def _name(rule: object) -> str:
    return str(getattr(rule, "__name__", type(rule).__name__))
