"""The part of a report about a control: its pairs, their tests, and their training sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness import api
from gapft_harness.analysis.decomposition import compute_gain_share
from gapft_harness.analysis.paired import SignFlips, flip_signs
from gapft_harness.api import layout
from gapft_harness.experiments.controls.control import Control, Pair, PermutationSettings
from gapft_harness.experiments.controls.gold import count_kept_slots
from gapft_harness.presentation.content import Column, Row, Table

_NOTE = (
    "Difference: Pass@1 of the condition minus that of the other, in percentage points, with its "
    "95% interval; S, U and G are its parts on these states of the audit, which sum to it. Slots "
    "of S: the share of the examples that are recovered failures, mean over seeds."
)
_GAIN_NOTE = " Of the gain: the difference as a share of the last one."
_TEST_NOTE = (
    " p: paired permutation test, two-sided; a permutation exchanges the two conditions on audit "
    "problems, in the same way for all seeds. It treats the trained models as fixed; the interval "
    "also covers the spread over seeds."
)
_SEEDS_NOTE = "G, S and U: the number of examples of problems in each state of the pool."
_KEPT_NOTE = (
    " Kept: examples of the search that gold labels do not exchange, because their target contains "
    "more than the answer."
)


@dataclass(frozen=True, slots=True)
class ControlFindings:
    """The compared conditions of a run.

    Attributes:
        conditions: the trained conditions by name.
        slots: by arm, the number of its examples by state.
        kept: by arm of gold labels, the examples that it keeps from the search.
        tests: the permutation tests, if the control has them.
    """

    conditions: Mapping[str, api.Condition]
    slots: Mapping[api.Arm, Mapping[str, int]]
    kept: Mapping[api.Arm, int]
    tests: Mapping[Pair, SignFlips] = field(default_factory=dict)

    def compute_recovered_share(self, condition: str) -> Fraction:
        """Compute the share of a condition's examples that are in S, mean over seeds."""
        shares = [
            Fraction(counts["S"], sum(counts.values()))
            for arm, counts in self.slots.items()
            if arm.condition == condition
        ]
        return sum(shares, Fraction(0)) / len(shares)


