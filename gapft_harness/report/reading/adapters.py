"""What trained models decided as they were trained, or at the scales chosen for their adapters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import GREEDY, Arm
from gapft_harness.report.reading.columns import PASS, codes, columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require

#: Said of findings that rest on scaled adapters.
SCALED = (
    "The models are the adapters at the scales that were chosen for them on the calibration "
    "problems, not as they were trained, as in the rest of this report."
)


def read_choice(run_path: Path, arm: Arm) -> dict[str, Any]:
    """The content of an arm's ``scaling.json``; the caller has checked its folder's hash."""
    path = run_path / layout.of_arm(layout.SCALED, arm) / "scaling.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def tables(run_path: Path, arms: Sequence[Arm], adapters: str) -> dict[Arm, str]:
    """Where each arm's decisions on the audit stand; at scale 0 they are the source's own.

    Args:
        run_path: of a run whose scales are chosen and sealed, if they are asked for.
        arms: the trained models.
        adapters: ``trained`` or ``scaled``.
    """

    def at(arm: Arm) -> str:
        scale = read_choice(run_path, arm)["scale"] if adapters == "scaled" else 1
        return layout.decisions_at(arm, scale) if scale else layout.responses("audit")

    return {arm: at(arm) for arm in arms}


@dataclass(frozen=True, slots=True)
class Decided:
    """Greedy decodes of trained models.

    Attributes:
        ids: shape (P,), distinct.
        arms: by arm, shape (P,), whether its decode passes.
        adapters: ``trained`` or ``scaled``.
    """

    ids: NDArray[np.str_]
    arms: Mapping[Arm, NDArray[np.bool_]]
    adapters: str = "trained"

    def in_order(self) -> Decided:
        """The same with problems by id."""
        order = np.argsort(self.ids)
        arms = {arm: passed[order] for arm, passed in self.arms.items()}
        return replace(self, ids=self.ids[order], arms=arms)

    def of(self, condition: str) -> NDArray[np.bool_]:
        """A condition's, shape (S, P), by ascending seed."""
        seeds = sorted(arm.seed for arm in self.arms if arm.condition == condition)
        return np.array([self.arms[Arm(condition, seed)] for seed in seeds])


def read_decided(run_path: Path, arms: Sequence[Arm], adapters: str) -> Decided:
    """Reads sealed decisions on the audit; see ``tables``.

    Raises:
        GapftError: they are of other problems than the audit's.
    """
    ids = columns(run_path / layout.problems("audit"), ("problem_id",))["problem_id"]
    passed = {}
    for arm, table in tables(run_path, arms, adapters).items():
        found = columns(run_path / table, ("problem_id", "status"), [("index", "=", GREEDY)])
        require(found["problem_id"] == ids, f"{run_path / table}: holds other problems")
        passed[arm] = codes(found["status"]) == PASS
    return Decided(np.array(ids, dtype=np.str_), passed, adapters)
