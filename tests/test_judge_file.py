"""``gapft judge``: a file of programs in, a line a program out, in order."""

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
from tests.command import gapft

LIMITS = Limits(cpu_s=0.5, wall_s=5, memory_bytes=256 << 20)


DEEP = "[" * 20_000 + "]" * 20_000


def record(name="a", **changes):
    tests = [{"input": "1", "expected": "1"}]
    return {"id": name, "source": "print(input())", "tests": tests, **changes}


def write(folder, *records):
    path = folder / "programs.jsonl"
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def test_a_line_a_program_in_order_whichever_ends_first(tmp_path):
    function = {"kind": "function", "function": "f", "source": "def f(x): return x"}
    path = write(
        tmp_path,
        record("slow", source="while True: pass"),
        record("right"),
        "",
        record("wrong", source="print(2)"),
        record(4, **function),
    )
    counts: list[tuple[int, int]] = []
    lines = judge_file(
        path, limits=LIMITS, workers=2, progress=lambda done, of: counts.append((done, of))
    )
    found = [json.loads(line) for line in lines]
    assert [(f["id"], f["verdict"]) for f in found] == [
        ("slow", "time_limit"),
        ("right", "accepted"),
        ("wrong", "wrong_answer"),
        ("4", "accepted"),
    ]
    assert found[2]["tests"][0]["reason"] == "line 1: '2', expected '1'"
    assert found[2]["tests"][0]["output"] == "2\n"
    assert {f["tier"] for f in found} <= {"namespaces", "landlock"}
    assert counts == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{", "line 2: malformed JSON at column 2"),
        ("[]", "line 2: found list, expected a JSON object"),
        (record("b", tests=[]), "line 2: tests: found none, expected a list of at least one"),
        (record("b", tests=None), "line 2: tests: found NoneType, expected a list"),
        (record("b", test=1), "line 2: unknown key 'test'; did you mean 'tests'"),
        ({"id": "b", "tests": []}, "line 2: the key 'source' is missing"),
        (record("b", source=1), "line 2: source: found int, expected text"),
        (record("b", kind="call"), "line 2: kind: found 'call', expected stdin or function"),
        (record("b", kind="function"), "line 2: function: found None"),
        (record("b", tests=[{"input": ""}]), "line 2: test 1 is {'input': ''}; expected an object"),
        (record("b", tests=[{"input": "", "expected": 1}]), "the texts input and expected"),
        (
            record("b", kind="function", function="f", tests=[{"input": "", "expected": "x"}]),
            "line 2: test 1: a function test's expected value must be JSON",
        ),
        (
            record("b", kind="function", function="f", tests=[{"input": "x", "expected": "1"}]),
            "line 2: test 1: a function test's input must be one JSON value per line; found 'x'",
        ),
        (
            record("b", kind="function", function="f", tests=[{"input": DEEP, "expected": "1"}]),
            "line 2: test 1: ",
        ),
        (f'{{"id": {DEEP}}}', "line 2: malformed JSON: nested too deeply"),
        ('{"id": 1' + 5000 * "0" + "}", "line 2: malformed JSON: Exceeds the limit"),
        (f'{{"id": {DEEP[19_700:20_300]}, "source": "", "tests": []}}', "line 2: id: found [[[[[["),
        (record("a"), "line 2: id 'a' also occurs on line 1"),
        ('{"id": "b", "id": "c", "source": "", "tests": []}', "line 2: the key 'id' occurs twice"),
        (
            json.dumps(record("b")).replace('{"input"', '{"input": "2", "input"'),
            "line 2: the key 'input' occurs twice; expected each key once in an object",
        ),
        (record(None), "line 2: id: found None, expected text or an integer"),
    ],
)
def test_a_wrong_record_is_an_error_before_any_program_runs(tmp_path, wrong, message):
    with pytest.raises(UserError) as raised:
        next(judge_file(write(tmp_path, record(), wrong)))
    assert message in str(raised.value)


def piped(content: bytes) -> int:
    """The reading end of a pipe that a thread writes to; a pipe holds 64 KiB."""
    reading, writing = os.pipe()

    def write_all() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(content)

    threading.Thread(target=write_all, daemon=True).start()
    return reading


def test_a_pipe_is_judged_in_one_reading_and_gives_what_the_file_gives(tmp_path):
    rows = [record(str(n), source=f"print(input())  # {'x' * 2000}") for n in range(60)]
    rows[3] = record("slow", source="while True: pass")
    path = write(tmp_path, *rows)
    asked = {"limits": LIMITS, "workers": 2}
    counts: list[tuple[int, int | None]] = []
    reading = piped(path.read_bytes())
    lines = [
        json.loads(line)
        for line in judge_file(
            f"/dev/fd/{reading}", **asked, progress=lambda *of: counts.append(of)
        )
    ]
    os.close(reading)
    expected = [json.loads(line) for line in judge_file(path, **asked)]
    assert [(f["id"], f["verdict"]) for f in lines] == [(f["id"], f["verdict"]) for f in expected]
    assert [f["id"] for f in lines] == [row["id"] for row in rows]
    assert counts[0] == (1, None)
    assert counts[-1] == (60, 60)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{", "line 4: malformed JSON"),
        (record("a"), "line 4: id 'a' also occurs on line 1"),
    ],
)
def test_of_a_pipe_what_came_before_a_wrong_line_is_printed(tmp_path, wrong, message):
    slow = record("slow", source="while True: pass")
    path = write(tmp_path, record("a"), slow, record("b"), wrong, record("c"))
    reading = piped(path.read_bytes())
    found = []
    with pytest.raises(UserError) as raised:
        found.extend(judge_file(f"/dev/fd/{reading}", limits=LIMITS, workers=2))
    os.close(reading)
    assert message in str(raised.value)
    assert [json.loads(line)["id"] for line in found] == ["a", "slow", "b"]


