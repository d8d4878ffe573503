"""Which worker runs what next. A slow program occupies its own worker and nothing else."""

from __future__ import annotations

import collections
import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.sandbox.comparison import expected_value
from gapft_harness.sandbox.confinement.syscalls import Refused
from gapft_harness.sandbox.outcome import TestOutcome
from gapft_harness.sandbox.process import (
    NotConfined,
    SandboxWorker,
    WorkerDied,
    packet,
)
from gapft_harness.sandbox.records import (
    Compat,
    Isolation,
    Limits,
    Program,
    Result,
    Test,
    TestResult,
    Tier,
    overall,
)
from gapft_harness.sandbox.verdicts import judge_call, judge_stdin

#: Tests that one fork is given at most: what became of each goes into one message.
_MOST_TOGETHER = 200
#: How often an execution is tried whose worker failed.
ATTEMPTS = 3


class InfrastructureError(GapftError):
    """The sandbox failed, not the program: there is no verdict, and none may be counted."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a call to ``Sandbox.judge`` judges.

    Attributes:
        isolation: a fork for each input of a function program, or one for as many as go.
        compat: whose way of running and comparing.
        run_all: go on after a program that failed by itself, and give the results of all tests.
    """

    isolation: Isolation = "program"
    compat: Compat | None = None
    run_all: bool = False


@dataclass(slots=True, eq=False)
class _Case:
    """One program on its way through its tests; at most one execution of it runs at a time."""

    index: int
    program: Program
    tests: Sequence[Test]
    source: bytes
    results: list[TestResult] = field(default_factory=list)
    attempts: int = 0
    busy_s: float = 0.0

    def finished(self, rules: Rules) -> bool:
        """Whether nothing more is run. A wrong answer is no reason.

        What runs must not depend on what was expected: whatever way a test has to leave a note,
        the next program could read from a test that was not run which answer was wrong. How a
        program fails by itself tells of nothing but the program.
        """
        failed = bool(self.results) and self.results[-1].verdict not in ("accepted", "wrong_answer")
        return len(self.results) == len(self.tests) or (failed and not rules.run_all)

    def result(self, rules: Rules, tier: Tier) -> Result:
        verdicts = [result.verdict != "accepted" for result in self.results]
        end = None if rules.run_all or True not in verdicts else verdicts.index(True) + 1
        return Result(overall(self.results), tuple(self.results[:end]), tier, self.busy_s)

    def next_tests(self, rules: Rules) -> Sequence[Test]:
        rest = self.tests[len(self.results) :]
        grouped = self.program.kind == "function" and rules.isolation == "program"
        return rest[: _MOST_TOGETHER if grouped else 1]


