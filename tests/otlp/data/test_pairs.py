"""Files with p and q of a user: accepted files, and errors for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otlp
from otlp.data import captures
from otlp.data.pairs import from_arrays, read_pairs
from otlp.errors import CaptureError, InvalidDistributionError, InvalidInputError
from tests.otlp.cli.command import done, refused

P, Q = np.random.default_rng(0).dirichlet(np.full(20, 0.5), size=(2, 3))
P[0, :2] = 0.0
P[0] /= P[0].sum()
LOGS = {"target_logits": np.log(np.maximum(P, 1e-300)), "draft_logits": np.log(Q)}


def table(path: Path, head: str, *columns: Any, digits: int = 18) -> None:
    np.savetxt(path, np.stack(columns, 1), f"%.{digits}g", ",", header=head, comments="")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pairs")
    np.savez(made / "rows.npz", p=P, q=Q)
    np.savez(made / "one.npz", target=P[0], draft=Q[0])
    np.savez(made / "logs.npz", **LOGS)
    np.savez(made / "padded.npz", p=P, q=np.pad(Q, ((0, 0), (0, 4))))
    np.save(made / "rows.npy", np.stack([P, Q], axis=1))
    np.save(made / "logs.npy", np.stack([*LOGS.values()], axis=1))
    table(made / "plain.csv", "", P[0], Q[0])
    table(made / "named.csv", "draft,other,target", Q[0], P[1], P[0])
    table(made / "rounded.csv", "p,q", P[0], Q[0], digits=5)
    return made


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("rows.npz", 3, {}),
        ("one.npz", 1, {}),
        ("logs.npz", 3, {}),
        ("padded.npz", 3, {"padded": True}),
        ("rows.npy", 3, {}),
        ("logs.npy", 3, {"values": "logits"}),
        ("plain.csv", 1, {}),
        ("named.csv", 1, {}),
    ],
)
def test_the_pairs_are_those_that_were_written(
    name: str, rows: int, words: dict[str, Any], folder: Path
) -> None:
    capture = read_pairs(str(folder / name), **words)
    assert len(capture) == rows
    for row in range(rows):
        p, q = capture.distributions(row)
        np.testing.assert_allclose(p, P[row], rtol=1e-13, atol=1e-299)
        np.testing.assert_allclose(q, Q[row], rtol=1e-13)


def test_few_digits_are_rounding_and_other_sums_are_refused(folder: Path, tmp_path: Path) -> None:
    p, _ = read_pairs(str(folder / "rounded.csv")).distributions(0)
    np.testing.assert_allclose(p, P[0], atol=1e-4)
    table(tmp_path / "half.csv", "p,q", P[0] / 2, Q[0])
    with pytest.raises(InvalidDistributionError, match="pass --logits"):
        read_pairs(str(tmp_path / "half.csv"))


def test_the_padding_of_a_vocabulary_is_asked_for_and_is_no_vocabulary(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"tokens, got 20 and 24.*--pad-vocabulary"):
        read_pairs(str(folder / "padded.npz"))
    wrong = np.full(24, 1 / 24)
    with pytest.raises(InvalidInputError, match=r"got 0.167 in a row of q"):
        from_arrays(P[0], wrong, padded=True)
    printed = done("solve", folder / "padded.npz", "--pad-vocabulary")
    assert "Tokens from 20 on are assumed to have probability 0 in both models" in printed


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.bin", b"hello, these are words"),
        ("text.csv", b"hello, these are words"),
        ("empty.csv", b""),
        ("one.csv", b"0.5\n0.5\n"),
        ("text.npy", b"hello"),
        ("text.npz", b"hello"),
    ],
)
def test_other_files_are_told_what_is_taken(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    printed = refused("solve", tmp_path / name)
    assert "numpy.savez('mine.npz', p=p, q=q)" in printed
    with pytest.raises(CaptureError):
        read_pairs(str(tmp_path / "nowhere.npz"))


@pytest.mark.parametrize("heading", ["q,p,", "draft", "p,p", "q,p,r"])
def test_headings_are_heeded_or_refused(heading: str, tmp_path: Path) -> None:
    table(tmp_path / "x.csv", heading, P[0], Q[0])
    with pytest.raises(CaptureError, match=r"each of \d columns must have its own heading"):
        read_pairs(str(tmp_path / "x.csv"))
    table(tmp_path / "swapped.csv", "q,p", Q[0], P[0])
    np.testing.assert_allclose(read_pairs(str(tmp_path / "swapped.csv")).distributions(0)[0], P[0])


def test_probabilities_are_no_logits(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", target_probs=P, draft_probs=Q)
    with pytest.raises(CaptureError, match="are probabilities, not logits"):
        read_pairs(str(tmp_path / "x.npz"), "logits")
    with pytest.raises(InvalidInputError, match="did you mean 'logits'"):
        from_arrays(P, Q, "logit")


@pytest.mark.parametrize("values", ["probabilities", "logits"])
def test_rows_that_are_distributions_are_no_logits(values: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "x.npz")
    np.savez(path, target_logits=P, draft_logits=Q)
    mend = "leave out --logits" if values == "logits" else "rename them p and q"
    with pytest.raises(CaptureError, match=f"are probabilities, not logits; {mend}"):
        read_pairs(path, values)
    for p, q in ((P, LOGS["draft_logits"]), ([0.0, 1.0], [1.0, 0.0])):
        np.savez(path, target_logits=p, draft_logits=q)
        assert read_pairs(path, values).draft_logits.shape == np.atleast_2d(q).shape


def test_a_file_with_two_pairs_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", p=P, q=Q, **LOGS)
    with pytest.raises(
        CaptureError,
        match=r"cannot read p and q \(there must be one pair, got p and q, target_logits "
        r"and draft_logits\)",
    ):
        read_pairs(str(tmp_path / "x.npz"))


def test_other_arrays_are_told_what_is_taken(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=P)
    np.save(tmp_path / "flat.npy", P[0])
    for name, reason in (
        ("x.npz", "arrays must be named p and q, "),
        ("flat.npy", "shape must be (2, V) or (rows, 2, V), got (20,)"),
    ):
        assert reason in refused("check", tmp_path / name)
    assert "need a .npz or .npy or .csv file" in refused("solve", "--logits")


@pytest.mark.parametrize(
    "words",
    [
        "solve FILE --row 2 --n 3",
        "check FILE --solvers martingale,max-flow --top-k 0",
        "bench FILE --rows 2 --top-k 0,5 --n 2 --solvers martingale",
        "compare FILE --n 2 --schemes iid --rules k-seq",
    ],
)
def test_commands_take_them(words: str, folder: Path) -> None:
    done(*(word.replace("FILE", str(folder / "rows.npz")) for word in words.split()))


def test_they_are_saved_as_captures_without_a_rounding(tmp_path: Path) -> None:
    capture = from_arrays(P, Q)
    captures.save(capture, tmp_path / "own.safetensors")
    again = captures.load(tmp_path / "own.safetensors")
    assert again.dtype == "float64"
    assert np.array_equal(again.distributions(1)[0], capture.distributions(1)[0])
    best = otlp.optimal_acceptance(otlp.Problem(P[1], otlp.IID(Q[1], 2)))
    p, q = again.distributions(1)
    found = otlp.optimal_acceptance(otlp.Problem(p, otlp.IID(q, 2)))
    assert found == pytest.approx(best, abs=1e-14)


@pytest.mark.usefixtures("few_repetitions")
def test_an_audit_takes_them_and_options_without_a_file_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "logs.npz", **LOGS)
    np.save(tmp_path / "logs.npy", np.stack([*LOGS.values()], axis=1))
    words = "audit naive --n 1 --top-k 4 --capture".split()
    assert "LOSSLESS" in done(*words, tmp_path / "logs.npy", "--logits")
    assert "pass --logits" in refused(*words, tmp_path / "logs.npy")
    for command in ("audit naive --logits", "sweep --synthetic 2 --rules naive --logits"):
        assert "need a .npz or .npy or .csv file" in refused(*command.split())


@pytest.mark.parametrize(
    ("text", "values", "reason"),
    [
        ("0,1\n0.3,1.5\n-1.2,0.4\n", "logits", "the first line, 0,1, may be headings"),
        ("0,1\n0.3,0.5\n0.7,0.5\n", "probabilities", "the first line, 0,1, may be headings"),
        ("2024,2025\n0.3,1.5\n-1.2,0.4\n", "logits", "may be headings"),
        ("0.0,1.0\n0.3,1.5\n-1.2,0.4\n", "logits", "may be headings"),
        ("1,25\n-0,5\n2,75\n", "logits", "may be headings"),
        ("0.,-1.5\n1.,0.4\n2.,0.1\n", "logits", "numbers the lines"),
        ("0,5;0,3\n0,5;0,7\n", "probabilities", "decimal commas; write points"),
        ("p;q\n-,5;1,3\n", "logits", "decimal commas; write points"),
        ("0,5,0,3\n0,5,0,7\n", "probabilities", "decimal commas, write points"),
        ("0.5 0.3\n0.5 0.7\n", "probabilities", "separated by spaces; write commas"),
        ("0.5,0.3 # first\n0.5,0.7\n", "probabilities", "could not convert"),
        (",0,1\n0,0.5,0.3\n1,0.5,0.7\n", "probabilities", "the first line, ,0,1, may be headings"),
        ("-1.5,1.\n1.,2.\n2.5,3.\n", "logits", "column 2 numbers the lines"),
    ],
)
def test_tables_that_may_be_read_in_two_ways_are_refused(
    text: str, values: Any, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(CaptureError, match=reason):
        read_pairs(str(tmp_path / "x.csv"), values)


@pytest.mark.parametrize(
    "text",
    [
        '"q","p"\n"-1.5",0\n0.4,2\n',
        '"","q","p"\n"1",-1.5,0\n"2",0.4,2\n',
        "q;p\r\n-1.5;0\r\n0.4;2\r\n",
        "# q,p\n-1.5,0\n0.4,2\n",
        "\ufeff Q\tP\n-1.5\t0\n\n0.4\t2",
    ],
)
def test_headings_as_others_write_them(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(text.encode())
    capture = read_pairs(str(tmp_path / "x.csv"), "logits")
    p, q = capture.distributions(0)
    assert p[1] / p[0] == pytest.approx(np.exp(2.0)) and q[1] / q[0] == pytest.approx(np.exp(1.9))
    assert "1 row of 2 tokens, logits; p is 'p', q 'q'" in capture.note


def test_logits_of_one_token_and_arrays_of_two_readings_are_refused(tmp_path: Path) -> None:
    for p, q in ((P[0][:, None], Q[0][:, None]), (P[0], Q[0][:, None])):
        with pytest.raises(InvalidInputError, match=r"\(20, 1\), which is 20 rows of one token"):
            from_arrays(p, q, "logits")
    for array in (np.stack([P[:2], Q[:2]]), np.array([[0.2, 0.8], [0.6, 0.4]])):
        np.save(tmp_path / "x.npy", array)
        with pytest.raises(CaptureError, match="is ambiguous"):
            read_pairs(str(tmp_path / "x.npy"))


def test_what_was_read_is_said(folder: Path) -> None:
    for name, printed in (
        ("rows.npz", "3 rows of 20 tokens, probabilities; p is 'p', q 'q'"),
        ("rows.npy", "p is the first array, q the second array"),
        ("plain.csv", "1 row of 20 tokens, probabilities; p is the first column, q the second"),
        ("named.csv", "p is 'target', q 'draft'"),
    ):
        assert printed in done("solve", folder / name)
