"""The rules by which predictions are told, on runs that are made up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from controlled_study.__main__ import main
from controlled_study.outcome.figures import Figure
from controlled_study.outcome.page import _page, missing_figures, read_studies
from controlled_study.outcome.predictions import (
    in_middle,
    luck_by_family,
    luck_slope,
    more,
    tell,
)
from controlled_study.outcome.readings import Run, Split
from controlled_study.sizes import SEEDS
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


def seeds(*runs: Run, **nulls: Run) -> dict[int, dict[str, Run]]:
    """All seeds of the design, with these main runs in turn; nulls without any difference."""
    names = ("permuted", "luck", "mastery")
    return {
        seed: {"main": runs[seed % len(runs)], **{name: nulls.get(name, run()) for name in names}}
        for seed in SEEDS
    }


def outcomes(of: dict[int, dict[str, Run]]) -> dict[int, str]:
    return {told.number: told.outcome for told in tell(of)}


def test_an_interval_is_students() -> None:
    from scipy.stats import ttest_1samp

    values = (2.0, 5.0, 3.5)
    for level in (0.95, 0.99):
        expected = ttest_1samp(values, 0).confidence_interval(level)
        interval = Figure("x", values).interval(level)
        assert interval == pytest.approx((expected.low, expected.high))


def test_no_mean_is_taken_of_some_seeds() -> None:
    some = Figure("x", (2.0, 2.1, math.nan))
    assert math.isnan(some.mean)
    assert all(map(math.isnan, some.interval()))
    assert more(some) == "undecided"
    assert math.isnan(Figure("x", (2.0,)).interval()[0])


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
    assert more(Figure("x", tuple(values))) == outcome


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
    two = luck(0, add=9)
    assert luck_by_family(two) == {"add": 0.0, "parity": 1.0}
    # gapft - uniform is +20 points on add and -20 on parity
    assert luck_slope(two) == pytest.approx(-40)


def good(add: int) -> Run:
    """GapFT alone gains, in the cell of middle mastery; replay saves nothing."""
    return run(
        gapft=[add, 9, 0, 1], replay=[5, 10, 0, 1], gold=[4, 9, 0, 1], repetition=[5, 9, 0, 1],
        uniform=[5, 9, 0, 1],
    )  # fmt: skip


def luck(parity: int, add: int = 5) -> Run:
    """GapFT minus uniform is (add - 5) × 5 points in add, and (parity - 4) × 5 in parity.

    Both families have enough in S to say that luck kept none of add and all of parity.
    """
    one = run(gapft=[add, 10, parity, 1], uniform=[5, 10, 4, 1])
    wider = Split(**(vars(split()) | {"state": np.where(CELLS == "add-2", "S", split().state)}))
    return Run(one.n, wider, one.audit, one.passed, one.sound)


#: Main runs by prediction and outcome; the nulls of all show no difference.
MADE_UP = {
    (1, "supported"): [good(8), good(9)],
    (1, "refuted"): [run()],
    (1, "undecided"): [good(3), good(9)],
    (2, "supported"): [good(8), good(9)],
    # more is gained elsewhere: parity is not of middle mastery
    (2, "refuted"): [run(gapft=[8, 10, 9, 9]), run(gapft=[9, 10, 9, 9])],
    (2, "undecided"): [run(gapft=[9, 10, 0, 1]), run(gapft=[4, 10, 0, 1])],
    (3, "supported"): [good(8), good(9)],
    (3, "refuted"): [run(gold=[7, 10, 0, 1]), run(gold=[8, 10, 0, 1])],
    (3, "undecided"): [run(gold=[3, 10, 0, 1]), run(gold=[8, 10, 0, 1])],
    (4, "supported"): [luck(0, add=8), luck(1, add=9)],
    (4, "refuted"): [luck(8), luck(9)],
    (4, "undecided"): [luck(1), luck(8)],
    (5, "supported"): [good(8), good(9)],
    (5, "refuted"): [run(gapft=[6, 7, 0, 1]), run(gapft=[6, 6, 0, 1])],
    (5, "undecided"): [run(gapft=[9, 9, 0, 1]), run(gapft=[6, 7, 0, 1])],
    (6, "supported"): [good(8), good(9)],
    (6, "refuted"): [run(repetition=[7, 10, 0, 1]), run(repetition=[8, 10, 0, 1])],
    (6, "undecided"): [run(repetition=[3, 10, 0, 1]), run(repetition=[8, 10, 0, 1])],
}


@pytest.mark.parametrize("case", MADE_UP, ids=str)
def test_each_prediction_can_come_out_each_way(case: tuple[int, str]) -> None:
    number, outcome = case
    assert outcomes(seeds(*MADE_UP[case]))[number] == outcome


def test_luck_needs_both_the_slope_and_the_loss() -> None:
    slope, dominated = tell(seeds(luck(0, add=8)))[3].figures
    assert (slope.mean, dominated.mean) == pytest.approx((-35, -20))
    # the slope is below 0, but where luck dominates nothing is lost
    assert outcomes(seeds(luck(4, add=8), luck(4, add=9)))[4] == "undecided"
    # families that luck dominates gain, though less than the other
    assert outcomes(seeds(luck(5, add=9)))[4] == "refuted"
    # they lose, but the other loses more
    assert outcomes(seeds(luck(3, add=1)))[4] == "refuted"


def nulls(*differences: float) -> str:
    """What is said of prediction 7 where one null's seeds differ so, in points."""
    found = seeds(run())
    for seed, difference in zip(SEEDS, differences, strict=True):
        found[seed]["luck"] = points(difference)
    return outcomes(found)[7]


