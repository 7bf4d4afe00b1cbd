"""Make a failing instance smaller, greedily, as long as the same check fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from tests.fuzz.checks import check
from tests.fuzz.instance import Instance, Vector
from tests.fuzz.wrong import Wrong


def shrink(instance: Instance, wrong: Wrong, seconds: float = 10.0) -> tuple[Instance, Wrong]:
    """Take the first smaller instance that fails likewise, until there is none."""
    stop = time.monotonic() + seconds
    again = True
    while again:
        again = False
        for candidate in smaller(instance):
            if time.monotonic() > stop:
                return instance, wrong
            try:
                check(candidate)
            except Wrong as found:
                if found.check == wrong.check:
                    instance, wrong, again = candidate, found, True
                    break
    return instance, wrong


def smaller(instance: Instance) -> Iterator[Instance]:
    """Instances with less to look at: tokens, drafts, tuples, options, digits."""
    if instance.form != "list" and not instance.solver.startswith("batched."):
        yield replace(instance, form="list")
    for option in instance.options:
        left = {name: value for name, value in instance.options.items() if name != option}
        yield replace(instance, options=left)
    if instance.scheme == "explicit":
        yield from _fewer_tuples(instance)
    else:
        yield from _fewer_tokens(instance)
        if instance.n > 1 and instance.scheme != "hub":
            drafts = instance.drafts[:-1] or instance.drafts
            for n in sorted({instance.n // 2, instance.n - 1}):
                if instance.scheme != "independent":
                    yield replace(instance, n=n)
            if instance.scheme == "independent":
                yield replace(instance, n=instance.n - 1, drafts=drafts)
    yield from _simpler_numbers(instance)


def _fewer_tuples(instance: Instance) -> Iterator[Instance]:
    for out in range(len(instance.tuples)):
        masses = _without(instance.drafts[0], out)
        if masses is not None:
            rows = tuple(row for place, row in enumerate(instance.tuples) if place != out)
            yield replace(instance, tuples=rows, drafts=(masses,))
    used = {token for row in instance.tuples for token in row}
    last = instance.vocab_size - 1
    if last not in used:
        target = _without(instance.target, last)
        if target is not None:
            yield replace(instance, target=target)


def _fewer_tokens(instance: Instance) -> Iterator[Instance]:
    for out in range(instance.vocab_size):
        target = _without(instance.target, out)
        drafts = [_without(law, out) for law in instance.drafts]
        if target is not None and None not in drafts:
            yield replace(instance, target=target, drafts=tuple(d for d in drafts if d))


def _simpler_numbers(instance: Instance) -> Iterator[Instance]:
    for digits in (1, 2, 3, 6):
        rounded = [_rounded(law, digits) for law in (instance.target, *instance.drafts)]
        if None not in rounded:
            laws = tuple(law for law in rounded if law)
            if laws != (instance.target, *instance.drafts):
                yield replace(instance, target=laws[0], drafts=laws[1:])
        target = _rounded(instance.target, digits)
        if target is not None and target != instance.target:
            yield replace(instance, target=target)


def _rounded(law: Vector, digits: int) -> Vector | None:
    """The law to so many decimals, tiny entries as they are, if it still sums to one."""
    values = [round(value, digits) if value > 10.0**-digits else value for value in law]
    values[values.index(max(values))] += 1.0 - sum(values)
    values = [round(value, digits) if value > 10.0**-digits else value for value in values]
    if abs(sum(values) - 1.0) > 1e-9 or min(values) < 0.0:
        return None
    return tuple(values)


def _without(law: Vector, out: int) -> Vector | None:
    left = [value for place, value in enumerate(law) if place != out]
    total = sum(left)
    return tuple(value / total for value in left) if total > 1e-200 else None
