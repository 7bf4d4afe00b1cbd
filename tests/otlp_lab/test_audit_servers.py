"""A running server against a baseline: bets are fair, and planted errors are detected."""

from __future__ import annotations

import copy
import itertools
import json
import math
import queue
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from otlp.auditing import Verdict
from otlp.distribution import total_variation
from otlp.errors import InvalidInputError, ServerError
from otlp_lab.servers import Completion, Completions, Pair, audit_server, planted
from otlp_lab.servers.betting import Bets, pieces
from otlp_lab.servers.independence import check_independent, combine, copied, one_each
from otlp_lab.servers.power import half, rarest, smallest_found
from tests.otlp_lab.servers import Law, completion, dripping, serving
from tests.processes import run_python

LIMIT = math.log(1e6)


def play(server: Law, baseline: Law, pairs: int, limit: float = math.inf, prompts: int = 1) -> Bets:
    """Bet on a number of pairs, or until the limit."""
    bets = Bets()
    for number in range(pairs):
        bets.bet(number % prompts, pieces(server()), pieces(baseline()))
        if bets.most >= limit:
            break
    return bets


# the bets


@pytest.mark.parametrize("seed", range(3))
def test_no_bet_wins_in_the_mean(seed: int) -> None:
    """The wealth before a pair is the mean over the pair and the swapped pair."""
    bets, law = Bets(), Law(seed, words=4)
    for number in range(80):
        mine, other = pieces(law()), pieces(law())
        turned = copy.deepcopy(bets)
        before = math.exp(bets.log_wealth)
        bets.bet(number % 2, mine, other)
        turned.bet(number % 2, other, mine)
        after = math.exp(bets.log_wealth), math.exp(turned.log_wealth)
        assert sum(after) / 2 == pytest.approx(before, rel=1e-12)


def test_equal_laws_are_rejected_as_rarely_as_is_said_by_enumeration() -> None:
    """All 4^6 sequences of six pairs of two texts, with their probabilities."""
    chance = {"a": 0.3, "b": 0.7}
    mean, alarms = 0.0, dict.fromkeys((0.9, 0.8, 0.7), 0.0)
    for way in itertools.product(itertools.product("ab", repeat=2), repeat=6):
        bets, probability = Bets(), 1.0
        for mine, other in way:
            bets.bet(0, (mine,), (other,))
            probability *= chance[mine] * chance[other]
        mean += probability * math.exp(bets.log_wealth)
        for rate in alarms:
            alarms[rate] += probability * (bets.most >= -math.log(rate))
    assert mean == pytest.approx(1.0, abs=1e-12)
    assert all(0.0 < found <= rate for rate, found in alarms.items())


def test_equal_laws_are_rejected_as_rarely_as_is_said_sampled() -> None:
    """Rate 0.1, 150 runs: more than 30 alarms would have probability 1e-4."""
    alarms = sum(
        play(Law(2 * seed), Law(2 * seed + 1), 60, math.log(10.0)).most >= math.log(10.0)
        for seed in range(150)
    )
    assert alarms <= stats.binom.isf(1e-4, 150, 0.1)


def test_a_baseline_against_itself_gives_no_alarm_in_40_runs() -> None:
    for seed in range(40):
        assert play(Law(2 * seed), Law(2 * seed + 1), 500, prompts=2).most < LIMIT


@pytest.mark.parametrize("prompts", [1, pytest.param(2, marks=pytest.mark.slow), 4])
def test_a_planted_bias_is_found_within_4000_texts(prompts: int) -> None:
    """In at least 9 of 10 runs."""
    law = Law(0, 0.05)
    assert total_variation(law.law, law.fair) == pytest.approx(0.05, abs=2e-4)
    found = [
        play(Law(2 * seed, 0.05), Law(2 * seed + 1), 2000, LIMIT, prompts).most >= LIMIT
        for seed in range(10)
    ]
    assert sum(found) >= 9


# detectable deviations


@pytest.mark.parametrize("shape", [rarest, half])
def test_the_marked_texts_are_what_they_are_called(shape: Any) -> None:
    law = Law(0)
    texts = [pieces(law()) for _ in range(500)]
    marked = shape(texts)
    if shape is rarest:
        assert len({texts[at] for at in np.flatnonzero(marked)}) == 1
    else:
        inside = {texts[at][0] for at in np.flatnonzero(marked)}
        assert 0.35 < marked.mean() <= 0.5
        assert not any(texts[at][0] in inside for at in np.flatnonzero(~marked))


