"""Schedule executions on workers, so that a slow program occupies only one worker."""

from __future__ import annotations

import collections
import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.sandbox.comparison import parse_expected_value
from gapft_harness.sandbox.confinement.syscalls import Refused
from gapft_harness.sandbox.process import (
    NotConfined,
    SandboxWorker,
    WorkerDied,
    pack_program,
)
from gapft_harness.sandbox.records import (
    Limits,
    Program,
    Result,
    Test,
    TestResult,
    Tier,
    combine_verdicts,
)
from gapft_harness.sandbox.verdicts import TestOutcome, judge_outcome

#: Maximum attempts of an execution whose worker fails.
ATTEMPTS = 3


class InfrastructureError(GapftError):
    """The sandbox failed, not the program, so there is no verdict to count."""


@dataclass(slots=True, eq=False)
class _Case:
    """The state of one program and its tests; at most one of its executions runs at a time."""

    index: int
    program: Program
    tests: Sequence[Test]
    source: bytes
    results: list[TestResult] = field(default_factory=list)
    attempts: int = 0

    def is_finished(self, run_all: bool) -> bool:
        """Check whether no further test will run. A wrong answer does not stop a program.

        The tests that run must not depend on the expected outputs: if a test could leave a trace
        for later programs, a missing trace would reveal which answer was wrong. Other failures
        depend on the program alone, so stopping after them reveals nothing.
        """
        failed = bool(self.results) and self.results[-1].verdict not in ("accepted", "wrong_answer")
        return len(self.results) == len(self.tests) or (failed and not run_all)

    def build_result(self, run_all: bool) -> Result:
        verdicts = [result.verdict != "accepted" for result in self.results]
        end = None if run_all or True not in verdicts else verdicts.index(True) + 1
        return Result(combine_verdicts(self.results), tuple(self.results[:end]))


class Schedule:
    """Run cases on workers that persist between calls; a dead worker is replaced."""

    def __init__(
        self, start: Callable[[], SandboxWorker], count: int, limits: Limits, tier: Tier
    ) -> None:
        self._start = start
        self._count = count
        self._limits = limits
        self.tier = tier
        self.workers: list[SandboxWorker] = []

    def start_workers(self) -> None:
        """Start the missing workers and wait for them.

        Raises:
            Refused: the tier does not work on this machine.
            WorkerDied: a worker ended while starting.

        In both cases all new workers are ended.
        """
        new = [self._start() for _ in range(self._count - len(self.workers))]
        try:
            for worker in new:
                worker.wait_ready()
        except WorkerDied as error:
            ends = [worker.kill() for worker in new]
            raise WorkerDied(f"a worker died while starting: {error}; it {ends[0]}") from error
        except BaseException:
            for worker in new:
                worker.kill()
            raise
        self.workers += new

    def _restart_workers(self) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.start_workers()
                return
            except (WorkerDied, Refused) as error:
                if attempt == ATTEMPTS:
                    raise InfrastructureError(
                        _failure_message("starting a worker", str(error))
                    ) from error

    def run(
        self, items: Iterable[tuple[Program, Sequence[Test]]], run_all: bool = False
    ) -> Iterator[tuple[int, Result]]:
        """Judge programs and yield (item number, result) as soon as each program is done."""
        new_cases = _create_cases(items)
        waiting: collections.deque[_Case] = collections.deque()
        running: dict[SandboxWorker, _Case] = {}

        def start_next(worker: SandboxWorker) -> None:
            """Start the next test of a waiting program, or of a new one if there is any."""
            case = waiting.popleft() if waiting else next(new_cases, None)
            if case is not None:
                test_input = case.tests[len(case.results)].input
                worker.send(case.source, test_input.encode("utf-8", "surrogatepass"))
                running[worker] = case

        try:
            while True:
                self._restart_workers()
                for worker in self.workers:
                    if worker not in running:
                        start_next(worker)
                if not running:
                    return
                for worker in self._poll_workers(running):
                    case = running.pop(worker)
                    outcome = self._receive_outcome(worker, case, waiting)
                    if outcome is None:
                        continue
                    # Start the next test first, so that the worker runs during the judging.
                    start_next(worker)
                    test = case.tests[len(case.results)]
                    case.results.append(
                        judge_outcome(case.program.kind, outcome, test, self._limits)
                    )
                    if case.is_finished(run_all):
                        yield case.index, case.build_result(run_all)
                    else:
                        waiting.appendleft(case)
        finally:
            # The caller may stop early: outcomes of running cases must not reach the next call.
            for worker in [worker for worker in running if worker in self.workers]:
                self._remove_worker(worker)

    def close(self) -> None:
        """End all workers."""
        while self.workers:
            self.workers.pop().kill()

    def _poll_workers(self, running: dict[SandboxWorker, _Case]) -> list[SandboxWorker]:
        poll = select.poll()
        by_file = {worker.control.fileno(): worker for worker in running}
        for file in by_file:
            poll.register(file, select.POLLIN)
        first_deadline = min(worker.deadline for worker in running)
        ready = {
            file for file, _ in poll.poll(max(1.0, 1000 * (first_deadline - time.monotonic())))
        }
        current_time = time.monotonic()
        return [w for file, w in by_file.items() if file in ready or w.deadline <= current_time]

    def _receive_outcome(
        self, worker: SandboxWorker, case: _Case, waiting: collections.deque[_Case]
    ) -> TestOutcome | None:
        """Receive an outcome; if the worker failed, return None and queue the case again."""
        try:
            outcome = worker.receive()
        except WorkerDied as error:
            problem = f"{error}; it {self._remove_worker(worker)}"
        except NotConfined as error:
            problem = str(error)
        else:
            case.attempts = 0
            return outcome
        case.attempts += 1
        if case.attempts == ATTEMPTS:
            raise InfrastructureError(
                _failure_message(f"running program number {case.index}", problem)
            )
        waiting.appendleft(case)
        return None

    def _remove_worker(self, worker: SandboxWorker) -> str:
        self.workers[:] = [other for other in self.workers if other is not worker]
        return worker.kill()


def _failure_message(action: str, problem: str) -> str:
    return (
        f"the sandbox failed {ATTEMPTS} times {action} ({problem}), so there is no verdict. Is the "
        "machine out of memory or processes? Run `gapft doctor` to test the sandbox."
    )


def _create_cases(items: Iterable[tuple[Program, Sequence[Test]]]) -> Iterator[_Case]:
    for index, (program, tests) in enumerate(items):
        if not tests:
            raise UserError(
                f"program number {index} has no tests; expected at least one (a program without "
                "tests is never accepted)"
            )
        if program.kind == "function":
            for test in tests:
                parse_expected_value(test.expected)
        yield _Case(index, program, tests, pack_program(program))
