"""Mapping from a rule's parameters to draft_tokens, p, q and rng, by name or else by position.

Papers and engines use different orders: vLLM's functions accept the draft's probabilities before
the target's.  A correct rule that receives p for q looks lossy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from otlp.auditing.audited_rule import name_of
from otlp.distribution import FloatArray, logarithms
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
"""Recognized parameter names of each argument, in the order used when names are not recognized."""

_LOG = (
    "logit", "logits", "logprob", "logprobs", "log_prob", "log_probs", "log_probabilities", "log",
)  # fmt: skip

LOGARITHMS: dict[str, frozenset[str]] = {
    role: frozenset({f"log{role}"})
    | {name for log in _LOG for law in laws for name in (f"{law}_{log}", f"{log}_{law}")}
    for role, laws in {"p": ("p", "target"), "q": ("q", "draft")}.items()
}
"""Names of parameters that receive log p or log q.  These are logits: their softmax is p or q."""

CONTRADICTING_WORDS: dict[str, frozenset[str]] = {
    "draft_tokens": frozenset({"prob", "probs", "probabilities", "dist", "law", "target"}),
    "p": frozenset({"draft", "drafted", "proposal", "candidate", "token", "tokens", "ids"}),
    "q": frozenset({"target", "token", "tokens", "ids"}),
    "rng": frozenset({"prob", "probs", "probabilities", "dist", "law", "token", "tokens", "ids"}),
}
"""Words in an unrecognized name that contradict the argument at its position."""

UNSUPPORTED_WORDS = frozenset(
    "log logit logits logprob logprobs score scores weights entropy hidden "
    "temperature temp top topk topp min minp max penalty threshold tau eps epsilon "
    "seed seeds uniform uniforms noise device dtype stream "
    "mask masks parents tree size sizes count counts num number len length lengths position "
    "positions step steps batch vocab eos bonus cache config args params options".split()
)
"""Words in an unrecognized name for values that are never passed to a rule."""

ENGINES = {
    frozenset({"cu_num_draft_tokens", "draft_probs"}): "vllm-v1",
    frozenset({"candidate_input_ids", "candidate_logits"}): "hugging-face",
}
"""Parameters that identify an engine's own function, and its name for `otlp lab audit-engine`."""

Parameters = list[inspect.Parameter]


def read_arguments(rule: Callable[..., Any]) -> tuple[Callable[..., Any], str]:
    """Wrap a rule so that it can be called with (draft_tokens, p, q, rng).

    Parameters annotated as tensors receive tensors.

    Returns
    -------
    rule : callable
    reading : str
        How the rule's parameters were mapped; empty if their names are recognized and in this
        order.

    Raises
    ------
    InvalidInputError
        If the signature does not fit, or is the signature of an engine's own function.
    """
    try:
        signature = inspect.signature(rule)
    except (TypeError, ValueError):  # Compiled code may have no signature.
        return rule, ""
    for names, engine in ENGINES.items():
        if names <= set(signature.parameters):
            raise InvalidInputError(
                f"rule is {name_of(rule)}, an engine's own function, over a batch: "
                f"`otlp lab audit-engine {engine}` audits it, or wrap it as docs/audit.md shows"
            )
    passed = _passed_parameters(signature)
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in passed):
        return rule, ""
    roles = _roles(passed)
    if roles is None:
        raise InvalidInputError(
            f"rule is {name_of(rule)}{signature}: it must accept (draft_tokens, p, q, rng), in "
            "this order or with recognized names; wrap it in a function with these four parameters"
        )
    _check_unknown_names(rule, passed, roles)
    pairs = list(zip(passed, roles, strict=True))
    known = all(parameter.name.lower() in _names(role) for parameter, role in pairs)
    positions = [list(NAMES).index(role) for role in roles]
    tensors = ["Tensor" in str(parameter.annotation) for parameter in passed]
    logs = [parameter.name.lower() in LOGARITHMS.get(role, ()) for parameter, role in pairs]
    readers = list(map(_reader, positions, logs, tensors))
    called = rule
    if positions != list(range(len(NAMES))) or any(tensors) or any(logs):

        def called(*arguments: Any) -> Any:
            return rule(*(read(arguments) for read in readers))

    if known and called is rule:
        return rule, ""
    mapping = ", ".join(
        f"{parameter.name} is {'log ' if log else ''}{role}"
        for (parameter, role), log in zip(pairs, logs, strict=True)
    )
    return called, f"Parameters were mapped by {'name' if known else 'position'}: {mapping}."