class Schedule:
    """Runs cases on workers. The workers are kept between calls; a dead one is replaced."""

    def __init__(self, start: Callable[[], SandboxWorker], count: int, limits: Limits) -> None:
        self._start = start
        self._count = count
        self._limits = limits
        self.workers: list[SandboxWorker] = []

    def fill(self) -> None:
        """Starts the workers that are missing and waits for them.

        Raises:
            Refused: the tier does not hold here.
            WorkerDied: one ended while starting. None of the new ones is left.
        """
        new = [self._start() for _ in range(self._count - len(self.workers))]
        try:
            for worker in new:
                worker.wait_ready()
        except WorkerDied as error:
            ends = [worker.kill() for worker in new]
            raise WorkerDied(f"{error}; it {ends[0]}") from error
        except BaseException:
            for worker in new:
                worker.kill()
            raise
        self.workers += new

    def _refill(self) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.fill()
                return
            except (WorkerDied, Refused) as error:
                if attempt == ATTEMPTS:
                    raise InfrastructureError(_failed("starting a worker", str(error))) from error

    def run(
        self, items: Iterable[tuple[Program, Sequence[Test]]], rules: Rules, tier: Tier
    ) -> Iterator[tuple[int, Result]]:
        """Judges programs; yields each with its number as soon as it is done."""
        fresh = _cases(items, rules)
        waiting: collections.deque[_Case] = collections.deque()
        running: dict[SandboxWorker, _Case] = {}

        def take() -> _Case | None:
            return waiting.popleft() if waiting else next(fresh, None)

        def give(worker: SandboxWorker, case: _Case) -> None:
            self._send(worker, case, rules)
            running[worker] = case

        try:
            while True:
                self._refill()
                for worker in self.workers:
                    if worker not in running:
                        if (case := take()) is None:
                            break
                        give(worker, case)
                if not running:
                    return
                for worker in self._heard(running):
                    case = running.pop(worker)
                    outcomes = self._receive(worker, case, waiting)
                    if not outcomes:
                        continue
                    # The worker goes on before they are judged, so that it does not wait.
                    if (other := take()) is not None:
                        give(worker, other)
                    self._record(case, outcomes, rules)
                    if case.finished(rules):
                        yield case.index, case.result(rules, tier)
                    else:
                        waiting.appendleft(case)
        finally:
            # Left early: what still runs must not reach the next call.
            for worker in [worker for worker in running if worker in self.workers]:
                self._drop(worker)

    def close(self) -> None:
        """Ends all workers."""
        while self.workers:
            self.workers.pop().kill()

    def _send(self, worker: SandboxWorker, case: _Case, rules: Rules) -> None:
        inputs = [test.input.encode("utf-8", "surrogatepass") for test in case.next_tests(rules)]
        limits = self._limits
        worker.send(*(case.program, case.source, inputs, limits.cpu_s, limits.wall_s, rules.compat))

    def _heard(self, running: dict[SandboxWorker, _Case]) -> list[SandboxWorker]:
        poll = select.poll()
        by_file = {worker.control.fileno(): worker for worker in running}
        for file in by_file:
            poll.register(file, select.POLLIN)
        first = min(worker.deadline for worker in running)
        ready = {file for file, _ in poll.poll(max(1.0, 1000 * (first - time.monotonic())))}
        now = time.monotonic()
        return [w for file, w in by_file.items() if file in ready or w.deadline <= now]

    def _receive(
        self, worker: SandboxWorker, case: _Case, waiting: collections.deque[_Case]
    ) -> list[TestOutcome]:
        """The outcomes; none if the worker failed, in which case the execution will be repeated."""
        try:
            outcomes, busy_s = worker.receive()
        except WorkerDied as error:
            problem = f"{error}; it {self._drop(worker)}"
        except NotConfined as error:
            problem = str(error)
        else:
            case.attempts = 0
            case.busy_s += busy_s
            return outcomes
        case.attempts += 1
        if case.attempts == ATTEMPTS:
            raise InfrastructureError(_failed(f"running program number {case.index}", problem))
        waiting.appendleft(case)
        return []

    def _drop(self, worker: SandboxWorker) -> str:
        self.workers[:] = [other for other in self.workers if other is not worker]
        return worker.kill()

    def _record(self, case: _Case, outcomes: list[TestOutcome], rules: Rules) -> None:
        """Judges what there is. The first answer to a test stands: none is run again."""
        for outcome in outcomes:
            test = case.tests[len(case.results)]
            if case.program.kind == "stdin":
                ignore_exit = rules.compat == "lcb"
                result = judge_stdin(outcome, test, self._limits, ignore_exit)
            else:
                result = judge_call(outcome, test, self._limits)
            case.results.append(result)
            if case.finished(rules):
                return


def _failed(doing: str, problem: str) -> str:
    return (
        f"the sandbox failed {ATTEMPTS} times {doing} ({problem}); no verdict was given. Is the "
        "machine out of memory or processes? `gapft doctor` tries the sandbox."
    )


def _cases(items: Iterable[tuple[Program, Sequence[Test]]], rules: Rules) -> Iterator[_Case]:
    for index, (program, tests) in enumerate(items):
        if not tests:
            raise UserError(
                f"program number {index} has no tests; expected at least one (a program without "
                "tests is never accepted)"
            )
        if program.kind == "function":
            for test in tests:
                expected_value(test.expected)
        yield _Case(index, program, tests, packet(program, rules.compat))
