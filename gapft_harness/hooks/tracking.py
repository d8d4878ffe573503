"""Trackers: what follows a training from outside. Nothing that a run keeps depends on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gapft_harness.core.errors import FAULTS, describe
from gapft_harness.core.records import Arm


@dataclass(frozen=True, slots=True)
class TrackedArm:
    """What a tracker is told of one arm's training before its first step.

    Attributes:
        project: the recipe's name.
        run: the run directory's name.
        arm: condition and seed.
        folder: ``tracking/`` of the run directory, for trackers that write files; it may not exist.
        first_step: the step that is logged first: 1, or a later one where a killed training goes
            on from a kept state.
        settings: the arm's condition, seed, base model, budget and training section, flat: text,
            numbers and truth values only.
    """

    project: str
    run: str
    arm: Arm
    folder: Path
    first_step: int
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What the tracker's own run is to be called: run and arm."""
        return f"{self.run}/{self.arm.name}"


class Tracker(Protocol):
    """Follows one arm's training. accelerate's trackers, once started, are such objects."""

    def log(self, values: dict[str, Any], step: int) -> None:
        """Takes one optimizer step's figures, numbers by name. See docs/training.md."""
        ...

    def finish(self) -> None:
        """Ends the tracker's run, also where training failed."""
        ...


TrackerFactory = Callable[[TrackedArm], Tracker]


class RegisterTracker(Protocol):
    """Registers a tracker; ``needs`` are the packages that it imports, as pip names them.

    A recipe that names the tracker is refused before search where one of them is not installed.
    """

    def __call__(self, name: str, factory: TrackerFactory, *, needs: Sequence[str] = ()) -> None:
        """Called once for each tracker that a plugin offers."""
        ...


class Tracking:
    """One arm's trackers as its trainer sees them.

    Args:
        openers: by tracker name, what opens it, given the first step that will be logged.

    Attributes:
        warnings: a sentence for each tracker that failed after it was opened.
    """

    def __init__(self, openers: Mapping[str, Callable[[int], Tracker]] | None = None) -> None:
        self._openers = dict(openers or {})
        self._open: dict[str, Tracker] = {}
        self._opened = False
        self.warnings: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._openers)

    @contextlib.contextmanager
    def opened(self, first_step: int) -> Iterator[None]:
        """Opens the trackers, and ends them however the training ends.

        Only the first process of several enters this.

        Raises:
            GapftError: a tracker cannot be opened; nothing of the arm has been trained by then.
        """
        self._opened = True
        try:
            for name, opener in self._openers.items():
                self._open[name] = opener(first_step)
            yield
        finally:
            for name in list(self._open):
                self._call(name, "end", lambda tracker: tracker.finish())
                self._open.pop(name, None)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Tells the open trackers of a step. One that fails is left out from then on."""
        for name in list(self._open):
            self._call(name, f"take step {step}", lambda tracker: tracker.log(dict(values), step))

    def unused(self, trainer: str) -> list[str]:
        """What to say of a trainer that asked for no tracking where the recipe has trackers."""
        if not self or self._opened:
            return []
        return [f"trainer {trainer!r} does not track; {', '.join(self._openers)} got nothing"]

    def _call(self, name: str, verb: str, call: Callable[[Tracker], None]) -> None:
        """A tracker must not end a training, so whatever it raises becomes a warning."""
        try:
            call(self._open[name])
        except FAULTS as error:
            tracker = self._open.pop(name)
            self.warnings.append(
                f"tracker {name!r} could not {verb} ({describe(error)}) and was left "
                "out from there on; training_log.jsonl has every step"
            )
            if verb != "end":
                with contextlib.suppress(*FAULTS):
                    tracker.finish()
