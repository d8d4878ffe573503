"""Make the outputs of steps: from the run, from the store, or as jobs of an executor."""

from __future__ import annotations

import contextlib
import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import PARTIAL
from gapft_harness.core.json_values import find_json_fault
from gapft_harness.core.processes import import_function
from gapft_harness.engine.differences import describe_differences
from gapft_harness.engine.outputs import OWN_RUN_ONLY, Facts, Json, Output
from gapft_harness.engine.run import Run
from gapft_harness.engine.step import Step
from gapft_harness.engine.store import Store, place_link, remove_path
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import (
    Executor,
    Job,
    Progress,
    ReportProgress,
    report_nothing,
)

#: Seconds until a file written on another machine must be visible on this one.
_VISIBLE_TIMEOUT_S = 90.0

#: The folder in a run of outputs that the store does not keep, until they are recorded.
_OWN = f".own{PARTIAL}"


class Runner:
    """Makes the outputs of steps, and links them into a run.

    Attributes:
        changes: settings and plugins of outputs that were made again, a line each. Outputs whose
            inputs alone changed have none.

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
        self.run = run
        self.store = store
        self._executor, self._plugin_files = executor, list(plugin_files)
        self._progress = progress
        self._report_line = report_line
        self._keys: dict[str, str] = {}
        self.changes: list[str] = []

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
        if not steps:
            return {}
        first_by_place: dict[str, Step] = {}
        for step in steps.values():
            first_by_place.setdefault(step.place, step)
        groups: dict[str, list[Step]] = {}
        for step in first_by_place.values():
            groups.setdefault(step.call, []).append(step)
        jobs = [self._build_job(group) for group in groups.values()]
        facts_by_place: dict[str, Facts] = {}
        progress = self._count_cheap_steps(first_by_place.values())
        for result in self._executor.run(jobs, progress):
            facts_by_place |= result
        made = {
            name: (step, self._find_made(step, first_by_place[step.place], facts_by_place))
            for name, step in steps.items()
        }
        outputs = self.run.put(made)
        remove_path(self.run.path / _OWN)
        return outputs

    def _count_cheap_steps(self, steps: Iterable[Step]) -> Progress:
        """Return a progress that reports all cheap steps of one kind together."""
        kinds = {step.label: step.kind for step in steps if step.cheap}
        totals = Counter(kinds.values())
        finished = set[str]()

        def report(label: str, done: int, total: int, tokens: int = 0, note: str = "") -> None:
            if (kind := kinds.get(label)) is None:
                self._progress(label, done, total, tokens, note)
            elif done == total:
                finished.add(label)
                count = sum(kinds[other] == kind for other in finished)
                self._progress(kind, count, totals[kind])

        return report

    def _build_job(self, steps: Sequence[Step]) -> Job:
        first, *others = steps
        return Job(
            f"{first.label} and {len(others)} more" if others else first.label,
            "gapft_harness.engine.runner:make_outputs",
            {
                "store": str(self.store.root),
                "function": first.function_name,
                "together": bool(first.together),
                "orders": [
                    {
                        "place": step.place,
                        "made_from": step.made_from,
                        "inputs": step.list_paths(),
                        "values": {**step.settings, **step.operational},
                        "target": str(self.run.path / _OWN / step.name),
                        "run": str(self.run.path.resolve()),
                    }
                    for step in steps
                ],
                "plugin_files": self._plugin_files,
            },
            own_process=first.own_process,
        )

    def _find_made(self, step: Step, made: Step, facts_by_place: Mapping[str, Facts]) -> Output:
        """Find what a job made; it may have run on another machine."""
        facts = facts_by_place[step.place]
        if facts.get(OWN_RUN_ONLY):
            return Output(self.run.path / _OWN / made.name, facts)
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
        """Report why outputs that the run had are replaced."""
        records = self.run.read_records()
        counts = Counter[tuple[str, str]]()
        for name, step in steps.items():
            if (record := records.get(name)) is None:
                continue
            folder = name.partition("/")[0]
            reason = describe_differences(record.made_from, step.made_from)
            counts[folder, reason or "a file is missing"] += 1
            inputs = {"inputs": record.made_from["inputs"]}
            if own := describe_differences(record.made_from, {**step.made_from, **inputs}):
                self.changes.append(f"{folder}: {own}")
        for (folder, reason), count in counts.items():
            noun = "file" if count == 1 else "files"
            self._report_line(f"{folder}: replacing {count} {noun}: {reason}")


@dataclass(frozen=True)
class Order:
    """An output to make, as a job receives it.

    Attributes:
        place: its place in the store.
        made_from: the content of its key.
        inputs: paths by argument.
        values: further arguments.
        target: a path in the run, for an output that the store must not keep.
        run: the run directory.
    """

    place: str
    made_from: Mapping[str, Json]
    inputs: Mapping[str, Any]
    values: Mapping[str, Json]
    target: str
    run: str

    def build_arguments(self, output: Path) -> dict[str, Any]:
        """Build the arguments of the step's function."""
        return {"output": output, **parse_inputs(self.inputs), **self.values}


