"""Tell which outputs of a pipeline exist and which are new, or refuse new ones; make none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gapft_harness.core.errors import UserError
from gapft_harness.engine.differences import describe_differences
from gapft_harness.engine.outputs import NotKnownYet, Output, Unknown
from gapft_harness.engine.run import Run, describe_missing
from gapft_harness.engine.step import Step
from gapft_harness.engine.store import Store


@dataclass
class Planner:
    """Finds the outputs of steps; of those that do not exist it tells why.

    Attributes:
        run: the run, which need not exist.
        store: the store; None to use the outputs of the run alone, also without the model and the
            files that they were made with.
        free_parts: parts of a key that may differ from the run's record.
        in_run: the names of outputs that the run has.
        stored: the names of outputs that the store has.
        new: the reasons why the others are made, by name.
    """

    run: Run
    store: Store | None = None
    free_parts: tuple[str, ...] = ("machine",)
    in_run: list[str] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    new: dict[str, str] = field(default_factory=dict)

    def __call__(self, steps: Iterable[Step]) -> dict[str, Output | Unknown]:
        """Find the outputs of steps, by name.

        Raises:
            UserError: an output was changed after it was made.
        """
        return {step.name: self._find(step) for step in steps}

    def _find(self, step: Step) -> Output | Unknown:
        accepts_names = self.store is None
        try:
            if output := self.run.find(step, self.free_parts, accepts_names=accepts_names):
                self.in_run.append(step.name)
                return output
            if self.store is not None and (output := self.store.find(step)):
                self.stored.append(step.name)
                return output
            record = self.run.read_records().get(step.name)
            reason = ""
            if record is not None:
                reason = describe_differences(
                    record.made_from, step.made_from, accepts_names=accepts_names
                )
        except NotKnownYet as error:
            reason = str(error)
        self.new[step.name] = reason
        return Unknown(f"{step.name} is not made yet")


class StrictPlanner(Planner):
    """Finds the outputs of steps in a run, and refuses what is missing or was made otherwise."""

    def __call__(self, steps: Iterable[Step]) -> dict[str, Output | Unknown]:
        """Find the outputs of steps, by name.

        Raises:
            UserError: an output is missing, was made with other settings, or was changed.
        """
        outputs = super().__call__(steps)
        for name, reason in self.new.items():
            path = self.run.path / name
            if not path.exists():
                raise UserError(describe_missing(path))
            raise UserError(
                f"{path}: was made with other settings or from other files"
                f"{f' ({reason})' if reason else ''}; run the command without --only"
            )
        return outputs