def test_what_would_have_been_found_is_found() -> None:
    """With few texts the sizes are large; a bias on half of the words must be larger."""
    rng = np.random.default_rng(0)
    texts = [[(word,) for word in rng.choice(list("abcdefgh"), size=300)]]
    sizes = list(smallest_found(texts, 300, LIMIT, seed=0).values())
    assert 0.05 < sizes[0] < sizes[1] < 1.0
    assert set(smallest_found(texts, 20, LIMIT, seed=0).values()) == {1.0}
    alike = [[("a",)] * 50]
    assert set(smallest_found(alike, 100, LIMIT, seed=0).values()) == {1.0}


# the audit


def test_a_report_of_a_difference() -> None:
    report = audit_server(Law(0, 0.2), Law(1), ["x", "y"], pairs=1000)
    assert report.verdict is Verdict.TEXTS_DIFFER and not report.passed
    assert report.log10_wealth >= 6.0 and report.detectable == {}
    assert report.tokens == 4 * report.pairs < 4000
    _, word, mine, other = report.furthest[0]
    assert mine > other + 0.1
    assert str(report).startswith("TEXTS_DIFFER: ") and f"{word!r} begins" in str(report)


def test_a_report_of_no_difference() -> None:
    report = audit_server(Law(0), Law(1), ["x"], pairs=40)
    assert report.verdict is Verdict.NOT_REJECTED and report.passed
    assert report.pairs == report.budget == 40 and report.stopped == ""
    assert "40 of 40 pairs of texts, 160 tokens" in str(report)
    assert set(report.detectable) == {
        "towards one text of each prompt",
        "towards half of the first words",
    }


def test_a_planted_share_has_the_size_that_is_said() -> None:
    """The first text of a prompt is repeated: G-test of counts at 1e-6, 4,000 texts."""
    law = Law(0, words=3)
    stale = planted(law, 0.3, np.random.default_rng(1))
    first = stale("x").text
    drawn = [stale("x").text for _ in range(4000)]
    expected = 0.7 * law.law + 0.3 * np.array([text == first for text in law.texts])
    counts = np.array([drawn.count(text) for text in law.texts])
    assert stats.power_divergence(counts, 4000 * expected, lambda_=0).pvalue > 1e-6


def test_an_audit_goes_on_from_earlier_pairs() -> None:
    kept: list[Pair] = []
    whole = audit_server(Law(0), Law(1), ["x", "y"], pairs=40, keep=kept.append)
    asked: list[str] = []

    def counted(prompt: str) -> Completion:
        asked.append(prompt)
        return kept[20 + len(asked) - 1].server

    again: list[Pair] = []
    rest = (pair.baseline for pair in kept[20:])
    how: dict[str, Any] = {"pairs": 40, "earlier": kept[:20], "keep": again.append}
    report = audit_server(counted, lambda prompt: next(rest), ["x", "y"], **how)
    assert len(kept) == 40 and again == kept[20:]
    assert asked == ["x", "y"] * 10
    assert report.log10_wealth == pytest.approx(whole.log10_wealth, abs=1e-12)


def test_requests_at_a_time_keep_their_order() -> None:
    def slow_x(prompt: str) -> Completion:
        time.sleep(0.01 if prompt == "x" else 0.0)
        return Completion(f"{prompt} {np.random.default_rng().integers(9)}")

    kept: list[Pair] = []
    audit_server(slow_x, slow_x, ["x", "y", "z"], pairs=10, parallel=4, keep=kept.append)
    assert [pair.server.text[0] for pair in kept] == list("xyzxyzxyzx")
    assert [pair.baseline.text[0] for pair in kept] == list("xyzxyzxyzx")


def test_what_came_before_a_failure_is_judged() -> None:
    law, numbers = Law(0), itertools.count()

    def dies(prompt: str) -> Completion:
        if next(numbers) == 30:
            raise ServerError("gone")
        return law()

    report = audit_server(dies, Law(1), ["x"], pairs=100)
    assert report.pairs == 30
    assert report.stopped == "gone"

    def gone(prompt: str) -> Completion:
        raise ServerError("gone")

    with pytest.raises(ServerError, match="gone"):
        audit_server(gone, Law(1), ["x"], pairs=10)


