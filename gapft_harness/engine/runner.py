"""Make the outputs of steps: from the run, from the store, or as jobs of an executor."""

from __future__ import annotations

import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.json_values import find_json_fault
from gapft_harness.core.processes import import_function
from gapft_harness.engine.differences import describe_differences
from gapft_harness.engine.outputs import OWN_RUN_ONLY, Facts, Json, Output
from gapft_harness.engine.run import Run
from gapft_harness.engine.step import Step
from gapft_harness.engine.store import Store, place_link
from gapft_harness.hooks.protocols import (
    Executor,
    Job,
    Progress,
    ReportProgress,
    report_nothing,
)

#: Seconds until a file written on another machine must be visible on this one.
_VISIBLE_TIMEOUT_S = 90.0


class Runner:
    """Makes the outputs of steps, and links them into a run.

    Args:
        run: the run; its lock is held.
        store: the store.
        executor: runs the jobs.
        plugin_files: files given by ``--plugin``.
        progress: called with the progress of jobs.
        report_line: called with a line on what is made again or reused.
    """

    def __init__(
        self,
        run: Run,
        store: Store,
        executor: Executor,
        plugin_files: Sequence[str] = (),
        progress: Progress = lambda label, done, total, tokens=0, note="": None,
        report_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.run, self.store = run, store
        self._executor, self._plugin_files = executor, list(plugin_files)
        self._progress, self._report_line = progress, report_line
        self._keys: dict[str, str] = {}

    @property
    def requested(self) -> set[str]:
        """The names of all outputs that were requested so far."""
        return {*self._keys}

    def __call__(self, steps: Iterable[Step]) -> dict[str, Output]:
        """Make the outputs of steps, which run in parallel; return them by name.

        Raises:
            UserError: two steps of different keys have one name; a stored output was changed.
            GapftError: a job failed.
        """
        by_name = {step.name: step for step in map(self._claim_name, steps)}
        outputs = {
            name: output for name, step in by_name.items() if (output := self.run.find(step))
        }
        missing = {name: step for name, step in by_name.items() if name not in outputs}
        self._report_reasons(missing)
        stored = {
            name: (step, output)
            for name, step in missing.items()
            if (output := self.store.find(step))
        }
        outputs |= self.run.put(stored)
        outputs |= self._run_jobs({n: step for n, step in missing.items() if n not in stored})
        return {name: outputs[name] for name in by_name}

    def _claim_name(self, step: Step) -> Step:
        """Return a step after checking that no step of another key has its name."""
        if self._keys.setdefault(step.name, step.key) != step.key:
            raise UserError(
                f"{step.name}: requested twice, with different settings or inputs; remove one of "
                "the experiments that request it from the recipe"
            )
        return step

    def _run_jobs(self, steps: Mapping[str, Step]) -> dict[str, Output]:
        """Run the jobs of steps, of equal keys one, and link what they made."""
        first_by_place: dict[str, Step] = {}
        for step in steps.values():
            first_by_place.setdefault(step.place, step)
        jobs = [
            Job(
                step.label,
                "gapft_harness.engine.runner:make_output",
                {
                    "store": str(self.store.root),
                    "place": place,
                    "made_from": step.made_from,
                    "function": step.function_name,
                    "inputs": step.list_paths(),
                    "values": {**step.settings, **step.operational},
                    "target": str(self.run.folder / step.name),
                    "plugin_files": self._plugin_files,
                },
                own_process=step.own_process,
            )
            for place, step in first_by_place.items()
        ]
        results = self._executor.run(jobs, self._progress)
        facts_by_place = dict(zip(first_by_place, results, strict=True))
        made = {
            name: (step, self._find_made(step, first_by_place[step.place], facts_by_place))
            for name, step in steps.items()
        }
        return self.run.put(made)

    def _find_made(self, step: Step, made: Step, facts_by_place: Mapping[str, Facts]) -> Output:
        """Find what a job made; it may have run on another machine."""
        facts = facts_by_place[step.place]
        if facts.get(OWN_RUN_ONLY):
            return Output(self.run.folder / made.name, facts)
        deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
        while (output := self.store.find(step)) is None:
            if time.monotonic() > deadline:
                raise GapftError(
                    f"{self.store.root / step.place}: was made, but {_VISIBLE_TIMEOUT_S:g} s later "
                    "it is not visible on this machine; check that all machines see the same "
                    "store, and run the same command again to continue"
                )
            time.sleep(0.5)
        return output

    def _report_reasons(self, steps: Mapping[str, Step]) -> None:
        """Report why outputs that the run had are made again."""
        records, counts = self.run.read_records(), Counter[tuple[str, str]]()
        for name, step in steps.items():
            if (record := records.get(name)) is not None:
                reason = describe_differences(record.made_from, step.made_from)
                counts[name.partition("/")[0], reason or "a file is missing"] += 1
        for (folder, reason), count in counts.items():
            noun = "file" if count == 1 else "files"
            self._report_line(f"{folder}: making {count} {noun} again: {reason}")


def make_output(
    store: str,
    place: str,
    made_from: Mapping[str, Json],
    function: str,
    inputs: Mapping[str, Any],
    values: Mapping[str, Json],
    target: str,
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
) -> dict[str, Json]:
    """Make a step's output in the store, as a job; another process may have made it meanwhile.

    Args:
        store: the store's folder.
        place: the output's place in it.
        made_from: the content of its key.
        function: the step's function, ``module:name``.
        inputs: paths by argument.
        values: further arguments.
        target: the output's path in the run, for one that the store must not keep.
        plugin_files: files given by ``--plugin``; the executor has loaded them.
        progress: called at the beginning and at the end, and by the function.

    Returns:
        The facts of the output.

    Raises:
        GapftError: the function made no output, or the disk is full.
    """
    kept = Store(Path(store))
    with kept.claim(place):
        if (output := kept.find_place(place)) is not None:
            progress(1, 1)
            return dict(output.facts)
        suffix = Path(target).suffix
        with kept.write(place, suffix) as path:
            facts = call_function(function, path, inputs, values, progress)
            if facts.get(OWN_RUN_ONLY):
                place_link(path, Path(target))
            else:
                kept.commit(path, place, made_from, facts)
    return facts


def call_function(
    function: str,
    output: Path,
    inputs: Mapping[str, Any],
    values: Mapping[str, Json],
    progress: ReportProgress = report_nothing,
) -> dict[str, Json]:
    """Call a step's function and check what it returns; see ``make_output``.

    Raises:
        GapftError: it wrote nothing, or returned something other than facts.
    """
    paths = {
        name: Path(value) if isinstance(value, str) else [Path(item) for item in value]
        for name, value in inputs.items()
    }
    called = import_function(function)
    takes_progress = "progress" in inspect.signature(called).parameters
    if not takes_progress:
        progress(0, 1)
    more = {"progress": progress} if takes_progress else {}
    facts = called(output, **paths, **values, **more)
    if not output.exists():
        raise GapftError(f"{function}: wrote nothing to its output path ({output.name})")
    if facts is None:
        facts = {}
    if not isinstance(facts, Mapping) or (fault := find_json_fault(dict(facts))):
        found = type(facts).__name__ if not isinstance(facts, Mapping) else fault
        raise GapftError(f"{function}: returned {found}; expected facts (JSON values by name)")
    if not takes_progress:
        progress(1, 1)
    plain: dict[str, Json] = json.loads(json.dumps(dict(facts)))
    return plain
