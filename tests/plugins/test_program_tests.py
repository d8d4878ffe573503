"""program_tests: real programs in the real sandbox, judged by public and hidden tests."""

import json
import sys
import sysconfig

import pytest

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Verdict
from gapft_harness.lm_eval_bridge.judge import CachingJudge
from gapft_harness.plugins.verifiers.program_tests import ProgramTests
from gapft_harness.sandbox import InfrastructureError, Test, TestResult, probe_tiers
from gapft_harness.sandbox.confinement.syscalls import Refused
from gapft_harness.sandbox.process import SandboxWorker, WorkerDied
from gapft_harness.verification.feedback import (
    _installation_pattern,
    failure_feedback,
    without_paths,
)
from gapft_harness.verification.judging import verify_unique
from tests.real_data import find_real_file
from tests.tasks.benchmark_files import build_test, pack_tests

DOUBLE = {
    "kind": "stdin",
    "function": None,
    "tests": [{"input": "1\n", "output": "2\n"}],
    "public": 1,
    "hidden": pack_tests([build_test("4\n", "8\n"), build_test("30\n", "60\n")]),
}
SCALE = {
    "kind": "function",
    "function": "scale",
    "tests": [{"input": "[1, 2]\n3", "output": "[3, 6]"}],
    "public": 1,
    "hidden": pack_tests([build_test("[5]\n0", "[0]", "functional")]),
}


def format_program(program: str) -> str:
    return f"Here it is.\n```python\n{program}\n```"


@pytest.fixture(scope="module")
def verifier():
    tiers = probe_tiers()
    if {probe.tier for probe in tiers} == {probe.tier for probe in tiers if not probe.holds}:
        pytest.skip("no sandbox tier holds on this machine: NOT TESTED")
    with ProgramTests(workers=1, limits={"cpu_s": 1, "memory_bytes": 256 << 20}) as instance:
        yield instance


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        (format_program("print(2 * int(input()))"), Verdict("pass")),
        (format_program("import numpy\nprint(2 * numpy.int64(input()))"), Verdict("pass")),
        (
            format_program("print(2)")
            + "\nor better\n"
            + format_program("print(2 * int(input()))"),
            Verdict("pass"),
        ),
        (format_program("print(2)"), Verdict("fail", "wrong answer on hidden test 1 of 2")),
        (
            format_program("print(min(8, 2 * int(input())))"),
            Verdict("fail", "wrong answer on hidden test 2 of 2"),
        ),
        (
            format_program("print(3)"),
            Verdict("fail", "wrong answer on public test 1 of 1: line 1: '3', expected '2'"),
        ),
        (
            format_program("if int(input()) == 30: raise KeyError(60)\nprint(2)"),
            Verdict("fail", "wrong answer on hidden test 1 of 2"),
        ),
        (
            format_program("n = int(input())\nif n == 30: raise KeyError(60)\nprint(2 * n)"),
            Verdict("fail", "runtime error on hidden test 2 of 2"),
        ),
        (
            format_program("while True: pass"),
            Verdict("fail", "time limit on public test 1 of 1: more than 1 s of CPU time"),
        ),
        ("print(2 * int(input()))", Verdict("fail", "no fenced program")),
        ("```text\n2\n```", Verdict("fail", "no fenced program")),
        (
            format_program("print(2 * int(input()))")[:-4],
            Verdict("fail", "the last program is empty or never closed"),
        ),
        (format_program(""), Verdict("fail", "the last program is empty or never closed")),
    ],
)
def test_judges_stdin_programs(verifier, response, verdict):
    assert verifier.verify([response], [DOUBLE]) == [verdict]


@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        (
            "class Solution:\n    def scale(self, n, k):\n        return [k * i for i in n]",
            "pass",
            "",
        ),
        ("def scale(n, k):\n    return tuple(k * i for i in n)", "pass", ""),
        ("def scale(n, k):\n    return [3, 6]", "fail", "wrong answer on hidden test 1 of 1"),
        (
            "def other(n, k):\n    return n",
            "fail",
            "runtime error on public test 1 of 1: NameError",
        ),
        ("def scale(n, k) return n", "fail", "compile error: File"),
    ],
)
def test_judges_functions(verifier, program, status, reason):
    (verdict,) = verifier.verify([format_program(program)], [SCALE])
    assert verdict.status == status
    assert verdict.reason.startswith(reason)