def test_the_time_limit_ends_it_with_what_there_is() -> None:
    report = audit_server(Law(0), Law(1), ["x"], pairs=10**6, time_limit=0.05)
    assert 0 < report.pairs < 10**6
    assert "the time limit of 0.05 s is over" in str(report)


SAME = Completion("same", "length", 2, 3, "tiny")


@pytest.mark.parametrize(
    ("mine", "other", "message"),
    [
        (SAME, SAME, "the same text again and again: ask at a temperature above 0"),
        (SAME, Completion("another", "length", 2, 3, "tiny"), "without a fixed seed"),
        (SAME, Completion("x", "length", 2, 3, "large"), "from the models 'large' and 'tiny'"),
        (SAME, Completion("x", "length", 2, 9, "tiny"), "3 tokens for the server and 9 for the"),
    ],
)
def test_servers_that_are_no_pair(mine: Completion, other: Completion, message: str) -> None:
    with pytest.raises((InvalidInputError, ServerError), match=message):
        audit_server(lambda prompt: mine, lambda prompt: other, ["x"], pairs=100)


@pytest.mark.parametrize("text", ["", "same"])
def test_a_server_that_says_the_same_or_nothing_is_found(text: str) -> None:
    report = audit_server(lambda prompt: replace(SAME, text=text), Law(1), ["x"], pairs=200)
    assert report.verdict is Verdict.TEXTS_DIFFER
    assert (1, text, 1.0, 0.0) in report.furthest


@pytest.mark.parametrize(
    "wrong",
    [
        *({"pairs": 0}, {"parallel": 0}, {"false_alarm_rate": 0.0}, {"time_limit": 0}),
        *({"time_limit": math.nan}, {"prompts": []}, {"prompts": [3]}),
    ],
)
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        audit_server(Law(0), Law(1), **{"prompts": ["x"], "pairs": 10, **wrong})


# repeated texts


def test_independent_texts_are_refused_as_rarely_as_is_said_by_enumeration() -> None:
    """The e-values of all 3^6 orders of six texts have mean at most 1 for any law."""
    weights = {"a": 0.6, "b": 0.3, "c": 0.1}
    shown = [(word,) for word in "abacab"]
    means = np.zeros(3)
    for words in itertools.product(weights, repeat=6):
        texts = [(word,) for word in words]
        chance = math.prod(map(weights.get, words))
        logs = (
            copied(shown, texts),
            copied(texts[:-1], texts[1:]),
            one_each(texts[::2], texts[1::2]),
        )
        means += chance * np.exp(logs)
    assert np.all(means <= 1.0 + 1e-12)
    assert means[:2] == pytest.approx(1.0, abs=0.3)


def test_an_e_value_of_many() -> None:
    mean = 0.0
    for logs in itertools.product((-math.inf, math.log(4.0)), repeat=3):
        mean += math.prod(0.75 if log < 0.0 else 0.25 for log in logs) * math.exp(combine(logs))
    assert mean == pytest.approx(1.0, abs=1e-12)
    assert combine([30.0, 0.0, 0.0]) > 27.0
    assert combine([10.0] * 3) > 26.0


@pytest.mark.parametrize("bias", [0.0, 0.3])
def test_independent_texts_are_above_suspicion(bias: float) -> None:
    """40 streams of equal or different laws, some with few texts and long repetitions."""
    for seed in range(40):
        one, other = Law(2 * seed, bias, 1 + seed % 4), Law(2 * seed + 1, words=2 + seed % 4)
        texts = [[pieces(law()) for _ in range(50) for law in (one, other)] for _ in range(2)]
        assert check_independent(texts)


class Cached:
    """Texts that are repeated for a number of requests; only `prompts` are cached."""

    def __init__(self, law: Law, requests: int, prompts: str) -> None:
        self.law, self.requests, self.prompts = law, requests, prompts
        self.kept = dict[str, tuple[int, Completion]]()

    def __call__(self, prompt: str) -> Completion:
        count, text = self.kept.get(prompt, (0, SAME))
        if prompt not in self.prompts or count % self.requests == 0:
            text = self.law()
        self.kept[prompt] = count + 1, text
        return text


