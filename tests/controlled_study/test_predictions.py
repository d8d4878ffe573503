"""The rules by which predictions are told, on results that are made up."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from controlled_study.__main__ import main
from controlled_study.driver import ROOT
from controlled_study.outcome import (
    DELTA,
    Figure,
    Policy,
    conclusions,
    gate,
    more,
    none,
    power,
    tell,
    write_outcome,
)
from controlled_study.sizes import SEEDS
from gapft_harness.core.errors import UserError

CONDITIONS = tuple(
    yaml.safe_load((ROOT / "controlled_study/recipes/small.yaml").read_text())["conditions"]
)


def policies(spread: float = 0.5, **points: float) -> list[dict[str, dict[str, Any]]]:
    """Twelve policies whose conditions gain 10 points, or those named; policies differ a little.

    ``regress_gapft`` is the share of G that it loses; replay loses a tenth. all_verified gains 20,
    so δ is 2.
    """
    found = []
    for place in np.linspace(-1, 1, len(SEEDS)):
        conditions = {}
        for name in CONDITIONS:
            gained = points.get(name, 20 if name == "all_verified" else 10)
            rate = 0.5 + gained / 100 + (spread * place / 100 if name in points else 0)
            lost = points.get(f"regress_{name}", 0.3 if name == "gapft" else 0.1)
            conditions[name] = {"pass_at_1": rate, "rho_G": lost}
        main_run: dict[str, Any] = {
            "source": {"pass_at_1": 0.5, "n": 100, "states": {"G": 50, "S": 25, "U": 25}},
            "pool": {"states": {"G": 1_000, "S": 700, "U": 700}},
            "conditions": conditions,
        }
        null = {"conditions": {name: {"pass_at_1": 0.5} for name in ("gapft", "uniform", "replay")}}
        found.append({"main": main_run, "permuted": null, "luck": copy.deepcopy(null)})
    return found


def outcomes(of: list[dict[str, dict[str, Any]]]) -> dict[str, str]:
    return {told.name: told.outcome for told in tell(of)}


def test_an_interval_is_students() -> None:
    from scipy.stats import ttest_1samp

    values = (2.0, 5.0, 3.5)
    for level in (0.95, 0.99):
        expected = ttest_1samp(values, 0).confidence_interval(level)
        assert Figure("x", values).interval(level) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("values", "more_than", "none_at_all"),
    [
        ([3.0, 4.0, 3.5], "supported", "refuted"),
        ([1.0, 1.1, 0.9], "small", "supported"),
        ([-3.0, -4.0, -3.5], "refuted", "refuted"),
        ([0.1, -0.1, 0.0], "refuted", "supported"),
        ([0.0, 6.0, 1.0], "undecided", "undecided"),
        ([1.0, 2.0, 1.4], "small", "undecided"),
    ],
)
def test_what_more_and_none_mean(values: list[float], more_than: str, none_at_all: str) -> None:
    figure = Figure("x", tuple(values))
    assert more(figure, 2.0) == more_than
    assert none(figure, 2.0) == none_at_all


#: By prediction and outcome, what the conditions gain.
MADE_UP: dict[tuple[str, str], dict[str, float]] = {
    ("1", "supported"): {"gapft": 13},
    ("1", "small"): {"gapft": 11},
    ("1", "refuted"): {"gapft": 10},
    ("1", "undecided"): {"gapft": 12, "spread": 6},
    ("2", "supported"): {"S_as_G": 13},
    ("2", "small"): {"S_as_G": 11},
    ("2", "refuted"): {"G_as_S": 11},
    ("2", "undecided"): {"S_as_G": 12, "spread": 6},
    ("3", "supported"): {"gapft": 13},
    ("3", "refuted"): {"uniform_grouped": 13},
    ("4a", "supported"): {"gold": 5},
    ("4a", "refuted"): {"gold": 13},
    ("4b", "supported"): {"S_as_U": 10.5},
    ("4b", "refuted"): {"S_as_U": 13},
    ("4b", "undecided"): {"S_as_U": 12, "spread": 4},
    ("5", "supported"): {"gapft": 13},
    ("5", "small"): {"gapft": 11},
    ("5", "refuted"): {"gapft": 13, "regress_gapft": 0.1},
    ("5", "undecided"): {"gapft": 12, "spread": 6},
    ("6", "supported"): {"gapft_64": 14},
    ("6", "refuted"): {"gapft": 14, "gapft_64": 12},
    ("8", "supported"): {"repetition": 7},
    ("8", "refuted"): {"repetition": 10},
}


@pytest.mark.parametrize("case", MADE_UP, ids=str)
def test_each_prediction_can_come_out_each_way(case: tuple[str, str]) -> None:
    name, outcome = case
    assert outcomes(policies(**MADE_UP[case]))[name] == outcome


@pytest.mark.parametrize(
    "fault",
    [
        {"all_verified": 7.9},
        {"all_verified": 9, "spread": 40},
        {"all_verified": 9, "spread": 8.0, "few": 1},
        {"state": 255},
    ],
    ids=str,
)
def test_where_the_gate_is_missed_nothing_is_told(fault: dict[str, float]) -> None:
    state, few = fault.pop("state", 256), fault.pop("few", 0)
    made = policies(gapft=13, **fault)
    for place in range(3 if few else 0):
        made[place]["main"]["conditions"]["all_verified"]["pass_at_1"] = 0.53
    for policy in made:
        policy["main"]["pool"]["states"]["U"] = state
    assert not gate(made)[3]
    assert set(outcomes(made).values()) == {"uninformative"}
    made = policies(gapft=13)
    made[0]["main"]["pool"]["states"]["U"] = 256
    assert gate(made)[3]


def nulls(*differences: float) -> str:
    """What is said of prediction 7 where one null's policies differ so, in points."""
    made = policies()
    for place, policy in enumerate(made):
        gapft = policy["luck"]["conditions"]["gapft"]
        gapft["pass_at_1"] = 0.5 + differences[place % len(differences)] / 100
    return outcomes(made)["7"]


