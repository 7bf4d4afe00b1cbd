"""Audit of a server: request pairs of texts, check them, and bet on them until a decision."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from otlp.auditing.audited_rule import Progress, name_of, silent
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
    """Texts of both sides for one prompt.

    Examples
    --------
    >>> from otlp_lab.servers import Completion, Pair
    >>> Pair(Completion(" is Paris."), Completion(" is the")).baseline.text
    ' is the'
    """

    server: Completion
    baseline: Completion


def planted(sampler: Sampler, share: float, rng: np.random.Generator) -> Sampler:
    """Plant a bias of known size: a share of the texts repeats the first text of the prompt.

    The total variation from the distribution of `sampler` is `share` times one minus the
    probability of this text.

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
"""A difference found after N pairs is reported after `AGAIN` * N, if texts look independent.

If a server caches answers for a while, the first answers look like different distributions, and
later answers show that texts are not independent.
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
    """Test whether a server's texts have the distribution of a baseline's texts.

    The baseline may be the same server without drafts.  A text is requested from each side for
    every prompt in turn.  Bets on which side produced which text win only if the distributions
    differ; see `otlp_lab.servers.betting`.

    Parameters
    ----------
    server, baseline : callable
        Maps a prompt to a `Completion`, such as `Completions`.  Texts must be independent: use a
        temperature above 0 and no fixed seed.
    prompts : sequence of str
        Prompts.  A bias after one prompt is found sooner with few prompts.
    pairs : int
        Maximum number of pairs of texts, including `earlier`.
    false_alarm_rate : float
        Probability that equal distributions are rejected, for any stopping time.
    parallel : int
        Number of parallel requests to each side.
    time_limit : float
        Seconds after which requests stop; the texts collected so far are tested.
    earlier : sequence of Pair
        Stored pairs of an earlier run of the same audit.
    keep : callable
        Called with each new pair.
    names : sequence of str, optional
        Names of server and baseline in the report.
    seed : int
        Random seed of the runs for `ServerReport.detectable`.
    progress : callable
        Called with a label and the share done.

    Returns
    -------
    ServerReport
        ``str(report)`` is a readable summary.  If a side fails during the audit, the earlier texts
        are tested and `stopped` is the reason.

    Raises
    ------
    InvalidInputError
        If a parameter is out of range, or texts are evidently not independent; see
        `otlp_lab.servers.independence`.
    ServerError
        If a side fails or the time limit is reached before the first pair, or the sides cannot be
        compared: different models, or prompts with different numbers of tokens.

    Notes
    -----
    About 4 ln(1 / false_alarm_rate) / chi^2 pairs decide between two known distributions at a small
    chi-squared distance; the bets must learn the distributions first.  After a decision the audit
    requests the same number of pairs again, up to `pairs`, because evidence of dependent texts may
    come late.

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
            new = _request(server, baseline, prompts, range(len(earlier), pairs), parallel)
            for number, pair in enumerate(chain(earlier[:pairs], new)):
                _check(pair, taken[0] if taken else pair)
                if number >= len(earlier):
                    keep(pair)
                prompt = len(taken) % len(prompts)
                taken.append(pair)
                texts[prompt] += map(pieces, pair)
                bets.bet(prompt, *texts[prompt][-2:])
                progress("requesting texts", len(taken) / pairs)
                if bets.most >= limit and len(taken) >= look:
                    look = math.ceil(1.05 * len(taken))  # a check goes through all texts
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
    names = names or [name_of(server), name_of(baseline)]
    return ServerReport(
        server=names[0],
        baseline=names[1],
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


def _request(
    server: Sampler, baseline: Sampler, prompts: Sequence[str], numbers: range, parallel: int
) -> Iterator[Pair]:
    """Yield pairs in the order of their numbers; number n has prompt n modulo their count."""
    for start in range(0, len(numbers), parallel):
        some = [prompts[number % len(prompts)] for number in numbers[start : start + parallel]]
        calls = [[begin(partial(side, one)) for one in some] for side in (server, baseline)]
        for mine, other in zip(*calls, strict=True):
            yield Pair(wait(mine), wait(other))


def _check(pair: Pair, first: Pair) -> None:
    """Raise ServerError if models or prompt lengths of texts differ."""
    models = sorted({text.model for text in (*first, *pair)})
    if len(models) > 1:
        raise ServerError(
            f"answers come from the models {' and '.join(map(repr, models))}: use two servers of "
            "one model, or name the model of each in its requests"
        )
    mine, other = (text.prompt_tokens for text in pair)
    if mine != other and None not in (mine, other):
        raise ServerError(
            f"one prompt has {mine} tokens for the server and {other} for the baseline, so their "
            "tokenizers or chat templates differ: use the address of plain completions for both, "
            "or the same template"
        )
