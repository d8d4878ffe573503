"""Further audits in the report: each is reported alone, like the only audit of a run."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import GapftError
from gapft_harness.report import tables
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.inputs import FurtherAudit, ReportInputs
from gapft_harness.report.rendering.document import format_csv
from gapft_harness.report.results import build_results
from tests.report import planted

FEW = planted.build_recipe(statistics={"replicates": 40, "seed": 0})
SMALL = planted.build_inputs(sizes=(30, 24, 16), recipe=FEW)
ON_AUDIT = ("source", "conditions", "contrasts")


def build_content(inputs: ReportInputs) -> dict[str, Any]:
    return build_results(inputs, compute_findings(inputs))


@settings(max_examples=12)
@given(st.sets(st.integers(0, 69), min_size=1))
def test_subset_audit_equals_run_on_subset(members: set[int]) -> None:
    """For any subset, values and intervals are equal to the last digit."""
    rows = sorted(members)
    ids = SMALL.audit.ids[rows]
    alone = SMALL.select_problems(ids)
    results = build_content(replace(SMALL, further=(FurtherAudit("some", "audit", alone),)))
    assert results["audits"]["some"]["source"]["n"] == len(members)
    alone_results = build_content(alone)
    for key in ON_AUDIT:
        assert results["audits"]["some"][key] == alone_results[key]
        assert results[key] == build_content(SMALL)[key], "the run's own audit is unchanged"
    for arm in SMALL.arms:
        counts = alone_results["conditions"][arm.arm.condition]["seeds"][str(arm.arm.seed)][
            "counts"
        ]
        solved, passed = SMALL.audit.verdicts.solved[rows], arm.deployed.solved[rows]
        assert counts["correct"] == passed.sum()
        assert counts["G_regressed"] == (solved & ~passed).sum()
        assert counts["S_corrected"] + counts["U_corrected"] == (~solved & passed).sum()


def test_subset_of_all_problems_equals_audit() -> None:
    results = build_content(
        replace(
            SMALL, further=(FurtherAudit("all", "audit", SMALL.select_problems(SMALL.audit.ids)),)
        )
    )
    assert {key: results["audits"]["all"][key] for key in ON_AUDIT} == {
        key: results[key] for key in ON_AUDIT
    }


def test_rejects_problems_missing_from_audit() -> None:
    with pytest.raises(GapftError, match=r"expected 4 .* found 3"):
        SMALL.select_problems([*SMALL.audit.ids[:3], "nobody"])


def test_experiment_conditions_come_first_in_every_audit() -> None:
    """The run's lead condition is used, although further audits have no experiment."""
    inputs = planted.build_allocation_inputs(sizes=(30, 20, 20))
    inputs = replace(inputs, conditions=inputs.conditions[::-1])
    results = build_content(
        replace(
            inputs,
            further=(FurtherAudit("all", "audit", inputs.select_problems(inputs.audit.ids)),),
        )
    )
    pairs = [
        [(c["a"], c["b"]) for c in audit_results["contrasts"]]
        for audit_results in (results, results["audits"]["all"])
    ]
    assert pairs[0] == pairs[1]


def test_audit_tables_have_rows_per_audit() -> None:
    inputs = planted.build_audited_inputs(sizes=(40, 35, 25))
    every = tables.build_tables(inputs, compute_findings(inputs))
    written = {name: format_csv(rows) for name, rows in every}
    for name in ("conditions", "seeds", "contrasts", "source_pass_at_k", "problems", "items"):
        rows = list(csv.reader(io.StringIO(written[f"audits_{name}.csv"])))
        own = list(csv.reader(io.StringIO(written[f"{name}.csv"])))
        assert rows[0] == ["audit", *own[0]]
        assert list(dict.fromkeys(row[0] for row in rows[1:])) == ["other", "deduplicated", "hard"]
    problems = list(csv.DictReader(io.StringIO(written["audits_problems.csv"])))
    assert len([row for row in problems if row["audit"] == "other"]) == 112
    assert {row["state"] for row in problems if row["audit"] == "hard"} == {"S", "U"}
    plain = SMALL
    assert not [
        n for n, _ in tables.build_tables(plain, compute_findings(plain)) if n.startswith("audits")
    ]