class ControlPart(api.Part):
    """The part of the report: a table of the pairs, and one of their seeds."""

    after = "Where the change comes from"

    def __init__(self, control: Control) -> None:
        self.control = control
        self.name = control.name
        self.title = control.title

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> ControlFindings | None:
        """Read the training sets of the compared conditions."""
        if self.name not in manifest["recipe"].get("experiments", {}) or not arms:
            return None
        trained = {arm.condition for arm in arms}
        conditions = {
            name: condition
            for name, condition in api.conditions_of(manifest["recipe"]).items()
            if name in trained
        }
        pairs = self.control.find_pairs(conditions)
        compared = {name for pair in pairs for name in (pair.condition, pair.against)}
        slots = {
            arm: Counter(
                api.read_columns(run_path / layout.selection_path(arm), ("state",))["state"]
            )
            for arm in sorted(arms, key=lambda arm: arm.seed)
            if arm.condition in compared
        }
        kept = {
            gold: count_kept_slots(run_path, conditions, api.Arm(pair.against, gold.seed), gold)
            for pair in self.control.find_gold_pairs(conditions)
            for gold in slots
            if gold.condition == pair.condition
        }
        return ControlFindings(conditions, slots, kept)

    def compute(self, inputs: api.ReportInputs, read: ControlFindings) -> ControlFindings:
        """Test each pair, if the control has permutation tests."""
        section = self.control.section
        if section is None:
            return read
        settings = section.model_validate(inputs.recipe["experiments"][self.name] or {})
        assert isinstance(settings, PermutationSettings)
        stream = api.Stream(inputs.recipe["statistics"]["seed"], f"report/{self.name}")
        by_id = np.argsort(inputs.audit.ids)

        def count_passed(condition: str) -> NDArray[np.int64]:
            """Count the seeds under which each problem passes, in the order of ids."""
            passed = [arm.deployed.passed for arm in inputs.find_arms(condition)]
            counts: NDArray[np.int64] = np.array(passed).sum(axis=0)[by_id]
            return counts

        tests = {
            pair: flip_signs(
                count_passed(pair.condition) - count_passed(pair.against),
                flips=settings.permutations,
                stream=stream,
            )
            for pair in self.control.find_pairs(read.conditions)
        }
        return replace(read, tests=tests)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: ControlFindings
    ) -> Iterator[Table]:
        """Return the reference and the pairs, and the same by seed with the training sets."""
        parameter, gain = self.control.parameter, self.control.shows_gain_share
        tested, kept = bool(part_findings.tests), bool(part_findings.kept)
        names = [Column("condition", "condition"), Column("against", "minus")]
        columns = [
            *names,
            *([Column("value", parameter)] if parameter else []),
            Column("pass_at_1", "Pass@1", "share"),
            Column("difference", "difference", "points"),
            *(Column(state, state, "points") for state in "SUG"),
            *([Column("gain_share", "of the gain", "share")] if gain else []),
            Column("recovered_slots", "slots of S", "share"),
            *([Column("p", "p", "p")] if tested else []),
            *([Column("permutations"), Column("exact")] if tested else []),
        ]
        note = f"{_NOTE}{_GAIN_NOTE * gain}{_TEST_NOTE * tested}"
        yield Table(self.name, columns, self._list_rows(findings, part_findings), note)
        columns = [
            *names,
            Column("seed", "seed"),
            Column("difference", "difference", "points"),
            *(Column(f"slots_{state}", state, "count") for state in "GSU"),
            *([Column("kept", "kept", "count")] if kept else []),
        ]
        rows = self._list_seed_rows(findings, part_findings)
        note = f"{_SEEDS_NOTE}{_KEPT_NOTE * kept}"
        yield Table(f"{self.name}_seeds", columns, rows, note, folded=f"{self.title} by seed")

    def _list_rows(self, findings: api.ReportFindings, part_findings: ControlFindings) -> list[Row]:
        pairs = self.control.find_pairs(part_findings.conditions)
        full_gain = findings.find_contrast(pairs[-1].condition, pairs[-1].against).delta
        rows: list[Row] = []
        for pair in (Pair(pairs[0].against, ""), *pairs):
            condition = part_findings.conditions[pair.condition]
            row = {
                "condition": pair.condition,
                "value": condition.params.get(self.control.parameter),
                "pass_at_1": findings.conditions[pair.condition].mean.pass_at_1,
                "recovered_slots": part_findings.compute_recovered_share(pair.condition),
            }
            if pair.against:
                contrast = findings.find_contrast(pair.condition, pair.against)
                terms = {state: getattr(contrast.terms, state.lower()) for state in "SUG"}
                gain = compute_gain_share(contrast.delta, full_gain)
                row |= {"against": pair.against, "difference": contrast.estimate, **terms}
                row |= {"gain_share": gain}
            if test := part_findings.tests.get(pair):
                row |= {"p": test.p_value, "permutations": test.flips, "exact": test.exhaustive}
            rows.append(row)
        return rows

    def _list_seed_rows(
        self, findings: api.ReportFindings, part_findings: ControlFindings
    ) -> list[Row]:
        pairs = self.control.find_pairs(part_findings.conditions)
        rows: list[Row] = []
        for pair in (Pair(pairs[0].against, ""), *pairs):
            for seed, seed_findings in findings.conditions[pair.condition].seeds.items():
                arm = api.Arm(pair.condition, seed)
                counts = part_findings.slots[arm]
                row = {f"slots_{state}": counts[state] for state in "GSU"}
                row |= {"condition": pair.condition, "seed": seed}
                if arm in part_findings.kept:
                    row |= {"kept": part_findings.kept[arm]}
                if pair.against:
                    other = findings.conditions[pair.against].seeds[seed].decomposition
                    difference = seed_findings.decomposition.pass_at_1 - other.pass_at_1
                    row |= {"against": pair.against, "difference": difference}
                rows.append(row)
        return rows
