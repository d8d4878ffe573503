"""All paths of a run directory: a function builds each, and ``parse_path`` reads them back.

Paths are relative to the run directory and use ``/`` on every system, as in ``run.json``. A
*split* is a folder that was searched: ``pool``, ``audit`` or ``calibration``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gapft_harness.core.records import Arm

RECIPE = "recipe.yaml"

SELECTIONS = "selections"
BUDGETS = "budgets"
ADAPTERS = "adapters"
SCALED = "scaled"
DECISIONS = "decisions"
REPORT = "report"

_PROBLEMS, _RESPONSES, STATES = "problems", "responses", "states"
_TABLE = ".parquet"

#: Seeds have no leading zeros, so that the name of an arm is unique.
_ARM = re.compile(r"(?P<condition>[^/]+)-seed(?P<seed>0|-?[1-9][0-9]*)")
_WINDOW = re.compile(r"(?P<offset>0|[1-9][0-9]*)-(?P<k>0|[1-9][0-9]*)")


# Files of a search


def problems_path(split: str) -> str:
    """Return the path of a split's table of problems."""
    return f"{split}/{_PROBLEMS}{_TABLE}"


def responses_path(split: str) -> str:
    """Return the path of the source model's responses to a split's problems."""
    return f"{split}/{_RESPONSES}{_TABLE}"


def states_path(split: str, window: tuple[int, int] | None = None) -> str:
    """Return the path of a split's table of states.

    Args:
        split: the split.
        window: first sample number and number of samples of the states; None for all samples.
    """
    name = split if window is None else f"{split}/{window[0]}-{window[1]}"
    return f"{STATES}/{name}{_TABLE}"


# Files of an arm


def selection_path(arm: Arm) -> str:
    """Return the path of an arm's training set."""
    return f"{SELECTIONS}/{arm.name}{_TABLE}"


def budget_path(arm: Arm) -> str:
    """Return the path of the budget of an arm's training."""
    return f"{BUDGETS}/{arm.name}.json"


def adapter_path(arm: Arm) -> str:
    """Return the folder of an arm's adapter."""
    return arm_path(ADAPTERS, arm)


def arm_path(folder: str, arm: Arm) -> str:
    """Return the path of an experiment's file for an arm, such as ``scaled/ARM``."""
    return f"{folder}/{arm.name}"


def decisions_path(arm: Arm, experiment: str = "") -> str:
    """Return the path of an arm's decodes.

    Args:
        arm: the arm.
        experiment: the name of an experiment's decodes besides the audit, such as ``scale-0.5``;
            it contains no seed.
    """
    return f"{DECISIONS}/{arm.name}{f'.{experiment}' if experiment else ''}{_TABLE}"


def scaled_decisions_path(arm: Arm, scale: float) -> str:
    """Return the path of an arm's decisions on the audit at a scale; 1 is the adapter as trained.

    Raises:
        ValueError: the scale is 0: these decisions are the source model's.
    """
    if not scale:
        raise ValueError("scale 0 has no decisions of its own: they are the source model's")
    return decisions_path(arm, "" if scale == 1 else f"scale-{scale:g}")


# Reading paths


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file or folder of a run directory, parsed from its path.

    Attributes:
        kind: ``problems``, ``responses``, ``states``, ``selections``, ``budgets``, ``adapters`` or
            ``decisions``; for an experiment's file of an arm, its folder.
        split: the split of problems, responses or states; else empty.
        window: first sample number and number of samples, for states of some samples.
        arm: the arm of a training set, adapter or decisions; None for a split's table.
        experiment: the experiment of decisions that are not on the audit.
    """

    kind: str
    split: str = ""
    window: tuple[int, int] | None = None
    arm: Arm | None = None
    experiment: str = ""

    @property
    def name(self) -> str:
        """The name in reports and messages: ``pool``, ``ARM.EXPERIMENT``."""
        if self.arm is None:
            return self.split
        return f"{self.arm.name}.{self.experiment}" if self.experiment else self.arm.name


def parse_path(path: str) -> RunFile | None:
    """Parse a path of a run directory; return None for an unknown one."""
    folder, _, last = path.rpartition("/")
    stem = last.removesuffix(_TABLE)
    if folder in (SELECTIONS, DECISIONS):
        arm, experiment = _split_arm_name(stem) if stem != last else (None, "")
        is_valid = arm is not None and (not experiment or folder == DECISIONS)
        return RunFile(folder, arm=arm, experiment=experiment) if is_valid else None
    if stem == last:
        arm = parse_arm(last.removesuffix(".json") if folder == BUDGETS else last)
        return RunFile(folder, arm=arm) if arm and folder and "/" not in folder else None
    if folder == STATES:
        return RunFile(STATES, stem)
    if stem in (_PROBLEMS, _RESPONSES) and folder:
        return RunFile(stem, folder)
    kind, _, split = folder.partition("/")
    samples = _WINDOW.fullmatch(stem)
    if kind == STATES and split and samples:
        return RunFile(STATES, split, window=(int(samples["offset"]), int(samples["k"])))
    return None


def find_top_folder(path: str) -> str:
    """Return the first part of a path: a folder of the run directory."""
    return path.partition("/")[0]


def judged_table_path(name: str) -> str:
    """Return the path of the table with this name (``RunFile.name``)."""
    arm, _ = _split_arm_name(name)
    return responses_path(name) if arm is None else f"{DECISIONS}/{name}{_TABLE}"


def parse_arm(name: str) -> Arm | None:
    """Parse an arm's name, ``CONDITION-seedS``; else return None."""
    match = _ARM.fullmatch(name)
    return Arm(match["condition"], int(match["seed"])) if match else None


def _split_arm_name(stem: str) -> tuple[Arm | None, str]:
    """Split a stem into the longest name of an arm (conditions may contain dots) and the rest."""
    dots = [place for place, letter in enumerate(stem) if letter == "."]
    for end in (len(stem), *reversed(dots)):
        if arm := parse_arm(stem[:end]):
            return arm, stem[end + 1 :]
    return None, ""
