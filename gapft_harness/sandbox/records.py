"""What goes into the sandbox, what comes out, and the limits in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["stdin", "function"]
Tier = Literal["namespaces", "landlock"]
Isolation = Literal["test", "program"]
Compat = Literal["lcb"]
Prelude = Literal["none", "lcb"]
VerdictName = Literal[
    "accepted",
    "wrong_answer",
    "runtime_error",
    "compile_error",
    "time_limit",
    "memory_limit",
    "output_limit",
    "infrastructure",
]

#: Beyond these the kernel's own numbers end: a week, and a million gibibytes.
_MOST_S, _MOST = 604_800, 1 << 50

TIERS: tuple[Tier, ...] = get_args(Tier)


@dataclass(frozen=True, slots=True)
class Program:
    """A program to be judged.

    Attributes:
        source: Python source.
        kind: ``stdin`` reads standard input and prints; ``function`` is called.
        function: for kind ``function``, the name of a function or of a method of ``Solution``.

    Raises:
        ValueError: the kind is unknown, or the function's name is missing or superfluous.
    """

    source: str
    kind: Kind = "stdin"
    function: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind: found {self.kind!r}, expected stdin or function")
        if (self.kind == "function") != bool(self.function):
            raise ValueError(
                f"function: found {self.function!r} with kind {self.kind!r}; a name goes with "
                "kind 'function' and with no other"
            )
        if self.function is not None and not self.function.isidentifier():
            raise ValueError(f"function: found {self.function!r}, expected a Python name")


@dataclass(frozen=True, slots=True)
class Test:
    """One test of a program. ``expected`` never enters the sandbox.

    Attributes:
        input: standard input; for a function, one JSON argument a line.
        expected: standard output; for a function, its value as JSON.
    """

    __test__ = False  # not a class for pytest to collect

    input: str
    expected: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one test, after LiveCodeBench's six seconds.

    Attributes:
        cpu_s: seconds of CPU time: what decides a time-out.
        wall_s: seconds in which it neither runs nor waits for a CPU, a backstop.
        memory_bytes: address space beyond that of the warm interpreter.
        output_bytes: standard output, standard error, and a function's value, each.
        disk_bytes: files in the working folder (tier namespaces; tier landlock has none).
        files: files and folders in the working folder.
        threads: threads at once.

    Raises:
        ValueError: a limit is of the wrong kind, not positive, or beyond any machine, or wall time
            is below CPU time.
    """

    cpu_s: float = 6.0
    wall_s: float = 20.0
    memory_bytes: int = 1 << 30
    output_bytes: int = 8 << 20
    disk_bytes: int = 16 << 20
    files: int = 256
    threads: int = 64

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value, seconds = getattr(self, name), name.endswith("_s")
            wanted, most = ("a number", _MOST_S) if seconds else ("a whole number", _MOST)
            if isinstance(value, bool) or not isinstance(value, int | float if seconds else int):
                raise ValueError(f"{name}: found {value!r}, expected {wanted}")
            if not value > 0:  # NaN neither
                raise ValueError(f"{name}: found {value!r}, expected more than 0")
            if value > most:
                raise ValueError(f"{name}: found {value!r}, expected at most {most:,}")
        if self.wall_s < self.cpu_s:
            raise ValueError(f"wall_s: found {self.wall_s:g}, expected at least cpu_s")


@dataclass(frozen=True, slots=True)
class TestResult:
    """What became of one test.

    Attributes:
        verdict: its verdict.
        reason: why, in a line; empty when accepted.
        output: what the program printed or, as JSON, returned; cut to 4,096 characters.
        error: the end of its traceback or standard error, cut likewise.
        cpu_s: CPU seconds from its input to its answer; of a fork's first test, from the fork.
        wall_s: wall seconds, likewise.
    """

    __test__ = False

    verdict: VerdictName
    reason: str = ""
    output: str = ""
    error: str = ""
    cpu_s: float = 0.0
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a program.

    Attributes:
        verdict: accepted if every test was; else the verdict of the first test that was not.
        tests: results in the tests' order, up to the first failure unless all were asked for.
        tier: the sandbox's tier.
        busy_s: seconds that workers were occupied with the program, repeated executions included.
    """

    verdict: VerdictName
    tests: tuple[TestResult, ...]
    tier: Tier
    busy_s: float = 0.0


def overall(results: Sequence[TestResult]) -> VerdictName:
    """The verdict of a program from those of its tests."""
    failures = (result.verdict for result in results if result.verdict != "accepted")
    return next(failures, "accepted")
