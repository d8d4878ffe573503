"""``program_tests``: requires that every test accepts the last fenced program of a response."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any

from gapft_harness.api import (
    Gold,
    Limits,
    Program,
    Register,
    Sandbox,
    Test,
    UserError,
    Verdict,
    hookimpl,
    last_program,
)
from gapft_harness.core.extras import is_installed
from gapft_harness.core.identities import content_hash
from gapft_harness.core.processes import Closing
from gapft_harness.sandbox import Result
from gapft_harness.verification.feedback import NO_PROGRAM, failure_feedback, without_paths
from gapft_harness.verification.programs import Suite, check_calls, read_suite

_MAX_SHOWN = 120
#: Incremented when programs may get different verdicts. Version 1 was not recorded, and every
#: program could use LiveCodeBench's names. Version 2 had Python's limit on the digits of an integer
#: with LiveCodeBench's prelude too, and in the arguments and values of functions. In version 3 the
#: calls of a function could share changes to modules, and values could be nested 10,000 times.
_RULES_VERSION = 4

#: Selects the tests of a suite to run: for a verdict, or for feedback.
_Choice = Callable[[Suite], Sequence[Test]]
_ALL: _Choice = attrgetter("tests")
_PUBLIC: _Choice = attrgetter("public_tests")


class ProgramTests(Closing):
    """Runs the last fenced program on all public and hidden tests, in the sandbox.

    The sandbox starts and its canaries run when the verifier is created: if no tier works, nothing
    is generated.

    Args:
        tier: ``auto``, ``namespaces`` or ``landlock``; ``auto`` uses the first that works.
        workers: worker processes; default: one per core, as far as memory allows.
        preload: packages outside the standard library that programs may import.
        limits: limits per test that override the sandbox's own, e.g. ``{cpu_s: 10}``.
        prelude: ``lcb`` lets programs use the names that LiveCodeBench imports for them, and gives
            them its limits on recursion and on the digits of an integer; ``none`` is plain Python.

    Raises:
        UserError: a parameter is out of range, or no tier of the sandbox works on this machine.
    """

    def __init__(
        self,
        tier: str = "auto",
        workers: int | None = None,
        preload: Sequence[str] = ("numpy",),
        limits: Mapping[str, float] | None = None,
        prelude: str = "none",
    ) -> None:
        if missing := [name for name in preload if not is_installed(name)]:
            raise UserError(
                f"program_tests: preload: {missing[0]!r} is not installed; install it, or remove "
                "it from the list"
            )
        self._sandbox = Sandbox(
            tier=tier,  # type: ignore[arg-type]  # it checks the name
            workers=workers,
            preload=preload,
            limits=_build_limits(limits or {}),
            prelude=prelude,  # type: ignore[arg-type]  # it checks the name
        )
        self._prelude = prelude
        self._sandbox.start()

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judge each response; equal programs for one problem run once.

        See ``programs.read_suite`` for the form of a gold. Its tests are decoded only while its
        programs wait to run.

        Raises:
            UserError: a gold is malformed, or its tests are missing or cannot be decoded.
            InfrastructureError: the sandbox failed; this never becomes a verdict.
        """
        return [outcome.verdict for outcome in self._run_programs(responses, golds, _ALL)]

    def feedback(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[str | None]:
        """Run the public tests alone; return None if all pass, else the feedback for the model.

        Hidden tests are not run, and packed ones not even decoded, so feedback cannot reveal them,
        and they never decide whether an episode continues. Programs for a problem without public
        tests get no feedback.

        Raises:
            UserError: a gold is malformed, or has no test.
            InfrastructureError: see ``verify``.
        """
        return [outcome.feedback for outcome in self._run_programs(responses, golds, _PUBLIC)]

    def has_answer(self, text: str, gold: Gold) -> bool:
        """Return whether a response has a fenced program."""
        return bool(last_program(text))

    def check_gold(self, gold: Gold) -> str:
        """Describe a fault in a gold: malformed, too large, no test, or impossible to pass."""
        try:
            check_calls(read_suite(gold))
        except UserError as error:
            return str(error)
        return ""

    def describe(self) -> dict[str, Any]:
        """Return the sandbox's tier, limits and rules."""
        return {
            "sandbox_tier": self._sandbox.tier,
            "limits": asdict(self._sandbox.limits),
            "rules": {"edition": _RULES_VERSION, "prelude": self._prelude},
        }

    def close(self) -> None:
        """Stop the sandbox's workers."""
        self._sandbox.close()

    def _run_programs(
        self,
        responses: Sequence[str],
        golds: Sequence[Gold],
        choose_tests: _Choice,
    ) -> list[_ResponseOutcome]:
        """Run each response's program on the chosen tests of its problem."""
        outcomes: dict[int, _ResponseOutcome] = {}
        problems: dict[str, _Problem] = {}
        keys: dict[int, str] = {}  # by identity: one gold object serves all responses to a problem
        for i, (response, gold) in enumerate(zip(responses, golds, strict=True)):
            if id(gold) not in keys:
                keys[id(gold)] = content_hash(gold)
            problem = problems.setdefault(keys[id(gold)], _Problem(gold))
            source = last_program(response)
            if source is None:
                outcomes[i] = _ResponseOutcome(Verdict("fail", "no fenced program"), NO_PROGRAM)
            elif not source.strip():
                reason = "the last program is empty or never closed"
                outcomes[i] = _ResponseOutcome(Verdict("fail", reason), NO_PROGRAM)
            else:
                problem.responses.setdefault(source, []).append(i)
        waiting: list[_Waiting] = []
        items = self._iterate_programs(problems, choose_tests, waiting, outcomes)
        for number, result in self._sandbox.stream(items):
            outcome = waiting[number].build_outcome(result)
            outcomes.update(dict.fromkeys(waiting[number].responses, outcome))
        return [outcomes[i] for i in range(len(responses))]

    def _iterate_programs(
        self,
        problems: Mapping[str, _Problem],
        choose_tests: _Choice,
        waiting: list[_Waiting],
        outcomes: dict[int, _ResponseOutcome],
    ) -> Iterator[tuple[Program, Sequence[Test]]]:
        """Yield the programs to run, and note their responses; without tests run nothing."""
        for problem in problems.values():
            # Also if no response has a program, so that a problem without tests is always reported.
            suite = read_suite(problem.gold, packed=choose_tests is not _PUBLIC)
            tests = choose_tests(suite)
            for source, indices in problem.responses.items():
                if tests:
                    waiting.append(
                        _Waiting(indices, suite.kind, len(suite.tests), suite.public_tests)
                    )
                    yield suite.build_program(source), tests
                else:
                    outcomes.update(dict.fromkeys(indices, _ResponseOutcome(Verdict("pass"), None)))


@dataclass(frozen=True, slots=True)
class _Problem:
    """A gold, and the indices of the responses that have each program."""

    gold: Gold
    responses: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ResponseOutcome:
    """The outcome of one response: its verdict, and the feedback that the model may get."""

    verdict: Verdict
    feedback: str | None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A program in the sandbox: the responses that have it, and the tests of its problem."""

    responses: list[int]
    kind: str
    tests: int
    public: tuple[Test, ...]

    def build_outcome(self, result: Result) -> _ResponseOutcome:
        """Build the outcome of its run. A timeout is the program's own fault, and so a ``fail``."""
        if result.verdict == "accepted":
            return _ResponseOutcome(Verdict("pass"), None)
        number = len(result.tests)
        public = len(self.public)
        words = result.verdict.replace("_", " ")
        detail = " ".join(without_paths(result.tests[-1].reason).split())[:_MAX_SHOWN]
        if number > public:
            # A report may show reasons, so they must not reveal hidden tests.
            place = f"hidden test {number - public} of {self.tests - public}"
            feedback = None
        else:
            place = f"public test {number} of {public}: {detail}"
            failed = self.public[number - 1]
            feedback = failure_feedback(self.kind, number, public, failed, result.tests[-1])
        reason = (
            f"{words}: {detail}" if result.verdict == "compile_error" else f"{words} on {place}"
        )
        return _ResponseOutcome(Verdict("fail", reason), feedback)


def _build_limits(overrides: Mapping[str, float]) -> Limits:
    values: dict[str, Any] = dict(overrides)
    try:
        return Limits(**values)
    except (ValueError, TypeError) as error:
        raise UserError(f"program_tests: limits: {error}") from error


@hookimpl
def register_verifiers(register: Register) -> None:
    """Register the verifier."""
    register("program_tests", ProgramTests, rejudge=False)