@pytest.mark.parametrize("change", ["grow", "shrink", "break", "replace"])
def test_a_file_that_changes_while_it_is_judged_keeps_verdicts_with_their_ids(tmp_path, change):
    names = ["right", "wrong"] * 40
    sources = {"right": "print(input())", "wrong": f"print(2)  # {'x' * 9000}"}
    rows = [record(f"{name} {n}", source=sources[name]) for n, name in enumerate(names)]
    path = write(tmp_path, *rows)
    lines = judge_file(path, limits=LIMITS, workers=1)
    found = [next(lines)]
    if change == "replace":
        (tmp_path / "other").mkdir()
        write(tmp_path / "other", record("another")).replace(path)
    else:
        with path.open("r+") as file:
            if change == "shrink":
                file.truncate(100_000)
            else:
                file.seek(0, os.SEEK_END)
                file.write("{" if change == "break" else json.dumps(record("right 80")))
    try:
        found.extend(lines)
        problem = ""
    except UserError as error:
        problem = str(error)
    told = {"break": "line 81: malformed JSON", "shrink": "malformed JSON"}
    assert told.get(change, "") in problem
    assert bool(problem) == (change in told)
    judged = [json.loads(line) for line in found]
    verdict = {"right": "accepted", "wrong": "wrong_answer"}
    assert [f["verdict"] for f in judged] == [verdict[f["id"].split()[0]] for f in judged]
    assert [f["id"] for f in judged] == [f"{n} {i}" for i, n in enumerate(names)][: len(judged)] + [
        "right 80"
    ] * (change == "grow")


def test_the_command_judges_a_pipe_and_standard_input(tmp_path):
    path = write(tmp_path, record("a"), record("b", source="print(2)"))
    for words in (f"cat {path} | gapft judge -", f"gapft judge <(cat {path})"):
        script = words.replace("gapft", f"{sys.executable} -m gapft_harness.cli.main")
        done = subprocess.run(
            ["bash", "-c", f"{script} --workers 1"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        ids = [(json.loads(x)["id"], json.loads(x)["verdict"]) for x in done.stdout.splitlines()]
        assert ids == [("a", "accepted"), ("b", "wrong_answer")]


def test_the_command_lets_programs_import_what_tasks_let_them(tmp_path):
    path = write(tmp_path, record("n", source="import numpy\nprint(numpy.int64(input()))"))
    found = gapft("judge", path, "--workers", 1)
    assert json.loads(found.stdout)["verdict"] == "accepted", found.stderr
    found = gapft("judge", path, "--workers", 1, "--preload", "")
    assert "ModuleNotFoundError" in json.loads(found.stdout)["tests"][0]["reason"]
    found = gapft("judge", path, "--workers", 1, "--preload", "nunpy")
    assert (found.returncode, found.stdout) == (2, "")
    assert "preload: the module 'nunpy' is not installed" in found.stderr


def test_what_is_expected_may_be_called_output(tmp_path):
    path = write(tmp_path, record(tests=[{"input": "1", "output": "1"}]))
    (line,) = judge_file(path, limits=LIMITS, workers=1)
    assert json.loads(line)["verdict"] == "accepted"


def test_bytes_that_are_no_text_are_named_by_their_line(tmp_path):
    path = tmp_path / "programs.jsonl"
    path.write_bytes(json.dumps(record()).encode() + b"\n\xff\n")
    with pytest.raises(UserError, match=r"line 2: expected UTF-8 text, found the byte 0x"):
        next(judge_file(path))


def test_a_file_that_cannot_be_read_or_is_empty(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        next(judge_file(tmp_path / "nowhere.jsonl"))
    with pytest.raises(UserError, match="found no record"):
        next(judge_file(write(tmp_path)))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_the_command_works_with_its_own_streams_closed(tmp_path, closed):
    """As a service may start it. Whatever gets their numbers must not be lost to a worker."""
    path = write(tmp_path, record())
    done = tmp_path / "done"
    command = (
        f'"{sys.executable}" -m gapft_harness.cli.main judge {path} {closed}; echo $? > {done}'
    )
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.read_text() == "0\n", found.stderr
    if ">&-" not in closed.replace("2>&-", ""):
        assert json.loads(found.stdout)["verdict"] == "accepted"
    told = "gapft: standard output is closed" in found.stderr
    assert told == (closed == ">&-")


def test_workers_start_in_a_process_without_streams(tmp_path):
    """A library's user may have closed them too: sandbox and pool give the verdicts they give."""
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
def test_a_function_is_found_by_its_name_as_python_reads_it(tmp_path, name, method):
    source = f"def {name}(*x): return x[-1]"
    source = f"class Solution:\n    {source}" if method else source
    path = write(tmp_path, record(kind="function", function=name, source=source))
    (line,) = judge_file(path, limits=LIMITS, workers=1)
    assert json.loads(line)["verdict"] == "accepted", line