def test_verdicts_do_not_depend_on_order(verifier):
    right, wrong = format_program("print(2 * int(input()))"), format_program("print(7)")
    function = format_program("def scale(n, k):\n    return [k * i for i in n]")
    # Equal golds need not be the same object.
    golds = [DOUBLE, SCALE, dict(reversed(DOUBLE.items())), DOUBLE, SCALE, DOUBLE]
    responses = [right, function, right + "\nDone.", wrong, wrong, "no program"]
    expected = ["pass", "pass", "pass", "fail", "fail", "fail"]
    assert [v.status for v in verifier.verify(responses, golds)] == expected
    backwards = verify_unique(verifier, responses[::-1], golds[::-1])
    assert [v.status for v in backwards] == expected[::-1]
    assert verifier.verify([], []) == []


def test_runs_equal_programs_once(verifier, monkeypatch):
    ran = []
    stream = verifier._sandbox.stream

    def watched(items, **options):
        def seen():
            for item in items:
                ran.append(item[0].source)
                yield item

        return stream(seen(), **options)

    monkeypatch.setattr(verifier._sandbox, "stream", watched)
    responses = [f"Attempt {i}.\n{format_program('print(2 * int(input()))')}" for i in range(16)]
    assert {v.status for v in verifier.verify(responses, [DOUBLE] * 16)} == {"pass"}
    assert ran == ["print(2 * int(input()))\n"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hidden": pack_tests([])[:-4] + "AAAA"}, "hidden: the tests cannot be read"),
        ({"tests": [], "public": 0, "hidden": None}, "there are no tests"),
    ],
)
def test_rejects_gold_without_readable_tests(verifier, change, expected):
    gold = {**DOUBLE, **change}
    for response in (format_program("print(2)"), "no program at all"):
        with pytest.raises(UserError, match=expected):
            verify_unique(verifier, [response, format_program("x")], [gold, DOUBLE])
    assert verifier.verify([format_program("print(2 * int(input()))")], [DOUBLE]) == [
        Verdict("pass")
    ]


def test_sandbox_failure_stops_run(verifier, monkeypatch):
    def die(self):
        raise WorkerDied("killed from outside")

    with monkeypatch.context() as patch:
        patch.setattr(SandboxWorker, "receive", die)
        with pytest.raises(InfrastructureError, match="no verdict"):
            verify_unique(verifier, [format_program("print(2)")], [DOUBLE])
        # The stock lm_eval must not score it 0 either.
        with pytest.raises(InfrastructureError):
            CachingJudge(verifier).verdicts([format_program("print(2)")], DOUBLE)
    assert verifier.verify([format_program("print(2 * int(input()))")], [DOUBLE]) == [
        Verdict("pass")
    ]


def test_rejects_machine_without_sandbox_tier(monkeypatch):
    def refuse(*_):
        raise Refused("unshare: Operation not permitted (errno 1)")

    monkeypatch.setattr(SandboxWorker, "start", refuse)
    with pytest.raises(UserError, match="nothing was generated or run") as caught:
        load_verifier("program_tests")
    assert "namespaces" in str(caught.value)
    assert "landlock" in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"tier": "docker"}, "found 'docker', expected auto or namespaces or landlock"),
        ({"prelude": "all"}, "sandbox prelude: found 'all', expected none or lcb"),
        ({"workers": 0}, "workers: found 0"),
        ({"preload": ["nunpy"]}, "preload: the module 'nunpy' is not installed"),
        ({"limits": {"cpu": 3}}, "limits: unknown 'cpu'; did you mean 'cpu_s'?"),
        ({"limits": {"cpu_s": 0}}, "limits: cpu_s: found 0, expected more than 0"),
        ({"limits": {"cpu_s": 30}}, "limits: wall_s: found 20, expected at least cpu_s"),
        ({"limits": {"cpu_s": "six"}}, "limits: cpu_s: found 'six'"),
        ({"limits": {"wall_s": float("inf")}}, "limits: wall_s: found inf"),
        ({"limits": {"files": 2.5}}, "limits: files: found 2.5"),
        ({"timeout": 3}, "timeout"),
    ],
)
def test_rejects_wrong_parameter(parameters, expected):
    with pytest.raises(UserError) as caught:
        load_verifier("program_tests", **parameters)
    assert expected in str(caught.value)


#: Programs that reveal where Python is installed, and the end of their feedback.
REVEALING = {
    "raise ValueError(3)": "ValueError: 3",
    "import json\njson.loads('x')": "char 0)",
    "from json import nope": "cannot import name 'nope' from 'json' (json/__init__.py)",
    "import numpy\nnumpy.linalg.inv(numpy.zeros((2, 2)))": "LinAlgError: Singular matrix",
    "import json\nraise ValueError(3000 * 'x ' + json.__file__)": "json/__init__.py",
    "import json, sys\nsys.stderr.write(json.__file__ + '\\n' + 4096 * 'x'); 1 / 0": "by zero",
    "from os import __file__ as f\nraise ValueError(f'{f} at ({f[:-5]}x)')": "os.py at (x)",
    "raise ValueError('/usr/share/x /usr/local/bin/x')": "/usr/share/x /usr/local/bin/x",
    "import json\ntry: json.loads('x')\nexcept ValueError: raise KeyError(1)": "KeyError: 1",
    "import traceback\ntry: 1 / 0\nexcept ValueError: pass": "by zero",
    "import json\nraise ExceptionGroup('g', [ValueError(1)])": "----------------",
}


