"""The cost ledger by hand: tokens a point, queries until training is paid, what is not recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.findings.ledger import Spending, build_costs, compute_ledger
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.tokens import GeneratedTokens
from gapft_harness.report.rendering.blocks import Table
from gapft_harness.report.results import build_results
from tests.report import planted


def with_tokens(**changes: object) -> ReportInputs:
    """400 pool and 1,000 audit problems: greedy 10 tokens, samples 20, trained decodes 30."""
    made = planted.inputs(conditions=("gapft", "replay"), seeds=(13, 21), **changes)
    generated = {
        "pool": GeneratedTokens(4_000, 64_000, 400, 3_200),
        "audit": GeneratedTokens(10_000, 160_000, 1_000, 8_000),
        **{arm.arm.name: GeneratedTokens(30_000, 0, 1_000, 0) for arm in made.arms},
        "gapft-seed13@other": GeneratedTokens(9, 0, 3, 0),
    }
    return replace(made, generated=generated, seconds={"search": 476.0})


def paid(line):
    return line.compute_queries("tokens"), line.compute_queries("seconds")


def test_a_ledger_by_hand() -> None:
    inputs = with_tokens()
    findings = compute_findings(inputs)
    of = compute_ledger(inputs, findings)
    assert (of.search.tokens, of.search.seconds) == (68_000, pytest.approx(136.0))
    assert of.per_sample.tokens == 20
    gapft, condition = of.entries[0], findings.conditions["gapft"]
    tokens = sum(seed.budget.tokens for seed in condition.seeds.values()) / 2
    assert (gapft.training.tokens, gapft.training.seconds) == (tokens, 4.5)
    points = 100 * float(condition.mean.pass_at_1 - findings.source.pass_at_1)
    assert gapft.per_point.tokens == pytest.approx((68_000 + tokens) / points)
    assert gapft.per_point.seconds == pytest.approx(140.5 / points)
    saved = condition.k_eq * 20 - 30
    assert saved > 0
    by_tokens, by_seconds = paid(gapft)
    assert by_tokens is not None
    assert (by_tokens - 1) * saved < 68_000 + tokens <= by_tokens * saved
    assert by_seconds == -(-140.5 // (saved * 476 / 238_000))
    written = build_results(inputs, findings)["ledger"]
    assert written["conditions"]["gapft"]["break_even_queries"] == by_tokens
    assert "second" not in str(written), "results.json holds no times"


def test_a_model_that_gains_nothing_is_never_paid() -> None:
    inputs = with_tokens()
    worse = replace(
        inputs,
        arms=tuple(replace(arm, statuses=inputs.audit.greedy * 0 + 1) for arm in inputs.arms),
    )
    entry = compute_ledger(worse, compute_findings(worse)).entries[0]
    assert entry.gain < 0
    cheaper = replace(entry, saved=Spending(80.0, 0.1), total=Spending(2e6, 2.0))
    assert paid(replace(cheaper, gain=0.01)) == (25_000, 20)
    assert paid(cheaper) == (None, None), "the source's own decode answers as well"
    assert entry.per_point.tokens is entry.per_point.seconds is None
    assert paid(entry) == (None, None)
    (table,) = build_costs(worse, compute_findings(worse))
    assert isinstance(table, Table)
    assert table.rows[0][-4:] == ["–", "–", "never", "never"]


def test_what_was_not_recorded_is_said_and_not_invented() -> None:
    inputs = with_tokens()
    untold = replace(inputs, seconds={}, training={}, generated={})
    of = compute_ledger(untold, compute_findings(untold))
    assert of.search.tokens is of.search.seconds is of.per_sample.tokens is None
    assert paid(of.entries[0]) == (None, None)
    assert of.entries[0].training.tokens is not None, "L is sealed with the training set"
    (table,) = build_costs(untold, compute_findings(untold))
    assert isinstance(table, Table)
    assert "Not recorded: tokens, " in table.note
    timeless = replace(inputs, training={})
    (table,) = build_costs(timeless, compute_findings(timeless))
    assert isinstance(table, Table)
    assert table.rows[0][-2:][0] not in ("–", "never")
    assert table.rows[0][-1] == "–", "what training took is not known: that is not never"
    assert "the time of training" in table.note
    no_time = replace(inputs, seconds={})
    (table,) = build_costs(no_time, compute_findings(no_time))
    assert isinstance(table, Table)
    assert "Not recorded: the search's time." in table.note
    assert table.rows[0][-1] == "–"
    assert table.rows[0][-2] != "–"


def test_a_run_that_reuses_responses_does_not_know_how_long_their_search_took() -> None:
    inputs = with_tokens()
    reusing = replace(inputs, reused=True)
    of = compute_ledger(reusing, compute_findings(reusing))
    assert (of.search.tokens, of.search.seconds) == (68_000, None)
    (table,) = build_costs(reusing, compute_findings(reusing))
    assert isinstance(table, Table)
    assert "Not recorded: the search's time." in table.note


def test_an_arm_that_took_anothers_adapter_costs_what_that_did() -> None:
    inputs = with_tokens()
    training = {
        "gapft-seed13": {"seconds": 4.0},
        "gapft-seed21": {"seconds": 6.0},
        "replay-seed13": {"trained_as": "gapft-seed13", "seconds": 4.0},
        "replay-seed21": {"trained_as": "gapft-seed21"},
    }
    told = replace(inputs, training=training)
    gapft, replay = compute_ledger(told, compute_findings(told)).entries
    assert gapft.training.seconds == replay.training.seconds == 5.0