def test_nulls_have_to_be_narrow_and_are_refuted_by_intervals_made_up_for_their_number() -> None:
    assert nulls(0.2, -0.2) == "supported"
    assert nulls(9, -9) == "undecided"  # holds 0 all the better for its noise
    slight = (0.9, 0.1, 0.9, -0.4)
    figure = Figure("x", slight * 3)
    assert figure.interval()[0] > 0 > figure.interval(1 - 0.05 / 5)[0]
    assert nulls(*slight) == "undecided"
    assert nulls(5, 4) == nulls(-5, -4) == "refuted"


def test_what_the_first_contrast_is_due_to_is_said() -> None:
    assert conclusions(tell(policies(gapft=13, S_as_G=13, uniform_grouped=8))) == []
    (said,) = conclusions(tell(policies(gapft=13, G_as_S=11)))
    assert "difficulty" in said
    (said,) = conclusions(tell(policies(gapft=13, S_as_G=13, uniform_grouped=13)))
    assert "coverage of groups" in said
    assert conclusions(tell(policies(gapft=10, G_as_S=11))) == []


def test_power_is_that_of_simulated_studies() -> None:
    rng = np.random.default_rng(0)
    deviation = (1 + 1 / 3) ** 0.5
    for difference in (0.5, 1.0):
        values = rng.normal(difference, deviation, (4_000, len(SEEDS)))
        above = np.mean([Figure("x", tuple(row)).interval()[0] > 0 for row in values[:1_000]])
        assert abs(above - power(difference)) < 5 * (0.25 / 1_000) ** 0.5
    assert power(0.0) == pytest.approx(0.025)


def write(folder: Path, made: Sequence[Policy]) -> None:
    """A study's folder with made-up results under the study's own recipe."""
    (folder / "study.json").write_text('{"size": "small"}')
    recipe = yaml.safe_load((ROOT / "controlled_study/recipes/small.yaml").read_text())
    for seed, policy in enumerate(made):
        for name, results in policy.items():
            run = folder / f"seed-{seed}" / name
            (run / "report").mkdir(parents=True)
            own = dict(recipe)
            if name != "main":
                own["conditions"] = ["gapft", "uniform", "replay"]
                own["budget"] = {"n": 96}
            (run / "recipe.yaml").write_text(yaml.safe_dump(own))
            (run / "report/results.json").write_text(json.dumps(results))


def test_a_whole_study_is_told_refuted_predictions_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, policies(gapft=13, G_as_S=11))
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "**Gate passed.**" in said
    assert f"δ is {20 * DELTA:.1f}" in said
    told = [line.split(" | ")[2] for line in said.splitlines() if line.count(" | ") == 3][1:10]
    ranks = ["**refuted**", "**undecided**", "**small**", "**supported**"]
    assert [ranks.index(each) for each in told] == sorted(ranks.index(each) for each in told)
    assert "*difficulty*, not *state*" in said
    outcome = json.loads((tmp_path / "out/outcome.json").read_text())
    assert len(outcome["predictions"]) == 9
    assert (tmp_path / "out/controlled-study.png").stat().st_size > 10_000


def test_nothing_is_told_over_the_policies_that_happen_to_be_there(tmp_path: Path) -> None:
    write(tmp_path, policies(gapft=13)[:-1])
    said = write_outcome(tmp_path, tmp_path / "out")
    assert "**Unfinished**: 11 of 12 policies are finished" in said
    assert "supported" not in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("seeds", [0, 1]),
        ("budget", {"n": 128}),
        ("conditions", {"gapft": {}, "uniform": {"selector": "replay"}}),
        ("training", {"learning_rate": 1e-3}),
    ],
)
def test_a_run_of_other_settings_is_refused(tmp_path: Path, section: str, value: Any) -> None:
    write(tmp_path, policies())
    path = tmp_path / "seed-3/main/recipe.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {section: value}))
    with pytest.raises(UserError, match=rf"recipe.yaml: {section} is "):
        write_outcome(tmp_path, None)


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no study"):
        write_outcome(tmp_path, None)


def test_seeds_that_the_design_does_not_have_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--size", "tiny", "--out", str(tmp_path), "--seeds", "12"])
    assert "invalid choice: 12" in capsys.readouterr().err
