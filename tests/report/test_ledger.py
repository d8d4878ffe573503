"""The cost ledger: tokens per point, break-even queries, and unrecorded costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.findings.ledger import Spending, build_costs, compute_ledger
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.tokens import GeneratedTokens
from gapft_harness.report.rendering.blocks import Table
from gapft_harness.report.results import build_results
from tests.report import planted


def build_inputs_with_tokens(**changes: object) -> ReportInputs:
    """Build 400 pool and 1,000 audit problems: 10 tokens greedy, 20 a sample, 30 when trained."""
    base = planted.build_inputs(conditions=("gapft", "replay"), seeds=(13, 21), **changes)
    generated = {
        "pool": GeneratedTokens(4_000, 64_000, 400, 3_200),
        "audit": GeneratedTokens(10_000, 160_000, 1_000, 8_000),
        **{arm.arm.name: GeneratedTokens(30_000, 0, 1_000, 0) for arm in base.arms},
        "gapft-seed13@other": GeneratedTokens(9, 0, 3, 0),
    }
    return replace(base, generated=generated, seconds={"search": 476.0})


def compute_break_even(line):
    return line.compute_queries("tokens"), line.compute_queries("seconds")


def test_ledger_matches_hand_computation() -> None:
    inputs = build_inputs_with_tokens()
    findings = compute_findings(inputs)
    ledger = compute_ledger(inputs, findings)
    assert (ledger.search.tokens, ledger.search.seconds) == (68_000, pytest.approx(136.0))
    assert ledger.per_sample.tokens == 20
    gapft, condition = ledger.entries[0], findings.conditions["gapft"]
    tokens = sum(seed.budget.tokens for seed in condition.seeds.values()) / 2
    assert (gapft.training.tokens, gapft.training.seconds) == (tokens, 4.5)
    points = 100 * float(condition.mean.pass_at_1 - findings.source.pass_at_1)
    assert gapft.per_point.tokens == pytest.approx((68_000 + tokens) / points)
    assert gapft.per_point.seconds == pytest.approx(140.5 / points)
    saved = condition.k_eq * 20 - 30
    assert saved > 0
    by_tokens, by_seconds = compute_break_even(gapft)
    assert by_tokens is not None
    assert (by_tokens - 1) * saved < 68_000 + tokens <= by_tokens * saved
    assert by_seconds == -(-140.5 // (saved * 476 / 238_000))
    written = build_results(inputs, findings)["ledger"]
    assert written["conditions"]["gapft"]["break_even_queries"] == by_tokens
    assert "second" not in str(written), "results.json holds no times"


def test_model_without_gain_never_breaks_even() -> None:
    inputs = build_inputs_with_tokens()
    worse = replace(
        inputs,
        arms=tuple(
            planted.replace_decodes(arm, statuses=np.ones_like(inputs.audit.deployed.statuses))
            for arm in inputs.arms
        ),
    )
    entry = compute_ledger(worse, compute_findings(worse)).entries[0]
    assert entry.gain < 0
    cheaper = replace(entry, saved=Spending(80.0, 0.1), total=Spending(2e6, 2.0))
    assert compute_break_even(replace(cheaper, gain=0.01)) == (25_000, 20)
    assert compute_break_even(cheaper) == (None, None), "the source's own decode answers as well"
    assert entry.per_point.tokens is entry.per_point.seconds is None
    assert compute_break_even(entry) == (None, None)
    (table,) = build_costs(worse, compute_findings(worse))
    assert isinstance(table, Table)
    assert table.rows[0][-4:] == ["–", "–", "never", "never"]


def test_reports_unrecorded_costs() -> None:
    inputs = build_inputs_with_tokens()
    unrecorded = replace(inputs, seconds={}, training={}, generated={})
    ledger = compute_ledger(unrecorded, compute_findings(unrecorded))
    assert ledger.search.tokens is ledger.search.seconds is ledger.per_sample.tokens is None
    assert compute_break_even(ledger.entries[0]) == (None, None)
    assert ledger.entries[0].training.tokens is not None, "L is recorded with the training set"
    (table,) = build_costs(unrecorded, compute_findings(unrecorded))
    assert isinstance(table, Table)
    assert "Not recorded: tokens, " in table.note
    timeless = replace(inputs, training={})
    (table,) = build_costs(timeless, compute_findings(timeless))
    assert isinstance(table, Table)
    assert table.rows[0][-2:][0] not in ("–", "never")
    assert table.rows[0][-1] == "–", "an unknown time of training is not never"
    assert "the time of training" in table.note
    no_time = replace(inputs, seconds={})
    (table,) = build_costs(no_time, compute_findings(no_time))
    assert isinstance(table, Table)
    assert "Not recorded: the search's time." in table.note
    assert table.rows[0][-1] == "–"
    assert table.rows[0][-2] != "–"


def test_reused_responses_have_no_search_time() -> None:
    inputs = build_inputs_with_tokens()
    reusing = replace(inputs, reused=True)
    ledger = compute_ledger(reusing, compute_findings(reusing))
    assert (ledger.search.tokens, ledger.search.seconds) == (68_000, None)
    (table,) = build_costs(reusing, compute_findings(reusing))
    assert isinstance(table, Table)
    assert "Not recorded: the search's time." in table.note


def test_arm_with_reused_adapter_has_its_training_cost() -> None:
    inputs = build_inputs_with_tokens()
    training = {
        "gapft-seed13": {"seconds": 4.0},
        "gapft-seed21": {"seconds": 6.0},
        "replay-seed13": {"trained_as": "gapft-seed13", "seconds": 4.0},
        "replay-seed21": {"trained_as": "gapft-seed21"},
    }
    trained_inputs = replace(inputs, training=training)
    gapft, replay = compute_ledger(trained_inputs, compute_findings(trained_inputs)).entries
    assert gapft.training.seconds == replay.training.seconds == 5.0
