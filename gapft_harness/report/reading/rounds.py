"""Read the earlier rounds of a run that started from an arm of another run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.rounds import Decodes
from gapft_harness.core.records import Arm
from gapft_harness.report.reading.columns import PASS, codes, read_columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require_consistent
from gapft_harness.run_directory.manifest import Manifest, RoundFacts


@dataclass(frozen=True, slots=True)
class EarlierRound:
    """One earlier round on the audit.

    Attributes:
        facts: its run and arm.
        source: the decodes of its source.
        trained: the decodes of its arm, from which the next round started.
    """

    facts: RoundFacts
    source: Decodes
    trained: Decodes


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a run on the audit, in the order of ``Audit.ids``.

    Attributes:
        states: shape (P,), under the source of the first round.
        earlier: the earlier rounds, oldest first; at least one.
        source: the decodes of this run's source.
        arms: the decodes of this run's arms.
    """

    states: NDArray[np.str_]
    earlier: tuple[EarlierRound, ...]
    source: Decodes
    arms: Mapping[Arm, Decodes]


def read_rounds(
    run_path: Path, manifest: Manifest, ids: Sequence[str], arms: Sequence[Arm]
) -> Rounds | None:
    """Read the rounds of a run; None if it did not start from an arm of another run.

    Args:
        run_path: the run directory.
        manifest: its manifest.
        ids: the audit's problems, in order.
        arms: the arms to read.

    Raises:
        GapftError: a table has other problems than the audit.
    """
    origin = manifest.get("origin")
    if not origin or not origin["rounds"]:
        return None
    earlier = tuple(
        EarlierRound(
            facts,
            *(
                read_decodes(run_path / layout.round_path(number, table), ids)
                for table in ("responses", "decisions")
            ),
        )
        for number, facts in enumerate(origin["rounds"], start=1)
    )
    table = run_path / layout.round_path(1, "states")
    states = read_columns(table, ("problem_id", "state"))
    _require_audit(table, states["problem_id"], ids)
    return Rounds(
        np.array(states["state"], dtype=np.str_),
        earlier,
        read_decodes(run_path / layout.responses_path("audit"), ids),
        {arm: read_decodes(run_path / layout.decisions_path(arm), ids) for arm in arms},
    )


def read_decodes(table: Path, ids: Sequence[str]) -> Decodes:
    """Read the deployment decodes of a table of responses or decisions: those below index 0.

    Raises:
        GapftError: the table has other problems, or unequal numbers of decodes.
    """
    rows = read_columns(table, ("problem_id", "status"), [("index", "<", 0)])
    count = len(rows["problem_id"]) // max(1, len(ids))
    _require_audit(table, rows["problem_id"], [name for name in ids for _ in range(count)])
    passed = (codes(rows["status"]) == PASS).reshape(len(ids), count)
    return Decodes(passed.sum(axis=1, dtype=np.int64), count)


def _require_audit(table: Path, found: Sequence[str], expected: Sequence[str]) -> None:
    require_consistent(
        [*found] == [*expected], f"{table}: contains other problems than the audit of this run"
    )
