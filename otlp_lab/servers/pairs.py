"""The audit of a server: pairs of texts are asked for, checked, and bet on until it is decided."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from otlp.auditing.subject import Progress, name_of, silent
from otlp.checks import check_number, whole_number
from otlp.errors import InvalidInputError, ServerError
from otlp.timing import checkpoint, deadline, seconds_left
from otlp_lab.servers.background import begin, wait
from otlp_lab.servers.betting import Bets, Pieces, pieces
from otlp_lab.servers.completions import Completion
from otlp_lab.servers.independence import check_independent
from otlp_lab.servers.power import smallest_found
from otlp_lab.servers.report import ServerReport, furthest_apart

Sampler: TypeAlias = Callable[[str], Completion]


class Pair(NamedTuple):
    """A text from each side, for one prompt.

    Examples
    --------
    >>> from otlp_lab.servers import Completion, Pair
    >>> Pair(Completion(" is Paris."), Completion(" is the")).baseline.text
    ' is the'
    """

    server: Completion
    baseline: Completion


def planted(sampler: Sampler, share: float, rng: np.random.Generator) -> Sampler:
    """A server with a bias of known size: a share of its texts is the prompt's first one again.

    The total variation from the law of `sampler` is `share`, less its part of that one text.

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab import servers
    >>> numbers = iter("123456")
    >>> draw = lambda prompt: servers.Completion(next(numbers))
    >>> stale = servers.planted(draw, 0.5, np.random.default_rng(0))
    >>> "".join(stale("Count:").text for _ in range(6))
    '111156'
    """
    check_number("share", share, lambda x: 0.0 <= x <= 1.0, "be a number from 0 to 1")
    first: dict[str, Completion] = {}

    def sample(prompt: str) -> Completion:
        fresh = sampler(prompt)
        kept = first.setdefault(prompt, fresh)
        return kept if rng.random() < share else fresh

    return sample


AGAIN = 2
"""Times the pairs at which a difference is above suspicion that are asked before it is told.

