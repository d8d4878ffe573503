"""Where ``gapft compare`` overlaps with other tools, its figures are theirs.

``other_tools.json`` holds what they said of four pairs of runs, with their versions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.compare.findings import Paired
from tests.compare.logs import write

TABLES: dict[str, Any] = json.loads(Path(__file__).with_name("other_tools.json").read_text())[
    "tables"
]
#: Of an interval's width: by how much ends may differ that are drawn, or come by other formulas.
NEAR = 0.1


def values(text: str) -> list[float]:
    """A digit, or a number, for each item."""
    return [float(value) for value in (text.split() if " " in text else text)]


def ours(name: str, folder: Path) -> Paired:
    of = TABLES[name]
    for side in ("before", "after"):
        write(folder / side, values(of[side]))
    choice = CompareChoice(cluster="passage" if name == "passages of four" else None)
    found = compare(str(folder / "before"), [str(folder / "after")], choice)
    (model,) = found.findings.models.values()
    return model


@pytest.mark.parametrize("name", TABLES)
def test_differences_and_intervals_are_those_of_others(name: str, tmp_path: Path) -> None:
    found = ours(name, tmp_path)
    assert found.interval is not None
    ends = found.interval.low, found.interval.high
    for tool, said in TABLES[name]["figures"].items():
        if "difference" in said:
            assert found.difference == pytest.approx(said["difference"], abs=1e-9), tool
        if "ci" in said:
            width = said["ci"][1] - said["ci"][0]
            assert ends == pytest.approx(said["ci"], abs=NEAR * width), tool


@pytest.mark.parametrize("name", ["few changes", "many changes"])
def test_mcnemars_p_is_that_of_others(name: str, tmp_path: Path) -> None:
    found, figures = ours(name, tmp_path), TABLES[name]["figures"]
    assert found.test == "mcnemar"
    assert found.p_value == pytest.approx(figures["evalstats mcnemar_p"]["p"], rel=1e-9)
    evalsig = figures["evalsig mcnemar_test"]
    exact = evalsig["method"] == "mcnemar_exact"
    # with more than 25 changes evalsig takes the chi-squared approximation
    assert found.p_value == pytest.approx(evalsig["p"], rel=1e-9 if exact else 0.05)
    assert exact == (name == "few changes")


def test_sign_flips_of_a_graded_metric_say_what_others_do(tmp_path: Path) -> None:
    found, figures = ours("graded", tmp_path), TABLES["graded"]["figures"]
    assert found.test == "sign_flip"
    for tool in ("evalsig paired_permutation_test", "lmms-eval paired_ttest"):
        assert found.p_value == pytest.approx(figures[tool]["p"], abs=0.02), tool