def read_sampler(sampler: Callable[..., Any]) -> Callable[[FloatArray, Any], Any]:
    """Wrap a draft sampler so that it can be called with (q, rng).

    The sampler receives log q if the name of its first parameter is in `LOGARITHMS`.

    Raises
    ------
    InvalidInputError
        If the name of the first parameter contradicts q.
    """
    try:
        first = next(iter(inspect.signature(sampler).parameters.values()), None)
    except (TypeError, ValueError):  # Compiled code may have no signature.
        first = None
    if first is None:
        return sampler
    if first.name.lower() in LOGARITHMS["q"]:
        read = _reader(0, True, "Tensor" in str(first.annotation))
        return lambda q, rng: sampler(read((q,)), rng)
    _check_unknown_names(sampler, [first], ["q"])
    return sampler


def swap_laws(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule with p and q swapped."""
    return lambda tokens, p, q, rng: rule(tokens, q, p, rng)


def _passed_parameters(signature: inspect.Signature) -> Parameters:
    """Return the parameters that receive an argument: those without a default or with a known name.

    A `generator` with a default is a PyTorch generator and receives no argument.
    """
    optional = frozenset().union(*map(_names, NAMES)) - {"generator"}
    return [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
        and (
            parameter.default is parameter.empty
            or (parameter.name.lower() in optional and parameter.kind is not parameter.KEYWORD_ONLY)
        )
    ]


def _roles(passed: Parameters) -> list[str] | None:
    """Return the argument of each parameter, or None if they do not fit; rng may be missing."""
    if any(parameter.kind is parameter.KEYWORD_ONLY for parameter in passed):
        return None
    lowered = [parameter.name.lower() for parameter in passed]
    named = [next((role for role in NAMES if name in _names(role)), "") for name in lowered]
    known = [role for role in named if role]
    if len(set(known)) < len(known):
        named = [""] * len(passed)
    left = [role for role in NAMES if role not in named]
    roles = [role or (left.pop(0) if left else "") for role in named]
    return roles if sorted(roles) in (sorted(NAMES), sorted({*NAMES} - {"rng"})) else None


def _names(role: str) -> frozenset[str]:
    return NAMES[role] | LOGARITHMS.get(role, frozenset())


def _check_unknown_names(rule: Callable[..., Any], passed: Parameters, roles: list[str]) -> None:
    """Raise InvalidInputError if an unrecognized name contradicts the argument at its position.

    Otherwise the audit would report an error that the rule does not make.
    """
    for name, role in zip((parameter.name for parameter in passed), roles, strict=True):
        words = set(name.lower().strip("_").split("_"))
        if name.lower() not in _names(role) and words & (
            CONTRADICTING_WORDS[role] | UNSUPPORTED_WORDS
        ):
            raise InvalidInputError(
                f"rule is {name_of(rule)}: its parameter {name} would receive {role} by position, "
                "but a rule receives draft_tokens, p, q and rng (or log p and log q as "
                f"target_logits and draft_logits); rename {name}, give it a default, or wrap "
                "the rule"
            )


def _reader(position: int, log: bool, tensor: bool) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function that selects and converts one of the arguments passed to a rule."""

    def read(arguments: tuple[Any, ...]) -> Any:
        picked = arguments[position]
        if log:
            picked = logarithms(picked)
        return _as_tensor(picked) if tensor else picked

    return read


def _as_tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array)
