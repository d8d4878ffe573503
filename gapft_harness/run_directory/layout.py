"""Every path of a run directory: spelt by a function, and read back by ``read``.

Paths are relative to the run directory, with ``/`` on every system, as ``manifest.json`` lists
them. A *split* is a folder that was searched: ``pool``, ``audit``, ``calibration``, or one of
several audits (``audit/NAME``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import Arm

RECIPE = "recipe.yaml"
MANIFEST = "manifest.json"
#: A line for each change of the recipe.
HISTORY = "history.jsonl"

SELECTIONS = "selections"
ADAPTERS = "adapters"
SCALED = "scaled"
DECISIONS = "decisions"
REPORT = "report"

#: A subset of an audit's problems.
ITEMS = "items"

_AUDIT = "audit"
_PROBLEMS, _RESPONSES, STATES = "problems", "responses", "states"
_TABLE, _SUBSET = ".parquet", f"{ITEMS}.json"

#: No seed has leading zeros, so an arm has one name, and a condition has no ``@``.
_ARM = re.compile(r"(?P<condition>[^@/]+)-seed(?P<seed>0|-?[1-9][0-9]*)(?:@(?P<variant>[^/.]+))?")
_WINDOW = re.compile(r"(?P<offset>0|[1-9][0-9]*)-(?P<k>0|[1-9][0-9]*)")


# What a search writes


def problems(split: str) -> str:
    """The table of a split's problems."""
    return f"{split}/{_PROBLEMS}{_TABLE}"


def responses(split: str) -> str:
    """The table of the source model's responses to a split's problems."""
    return f"{split}/{_RESPONSES}{_TABLE}"


def states(split: str, window: tuple[int, int] | None = None) -> str:
    """The table of a split's states.

    Args:
        window: the first sample's number and how many samples the states rest on; None: all.
    """
    name = STATES if window is None else f"{STATES}/{window[0]}-{window[1]}"
    return f"{split}/{name}{_TABLE}"


def audit(name: str = "") -> str:
    """The split of an audit: the run's own, or that of another name."""
    return f"{_AUDIT}/{name}" if name else _AUDIT


def further(split: str) -> str:
    """The name of a further audit by its split; empty for any other split."""
    return split.removeprefix(f"{_AUDIT}/") if split.startswith(f"{_AUDIT}/") else ""


def audited(name: str) -> str:
    """The further audit that a table is of, which the manifest calls by a name; empty: none.

    Args:
        name: a split's, or an arm's.
    """
    arm, _ = _arm_and_rest(name)
    return arm.variant if arm else further(name)


def items(split: str) -> str:
    """The problems of a split that is a subset of an audit."""
    return f"{split}/{_SUBSET}"


def imported(split: str) -> str:
    """The folder in which responses are kept while they are imported."""
    return f"{split}/.imported.partial"


# What is made for each arm


def selection(arm: Arm) -> str:
    """An arm's training set."""
    return f"{SELECTIONS}/{arm.original.name}{_TABLE}"


def adapter(arm: Arm) -> str:
    """The folder of an arm's adapter."""
    return of_arm(ADAPTERS, arm.original)


def of_arm(folder: str, arm: Arm) -> str:
    """What an experiment keeps for an arm in a folder of its own, such as ``scaled/ARM``."""
    return f"{folder}/{arm.name}"


def decisions(arm: Arm, experiment: str = "") -> str:
    """The table of an arm's greedy decodes.

    Args:
        arm: the arm; ``ARM@NAME`` for a variant, such as another audit.
        experiment: what an experiment decodes besides the audit, such as ``scale-0.5``; it names
            no seed.
    """
    return f"{DECISIONS}/{arm.name}{f'.{experiment}' if experiment else ''}{_TABLE}"


def decisions_at(arm: Arm, scale: float) -> str:
    """Where an arm's decisions on the audit stand at a scale: 1 is the arm as it was trained.

    Raises:
        ValueError: scale 0, whose decisions are the source's own.
    """
    if not scale:
        raise ValueError("the decisions at scale 0 are the source's")
    return decisions(arm, "" if scale == 1 else f"scale-{scale:g}")


def decisions_on(arm: Arm, audit: str) -> str:
    """The table of an arm's greedy decodes on a further audit; without a name on the run's own."""
    return decisions(replace(arm, variant=audit))


# What a path says


@dataclass(frozen=True, slots=True)
class Place:
    """What a file or folder of a run directory is.

    Attributes:
        kind: ``problems``, ``responses``, ``states`` or ``items``, ``selections``, ``adapters``
            or ``decisions``; of what an experiment keeps for an arm, its folder.
        split: whose problems, responses, states or items; else empty.
        window: of states that rest on some samples, the first one's number and how many.
        arm: whose training set, adapter or decisions; None for a split's table.
        of: of decisions, what is decoded besides the audit.
    """

    kind: str
    split: str = ""
    window: tuple[int, int] | None = None
    arm: Arm | None = None
    of: str = ""

    @property
    def name(self) -> str:
        """What the manifest calls it, in its sections by split and arm: ``pool``, ``ARM.OF``."""
        if self.arm is None:
            return self.split
        return f"{self.arm.name}.{self.of}" if self.of else self.arm.name


def read(path: str) -> Place | None:
    """What a path says; None if it is none of those above."""
    folder, _, last = path.rpartition("/")
    stem = last.removesuffix(_TABLE)
    if folder in (SELECTIONS, DECISIONS):
        arm, of = _arm_and_rest(stem) if stem != last else (None, "")
        known = arm is not None and (not of or folder == DECISIONS)
        return Place(folder, arm=arm, of=of) if known else None
    if last == _SUBSET and folder:
        return Place(ITEMS, folder)
    if stem == last:
        arm = arm_of(last)
        return Place(folder, arm=arm) if arm and folder and "/" not in folder else None
    if stem in (_PROBLEMS, _RESPONSES, STATES) and folder:
        return Place(stem, folder)
    split, _, kind = folder.rpartition("/")
    samples = _WINDOW.fullmatch(stem)
    if kind == STATES and split and samples:
        return Place(STATES, split, window=(int(samples["offset"]), int(samples["k"])))
    return None


def folder_of(path: str) -> str:
    """The folder of the run directory that a path lies in, or that it is."""
    return path.partition("/")[0]


def name_of(path: str) -> str:
    """What the manifest calls a split's or an arm's table, in its sections by split and arm.

    Raises:
        GapftError: it is none.
    """
    place = read(path)
    if place is None:
        raise GapftError(
            f"{path}: is no table of a split or an arm; expected {DECISIONS}/ARM.NAME{_TABLE}, as "
            "gapft_harness.run_directory.layout.decisions spells it"
        )
    return place.name


def judged(name: str) -> str:
    """The table that the manifest calls by a name: ``name_of`` turned round."""
    arm, _ = _arm_and_rest(name)
    return responses(name) if arm is None else f"{DECISIONS}/{name}{_TABLE}"


def arm_of(name: str) -> Arm | None:
    """The arm of a name, ``CONDITION-seedS`` or ``CONDITION-seedS@VARIANT``; None: it is none."""
    found = _ARM.fullmatch(name)
    return Arm(found["condition"], int(found["seed"]), found["variant"] or "") if found else None


def _arm_and_rest(stem: str) -> tuple[Arm | None, str]:
    """Conditions may hold dots, so the longest name of an arm is it."""
    dots = [place for place, letter in enumerate(stem) if letter == "."]
    for end in (len(stem), *reversed(dots)):
        if arm := arm_of(stem[:end]):
            return arm, stem[end + 1 :]
    return None, ""