@pytest.mark.parametrize(
    ("requests", "prompts", "named"),
    [
        (10**6, "x", "its own single text for a prompt"),
        (10**6, "xy", "each side returns the same text again and again"),
        (6, "xy", "a side repeats its previous text"),
        (3, "x", "a side repeats its previous text"),
    ],
)
def test_each_side_with_a_cache_is_refused(requests: int, prompts: str, named: str) -> None:
    one, other = (Cached(Law(seed), requests, prompts) for seed in (0, 1))
    with pytest.raises(InvalidInputError, match=named):
        audit_server(one, other, ["x", "y"], pairs=400)


@pytest.mark.parametrize("requests", [20, 50])
def test_answers_that_are_kept_for_a_while_are_no_difference(requests: int) -> None:
    """Ten audits of equal laws each: refused or not detected, at every stopping time."""
    for seed in range(0, 20, 2):
        one, other = (Cached(Law(seed + k, words=3), requests, "xy") for k in (0, 1))
        with pytest.raises(InvalidInputError, match=r"not independent|again and again"):
            audit_server(one, other, ["x", "y"], pairs=600)


def test_bets_on_texts_that_stay_the_same_for_long() -> None:
    """By rounding, the fraction exceeded one after a few hundred texts."""
    texts = [pieces(Completion(text)) for text in ("a b", "a c", "b")]
    rng, bets = np.random.default_rng(11), Bets()
    for number in range(1000):
        if number % 100 == 0:
            server, baseline = (texts[k] for k in rng.choice(3, size=2))
        bets.bet(0, server, baseline)
    assert math.isfinite(bets.log_wealth)


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_a_baseline_from_the_cache_of_the_server_is_refused(share: float) -> None:
    rng, texts = np.random.default_rng(0), queue.Queue[Completion]()
    biased, fair = Law(0, 0.5), Law(1)

    def server(prompt: str) -> Completion:
        texts.put(text := biased())
        return text

    def baseline(prompt: str) -> Completion:
        text = texts.get()
        return text if rng.random() < share else fair()

    with pytest.raises(InvalidInputError, match="texts of a pair are the same"):
        audit_server(server, baseline, ["x"], pairs=600)


# requests and answers

FAST: dict[str, Any] = {"tries": 3, "patience": 0.0, "timeout": 0.2}


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (404, {"error": {"message": "File Not Found"}}, "404: .*File Not Found.*chat/completions"),
        (401, "no", "401: no; give the environment variable with its key"),
        (400, {"message": "unknown field"}, "unknown field.*change the request"),
        (302, "http://127.0.0.1:1/elsewhere", "redirections are not followed"),
        (500, "out of memory", r"500: out of memory \(3 tries\)"),
        (503, "loading", r"503: loading \(3 tries\)"),
        (200, "data: {}", "not a completion: data: {}; is it OpenAI's interface"),
        (200, "[" * 10**5, "not a completion"),
        (200, "", "empty answer"),
        (200, [], "not a completion"),
        (200, {"choices": []}, "not a completion"),
        (200, {"choices": [{"message": {"content": None}}]}, "not a completion"),
        (200, completion("a", usage={"completion_tokens": "many"}), "not a completion"),
        (200, completion("a", usage=[3]), "not a completion"),
        (200, completion("a", usage={"completion_tokens": math.inf}), "not a completion"),
        (200, completion("a", tokens=1), "1 tokens instead of the requested 2"),
        (200, completion("a b c", tokens=3), "3 tokens instead of the requested 2"),
    ],
)
def test_answers_that_are_none(status: int, answer: Any, message: str) -> None:
    asked = []

    def reply(path: str, request: dict[str, Any]) -> tuple[int, Any]:
        asked.append(path)
        return status, answer

    with serving(reply) as url, pytest.raises(ServerError, match=message) as caught:
        Completions(url, {"max_tokens": 2}, **FAST)("x")
    assert str(caught.value).startswith(f"{url}/v1/completions: ")
    assert len(asked) == (3 if status >= 500 else 1)


def test_a_server_that_is_gone_or_slow() -> None:
    def slow(path: str, request: dict[str, Any]) -> tuple[int, Any]:
        time.sleep(0.3)
        return 200, completion("late")

    late = pytest.raises(ServerError, match=r"within 0.2 s: raise timeout, .* \(2 tries\)")
    with serving(slow) as url, late:
        Completions(url, {"max_tokens": 2}, **{**FAST, "tries": 2})("x")
    with pytest.raises(ServerError, match=r"refused.*is it running there\? \(3 tries\)"):
        Completions(url, {"max_tokens": 2}, **FAST)("x")


