"""The programs, tests, limits and results of the sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["stdin", "function"]
Tier = Literal["namespaces", "landlock"]
Prelude = Literal["none", "lcb"]
VerdictName = Literal[
    "accepted",
    "wrong_answer",
    "runtime_error",
    "compile_error",
    "time_limit",
    "memory_limit",
    "output_limit",
]

#: Upper bounds that the kernel's integer types can represent: a week, and 2^50 bytes.
_MAX_SECONDS = 604_800
_MAX_COUNT = 1 << 50

TIERS: tuple[Tier, ...] = get_args(Tier)

#: The wall seconds that each CPU second adds to the wall limit: a machine may be so busy that a
#: process gets a CPU for a thirtieth of the time.
WALL_PER_CPU_SECOND = 30


@dataclass(frozen=True, slots=True)
class Program:
    """A program to be judged.

    Attributes:
        source: Python source.
        kind: ``stdin`` for a program that reads standard input and prints; ``function`` for a
            function that is called.
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
                f"function: found {self.function!r} with kind {self.kind!r}; expected a name with "
                "kind 'function', and none with kind 'stdin'"
            )
        if self.function is not None and not self.function.isidentifier():
            raise ValueError(f"function: found {self.function!r}, expected a Python name")


@dataclass(frozen=True, slots=True)
class Test:
    """One test of a program. ``expected`` never enters the sandbox.

    Attributes:
        input: standard input; for a function, one JSON argument per line.
        expected: the expected standard output; for a function, the expected value as JSON.
    """

    __test__ = False  # pytest must not collect this class

    input: str
    expected: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one test; the time limit of six seconds is LiveCodeBench's.

    Attributes:
        cpu_s: seconds of CPU time; this limit decides on time-outs.
        wall_s: wall seconds after which a program that waits is stopped. Each CPU second that it
            uses adds 30 seconds, so that a busy machine does not stop a program that computes.
        memory_bytes: address space in addition to that of the preloaded interpreter.
        output_bytes: for standard output, standard error and a function's value, each.
        disk_bytes: for files in the working folder (tier namespaces; tier landlock has no folder).
        files: the number of files and folders in the working folder.
        threads: the number of simultaneous threads.

    Raises:
        ValueError: a limit has the wrong type, is not positive or is too large, or the wall time is
            below the CPU time.
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
            value = getattr(self, name)
            seconds = name.endswith("_s")
            expected, limit = ("a number", _MAX_SECONDS) if seconds else ("an integer", _MAX_COUNT)
            if isinstance(value, bool) or not isinstance(value, int | float if seconds else int):
                raise ValueError(f"{name}: found {value!r}, expected {expected}")
            if not value > 0:  # refuses NaN too
                raise ValueError(f"{name}: found {value!r}, expected more than 0")
            if value > limit:
                raise ValueError(f"{name}: found {value!r}, expected at most {limit:,}")
        if self.wall_s < self.cpu_s:
            raise ValueError(f"wall_s: found {self.wall_s:g}, expected at least cpu_s")


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of one test.

    Attributes:
        verdict: its verdict.
        reason: the reason in one line; empty if accepted.
        output: the printed output or, as JSON, the returned value; at most 4,096 characters.
        error: the end of the traceback or of standard error; at most 4,096 characters.
        cpu_s: CPU seconds from the fork of its process to its end.
        wall_s: wall seconds over the same period.
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
    """The result of a program.

    Attributes:
        verdict: ``accepted`` if all tests were accepted; else the verdict of the first failure.
        tests: results in the tests' order, up to the first failure unless all were requested.
    """

    verdict: VerdictName
    tests: tuple[TestResult, ...]


def combine_verdicts(results: Sequence[TestResult]) -> VerdictName:
    """Combine the verdicts of a program's tests: the first failure, or ``accepted``."""
    failures = (result.verdict for result in results if result.verdict != "accepted")
    return next(failures, "accepted")