Where answers are kept for a while, the first ones look like laws that differ; the next ones show
that texts are not drawn anew.
"""


def audit_server(
    server: Sampler,
    baseline: Sampler,
    prompts: Sequence[str],
    *,
    pairs: int = 2000,
    false_alarm_rate: float = 1e-6,
    parallel: int = 1,
    time_limit: float = math.inf,
    earlier: Sequence[Pair] = (),
    keep: Callable[[Pair], object] = lambda pair: None,
    names: Sequence[str] = (),
    seed: int = 0,
    progress: Progress = silent,
) -> ServerReport:
    """Say whether a server's texts follow those of a baseline, such as itself without drafts.

    A text is asked of each side for every prompt in turn, and who bets on which side gave which
    wins only if the laws differ; see `otlp_lab.servers.betting`.

    Parameters
    ----------
    server, baseline : callable
        Prompt to `Completion`, such as `Completions`.  Texts must be drawn independently: at a
        temperature above 0 and without a fixed seed.
    prompts : sequence of str
        Few: the fewer, the sooner something is found after one of them.
    pairs : int
        Texts of each side at most, those of before included.
    false_alarm_rate : float
        Probability that equal laws are said to differ; holds whenever it stops.
    parallel : int
        Requests to each side at a time.
    time_limit : float
        Seconds after which nothing more is asked or waited for; what there is by then is judged.
    earlier : sequence of Pair
        What an earlier run of the same audit had kept.
    keep : callable
        Called with each new pair.
    names : sequence of str, optional
        What the report calls server and baseline.
    seed : int
        Of the runs behind `ServerReport.detectable`.
    progress : callable
        Called with a label and the share done.

    Returns
    -------
    ServerReport
        ``str(report)`` is a summary in plain words.  Where a side fails on the way, what came
        before is judged, and `stopped` says what failed.

    Raises
    ------
    InvalidInputError
        If an argument is out of its range, or texts are visibly not drawn anew; see
        `otlp_lab.servers.independence`.
    ServerError
        If a side fails or the time limit is over before there is a pair, or the two are no pair:
        other models, or prompts of other lengths.

    Notes
    -----
    About 4 ln(1 / false_alarm_rate) / chi^2 pairs decide between two known laws at a small
    chi-squared distance; the bets have to learn them first.  Once they decide, as many pairs more
    are asked, as far as `pairs` allows: what shows that texts are not drawn anew may come late.

    The test is that of Ville (1939) with bets on the order of pairs, as in Podkopaev and Ramdas,
    "Sequential predictive two-sample and independence testing" (2023).

    Examples
    --------
    >>> import numpy as np
    >>> from otlp_lab import servers
    >>> rng = np.random.default_rng(0)
    >>> draw = lambda prompt: servers.Completion(str(rng.integers(9)))
    >>> servers.audit_server(draw, draw, ["Count:"], pairs=50).verdict.name
    'NOT_REJECTED'
    """
    whole_number(pairs, "pairs", 1)
    whole_number(parallel, "parallel", 1)
    check_number(
        "false_alarm_rate", false_alarm_rate, lambda x: 0.0 < x < 1.0, "be between 0 and 1"
    )
    if not prompts or not all(isinstance(prompt, str) for prompt in prompts):
        raise InvalidInputError("prompts must be a list of strings, at least one")
    check_number("time_limit", time_limit, lambda x: x > 0.0, "be seconds, above 0")
    began, stopped, limit = time.monotonic(), "", -math.log(false_alarm_rate)
    bets, texts = Bets(), [list[Pieces]() for _ in prompts]
    taken, found, look = list[Pair](), 0, 0
    with deadline(time_limit):
        try:
            asked = _ask(server, baseline, prompts, range(len(earlier), pairs), parallel)
            for number, pair in enumerate(chain(earlier[:pairs], asked)):
                _check(pair, taken[0] if taken else pair)
                if number >= len(earlier):
                    keep(pair)
                prompt = len(taken) % len(prompts)
                taken.append(pair)
                texts[prompt] += map(pieces, pair)
                bets.bet(prompt, *texts[prompt][-2:])
                progress("asking", len(taken) / pairs)
                if bets.most >= limit and len(taken) >= look:
                    look = math.ceil(1.05 * len(taken))  # a look goes through all texts
                    found = found or len(taken) if check_independent(texts) else 0
                    if found and len(taken) >= AGAIN * found:
                        break
                checkpoint()
        except (ServerError, TimeoutError) as error:
            stopped = str(error)
            if isinstance(error, TimeoutError):
                if seconds_left() > 0.0:
                    raise
                stopped = f"the time limit of {time_limit:g} s is over"
            if not taken:
                raise ServerError(stopped) from None
    check_independent(texts)
    ways = names or [name_of(server), name_of(baseline)]
    return ServerReport(
        server=ways[0],
        baseline=ways[1],
        prompts=len(prompts),
        pairs=len(taken),
        budget=pairs,
        log10_wealth=bets.most / math.log(10.0),
        false_alarm_rate=false_alarm_rate,
        tokens=sum(text.tokens or 0 for pair in taken for text in pair),
        seconds=time.monotonic() - began,
        detectable={} if bets.most >= limit else smallest_found(texts, len(taken), limit, seed),
        furthest=furthest_apart(bets),
        stopped=stopped,
        earlier=min(len(earlier), len(taken)),
    )


def _ask(
    server: Sampler, baseline: Sampler, prompts: Sequence[str], numbers: range, parallel: int
) -> Iterator[Pair]:
    """Pairs in the order of their numbers, which say which prompt it is."""
    for start in range(0, len(numbers), parallel):
        some = [prompts[number % len(prompts)] for number in numbers[start : start + parallel]]
        calls = [[begin(partial(side, one)) for one in some] for side in (server, baseline)]
        for mine, other in zip(*calls, strict=True):
            yield Pair(wait(mine), wait(other))


def _check(pair: Pair, first: Pair) -> None:
    """Refuse texts that are no pair, or come from elsewhere than the first ones."""
    models = sorted({text.model for text in (*first, *pair)})
    if len(models) > 1:
        raise ServerError(
            f"answers come from the models {' and '.join(map(repr, models))}: take two servers of "
            "one model, or name the model of each in its requests"
        )
    mine, other = (text.prompt_tokens for text in pair)
    if mine != other and None not in (mine, other):
        raise ServerError(
            f"one prompt is {mine} tokens for the server and {other} for the baseline, which have "
            "other tokenizers or chat templates: give both the address of plain completions, or "
            "one template"
        )
