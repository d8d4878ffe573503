"""Bounds on a run's conclusions: held against every rule and every outcome there may be."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.records import SOURCE, Arm, Budget, Response, Verdict
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.sections import Search
from gapft_harness.rejudge.run.conclusions import agreeing, retrained
from gapft_harness.rejudge.run.sets import ArmSets, Sets
from gapft_harness.rejudge.run.tables import rewrite_states
from gapft_harness.report.reading.audits import Audit, TrainedArm
from gapft_harness.report.reading.columns import PASS
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.run_directory.parquet import write_batches
from gapft_harness.run_directory.tables import response_row, response_schema

#: A rule: which (problem, text) pass.
Rule = frozenset[tuple[int, str]]
SEEDS, PROBLEMS, TEXTS = (13, 21), 2, "xyz"
NAMES = ("a", "b")
CELLS = [*product(range(PROBLEMS), TEXTS)]
FAIL = 1 - PASS

rules = st.frozensets(st.sampled_from(CELLS))
wrote = st.lists(st.sampled_from(TEXTS), min_size=PROBLEMS, max_size=PROBLEMS)
#: The source's texts, then those of each arm.
decodes = st.lists(wrote, min_size=5, max_size=5)


def inputs(texts: Sequence[Sequence[str]], rule: Rule) -> ReportInputs:
    """A run that wrote these texts, under a rule."""

    def statuses(of: Sequence[str]) -> np.ndarray:
        return np.array([PASS if cell in rule else FAIL for cell in enumerate(of)], dtype=np.uint8)

    ids = np.array([str(number) for number in range(PROBLEMS)])
    source, *arms = texts
    audit = Audit(
        ids, ("",) * PROBLEMS, ('""',) * PROBLEMS, statuses(source),
        tuple(source), np.zeros((PROBLEMS, 0), dtype=np.uint8),
    )  # fmt: skip
    trained = [
        TrainedArm(arm, statuses(of), tuple(of), Budget(1, 1, 1, 1, 1, 1), True, 1)
        for arm, of in zip([Arm(n, s) for n in NAMES for s in SEEDS], arms, strict=True)
    ]
    return ReportInputs({}, {}, 0, NAMES, SEEDS, {}, audit, tuple(trained))


def contrast(of: ReportInputs, a: str, b: str) -> Fraction:
    """By the definition: the mean over seeds and problems of a's passes less b's."""

    def rate(name: str) -> Fraction:
        if name == SOURCE:
            return Fraction(int(of.audit.verdicts.greedy.sum()), PROBLEMS)
        passed = [int(arm.passed.sum()) for arm in of.of(name)]
        return Fraction(sum(passed), PROBLEMS * len(passed))

    return rate(a) - rate(b)


@given(decodes, rules, rules, st.sampled_from([("a", "b"), ("b", SOURCE)]))
def test_the_range_is_that_of_every_rule_that_agrees_where_both_do(
    texts: list[list[str]], was: Rule, now: Rule, of: tuple[str, str]
) -> None:
    disputed = sorted(was ^ now)
    between = [
        (was & now) | {cell for cell, passes in zip(disputed, chosen, strict=True) if passes}
        for chosen in product((False, True), repeat=len(disputed))
    ]
    every = [contrast(inputs(texts, rule), *of) for rule in between]
    assert agreeing(inputs(texts, was), inputs(texts, now), *of) == (min(every), max(every))


def arm_sets(before: Hashable, after: Hashable) -> ArmSets:
    return ArmSets(1, 1, 0, (before, after))


#: What each arm would be trained on: a set that is known, one of its own, or one that it shares.
new_sets = st.lists(st.sampled_from(["old a", "old b", "new", "other"]), min_size=4, max_size=4)


@given(decodes, rules, new_sets, st.sampled_from([("a", "b"), ("a", SOURCE)]))
def test_the_range_of_training_again_is_that_of_every_outcome(
    texts: list[list[str]], rule: Rule, chosen: list[str], of: tuple[str, str]
) -> None:
    now = inputs(texts, rule)
    arms = [one.arm for one in now.arms]
    sets = Sets(
        (1, 1),
        {
            arm: arm_sets((arm.seed, f"old {arm.condition}"), (arm.seed, name))
            for arm, name in zip(arms, chosen, strict=True)
        },
    )
    known = {
        (one.arm.seed, f"old {one.arm.condition}"): Fraction(int(one.passed.sum()), PROBLEMS)
        for one in now.arms
    }
    unknown = sorted({sets.arms[arm].trained_on[1] for arm in arms} - {*known}, key=str)
    every = []
    for ends in product((Fraction(0), Fraction(1)), repeat=len(unknown)):
        rate = known | dict(zip(unknown, ends, strict=True))
        means = [
            sum(rate[sets.arms[Arm(name, seed)].trained_on[1]] for seed in SEEDS) / 2
            if name != SOURCE
            else Fraction(int(now.audit.verdicts.greedy.sum()), PROBLEMS)
            for name in of
        ]
        every.append(means[0] - means[1])
    assert retrained(now, sets, *of) == (min(every), max(every))


@pytest.mark.parametrize(
    ("passes", "state", "stopped"),
    [([True], "G", 0), ([False, True], "S", 0), ([False, False], "U", 1), ([False] * 4, "U", 0)],
)
def test_a_search_that_stopped_at_what_is_no_success_any_more_is_told(
    tmp_path: Path, passes: list[bool], state: str, stopped: int
) -> None:
    """K is 3: of the last problem all samples were drawn."""
    rows = [
        response_row(Response("p", index, "t", (1,), "stop", 0), Verdict("pass" if ok else "fail"))
        for index, ok in enumerate(passes, start=-1)
    ]
    write_batches(tmp_path / "responses.parquet", response_schema(), [rows])
    rule = load_plugins([]).get("response rule", "first")
    search = Search(k=3, stop="first_pass")
    found, counted = rewrite_states(
        tmp_path / "responses.parquet", tmp_path / "states.parquet", search, rule
    )
    assert ([of.state for of in found], counted) == ([state], stopped)
