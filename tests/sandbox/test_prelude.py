"""Preimported names, and a higher limit on digits, exist only where the prelude is requested."""

from __future__ import annotations

import pytest

from gapft_harness.sandbox import Program, Sandbox, Test
from gapft_harness.sandbox.records import TIERS
from tests.sandbox.conftest import LIMITS

#: Correct with LiveCodeBench's names; a NameError or RecursionError in plain Python.
NAMELESS = {
    "factorial": "print(factorial(3))",
    "a module": "print(math.factorial(3))",
    "sys": "print(6)\nsys.exit(0)",
    "an annotation": "def f(x: List[int]) -> Optional[int]: return x[0]\nprint(f([6]))",
    "recursion": "def f(n): return 6 if n == 0 else f(n - 1)\nprint(f(2000))",
    "a long integer": "print(6 if len(str(3**10000)) == 4772 else 0)",
}
#: Plain Python's own names, including those that ``site`` adds.
PLAIN = {
    "exit": "print(6)\nexit(0)",
    "quit": "print(6)\nquit()",
    "sys.exit": "import sys\nprint(6)\nsys.exit(0)",
    "own names": "factorial = List = 6\nprint(List)",
    "imports": "from math import *\nfrom typing import List\nprint(factorial(3))",
    "recursion": "def f(n): return 6 if n == 0 else f(n - 1)\nprint(f(900))",
    "limit raised": "import sys\nsys.setrecursionlimit(10**6)\n"
    "def f(n): return 6 if n == 0 else f(n - 1)\nprint(f(20000))",
    "no names": "import builtins\nprint(6 if not hasattr(builtins, 'math') else 0)",
}


def list_verdicts(sandbox, sources):
    items = [(Program(source), [Test("", "6")]) for source in sources]
    return [result.verdict for result in sandbox.judge(items)]


def test_plain_python_is_the_default(sandbox):
    assert list_verdicts(sandbox, NAMELESS.values()) == ["runtime_error"] * len(NAMELESS)
    assert list_verdicts(sandbox, PLAIN.values()) == ["accepted"] * len(PLAIN)
    call = Program("class Solution:\n    def f(self, x: List[int]): return x", "function", "f")
    (result,) = sandbox.judge([(call, [Test("[1]", "[1]")])])
    assert result.tests[0].reason == "NameError: name 'List' is not defined"


@pytest.mark.parametrize("tier", TIERS)
def test_livecodebench_names_exist_only_when_requested(tier):
    with Sandbox(tier=tier, workers=1, limits=LIMITS, prelude="lcb") as sandbox:
        assert list_verdicts(sandbox, NAMELESS.values()) == ["accepted"] * len(NAMELESS)
        assert list_verdicts(sandbox, [*PLAIN.values()][:-1]) == ["accepted"] * (len(PLAIN) - 1)


#: Programs that convert an integer of as many digits as their input tells.
CONVERSIONS = [
    "print(6 if str(10 ** (int(input()) - 1)) else 0)",
    "print(6 if int('9' * int(input())) else 0)",
]


@pytest.mark.parametrize(("prelude", "limit"), [("none", 4_300), ("lcb", 50_000)])
@pytest.mark.parametrize("tier", TIERS)
def test_converts_and_compiles_integers_up_to_the_limit_on_digits(tier, prelude, limit):
    converted = [
        (Program(source), [Test(str(digits), "6")])
        for source in CONVERSIONS
        for digits in (limit, limit + 1)
    ]
    compiled = [
        (Program(f"print(6 if {'9' * digits} else 0)"), [Test("", "6")])
        for digits in (limit, limit + 1)
    ]
    with Sandbox(tier=tier, workers=1, limits=LIMITS, prelude=prelude) as sandbox:
        verdicts = [result.verdict for result in sandbox.judge(converted + compiled)]
    expected = ["accepted", "runtime_error"] * len(CONVERSIONS)
    assert verdicts == [*expected, "accepted", "compile_error"]
