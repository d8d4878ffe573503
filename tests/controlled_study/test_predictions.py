"""The rules by which predictions are told, on runs that are made up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from controlled_study.outcome.page import read_studies
from controlled_study.outcome.predictions import (
    Figure,
    in_middle,
    luck_by_family,
    luck_slope,
    more,
    tell,
)
from controlled_study.outcome.readings import Run, Split
from gapft_harness.core.errors import UserError

#: Two families of two cells; ten problems a cell. Luck rules the second.
CELLS = np.repeat(["add-2", "add-3", "parity-12", "parity-14"], 10)
FAMILIES = np.repeat(["add", "parity"], 20)
SOLVED = {"add-2": 5, "add-3": 10, "parity-12": 0, "parity-14": 1}
TWO_SEEDS = 2


def split() -> Split:
    place = np.tile(np.arange(10), 4)
    solved = place < np.array([SOLVED[cell] for cell in CELLS])
    state = np.where(solved, "G", np.where(place < 9, "S", "U"))
    lucky = (FAMILIES == "parity") & (state == "S")
    ids = np.array([f"{cell}-{n}" for cell, n in zip(CELLS, place, strict=True)])
    passing = np.where(state == "S", 2, 0)
    return Split(ids, FAMILIES, CELLS, state, solved, passing, passing * lucky, lucky)


def run(**right: list[int]) -> Run:
    """A run whose conditions solve the first so many problems of each cell; default: the source."""
    names = ("gapft", "uniform", "replay", "all_verified", "gold", "repetition")
    place = np.tile(np.arange(10), 4)
    passed = {}
    for name in names:
        counts = right.get(name, list(SOLVED.values()))
        passed[name] = np.tile(place < np.repeat(counts, 10), (TWO_SEEDS, 1))
    return Run(10, split(), split(), passed, passed)


def seeds(*runs: Run, null: Run | None = None) -> list[dict[str, Run]]:
    nulls: dict[str, Run] = {} if null is None else dict.fromkeys(
        ("permuted", "luck", "mastery"), null
    )  # fmt: skip
    return [{"main": each, **nulls} for each in runs]


def outcomes(of: list[dict[str, Run]]) -> dict[int, str]:
    return {told.number: told.outcome for told in tell(of)}


def test_an_interval_is_students() -> None:
    from scipy.stats import ttest_1samp

    values = [2.0, 5.0, 3.5]
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    figure = Figure.of("x", values)
    assert (figure.low, figure.high) == pytest.approx((expected.low, expected.high))
    one = Figure.of("x", [2.0, math.nan])
    assert one.mean == 2
    assert math.isnan(one.low)
    assert more(one) == "undecided"


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ([3.0, 4.0, 3.5], "supported"),
        ([-3.0, -4.0, -3.5], "refuted"),
        ([0.1, -0.1, 0.0], "refuted"),
        ([0.5, 0.51, 0.49], "refuted"),  # above 0, and no difference worth the name
        ([0.0, 6.0, 1.0], "undecided"),
        ([math.nan] * 3, "undecided"),
    ],
)
def test_what_more_means(values: list[float], outcome: str) -> None:
    assert more(Figure.of("x", values)) == outcome


def test_gains_are_points_of_the_problems_asked_for() -> None:
    better = run(gapft=[7, 10, 0, 1])
    assert better.gain("gapft", "uniform") == pytest.approx(5)
    assert better.gain("gapft", "source") == pytest.approx(5)
    assert better.gain("gapft", "uniform", better.audit.cell == "add-2") == pytest.approx(20)
    assert math.isnan(better.gain("gapft", "uniform", better.audit.cell == "none"))


def test_middle_and_luck_are_read_off_the_pool() -> None:
    one = run(gapft=[9, 10, 0, 1], uniform=[5, 10, 4, 5])
    assert set(one.audit.cell[in_middle(one)]) == {"add-2"}
    assert luck_by_family(one) == {"parity": 1.0}  # add has four in S, too few to tell
    wider = Split(**(vars(split()) | {"state": np.where(CELLS == "add-2", "S", split().state)}))
    two = Run(one.n, wider, one.audit, one.passed, one.sound)
    assert luck_by_family(two) == {"add": 0.0, "parity": 1.0}
    # gapft - uniform is +20 points on add and -40 on parity
    assert luck_slope(two) == pytest.approx(-60)


def test_predictions_that_hold_and_predictions_that_do_not() -> None:
    def good(add: int) -> Run:
        return run(
            gapft=[add, 9, 0, 1], replay=[5, 10, 0, 1], gold=[4, 9, 0, 1], repetition=[5, 9, 0, 1],
            uniform=[5, 9, 0, 1],
        )  # fmt: skip

    told = outcomes(seeds(good(8), good(9), good(9), null=run()))
    assert told == {
        1: "supported", 2: "supported", 3: "supported", 4: "undecided", 5: "supported",
        6: "supported", 7: "supported",
    }  # fmt: skip
    none = outcomes(seeds(run(), run(), run(), null=good(9)))
    assert {none[number] for number in (1, 2, 3, 5, 6, 7)} == {"refuted"}


def test_replays_cost_and_saving_are_points_of_the_whole_audit() -> None:
    one = run(gapft=[8, 8, 0, 1])
    net, saved, cost = tell(seeds(one, one))[4].figures
    assert saved.mean == pytest.approx(100 * 2 / 40)
    assert cost.mean == pytest.approx(100 * 3 / 40)
    assert net.mean == pytest.approx(100 * 1 / 40)


def test_a_null_without_contrasts_is_undecided() -> None:
    empty = Run(0, split(), split(), {}, {})
    assert outcomes(seeds(run(), run(), null=empty))[7] == "undecided"
    assert outcomes(seeds(run(), run()))[7] == "undecided"


def test_a_folder_without_a_study_is_refused(tmp_path: Any) -> None:
    with pytest.raises(UserError, match="holds no study"):
        read_studies([tmp_path])
