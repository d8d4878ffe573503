"""``gapft compare`` agrees with other tools where their methods overlap.

``other_tools.json`` contains their results for four pairs of runs, with their versions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.findings import Paired
from tests.compare.logs import compare_logs, write_log

TABLES: dict[str, Any] = json.loads(Path(__file__).with_name("other_tools.json").read_text())[
    "tables"
]
#: Tolerance of interval ends, as a share of the width: ends may be resampled or use other formulas.
NEAR = 0.1


def parse_values(text: str) -> list[float]:
    """Parse a digit or a number for each item."""
    return [float(value) for value in (text.split() if " " in text else text)]


def compute_paired(name: str, folder: Path) -> Paired:
    table = TABLES[name]
    for side in ("before", "after"):
        write_log(folder / side, parse_values(table[side]))
    cluster = "passage" if name == "passages of four" else None
    comparison = compare_logs(folder / "before", folder / "after", cluster=cluster)
    (model,) = comparison.findings.models.values()
    return model


@pytest.mark.parametrize("name", TABLES)
def test_differences_and_intervals_match_other_tools(name: str, tmp_path: Path) -> None:
    paired = compute_paired(name, tmp_path)
    assert paired.estimate is not None
    ends = paired.estimate.low, paired.estimate.high
    for tool, figures in TABLES[name]["figures"].items():
        if "difference" in figures:
            assert paired.estimate.value == pytest.approx(figures["difference"], abs=1e-9), tool
        if "ci" in figures:
            width = figures["ci"][1] - figures["ci"][0]
            assert ends == pytest.approx(figures["ci"], abs=NEAR * width), tool


@pytest.mark.parametrize("name", ["few changes", "many changes"])
def test_mcnemar_p_matches_other_tools(name: str, tmp_path: Path) -> None:
    paired, figures = compute_paired(name, tmp_path), TABLES[name]["figures"]
    assert paired.test == "mcnemar"
    assert paired.estimate.p == pytest.approx(figures["evalstats mcnemar_p"]["p"], rel=1e-9)
    evalsig = figures["evalsig mcnemar_test"]
    exact = evalsig["method"] == "mcnemar_exact"
    # with more than 25 changes evalsig uses the chi-squared approximation
    assert paired.estimate.p == pytest.approx(evalsig["p"], rel=1e-9 if exact else 0.05)
    assert exact == (name == "few changes")


def test_sign_flip_p_matches_other_tools(tmp_path: Path) -> None:
    paired, figures = compute_paired("graded", tmp_path), TABLES["graded"]["figures"]
    assert paired.test == "sign_flip"
    for tool in ("evalsig paired_permutation_test", "lmms-eval paired_ttest"):
        assert paired.estimate.p == pytest.approx(figures[tool]["p"], abs=0.02), tool