def points(difference: float) -> Run:
    """A run whose GapFT gains so many points on uniform and replay; thousands of problems."""
    one = Split(**{name: np.repeat(value, 100) for name, value in vars(split()).items()})
    solved = np.zeros((1, one.ids.size), bool)
    more_solved = solved.copy()
    more_solved[:, : round(abs(difference) / 100 * one.ids.size)] = True
    better, worse = (more_solved, solved) if difference > 0 else (solved, more_solved)
    passed = {"gapft": better, "uniform": worse, "replay": worse}
    return Run(10, one, one, passed, passed)


def test_nulls_have_to_be_narrow_and_are_refuted_by_intervals_made_up_for_their_number() -> None:
    assert nulls(0.2, -0.2, 0.1, -0.1, 0.3, -0.3) == "supported"
    # holds 0 all the better for its noise
    assert nulls(9, -9, 5, -5, 7, -7) == "undecided"
    # 95% exclude 0, 99.17% do not
    values = (0.1, 0.5, 0.9, 0.2, 0.6, 0.05)
    figure = Figure("x", values)
    assert figure.above()
    assert not figure.above(1 - 0.05 / 6)
    assert figure.none
    assert nulls(*values) == "undecided"
    for sign in (1, -1):
        assert nulls(*(sign * value for value in (4, 5, 6, 4, 5, 6))) == "refuted"


def test_replays_cost_and_saving_are_points_of_the_whole_audit() -> None:
    net, saved, cost = tell(seeds(run(gapft=[8, 8, 0, 1])))[4].figures
    assert saved.mean == pytest.approx(100 * 2 / 40)
    assert cost.mean == pytest.approx(100 * 3 / 40)
    assert net.mean == pytest.approx(100 * 1 / 40)


EMPTY = Run(0, split(), split(), {}, {})


@pytest.mark.parametrize("null", ["permuted", "luck", "mastery"])
def test_nothing_is_told_of_nulls_that_a_seed_lacks(null: str) -> None:
    for others in (run(), good(9)):  # supported and refuted if it were told over the others
        found = seeds(run(), permuted=others, luck=others, mastery=others)
        found[3][null] = EMPTY
        told = tell(found)[6]
        assert told.outcome == "undecided"
        del found[3][null]
        told = tell(found)[6]
        assert told.outcome == "unfinished"
        lacking = [figure for figure in told.figures if figure.missing]
        assert {figure.name.split(":")[0] for figure in lacking} == {null}
        assert {seed for figure in lacking for seed in figure.missing} == {3}


@pytest.mark.parametrize("case", MADE_UP, ids=str)
def test_nothing_is_told_over_the_seeds_that_happen_to_be_there(case: tuple[int, str]) -> None:
    found = seeds(*MADE_UP[case])
    found[5]["main"] = EMPTY
    assert outcomes(found)[case[0]] == "undecided"
    del found[5]
    assert outcomes(found)[case[0]] == "unfinished"


def test_what_is_missing_is_said_with_its_reason() -> None:
    found = seeds(good(8), good(9))
    found[0]["luck"] = EMPTY
    del found[1]["luck"]
    found[2] = {}
    lines = missing_figures(tell(found))
    for said in (
        "seed 0: the run luck had nothing to train on (n = 0); missing for prediction 7",
        "seed 1, 2: the run luck is not finished; missing for prediction 7",
        "seed 2: the run main is not finished; missing for prediction 1, 2, 3, 4, 5, 6",
    ):
        assert f"pre-training {said}" in lines
    page = "\n".join(_page("large", found, tell(found), lines))
    assert "Unfinished: 4 of 6 pre-training seeds are whole" in page
    assert "It decides nothing; `small` does" in page
    assert all(f"- {line}" in page for line in lines)
    whole = seeds(luck(0, add=8))
    page = "\n".join(_page("small", whole, tell(whole), missing_figures(tell(whole))))
    assert "This size decides. Points" in page
    assert "Missing" not in page


def test_a_folder_without_a_study_is_refused(tmp_path: Any) -> None:
    with pytest.raises(UserError, match="holds no study"):
        read_studies([tmp_path])


def test_seeds_that_the_design_does_not_have_are_refused(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--size", "tiny", "--out", str(tmp_path), "--seeds", "6"])
    assert "invalid choice: 6" in capsys.readouterr().err
    (tmp_path / "study.json").write_text('{"size": "tiny", "seeds": [0, 6]}')
    with pytest.raises(UserError, match="has seed 6, expected some of"):
        read_studies([tmp_path])