@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
def test_feedback_and_reasons_hide_installation_paths(tier):
    if not all(probe.holds for probe in probe_tiers(tier)):
        pytest.skip(f"tier {tier} does not hold on this machine: NOT TESTED")
    responses = [format_program(program) for program in REVEALING]
    golds = [{"kind": "stdin", "tests": [{"input": "1", "expected": "2"}]}] * len(REVEALING)
    limits = {"memory_bytes": 256 << 20}
    with ProgramTests(tier=tier, workers=1, limits=limits) as verifier:
        feedback = verifier.feedback(responses, golds)
        reasons = [verdict.reason for verdict in verifier.verify(responses, golds)]
    for text, reason, end in zip(feedback, reasons, REVEALING.values(), strict=True):
        own = text.partition("\nWrite the whole")[0]
        assert own.endswith(end)
        # The system's Python is in /usr, which every machine has.
        own_prefix = {sys.prefix, sys.base_prefix} - {"/usr", "/usr/local"}
        for secret in ("gapft_harness", *own_prefix, "/lib/python", "-packages", "/proc/self"):
            assert secret not in text + reason
    assert feedback[0].endswith(
        "Error:\nTraceback (most recent call last):\n"
        '  File "program.py", line 1, in <module>\n    raise ValueError(3)\nValueError: 3\n'
        "Write the whole corrected program in one fenced Python block."
    )
    assert 'File "program.py", line 2, in <module>\n    json.loads' in feedback[1]


@pytest.mark.parametrize("prefix", ["", "/home", "x", ".", "-"])
def test_feedback_keeps_printed_paths(prefix):
    """A correct program may print the path of an installation folder."""
    path = f"{prefix}{sysconfig.get_path('stdlib')}/bin"
    result = TestResult("wrong_answer", "", path)
    feedback = failure_feedback("stdin", 1, 1, Test("1", f"{path}/x"), result)
    assert f"Your output:\n{path}\n" in feedback
    assert without_paths(f"ValueError: {path}") == f"ValueError: {path if prefix else 'bin'}"


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local", "/home/me/python"])
def test_keeps_paths_shared_with_system(prefix, monkeypatch):
    """Only paths of Python's own files are shortened, wherever Python is installed."""
    lib = f"{prefix.rstrip('/')}/lib/python3.11"
    monkeypatch.setattr("sys.path", [f"{lib}.zip", lib, f"{lib}/lib-dynload"])
    for name in ("prefix", "base_prefix"):
        monkeypatch.setattr(f"sys.{name}", prefix)
    places = {"stdlib": lib, "scripts": f"{prefix.rstrip('/')}/bin", "data": prefix}
    monkeypatch.setattr("sysconfig.get_paths", lambda: places)
    _installation_pattern.cache_clear()
    try:
        for path in ("/usr/share/words", "/usr/bin/x", "/usr/local/x", "/usr/local/bin/x", "/x"):
            assert without_paths(f"no {path}") == f"no {path}"
        assert without_paths(f"({lib}/json/__init__.py)") == "(json/__init__.py)"
        own = "/home/me/python/share/x"
        assert without_paths(own) == ("share/x" if prefix in own else own)
    finally:
        _installation_pattern.cache_clear()


def test_judges_programs_on_authentic_problem(verifier):
    record = json.loads(
        find_real_file("livecodebench/private_test_cases_1873_A.json").read_text(encoding="utf-8")
    )
    gold = {
        "kind": "stdin",
        "function": None,
        "tests": [],
        "public": 0,
        "hidden": record["private_test_cases"],
    }
    # At most one swap sorts the word if at most two letters are out of place.
    right = (
        "for _ in range(int(input())):\n"
        "    word = input()\n"
        "    print('YES' if sum(a != b for a, b in zip(word, 'abc')) < 3 else 'NO')"
    )
    always = "for _ in range(int(input())):\n    print('YES')"
    first = "print('YES')"
    verdicts = verifier.verify([format_program(p) for p in (right, always, first)], [gold] * 3)
    assert verdicts == [
        Verdict("pass"),
        Verdict("fail", "wrong answer on hidden test 3 of 4"),
        Verdict("fail", "wrong answer on hidden test 2 of 4"),
    ]
