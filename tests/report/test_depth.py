"""Shares of the deepest search's gain, with the paper's numbers (Table 2, panel A)."""

from __future__ import annotations

import re
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from gapft_harness.experiments.controls.control import ControlStep
from gapft_harness.experiments.controls.search import describe_shares


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
