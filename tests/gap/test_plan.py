"""``gapft gap --plan``: shares, costs and detectable effects without a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from gapft_harness.analysis.power import find_detectable_effect
from gapft_harness.cli.main import app
from gapft_harness.core.errors import UserError
from gapft_harness.gap.plan_document import NAMES, build_plan_document
from gapft_harness.gap.planning import Choices, PlannedRun, parse_shares, plan_run
from gapft_harness.gap.prospects import CORRECTED, Plan
from gapft_harness.gap.searched import SearchedRun, SearchedSplit
from gapft_harness.report.reading.tokens import GeneratedTokens

RECIPE = {
    "search": {},
    "conditions": ["gapft", "uniform"],
    "seeds": [13, 21, 73],
    "budget": {"n": "recovered", "replay": 0},
    "training": {"repetitions": 8},
}


def build_split(solved: int, recovered: int, missed: int, k: int = 8) -> SearchedSplit:
    """Build a split whose decodes have 10 tokens, samples 20, and training examples 50."""
    count = solved + recovered + missed
    greedy = np.arange(count) < solved
    passed = np.zeros((count, k), dtype=bool)
    passed[solved : solved + recovered, 0] = True
    tokens = GeneratedTokens(10 * count, 20 * count * k, count, count * k)
    return SearchedSplit(greedy, passed.sum(axis=1), k, passed, True, tokens, 50.0)


def build_run(**splits: SearchedSplit) -> SearchedRun:
    return SearchedRun("letters", "contains", 8, splits, 100.0, (1000, 4.0), RECIPE)


def plan_from(run: SearchedRun | None, items: int | None = None, **choices: object) -> PlannedRun:
    place = None if run is None else "runs/first"
    return plan_run(place, run, Choices(**choices), Plan(items=items))  # type: ignore[arg-type]


def run_plan(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["gap", "--plan", *map(str, arguments)])


@given(st.floats(0, 1), st.floats(0, 1), st.permutations("GSU"))
def test_two_shares_determine_the_third(first: float, part: float, states: list[str]) -> None:
    second = (1 - first) * part
    text = f"{states[0]}={first!r}, {states[1]}={second!r}"
    if "S" not in states[:2]:
        with pytest.raises(UserError, match="no share of S"):
            parse_shares(text)
        return
    shares = parse_shares(text)
    assert list(shares) == ["G", "S", "U"]
    assert sum(shares.values()) == pytest.approx(1)
    assert all(0 <= share <= 1 for share in shares.values())
    assert (shares[states[0]], shares[states[1]]) == (first, second)


def test_share_of_s_alone_leaves_others_unknown() -> None:
    assert parse_shares("S=0.5") == {"S": 0.5}
    planned = plan_from(None, items=100, shares={"S": 0.5})
    assert build_plan_document(planned).results["shares"] == {"S": 0.5}
    rounded = parse_shares("S=.33,U=.33,G=.33")
    assert rounded == dict.fromkeys("GSU", 0.33), "rounded shares are accepted"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shares", "S=.7,U=.5"], "sum to 1.2; expected at most 1"),
        (["--shares", "S=.2,U=.2,G=.2"], "sum to 0.6; expected 1"),
        (["--shares", "U=.2"], "no share of S"),
        (["--shares", "S=-.1"], "'S=-.1'.*within 0 and 1"),
        (["--shares", "S=nan"], "'S=nan'.*within 0 and 1"),
        (["--shares", "S=many"], "'S=many'.*within 0 and 1"),
        (["--shares", "S=.1,S=.2"], "state S occurs twice"),
        (["--shares", "X=.1"], "known: G, S, U"),
        (["--shares", ""], "expected STATE=SHARE"),
        (["--shares", "S=.2", "--items", "-3"], "--items -3: expected 1 or more"),
        (["--shares", "S=.2", "--items", "9", "--k", "0"], "--k 0: expected 1 or more"),
        (["--shares", "S=.2", "--items", "9", "--pool", "-5"], "--pool -5: expected 1 or more"),
        (["--shares", "S=.2", "--items", "9", "--conditions", "0"], "--conditions 0: expected 1"),
        (["--shares", "S=.2", "--tokens-per-second", "0"], "--tokens-per-second 0: .*above 0"),
        (["--shares", "S=.2", "--tokens-per-second", "nan"], "--tokens-per-second nan"),
        (["--shares", "S=.2", "--response-tokens", "inf"], "--response-tokens inf"),
        (["--shares", "S=.2"], "audit items is unknown; add --items"),
        (["--items", "9"], "no shares of states; add --shares"),
        (["gsm8k", "--items", "9"], "--plan gsm8k: not the folder of a search"),
        (["--shares", "S=.2", "--model", "hf"], "--model: --plan runs nothing"),
        (["--shares", "S=.2", "--set", "search.k=4"], "--set: --plan runs nothing"),
    ],
)
def test_rejects_bad_plans(arguments: list[str], message: str) -> None:
    done = run_plan(*arguments)
    assert isinstance(done.exception, UserError), done.output
    with pytest.raises(UserError, match=message):
        raise done.exception


def test_rejects_plan_options_without_plan() -> None:
    done = CliRunner().invoke(app, ["gap", "gsm8k", "--pool", "9"])
    assert "used only with --plan" in str(done.exception)


def test_rejects_other_k_than_that_of_logged_shares() -> None:
    run = build_run(audit=build_split(50, 30, 20))
    with pytest.raises(UserError, match="K = 8"):
        plan_from(run, k=16)
    assert plan_from(run, k=16, shares={"S": 0.4}).k == 16


def test_logged_shares_equal_assumed_ones() -> None:
    logged = plan_from(build_run(audit=build_split(50, 30, 20)))
    assumed = plan_from(None, items=100, shares={"G": 0.5, "S": 0.3, "U": 0.2})
    assert logged.shares == assumed.shares
    assert logged.prospects.detectable == assumed.prospects.detectable
    assert logged.items_needed == assumed.items_needed
    assert "runs/first, audit: 100 problems" in build_plan_document(logged).to_markdown()


@given(
    pool=st.integers(1, 10_000),
    items=st.integers(1, 10_000),
    k=st.integers(1, 64),
    conditions=st.integers(1, 5),
    tokens=st.floats(1, 1e4),
    rate=st.floats(1, 1e5),
)
def test_costs_follow_from_assumptions(
    pool: int, items: int, k: int, conditions: int, tokens: float, rate: float
) -> None:
    planned = plan_from(
        None, items, shares={"S": 0.2}, pool=pool, k=k, conditions=conditions,
        response_tokens=tokens, rate=rate,
    )  # fmt: skip
    responses = (pool + items) * (k + 1) + 3 * conditions * items
    total = planned.steps["all responses"]
    assert total.count == responses
    assert total.cost.tokens == pytest.approx(responses * tokens)
    assert total.cost.seconds == pytest.approx(responses * tokens / rate)
    assert planned.steps["train adapters"].count == 3 * conditions * 8 * round(0.2 * pool)
    assert planned.steps["train adapters"].cost.seconds is None, "never invented"


def test_costs_follow_from_measured_rates() -> None:
    run = build_run(pool=build_split(100, 60, 40), audit=build_split(50, 30, 20))
    planned = plan_from(run, pool=1000, items=500)
    rate = 300 * (10 + 8 * 20) / 100
    pool, training = planned.steps["search pool"], planned.steps["train adapters"]
    assert (pool.count, pool.cost.tokens) == (9000, 1000 * 170)
    assert pool.cost.seconds == pytest.approx(170_000 / rate)
    assert planned.steps["audit adapters"].cost.tokens == 6 * 500 * 10
    assert training.count == 6 * 8 * 300
    assert training.cost.tokens == training.count * 50
    assert training.cost.seconds == pytest.approx(training.count * 50 * 4 / 1000)
    assert plan_from(run, rate=10.0).steps["search pool"].cost.seconds == 200 * 170 / 10
    fixed = replace(run, recipe={**RECIPE, "budget": {"n": 16, "replay": 4}})
    assert plan_from(fixed).steps["train adapters"].count == 6 * 8 * 20
    verified = replace(run, recipe={**RECIPE, "budget": {"n": "verified", "replay": 0}})
    assert plan_from(verified).steps["train adapters"].count == 6 * 8 * (60 + 100)


def test_unknown_costs_are_named_and_not_invented() -> None:
    planned = plan_from(None, items=100, shares={"S": 0.02})
    for step in planned.steps.values():
        assert step.cost.tokens is step.cost.seconds is None
    page = build_plan_document(planned).to_markdown()
    for option in ("--pool", "--response-tokens", "--tokens-per-second"):
        assert option in page
    unmeasured = replace(build_run(audit=build_split(5, 3, 2)), seconds=None)
    assert plan_from(unmeasured).steps["search audit"].cost.seconds is None


def test_items_needed_detect_corrections_of_s() -> None:
    planned = plan_from(None, items=100, shares={"S": 0.2})
    for seeds, needed in planned.items_needed.items():
        for part, items in zip(CORRECTED, needed, strict=True):
            assert items is not None
            least = find_detectable_effect(seeds=seeds, items=items, discordance=331 / 1367)
            assert least is not None
            assert least <= part * 0.2
    none = plan_from(None, items=100, shares={"S": 0.0})
    assert none.prospects.verdict.answer == "not worth training"
    assert all(items == (None, None) for items in none.items_needed.values())


def test_command_prints_and_writes_plan(tmp_path: Path) -> None:
    arguments = [
        "--shares", "S=0.2,U=0.3", "--pool", 2000, "--items", 500, "--response-tokens", 300,
        "--tokens-per-second", 2500, "--training-seeds", 2,
    ]  # fmt: skip
    done = run_plan(*arguments, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["steps"]["search pool"]["seconds"] == 2000 * 9 * 300 / 2500
    printed = run_plan(*arguments, "--format", "json")
    assert json.loads(printed.stdout) == results
    page = (Path(__file__).parents[2] / "docs/gap.md").read_text("utf-8")
    for key in results:
        assert f"`{key}`" in page, key


def test_command_reads_folder_of_gap(tmp_path: Path) -> None:
    folder = tmp_path / "gap"
    measured = CliRunner().invoke(
        app,
        [
            "gap", "gapft_demo", "--model", "dummy", "--limit", "7", "--k", "2",
            "--out", str(folder),
        ],
    )  # fmt: skip
    assert measured.exit_code == 0, measured.output
    done = run_plan(folder, "--pool", 70, "--format", "json")
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    states = json.loads((folder / "gap/results.json").read_text())["filters"]["none"]["states"]
    assert results["shares"] == {state: count / 7 for state, count in states.items()}
    assert (results["k"], results["prospects"]["items"]) == (2, 7)
    assert results["steps"]["search pool"]["count"] == 70 * 3
