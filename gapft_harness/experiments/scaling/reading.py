"""What a run's scaled adapters decided, as arrays. Reading only, no statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.scaling import FIXED
from gapft_harness.core.records import GREEDY, Arm
from gapft_harness.experiments.scaling.job import ScaleChoice
from gapft_harness.report.reading.adapters import read_choice
from gapft_harness.report.reading.columns import PASS, codes, columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require


@dataclass(frozen=True, slots=True)
class ScaledArm:
    """One adapter at the scales that are compared, on the audit.

    Attributes:
        arm: condition and seed.
        choice: its scale, and what the calibration split said of every scale.
        trained: shape (P,), V of its greedy decode at scale 1.
        fixed: shape (P,), the same at the fixed scale.
        chosen: shape (P,), the same at the chosen scale; the source's own where that is 0.
    """

    arm: Arm
    choice: ScaleChoice
    trained: NDArray[np.bool_]
    fixed: NDArray[np.bool_]
    chosen: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ScaledRun:
    """A run's checkpoints. It is one environment of every condition that it has.

    Attributes:
        name: names the environment.
        item_ids: shape (P,), the audit problems.
        source: shape (P,), V of the source's greedy decode; where it holds, the state is G.
        states: shape (P,), ``G``, ``S`` or ``U``.
        checkpoints: by condition in the recipe's order, then by ascending seed.
    """

    name: str
    item_ids: NDArray[np.str_]
    source: NDArray[np.bool_]
    states: NDArray[np.str_]
    checkpoints: tuple[ScaledArm, ...]

    def in_order(self) -> ScaledRun:
        """The same content with problems by id and seeds ascending, so that order says nothing."""
        order = np.argsort(self.item_ids)
        conditions = list(dict.fromkeys(of.arm.condition for of in self.checkpoints))
        checkpoints = sorted(
            self.checkpoints, key=lambda of: (conditions.index(of.arm.condition), of.arm.seed)
        )
        return replace(
            self,
            item_ids=self.item_ids[order],
            source=self.source[order],
            states=self.states[order],
            checkpoints=tuple(
                replace(
                    of,
                    trained=of.trained[order],
                    fixed=of.fixed[order],
                    chosen=of.chosen[order],
                )
                for of in checkpoints
            ),
        )


def read_scaled_run(
    run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]
) -> ScaledRun | None:
    """Reads the scaled decisions of a run; None if its recipe scales nothing, or it has no arms.

    Args:
        run_path: the run directory; the caller has checked the hashes of its files.
        manifest: its manifest.
        arms: the trained models.

    Raises:
        GapftError: the tables are not of the same problems.
    """
    recipe = manifest["recipe"]
    if "scaling" not in recipe["experiments"] or not arms:
        return None
    found = columns(
        run_path / layout.responses("audit"),
        ("problem_id", "status"),
        filters=[("index", "=", GREEDY)],
    )
    ids = found["problem_id"]
    source: NDArray[np.bool_] = codes(found["status"]) == PASS

    stated = columns(run_path / layout.states("audit"), ("problem_id", "state"))
    state = dict(zip(stated["problem_id"], stated["state"], strict=True))
    require(state.keys() == {*ids}, f"{run_path}: the audit's states are of other problems")
    states = np.array([state[name] for name in ids], dtype=np.str_)

    def at(arm: Arm, scale: float) -> NDArray[np.bool_]:
        if not scale:
            return source
        path = run_path / layout.decisions_at(arm, scale)
        decided = columns(path, ("problem_id", "status"))
        require(decided["problem_id"] == ids, f"{path}: holds other problems than the audit")
        passed: NDArray[np.bool_] = codes(decided["status"]) == PASS
        return passed

    checkpoints = []
    for arm in arms:
        choice = ScaleChoice.of(read_choice(run_path, arm))
        checkpoints.append(
            ScaledArm(arm, choice, at(arm, 1.0), at(arm, FIXED), at(arm, choice.scale))
        )
    return ScaledRun(
        recipe["name"], np.array(ids, dtype=np.str_), source, states, tuple(checkpoints)
    )
