"""``gapft judge``: reads a file of programs and prints one line for each, in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.sandbox import Limits
from gapft_harness.verification.program_file import judge_file
from tests.kit.command import gapft

LIMITS = Limits(cpu_s=0.5, wall_s=5, memory_bytes=256 << 20)


DEEP = "[" * 20_000 + "]" * 20_000


def build_record(name="a", **changes):
    tests = [{"input": "1", "expected": "1"}]
    return {"id": name, "source": "print(input())", "tests": tests, **changes}


def write_records(folder, *records):
    path = folder / "programs.jsonl"
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def test_results_keep_input_order(tmp_path):
    function = {"kind": "function", "function": "f", "source": "def f(x): return x"}
    path = write_records(
        tmp_path,
        build_record("slow", source="while True: pass"),
        build_record("right"),
        "",
        build_record("wrong", source="print(2)"),
        build_record(4, **function),
    )
    counts: list[tuple[int, int]] = []
    lines = judge_file(
        path, limits=LIMITS, workers=2, progress=lambda done, total: counts.append((done, total))
    )
    results = [json.loads(line) for line in lines]
    assert [(f["id"], f["verdict"]) for f in results] == [
        ("slow", "time_limit"),
        ("right", "accepted"),
        ("wrong", "wrong_answer"),
        ("4", "accepted"),
    ]
    assert results[2]["tests"][0]["reason"] == "line 1: '2', expected '1'"
    assert results[2]["tests"][0]["output"] == "2\n"
    assert {f["tier"] for f in results} <= {"namespaces", "landlock"}
    assert counts == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{", "line 2: malformed JSON at column 2"),
        ("[]", "line 2: found list, expected a JSON object"),
        (build_record("b", tests=[]), "line 2: tests: found none, expected a list of at least one"),
        (build_record("b", tests=None), "line 2: tests: found NoneType, expected a list"),
        (build_record("b", test=1), "line 2: unknown key 'test'; did you mean 'tests'"),
        ({"id": "b", "tests": []}, "line 2: the key 'source' is missing"),
        (build_record("b", source=1), "line 2: source: found int, expected text"),
        (build_record("b", kind="call"), "line 2: kind: found 'call', expected stdin or function"),
        (build_record("b", kind="function"), "line 2: function: found None"),
        (
            build_record("b", tests=[{"input": ""}]),
            "line 2: test 1 is {'input': ''}; expected an object",
        ),
        (build_record("b", tests=[{"input": "", "expected": 1}]), "the texts input and expected"),
        (
            build_record(
                "b", kind="function", function="f", tests=[{"input": "", "expected": "x"}]
            ),
            "line 2: test 1: a function test's expected value must be JSON",
        ),
        (
            build_record(
                "b", kind="function", function="f", tests=[{"input": "x", "expected": "1"}]
            ),
            "line 2: test 1: a function test's input must be one JSON value per line; found 'x'",
        ),
        (
            build_record(
                "b", kind="function", function="f", tests=[{"input": DEEP, "expected": "1"}]
            ),
            "line 2: test 1: ",
        ),
        (f'{{"id": {DEEP}}}', "line 2: malformed JSON: nested too deeply"),
        ('{"id": 1' + 5000 * "0" + "}", "line 2: malformed JSON: Exceeds the limit"),
        (f'{{"id": {DEEP[19_700:20_300]}, "source": "", "tests": []}}', "line 2: id: found [[[[[["),
        (build_record("a"), "line 2: id 'a' also occurs on line 1"),
        ('{"id": "b", "id": "c", "source": "", "tests": []}', "line 2: the key 'id' occurs twice"),
        (
            json.dumps(build_record("b")).replace('{"input"', '{"input": "2", "input"'),
            "line 2: the key 'input' occurs twice; expected each key once in an object",
        ),
        (build_record(None), "line 2: id: found None, expected text or an integer"),
    ],
)
def test_rejects_wrong_record_before_judging(tmp_path, wrong, message):
    with pytest.raises(UserError) as raised:
        next(judge_file(write_records(tmp_path, build_record(), wrong)))
    assert message in str(raised.value)


def open_pipe(content: bytes) -> int:
    """Return the reading end of a pipe that a thread fills; a pipe holds 64 KiB."""
    reading, writing = os.pipe()

    def write_all() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(content)

    threading.Thread(target=write_all, daemon=True).start()
    return reading


def test_pipe_gives_same_results_as_file(tmp_path):
    rows = [build_record(str(n), source=f"print(input())  # {'x' * 2000}") for n in range(60)]
    rows[3] = build_record("slow", source="while True: pass")
    path = write_records(tmp_path, *rows)
    options = {"limits": LIMITS, "workers": 2}
    counts: list[tuple[int, int | None]] = []
    reading = open_pipe(path.read_bytes())
    lines = [
        json.loads(line)
        for line in judge_file(
            f"/dev/fd/{reading}", **options, progress=lambda *pair: counts.append(pair)
        )
    ]
    os.close(reading)
    expected = [json.loads(line) for line in judge_file(path, **options)]
    assert [(f["id"], f["verdict"]) for f in lines] == [(f["id"], f["verdict"]) for f in expected]
    assert [f["id"] for f in lines] == [row["id"] for row in rows]
    assert counts[0] == (1, None)
    assert counts[-1] == (60, 60)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{", "line 4: malformed JSON"),
        (build_record("a"), "line 4: id 'a' also occurs on line 1"),
    ],
)
def test_pipe_results_before_wrong_line_are_kept(tmp_path, wrong, message):
    slow = build_record("slow", source="while True: pass")
    path = write_records(
        tmp_path, build_record("a"), slow, build_record("b"), wrong, build_record("c")
    )
    reading = open_pipe(path.read_bytes())
    lines = []
    with pytest.raises(UserError) as raised:
        lines.extend(judge_file(f"/dev/fd/{reading}", limits=LIMITS, workers=2))
    os.close(reading)
    assert message in str(raised.value)
    assert [json.loads(line)["id"] for line in lines] == ["a", "slow", "b"]


@pytest.mark.parametrize("change", ["grow", "shrink", "break", "replace"])
def test_changed_file_keeps_verdicts_with_ids(tmp_path, change):
    names = ["right", "wrong"] * 40
    sources = {"right": "print(input())", "wrong": f"print(2)  # {'x' * 9000}"}
    rows = [build_record(f"{name} {n}", source=sources[name]) for n, name in enumerate(names)]
    path = write_records(tmp_path, *rows)
    lines = judge_file(path, limits=LIMITS, workers=1)
    results = [next(lines)]
    if change == "replace":
        (tmp_path / "other").mkdir()
        write_records(tmp_path / "other", build_record("another")).replace(path)
    else:
        with path.open("r+") as file:
            if change == "shrink":
                file.truncate(100_000)
            else:
                file.seek(0, os.SEEK_END)
                file.write("{" if change == "break" else json.dumps(build_record("right 80")))
    try:
        results.extend(lines)
        problem = ""
    except UserError as error:
        problem = str(error)
    messages = {"break": "line 81: malformed JSON", "shrink": "malformed JSON"}
    assert messages.get(change, "") in problem
    assert bool(problem) == (change in messages)
    judged = [json.loads(line) for line in results]
    verdict = {"right": "accepted", "wrong": "wrong_answer"}
    assert [f["verdict"] for f in judged] == [verdict[f["id"].split()[0]] for f in judged]
    assert [f["id"] for f in judged] == [f"{n} {i}" for i, n in enumerate(names)][: len(judged)] + [
        "right 80"
    ] * (change == "grow")


def test_command_judges_pipe_and_stdin(tmp_path):
    path = write_records(tmp_path, build_record("a"), build_record("b", source="print(2)"))
    for words in (f"cat {path} | gapft judge -", f"gapft judge <(cat {path})"):
        script = words.replace("gapft", f"{sys.executable} -m gapft_harness.cli.main")
        done = subprocess.run(
            ["bash", "-c", f"{script} --workers 1"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        ids = [(json.loads(x)["id"], json.loads(x)["verdict"]) for x in done.stdout.splitlines()]
        assert ids == [("a", "accepted"), ("b", "wrong_answer")]


def test_command_preloads_modules(tmp_path):
    path = write_records(
        tmp_path, build_record("n", source="import numpy\nprint(numpy.int64(input()))")
    )
    done = gapft("judge", path, "--workers", 1)
    assert json.loads(done.stdout)["verdict"] == "accepted", done.stderr
    done = gapft("judge", path, "--workers", 1, "--preload", "")
    assert "ModuleNotFoundError" in json.loads(done.stdout)["tests"][0]["reason"]
    done = gapft("judge", path, "--workers", 1, "--preload", "nunpy")
    assert (done.returncode, done.stdout) == (2, "")
    assert "preload: the module 'nunpy' is not installed" in done.stderr


def test_accepts_output_as_expected_key(tmp_path):
    path = write_records(tmp_path, build_record(tests=[{"input": "1", "output": "1"}]))
    (line,) = judge_file(path, limits=LIMITS, workers=1)
    assert json.loads(line)["verdict"] == "accepted"


def test_reports_line_of_invalid_utf8(tmp_path):
    path = tmp_path / "programs.jsonl"
    path.write_bytes(json.dumps(build_record()).encode() + b"\n\xff\n")
    with pytest.raises(UserError, match=r"line 2: expected UTF-8 text, found the byte 0x"):
        next(judge_file(path))


def test_rejects_unreadable_or_empty_file(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        next(judge_file(tmp_path / "nowhere.jsonl"))
    with pytest.raises(UserError, match="found no record"):
        next(judge_file(write_records(tmp_path)))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_command_works_with_closed_streams(tmp_path, closed):
    """As a service may start it. Files that get these descriptors must not go to a worker."""
    path = write_records(tmp_path, build_record())
    done = tmp_path / "done"
    command = (
        f'"{sys.executable}" -m gapft_harness.cli.main judge {path} {closed}; echo $? > {done}'
    )
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.read_text() == "0\n", result.stderr
    if ">&-" not in closed.replace("2>&-", ""):
        assert json.loads(result.stdout)["verdict"] == "accepted"
    is_reported = "gapft: standard output is closed" in result.stderr
    assert is_reported == (closed == ">&-")


def test_workers_start_without_standard_streams(tmp_path):
    """As for a user of the library: sandbox and pool return their usual verdicts."""
    out = tmp_path / "out"
    code = f"""
import os
for descriptor in range(3):
    os.close(descriptor)
from gapft_harness.sandbox import Program, Sandbox, Test
from gapft_harness import load_verifier
with Sandbox(workers=2) as sandbox:
    (result,) = sandbox.judge([(Program("print(input())"), [Test("1", "1")])])
with load_verifier("boxed_math", workers=2) as verifier:
    (verdict,) = verifier.verify([r"\\boxed{{x+x}}"], ["2x"])
open({str(out)!r}, "w").write(f"{{result.verdict}} {{verdict.status}}")
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert out.read_text() == "accepted pass"


@pytest.mark.parametrize("name", ["\ufb01nd", "find", "\u2118rime", "\U0001d425ong"])
@pytest.mark.parametrize("method", [False, True])
def test_finds_function_by_normalized_name(tmp_path, name, method):
    source = f"def {name}(*x): return x[-1]"
    source = f"class Solution:\n    {source}" if method else source
    path = write_records(tmp_path, build_record(kind="function", function=name, source=source))
    (line,) = judge_file(path, limits=LIMITS, workers=1)
    assert json.loads(line)["verdict"] == "accepted", line