def make_outputs(
    store: str,
    function: str,
    orders: Sequence[Mapping[str, Any]],
    together: bool = False,
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
) -> dict[str, dict[str, Json]]:
    """Make outputs of steps in the store, as a job.

    Outputs that another process makes at the same time are awaited at the end.

    Args:
        store: the store's folder.
        function: the steps' function, ``module:name``.
        orders: the fields of an ``Order`` for each step.
        together: whether one call of the function makes all of them; else there is one order.
        plugin_files: files given by ``--plugin``; the executor has loaded them.
        progress: called at the beginning and at the end, and by the function.

    Returns:
        The facts of the outputs, by place.

    Raises:
        UserError: a plugin was edited during the command.
        GapftError: the function made no output, or the disk is full.
    """
    kept = Store(Path(store))
    facts = dict[str, dict[str, Json]]()
    waiting = [Order(**order) for order in orders]
    if hashes := [digest for order in waiting for digest in order.made_from["code"].values()]:
        load_plugins(plugin_files).require_code(hashes)
    for wait in (False, True):
        for group in [[order] for order in waiting] if wait else [waiting]:
            with contextlib.ExitStack() as claims:
                claimed = [
                    order
                    for order in group
                    if claims.enter_context(kept.claim(order.place, wait=wait))
                ]
                missing = []
                for order in claimed:
                    if (output := kept.find_place(order.place)) is None:
                        missing.append(order)
                    else:
                        progress(1, 1)
                        facts[order.place] = dict(output.facts)
                facts |= _make_missing(kept, function, missing, together, progress)
        waiting = [order for order in waiting if order.place not in facts]
    return facts


def _make_missing(
    store: Store,
    function: str,
    orders: Sequence[Order],
    together: bool,
    progress: ReportProgress,
) -> dict[str, dict[str, Json]]:
    """Make outputs whose claims are held, and commit each as soon as it is finished."""
    facts_by_place: dict[str, dict[str, Json]] = {}
    with contextlib.ExitStack() as stack:
        paths = [
            stack.enter_context(store.write(order.place, Path(order.target).suffix))
            for order in orders
        ]
        calls = [order.build_arguments(path) for order, path in zip(orders, paths, strict=True)]
        results: Iterable[tuple[int, Any]]
        if together:
            results = import_function(function)(calls, progress) if calls else ()
        else:
            results = (
                (number, _call(function, call, progress)) for number, call in enumerate(calls)
            )
        for number, returned in results:
            order = orders[number]
            path = paths[number]
            facts = check_result(function, path, returned)
            if facts.get(OWN_RUN_ONLY):
                place_link(path, Path(order.target))
            else:
                store.commit(path, order.place, order.made_from, facts, order.run)
            facts_by_place[order.place] = facts
    return facts_by_place


def parse_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the paths of a step's inputs, by argument, from their texts."""
    return {
        name: Path(value) if isinstance(value, str) else [Path(item) for item in value]
        for name, value in inputs.items()
    }


def call_function(
    function: str, output: Path, inputs: Mapping[str, Any], values: Mapping[str, Json]
) -> dict[str, Json]:
    """Call a step's function once, without progress, and check what it returns.

    Raises:
        GapftError: it wrote nothing, or returned something other than facts.
    """
    arguments = {"output": output, **parse_inputs(inputs), **values}
    return check_result(function, output, _call(function, arguments, report_nothing))


def _call(function: str, arguments: Mapping[str, Any], progress: ReportProgress) -> Any:
    called = import_function(function)
    takes_progress = "progress" in inspect.signature(called).parameters
    if takes_progress:
        return called(**arguments, progress=progress)
    progress(0, 1)
    returned = called(**arguments)
    progress(1, 1)
    return returned


def check_result(function: str, output: Path, facts: Any) -> dict[str, Json]:
    """Check that a step's function wrote its output and returned facts; return them.

    Raises:
        GapftError: it did not.
    """
    if not output.exists():
        raise GapftError(f"{function}: wrote nothing to its output path ({output.name})")
    if facts is None:
        facts = {}
    if not isinstance(facts, Mapping) or (fault := find_json_fault(dict(facts))):
        found = type(facts).__name__ if not isinstance(facts, Mapping) else fault
        raise GapftError(f"{function}: returned {found}; expected facts (JSON values by name)")
    plain: dict[str, Json] = json.loads(json.dumps(dict(facts)))
    return plain
