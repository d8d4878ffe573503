"""Trackers: external logs of a training. A run's own files never depend on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gapft_harness.core.errors import FAULTS, describe_error
from gapft_harness.core.records import Arm


@dataclass(frozen=True, slots=True)
class TrackedArm:
    """What a tracker receives about one arm before the first training step.

    Attributes:
        project: the recipe's name.
        run: the run directory's name.
        arm: condition and seed.
        folder: ``tracking/`` in the run directory, for trackers that write files; it may not exist.
        first_step: the first step to be logged: 1, or a later one where an interrupted training
            resumes from a checkpoint.
        settings: the arm's condition, seed, base model, budget and training section, flattened:
            strings, numbers and booleans only.
    """

    project: str
    run: str
    arm: Arm
    folder: Path
    first_step: int
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name for the tracker's own run: run and arm."""
        return f"{self.run}/{self.arm.name}"


class Tracker(Protocol):
    """Follows the training of one arm. A started accelerate tracker is one."""

    def log(self, values: dict[str, Any], step: int) -> None:
        """Record the figures of one optimizer step, numbers by name. See docs/training.md."""
        ...

    def finish(self) -> None:
        """End the tracker's run; called also when training failed."""
        ...


TrackerFactory = Callable[[TrackedArm], Tracker]


class RegisterTracker(Protocol):
    """Registers a tracker; ``needs`` are the packages that it imports, as pip names them.

    If one of them is not installed, a recipe that names the tracker is rejected before the search.
    """

    def __call__(self, name: str, factory: TrackerFactory, *, needs: Sequence[str] = ()) -> None:
        """Register one tracker; a plugin may call this several times."""
        ...


class Tracking:
    """The trackers of one arm, as its trainer sees them.

    Args:
        openers: by tracker name, a function from the first step to be logged to an open tracker.

    Attributes:
        warnings: a sentence for each tracker that failed after it was opened.
    """

    def __init__(self, openers: Mapping[str, Callable[[int], Tracker]] | None = None) -> None:
        self._openers = dict(openers or {})
        self._open_trackers: dict[str, Tracker] = {}
        self._was_opened = False
        self.warnings: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._openers)

    @contextlib.contextmanager
    def open_all(self, first_step: int) -> Iterator[None]:
        """Open the trackers, and end them however the training ends.

        With several processes, only the first one may enter this.

        Raises:
            GapftError: a tracker cannot be opened; the training of the arm has not started.
        """
        self._was_opened = True
        try:
            for name, opener in self._openers.items():
                self._open_trackers[name] = opener(first_step)
            yield
        finally:
            for name in list(self._open_trackers):
                self._call(name, "end", lambda tracker: tracker.finish())
                self._open_trackers.pop(name, None)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log one step to the open trackers. One that fails is closed and gets no more steps."""
        for name in list(self._open_trackers):
            self._call(name, f"log step {step}", lambda tracker: tracker.log(dict(values), step))

    def find_unused_warnings(self, trainer: str) -> list[str]:
        """Return a warning if the recipe has trackers but the trainer did not open them."""
        if not self or self._was_opened:
            return []
        return [
            f"trainer {trainer!r} uses no trackers; nothing logged to {', '.join(self._openers)}"
        ]

    def _call(self, name: str, action: str, call: Callable[[Tracker], None]) -> None:
        """Call a tracker; turn any exception into a warning, because training must go on."""
        try:
            call(self._open_trackers[name])
        except FAULTS as error:
            tracker = self._open_trackers.pop(name)
            self.warnings.append(
                f"tracker {name!r} could not {action} ({describe_error(error)}) and gets no more "
                "steps; training_log.jsonl has all of them"
            )
            if action != "end":
                with contextlib.suppress(*FAULTS):
                    tracker.finish()
