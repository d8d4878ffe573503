"""States by parts of the audit's samples, as arrays. Reading only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapft_harness.report.reading.columns import columns
from gapft_harness.run_directory.directory import require


@dataclass(frozen=True, slots=True)
class WindowStates:
    """The states of the same problems under several parts of the samples.

    Attributes:
        ids: shape (P,), distinct.
        states: shape (W, P), ``G``, ``S`` or ``U``.
    """

    ids: NDArray[np.str_]
    states: NDArray[np.str_]

    def in_order(self) -> WindowStates:
        """The same with problems by id."""
        order = np.argsort(self.ids)
        return replace(self, ids=self.ids[order], states=self.states[:, order])


def read_windows(run_path: Path, tables: Sequence[str]) -> WindowStates:
    """Reads sealed tables of states.

    Args:
        run_path: the run directory.
        tables: in it, of one split.

    Raises:
        GapftError: the tables are not of the same problems.
    """
    found = [columns(run_path / table, ("problem_id", "state")) for table in tables]
    ids = found[0]["problem_id"]
    for table, content in zip(tables, found, strict=True):
        require(
            content["problem_id"] == ids,
            f"{run_path / table}: holds other problems than {tables[0]}",
        )
    return WindowStates(
        ids=np.array(ids, dtype=np.str_),
        states=np.array([content["state"] for content in found], dtype=np.str_),
    )
