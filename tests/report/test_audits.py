"""Further audits in the report: each by itself, as if it were the run's only one."""

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

FEW = planted.recipe(statistics={"replicates": 40, "seed": 0})
SMALL = planted.inputs(sizes=(30, 24, 16), recipe=FEW)
ON_AUDIT = ("source", "conditions", "contrasts")


def content(inputs: ReportInputs) -> dict[str, Any]:
    inputs = inputs
    return build_results(inputs, compute_findings(inputs))


@settings(max_examples=12)
@given(st.sets(st.integers(0, 69), min_size=1))
def test_a_subset_is_told_as_a_run_that_has_no_other_problems(members: set[int]) -> None:
    """Whatever its problems: the same figures and intervals, to the last digit."""
    rows = sorted(members)
    ids = SMALL.audit.ids[rows]
    alone = SMALL.select_problems(ids)
    found = content(replace(SMALL, further=(FurtherAudit("some", "audit", alone),)))
    assert found["audits"]["some"]["source"]["n"] == len(members)
    of_alone = content(alone)
    for key in ON_AUDIT:
        assert found["audits"]["some"][key] == of_alone[key]
        assert found[key] == content(SMALL)[key], "the run's own audit is as without it"
    for arm in SMALL.arms:
        told = of_alone["conditions"][arm.arm.condition]["seeds"][str(arm.arm.seed)]["counts"]
        solved, passed = SMALL.audit.verdicts.greedy[rows], arm.passed[rows]
        assert told["correct"] == passed.sum()
        assert told["G_regressed"] == (solved & ~passed).sum()
        assert told["S_corrected"] + told["U_corrected"] == (~solved & passed).sum()


def test_a_subset_of_all_problems_is_the_audit() -> None:
    found = content(
        replace(
            SMALL, further=(FurtherAudit("all", "audit", SMALL.select_problems(SMALL.audit.ids)),)
        )
    )
    assert {key: found["audits"]["all"][key] for key in ON_AUDIT} == {
        key: found[key] for key in ON_AUDIT
    }


def test_problems_that_the_audit_lacks_are_an_error() -> None:
    with pytest.raises(GapftError, match=r"expected 4 .* found 3"):
        SMALL.select_problems([*SMALL.audit.ids[:3], "nobody"])


def test_the_conditions_of_an_experiment_lead_in_every_audit() -> None:
    """The lead is the run's, though further audits have no experiment."""
    made = planted.allocation_inputs(sizes=(30, 20, 20))
    made = replace(made, conditions=made.conditions[::-1])
    found = content(
        replace(made, further=(FurtherAudit("all", "audit", made.select_problems(made.audit.ids)),))
    )
    pairs = [[(c["a"], c["b"]) for c in of["contrasts"]] for of in (found, found["audits"]["all"])]
    assert pairs[0] == pairs[1]


def test_its_tables_are_those_of_each_audit_by_name() -> None:
    inputs = planted.audited_inputs(sizes=(40, 35, 25))
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
