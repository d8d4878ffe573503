"""program_tests: real programs in the real sandbox, judged by public and hidden tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from gapft_harness.hooks.judge import Judge
from gapft_harness.lm_eval_bridge.judge import judge_pairs
from gapft_harness.plugins.verifiers.program_tests import ProgramTests
from gapft_harness.sandbox import InfrastructureError, probe_tiers
from gapft_harness.sandbox.process import SandboxWorker, WorkerDied
from gapft_harness.sandbox.records import TIERS
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
RIGHT = "print(2 * int(input()))"


def fence(program: str) -> str:
    return f"Here it is.\n```python\n{program}\n```"


@pytest.fixture(scope="module")
def verifier() -> Iterator[ProgramTests]:
    if not any(outcome.holds for outcome in probe_tiers()):
        pytest.skip("no sandbox tier holds on this machine: NOT TESTED")
    with ProgramTests(workers=1, limits={"cpu_s": 1, "memory_bytes": 256 << 20}) as instance:
        yield instance


#: Responses with the test that they fail ("" for none); of a hidden test no details are given.
JUDGED = [
    (DOUBLE, fence(RIGHT), ""),
    (DOUBLE, fence("import numpy\nprint(2 * numpy.int64(input()))"), ""),
    (DOUBLE, f"{fence('print(2)')}\nor better\n{fence(RIGHT)}\nDone.", ""),
    (DOUBLE, fence("print(2)"), "wrong answer on hidden test 1 of 2"),
    (DOUBLE, fence("print(min(8, 2 * int(input())))"), "wrong answer on hidden test 2 of 2"),
    (DOUBLE, fence("print(3)"), "wrong answer on public test 1 of 1: line 1: '3', expected '2'"),
    (DOUBLE, fence("if int(input()) == 30: 1 / 0\nprint(2)"), "wrong answer on hidden test 1 of 2"),
    (
        DOUBLE,
        fence("n = int(input())\nif n == 30: raise KeyError(60)\nprint(2 * n)"),
        "runtime error on hidden test 2 of 2",
    ),
    (DOUBLE, fence("while True: pass"), "time limit on public test 1 of 1: "),
    (DOUBLE, RIGHT, "no fenced program"),
    (DOUBLE, "```text\n2\n```", "no fenced program"),
    (DOUBLE, fence(RIGHT)[:-4], "the last program is empty or never closed"),
    (SCALE, fence("class Solution:\n    def scale(self, n, k): return [k * i for i in n]"), ""),
    (SCALE, fence("def scale(n, k): return tuple(k * i for i in n)"), ""),
    (SCALE, fence("def scale(n, k): return [3, 6]"), "wrong answer on hidden test 1 of 1"),
    (SCALE, fence("def other(n, k): return n"), "runtime error on public test 1 of 1: "),
    (SCALE, fence("def scale(n, k) return n"), "compile error: "),
]


def test_names_the_first_failed_test(verifier: ProgramTests) -> None:
    golds, responses, expected = zip(*JUDGED, strict=True)
    reasons = [verdict.reason for verdict in verifier.verify(responses, golds)]
    assert [
        (reason, failed) for reason, failed in zip(reasons, expected, strict=True)
        if not (reason.startswith(failed) if failed.endswith(": ") else reason == failed)
    ] == []  # fmt: skip


def test_sandbox_failure_is_never_a_verdict(
    verifier: ProgramTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(self: object) -> None:
        raise WorkerDied("killed from outside")

    with monkeypatch.context() as patch:
        patch.setattr(SandboxWorker, "receive", die)
        with pytest.raises(InfrastructureError):
            Judge(verifier).verify([fence("print(2)")], [DOUBLE])
        # The stock lm_eval must not score it 0 either.
        with pytest.raises(InfrastructureError):
            judge_pairs(Judge(verifier), [fence("print(2)")], [DOUBLE])
    assert verifier.verify([fence(RIGHT)], [DOUBLE])[0].passed


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


@pytest.mark.parametrize("tier", TIERS)
def test_feedback_and_reasons_hide_installation_paths(tier: str) -> None:
    if not all(probe.holds for probe in probe_tiers(tier)):
        pytest.skip(f"tier {tier} does not hold on this machine: NOT TESTED")
    responses = [fence(program) for program in REVEALING]
    golds = [{"kind": "stdin", "tests": [{"input": "1", "expected": "2"}]}] * len(REVEALING)
    limits = {"memory_bytes": 256 << 20}
    with ProgramTests(tier=tier, workers=1, limits=limits) as verifier:
        feedback = verifier.feedback(responses, golds)
        reasons = [verdict.reason for verdict in verifier.verify(responses, golds)]
    # The system's Python is in /usr, which every machine has.
    prefixes = {sys.prefix, sys.base_prefix} - {"/usr", "/usr/local"}
    secrets = ["gapft_harness", *prefixes, "/lib/python", "-packages", "/proc/self"]
    for text, reason, end in zip(feedback, reasons, REVEALING.values(), strict=True):
        assert text.partition("\nWrite the whole")[0].endswith(end)
        assert [secret for secret in secrets if secret in text + reason] == []
    assert 'File "program.py", line 2, in <module>\n    json.loads' in feedback[1]


def test_judges_programs_on_authentic_problem(verifier: ProgramTests) -> None:
    file = find_real_file("livecodebench/private_test_cases_1873_A.json")
    record = json.loads(file.read_text(encoding="utf-8"))
    hidden = record["private_test_cases"]
    gold = {"kind": "stdin", "function": None, "tests": [], "public": 0, "hidden": hidden}
    # At most one swap sorts the word if at most two letters are out of place.
    right = (
        "for _ in range(int(input())):\n"
        "    word = input()\n"
        "    print('YES' if sum(a != b for a, b in zip(word, 'abc')) < 3 else 'NO')"
    )
    always = "for _ in range(int(input())):\n    print('YES')"
    verdicts = verifier.verify([*map(fence, (right, always, "print('YES')"))], [gold] * 3)
    assert [verdict.reason for verdict in verdicts] == [
        "",
        "wrong answer on hidden test 3 of 4",
        "wrong answer on hidden test 2 of 4",
    ]