def test_a_busy_server_is_asked_again() -> None:
    statuses = iter([503, 429, 200])
    with serving(lambda path, request: (next(statuses), completion(" a b"))) as url:
        found = Completions(url, {"max_tokens": 2}, **FAST)("x")
    assert found == Completion(" a b", "length", 2, 3, "tiny")


@pytest.mark.parametrize("headers", [False, True])
def test_the_timeout_is_that_of_a_whole_answer(headers: bool) -> None:
    """Bytes of the answer or of endless headers arrive one by one, each within the timeout."""
    with dripping(headers) as url, pytest.raises(ServerError, match=r"no answer within 0.2 s"):
        Completions(url, {"max_tokens": 2}, **{**FAST, "tries": 1})("x")


def test_the_time_limit_holds_over_tries_and_pauses() -> None:
    with dripping(False) as url:
        for how in ({"timeout": 60.0}, {"timeout": 0.01, "patience": 60.0}):
            side = Completions(url, {"max_tokens": 2}, **how)
            with pytest.raises(ServerError, match=r"the time limit of 0.1 s is over"):
                audit_server(side, side, ["x"], time_limit=0.1)


def test_an_answer_that_is_cut_off_is_asked_for_again() -> None:
    whole = json.dumps(completion(" a b"))
    cut = iter([whole[:50], whole])
    with serving(lambda path, request: (200, next(cut)), length=len(whole)) as url:
        assert Completions(url, {"max_tokens": 2}, **FAST)("x").text == " a b"


INTERRUPTED = """
import os, signal, threading, time
from otlp_lab.servers import Completion, audit_server
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    audit_server(lambda prompt: time.sleep(600), lambda prompt: Completion("a"), ["x"])
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_the_process_whatever_is_waited_for() -> None:
    assert run_python(INTERRUPTED) == "interrupted\n"


def test_the_model_that_was_named_answers() -> None:
    with serving(lambda path, request: (200, completion("a b"))) as url:
        assert Completions(url, {"max_tokens": 2, "model": "tiny"})("x").model == ""
        with pytest.raises(ServerError, match="model 'large', got an answer from 'tiny'"):
            Completions(url, {"max_tokens": 2, "model": "large"})("x")


PLAIN, CHAT = {"prompt": "x"}, {"messages": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize(
    ("below", "path", "sent"),
    [
        ("", "/v1/completions", PLAIN),
        ("/v1/", "/v1/completions", PLAIN),
        ("/api/completions", "/api/completions", PLAIN),
        ("/v1/chat/completions", "/v1/chat/completions", CHAT),
    ],
)
def test_what_is_sent_where(below: str, path: str, sent: dict[str, Any]) -> None:
    seen = []

    def reply(*request: Any) -> tuple[int, Any]:
        seen.append(request)
        answer = {"message": {"content": "a"}} if "chat" in below else {"text": "a"}
        return 200, {"choices": [{**answer, "finish_reason": "stop"}]}

    with serving(reply) as url:
        got = Completions(url + below, {"max_tokens": 2, "top_p": 0.9}, key="secret")("x")
    assert got == Completion("a", "stop")
    expected = {**sent, "max_tokens": 2, "top_p": 0.9, "authorization": "Bearer secret"}
    assert seen == [(path, expected)]
    assert "secret" not in repr(Completions(url, {"max_tokens": 2}, key="secret"))


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8080", "ftp://a", "http://", "http://u@a", "http://a?b=1", "http://a:x", "", 3],
)
def test_addresses_that_are_none(url: Any) -> None:
    with pytest.raises(InvalidInputError, match="must be written as http://"):
        Completions(url, {"max_tokens": 2})


def test_how_a_text_is_cut() -> None:
    assert pieces(Completion(" It's 12 o'clock,\n now ")) == (
        " It", "'", "s", " 12", " o", "'", "clock", ",", "\n now", " ",
    )  # fmt: skip
    assert pieces(Completion("extraordinarily", "stop")) == ("extraord", "inarily", "<stop>")
    assert pieces(Completion("", "length")) == ("",)
    assert pieces(Completion("", "stop")) == ("<stop>",)
