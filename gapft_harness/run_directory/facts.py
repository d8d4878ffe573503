"""Facts of a run that are not facts of an output: entries of ``run.json`` beside the outputs."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Any, Final, TypedDict

from gapft_harness.core.extras import find_version
from gapft_harness.version import __version__

#: The prefix of warnings about changes made after decisions existed.
LATE_PREFIX: Final = "chosen after results: "

_PACKAGES = (
    "lm_eval", "torch", "transformers", "peft", "accelerate", "datasets", "numpy", "scipy",
    "sympy", "pyarrow",
)  # fmt: skip


class DecodingFacts(TypedDict):
    """How a task's responses end."""

    max_gen_toks: int
    until: list[str]


class TaskFacts(TypedDict, total=False):
    """The task, as the search read it; empty before.

    ``keep`` is the task's own rule. ``recipe`` has the recipe's settings of the search that no key
    of an output has (``recipe_changes.select_searched``).
    """

    name: str
    version: str
    fingerprint: str
    dropped: list[str]
    verifier: str
    verifier_params: dict[str, Any]
    keep: str
    decoding: DecodingFacts
    episode: dict[str, int]  # attempts and executions
    recipe: dict[str, Any]


class StageFacts(TypedDict):
    """An entry of ``stages``.

    Attributes:
        seconds: wall time of all runs of the stage.
        day: UTC date, as ``2026-11-23``, on which it last made an output.
    """

    seconds: float
    day: str


class Change(TypedDict):
    """A change of settings or inputs: an entry of ``history``.

    Attributes:
        time: when, in UTC.
        changed: a line for each change.
        had_results: whether decisions existed by then.
    """

    time: str
    changed: list[str]
    had_results: bool


class ReportFacts(TypedDict, total=False):
    """What the report shows and was made from; empty without a report.

    Attributes:
        conditions: the requested conditions; empty for all.
        seeds: the requested seeds; empty for all.
        inputs_hash: the hash of what the run had by then (``stages.report``).
        digest: the hash of the folder.
    """

    conditions: list[str]
    seeds: list[int]
    inputs_hash: str
    digest: str


class RunFacts(TypedDict):
    """Facts of a run that are not facts of an output.

    Attributes:
        versions: of the packages that the run began with.
        recipe: the hash of ``recipe.yaml`` (``hash_recipe``).
        task: the task of the search.
        include_paths: folders with task YAML that the search was given.
        plugins: ``Plugins.describe_origins`` of the plugins of its commands.
        stages: times by stage.
        warnings: sentences for the report, by the stage that found them.
        history: changes of settings and inputs, in order.
        report: what the report was made from.
    """

    versions: dict[str, str]
    recipe: str
    task: TaskFacts
    include_paths: list[str]
    plugins: dict[str, dict[str, str]]
    stages: dict[str, StageFacts]
    warnings: dict[str, list[str]]
    history: list[Change]
    report: ReportFacts


def find_versions() -> dict[str, str]:
    """Find the versions of the packages that a run begins with."""
    installed = {name: version for name in _PACKAGES if (version := find_version(name))}
    return {"python": platform.python_version(), "gapft-harness": __version__, **installed}


def build_facts() -> RunFacts:
    """Build the facts of a run that records none."""
    return {
        "versions": {},
        "recipe": "",
        "task": {},
        "include_paths": [],
        "plugins": {},
        "stages": {},
        "warnings": {},
        "history": [],
        "report": {},
    }


def list_late_warnings(history: Iterable[Change]) -> list[str]:
    """List the warnings on changes that were made after decisions existed."""
    late = [change for change in history if change["had_results"]]
    return [f"{LATE_PREFIX}{line}" for change in late for line in change["changed"]]
