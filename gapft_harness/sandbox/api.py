"""The interface of the sandbox for the rest of the harness."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, Self, get_args

from gapft_harness.core.cgroups import count_usable_cores, read_usable_memory
from gapft_harness.core.errors import UserError
from gapft_harness.core.processes import Closing
from gapft_harness.sandbox import probes
from gapft_harness.sandbox.confinement.syscalls import Refused
from gapft_harness.sandbox.probes import Probe
from gapft_harness.sandbox.process import SandboxWorker, WorkerDied
from gapft_harness.sandbox.records import (
    TIERS,
    Limits,
    Prelude,
    Program,
    Result,
    Test,
    Tier,
)
from gapft_harness.sandbox.schedule import Schedule


class Sandbox(Closing):
    """Run untrusted programs against tests, in confined workers that persist between calls.

    Use it as a context manager. Entering starts the workers and runs the canaries: programs that
    attempt forbidden actions, to check that the sandbox prevents them.

    Args:
        tier: ``namespaces``, ``landlock``, or ``auto`` for the first of them that works on this
            machine.
        workers: the number of worker processes; by default one per core, limited by memory.
        preload: modules that workers import before the first program (``("numpy",)``); programs
            can import these packages and the standard library.
        limits: the limits of a test.
        prelude: names that are available to programs without import. ``none``: only Python's
            builtins. ``lcb``: also the names of the imports that LiveCodeBench puts before every
            program, and its limits on recursion and on the digits of an integer.

    Raises:
        UserError: an argument is out of range, or the workers need more memory than the machine
            has.
    """

    def __init__(
        self,
        tier: Tier | Literal["auto"] = "auto",
        workers: int | None = None,
        preload: Sequence[str] = (),
        limits: Limits | None = None,
        prelude: Prelude = "none",
    ) -> None:
        if prelude not in get_args(Prelude):
            raise UserError(f"sandbox prelude: found {prelude!r}, expected none or lcb")
        if tier not in (*TIERS, "auto"):
            raise UserError(f"sandbox tier: found {tier!r}, expected auto or {' or '.join(TIERS)}")
        self._tiers: tuple[Tier, ...] = TIERS if tier == "auto" else (tier,)
        self.limits = limits or Limits()
        self._count = _choose_worker_count(workers, self.limits.memory_bytes)
        self._preload = tuple(preload)
        self._prelude: Prelude = prelude
        self._tier: Tier | None = None
        self._schedule: Schedule | None = None
        self._lock = threading.Lock()
        self._streaming_thread: int | None = None
        self._finalizer: Callable[[], object] = lambda: None

    @property
    def tier(self) -> Tier:
        """The tier in use."""
        if self._tier is None:
            raise ValueError("the sandbox is not started; use it in a with statement")
        return self._tier

    def start(self) -> None:
        """Start the workers and run the canaries, unless they are already started.

        Raises:
            UserError: no requested tier works. The message names the failed probes and the remedy.
        """
        if self._schedule is not None:
            return
        all_probes: list[Probe] = []
        for tier in self._tiers:
            schedule, tier_probes = _try_tier(
                tier, self._count, self._preload, self.limits, self._prelude
            )
            all_probes += tier_probes
            if schedule is not None:
                self._tier = tier
                self._schedule = schedule
                self._finalizer = weakref.finalize(self, _close_schedule, schedule, os.getpid())
                return
        failed = "\n".join(f"  {probe}" for probe in all_probes if not probe.holds)
        raise UserError(
            "generated programs cannot be run safely on this machine, so nothing was generated or "
            f"run; expected a sandbox tier that passes all probes, found\n{failed}"
        )

    def judge(
        self,
        items: Iterable[tuple[Program, Sequence[Test]]],
        *,
        run_all: bool = False,
    ) -> list[Result]:
        """Judge programs by their tests.

        Args:
            items: programs with their tests.
            run_all: run all tests and return all results; otherwise, results end with the first
                failure. (A wrong answer never stops a program: its remaining tests run in both
                cases, since the tests that run must not depend on expected outputs.)

        Returns:
            One result per program, in the order of the items.

        Raises:
            UserError: a program has no tests, or an expected value is not JSON.
            InfrastructureError: the sandbox failed repeatedly; no result is returned.
        """
        results = dict(self.stream(items, run_all=run_all))
        return [results[index] for index in range(len(results))]

    def stream(
        self,
        items: Iterable[tuple[Program, Sequence[Test]]],
        *,
        run_all: bool = False,
    ) -> Iterator[tuple[int, Result]]:
        """Judge programs like ``judge``, but yield (item number, result) as each one is done.

        Items are read as workers become free, so they need not fit into memory together.
        """
        if self._streaming_thread == threading.get_ident():
            raise ValueError(
                "a stream of this sandbox is still open in this thread; close it first"
            )
        with self._lock:
            self._streaming_thread = threading.get_ident()
            try:
                self.start()
                assert self._schedule is not None
                yield from self._schedule.run(items, run_all)
            finally:
                self._streaming_thread = None

    def close(self) -> None:
        """End the workers. A second call has no effect."""
        self._finalizer()
        self._schedule = self._tier = None

    def __enter__(self) -> Self:
        self.start()
        return self


def probe_tiers(tier: Tier | Literal["auto"] = "auto") -> list[Probe]:
    """Probe the tiers on this machine, each with all its canaries and little memory.

    Args:
        tier: the tier to probe; ``auto`` probes both.

    Returns:
        The results of all probes, tier by tier.
    """
    limits = Limits(cpu_s=2, wall_s=20, memory_bytes=256 << 20)
    results = []
    for candidate in TIERS if tier == "auto" else (tier,):
        schedule, tier_probes = _try_tier(candidate, 1, (), limits, "none")
        results += tier_probes
        if schedule is not None:
            schedule.close()
    return results


def _try_tier(
    tier: Tier,
    count: int,
    preload: tuple[str, ...],
    limits: Limits,
    prelude: Prelude,
) -> tuple[Schedule | None, list[Probe]]:
    """Start workers of one tier and run its canaries.

    Returns:
        The schedule, or None if the tier does not work; and the results of the probes.
    """
    start = partial(SandboxWorker.start, tier, limits, preload, prelude)
    schedule = Schedule(start, count, limits, tier)
    try:
        schedule.start_workers()
        tier_probes = [
            Probe(tier, "start", True, "workers start confined"),
            *probes.run_canaries(schedule, limits.memory_bytes),
        ]
    except (Refused, WorkerDied) as error:
        return None, [probes.build_failed_start(tier, str(error))]
    except BaseException:
        schedule.close()
        raise
    if all(probe.holds for probe in tier_probes):
        return schedule, tier_probes
    schedule.close()
    return None, tier_probes


def _close_schedule(schedule: Schedule, owner: int) -> None:
    if os.getpid() == owner:  # a fork of the owner must not end the owner's workers
        schedule.close()


def _choose_worker_count(workers: int | None, memory_bytes: int) -> int:
    memory = read_usable_memory()
    fitting_workers = memory // memory_bytes
    if workers is None:
        workers = max(1, min(int(count_usable_cores()), fitting_workers))
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise UserError(f"sandbox workers: found {workers!r}, expected an integer of at least 1")
    if workers > max(1, fitting_workers):
        raise UserError(
            f"sandbox workers x memory_bytes: found {workers} x {memory_bytes / 2**30:.2f} GiB, "
            f"expected at most the {memory / 2**30:.1f} GiB that this machine or its container "
            "has; reduce one of them"
        )
    return workers
