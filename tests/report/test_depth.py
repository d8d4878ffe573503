"""Shares of the deepest search's gain, with the paper's numbers (Table 2, panel A)."""

from __future__ import annotations

import re
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from gapft_harness.experiments.controls.control import ControlStep
from gapft_harness.experiments.controls.search import describe_shares
from gapft_harness.report import document
from gapft_harness.report.findings import computation
from gapft_harness.report.rendering.markdown import render_markdown
from tests.report import planted


def describe_planted_shares(first: str, full: str, slots: tuple[int, int]) -> str:
    deltas = {"depth_1": Fraction(first), "depth_8": Fraction(full)}
    findings: Any = SimpleNamespace(
        find_contrast=lambda a, b: SimpleNamespace(delta=deltas[a] / 100, a=a, b=b)
    )
    recovered, n = slots
    steps = tuple(
        ControlStep(
            f"K = {k}", f"depth_{k}", k, {seed: {"S": s, "G": n - s, "U": 0} for seed in (13, 21)}
        )
        for k, s in ((0, 0), (1, recovered), (8, n))
    )
    return describe_shares(findings, steps)


@pytest.mark.parametrize(
    ("first", "full", "slots", "shares"),
    [
        ("5.46", "6.75", (831, 3190), ["80.9%", "26.1%"]),
        ("5.73", "9.40", (241, 913), ["61.0%", "26.4%"]),
    ],
)
def test_first_sample_share_matches_paper(
    first: str, full: str, slots: tuple[int, int], shares: list[str]
) -> None:
    assert re.findall(r"[\d.]+%", describe_planted_shares(first, full, slots)) == shares


def test_no_share_without_gain() -> None:
    assert describe_planted_shares("5.46", "0", (831, 3190)) == ""


def test_excludes_identical_arms_from_contrasts() -> None:
    """One of four conditions reuses adapters: three pairs and three gains remain."""
    inputs = planted.build_inputs()
    page = render_markdown(
        "", "", document.build_sections(inputs, computation.compute_findings(inputs))
    )
    assert "number of contrasts (10)" in page
    training = {f"uniform-seed{s}": {"trained_as": f"gapft-seed{s}"} for s in inputs.seeds}
    same = planted.build_inputs(training=training)
    page = render_markdown(
        "", "", document.build_sections(same, computation.compute_findings(same))
    )
    assert "number of contrasts (6)" in page
    table = page.partition("## Contrasts")[2].partition("\n## ")[0]
    assert "uniform" not in table
