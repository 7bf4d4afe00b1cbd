"""Rounds drafted by an engine: correct rounds pass, and each mistake is named."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from otlp import audit_rounds
from otlp.auditing import AuditReport, AuditSettings, DraftedPaths, DraftedTree, Verdict
from otlp.auditing.successive import independence_test, successive_tests
from otlp.errors import InvalidInputError
from otlp.testing import assert_lossless
from otlp.testing.plain_block import verify_block
from otlp_lab.engines import ENGINES
from tests.otlp.auditing import own_engines
from tests.otlp.auditing.own_engines import (
    Engine,
    OwnRows,
    SharedNoise,
    SharedRatios,
    SharedRows,
)

PATH = DraftedPaths(1, own_engines.LENGTH)

TARGET, DRAFT = np.array([0.0, 0.7, 0.3]), np.array([0.5, 0.45, 0.05])
"""The residual is shared equally by a token drafted often and a token drafted rarely."""


TARGETS = {"CoinOfOne": DRAFT, "AdvancedByAccepted": np.array([0.3, 0.4, 0.3])}
"""No rejections, and more acceptances."""


def repeated(law: Any, length: int) -> list[Any]:
    return [np.broadcast_to(law, (law.size,) * t + law.shape).copy() for t in range(length)]


def played(engine: Engine, target: Any = TARGET, seed: int = 0, **more: Any) -> AuditReport:
    models = repeated(target, 3), repeated(DRAFT, 2)
    how: dict[str, Any] = {"settings": AuditSettings(1_000), **more}
    rng = np.random.default_rng(seed)
    return audit_rounds(engine.verify, *models, PATH, drafter=engine.draft, rng=rng, **how)


@cache
def judged(name: str, samples: int = 2_500) -> AuditReport:
    engine, target = getattr(own_engines, name)(), TARGETS.get(name, TARGET)
    return played(engine, target, settings=AuditSettings(samples))


TWINS = {
    "OneStream": Verdict.DRAWS_SHARED,
    "AdvancedByAccepted": Verdict.ROUNDS_DEPEND,
    "Replayed": Verdict.ROUNDS_DEPEND,
    "CoinOfOne": Verdict.RULE_FAILED,
    "OtherPrecision": Verdict.DRAFTS_DIFFER,
}


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", TWINS)
def test_each_mistake_fails_by_its_name(name: str) -> None:
    plain = TWINS[name] in (Verdict.ROUNDS_DEPEND, Verdict.DRAFTS_DIFFER)
    report = judged(name, 1_500) if plain else judged(name)
    assert report.verdict is TWINS[name], report


@pytest.mark.parametrize("target", [TARGET, DRAFT])
def test_noise_may_be_shared_if_tokens_are_compared(target: Any) -> None:
    assert played(SharedNoise(), target).verdict is Verdict.NOT_REJECTED
    assert judged("SharedRatios").verdict is Verdict.DRAWS_SHARED


@pytest.mark.usefixtures("few_repetitions")
def test_the_verifier_that_compares_tokens_is_lossless() -> None:
    """The text does not depend on the drafts, so no drafts can make it wrong."""

    def verify(x: Any, p: Any, q: Any, rng: Any) -> list[int]:
        text: list[int] = []
        for at, token in enumerate([*x[0], None]):
            text.append(rng.choice(3, p=p[0, at]))
            if text[-1] != token:
                break
        return text

    models = repeated(TARGET, 3), repeated(DRAFT, 2)
    assert audit_rounds(verify, *models, PATH).verdict is Verdict.LOSSLESS

    def always(tables: Any, rng: Any) -> list[int]:
        return [1, 1]

    found = audit_rounds(verify, *models, PATH, sampler=always)
    assert found.verdict is Verdict.DRAFTS_DIFFER and found.total_variation < 1e-12


@pytest.mark.parametrize(
    ("engine", "verdict"),
    [(SharedNoise, Verdict.NOT_REJECTED), (SharedRatios, Verdict.NOT_LOSSLESS)],
)
def test_a_sampler_that_stores_the_noise_of_the_round(engine: Any, verdict: Verdict) -> None:
    """Each round is verified before the next round is drafted."""
    played_by = engine()
    found = audit_rounds(
        played_by.verify,
        repeated(TARGET, 3),
        repeated(DRAFT, 2),
        PATH,
        sampler=lambda tables, rng: played_by.draft(tables, 1)[0],
        settings=AuditSettings(2_500),
    )
    assert found.verdict is verdict, found


@pytest.mark.parametrize("target", [TARGET, DRAFT])
def test_the_same_engine_without_a_mistake_passes(target: Any) -> None:
    report = played(Engine(), target)
    assert report.verdict is Verdict.NOT_REJECTED
    assert len(report.successive) == 36 and report.false_alarm_rate == 1e-6
    printed = str(report)
    assert "least p-value of 36 tests" in printed and "A dependence of total variation" in printed


def test_numbers_that_are_shared_are_told_from_a_wrong_rule() -> None:
    class Accepts(Engine):
        def coin(self, offset: int) -> float:
            return -1.0

    shared, wrong = judged("OneStream"), played(Accepts())
    assert "With drafts of another generator, no deviation was found" in str(shared)
    assert wrong.verdict is Verdict.NOT_LOSSLESS and wrong.apart is None


def test_rows_of_a_batch_that_share_numbers() -> None:
    assert played(SharedRows(), batch=5).verdict is Verdict.ROUNDS_DEPEND
    right = played(OwnRows(), batch=5)
    assert right.verdict is Verdict.NOT_REJECTED
    assert "last token with first draft, 5 later" in right.successive
    one_call = played(OwnRows(), batch=1_000, settings=AuditSettings(1_000))
    assert one_call.verdict is Verdict.NOT_REJECTED


def test_a_test_suite_fails_too() -> None:
    engine = own_engines.Replayed()
    how: dict[str, Any] = {"vocab_sizes": [3], "dtypes": ["float64"], "least_error": 0.4}
    with pytest.raises(AssertionError, match="ROUNDS_DEPEND"):
        assert_lossless(
            engine.verify, PATH, drafter=engine.draft, settings=AuditSettings(samples=1_000), **how
        )


@pytest.mark.slow
def test_forty_right_rounds_are_not_rejected() -> None:
    """Rounds of otlp, plain references and transformers, each with its own state and models."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    theirs = ENGINES["hugging-face"].rule()
    torch.manual_seed(0)

    def torch_drafts(tables: Any, rows: int) -> Any:
        first = int(torch.from_numpy(tables[0]).multinomial(1))
        return [[first, int(torch.from_numpy(tables[1][first].copy()).multinomial(1))]]

    for seed in range(40):
        rng, size = np.random.default_rng(seed), 2 + seed % 3
        laws = [rng.dirichlet(np.ones(size), size**t).reshape((size,) * (t + 1)) for t in range(3)]
        drafted = [rng.dirichlet(np.ones(size), size**t).reshape((size,) * (t + 1)) for t in (0, 1)]
        engine = Engine(size, seed)
        own = np.random.default_rng(seed + 1000)

        def block(x: Any, p: Any, q: Any, _: Any, own: Any = own) -> Any:
            return verify_block(x[0].tolist(), p[0].tolist(), q[0].tolist(), own.random)

        def drafts(tables: Any, rows: int, own: Any = own) -> Any:
            first = own.choice(len(tables[0]), p=tables[0])
            return [[first, own.choice(len(tables[0]), p=tables[1][first])]]

        kinds = (block, drafts), (engine.verify, engine.draft), (theirs, torch_drafts)
        rule, drafter = kinds[seed // 3 % 3]
        report = audit_rounds(
            rule,
            laws,
            drafted,
            PATH,
            drafter=drafter,
            settings=AuditSettings(samples=2_000),
            rng=rng,
        )
        assert report.verdict is Verdict.NOT_REJECTED, report


def test_p_values_of_pairs_are_uniform_for_independent_rounds() -> None:
    """Pairs overlap, and the drafts of a round influence its output."""
    found: list[float] = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        drafts = rng.choice(4, p=[0.4, 0.3, 0.2, 0.1], size=1_500)
        outputs = np.where(rng.random(1_500) < 0.5, drafts, 0)
        tests = successive_tests(drafts[:, None].tolist(), outputs[:, None].tolist(), 1e-6)
        found += [
            test.p_value
            for name, test in tests.items()
            if name.startswith("last token with first d")
        ]
    for level in (0.05, 0.25, 0.5):
        share, noise = float(np.mean(np.array(found) < level)), np.sqrt(level / len(found))
        assert abs(share - level) < 3.5 * noise


def test_a_dependence_of_the_stated_size_is_found() -> None:
    """Detected nine times in ten if rounds repeat the previous round."""
    one, other = np.random.default_rng(0).integers(3, size=(2, 4_000))
    first = independence_test(one, other, 1e-6)
    copied, found = first.detectable / (2 / 3), 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        x, y = rng.integers(3, size=(2, 4_000))
        y = np.where(rng.random(4_000) < copied, x, y)
        found += independence_test(x, y, 1e-6).rejected
    assert found >= 84  # 90 minus two standard deviations


@pytest.mark.parametrize(
    ("drafter", "printed"),
    [
        (3, "pass a callable"),
        (lambda tables, rows: [[0]], r"the drafter: draft_tokens must .*, got shape \(1, 1\)"),
        (lambda tables, rows: [[0, 0]] * 2, "must return 1 rows, got 2"),
        (lambda tables, rows: [[0, 7]], "the drafter: "),
        (lambda tables, rows: 1 / 0, "the drafter raises ZeroDivisionError"),
    ],
)
def test_what_is_no_drafter_is_refused(drafter: Any, printed: str) -> None:
    models = repeated(TARGET, 3), repeated(DRAFT, 2)
    with pytest.raises(InvalidInputError, match=printed):
        audit_rounds(Engine().verify, *models, PATH, drafter=drafter)


def test_a_drafter_stands_alone() -> None:
    models = repeated(TARGET, 3), repeated(DRAFT, 2)
    with pytest.raises(InvalidInputError, match="pass one of them"):
        more: dict[str, Any] = {"drafter": Engine().draft, "sampler": lambda tables, rng: [0, 0]}
        audit_rounds(Engine().verify, *models, PATH, **more)
    with pytest.raises(InvalidInputError, match="drafter: only for rounds"):
        assert_lossless(lambda *given: 0, lambda q: DraftedTree([0]), drafter=Engine().draft)  # type: ignore[return-value]
