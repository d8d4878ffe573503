"""The closing lines of a run agree with its report."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gapft_harness.cli.summary import print_summary
from gapft_harness.report import write_report
from tests.report import planted


def read_summary(path: Path) -> str:
    text = io.StringIO()
    print_summary(path, Console(file=text, width=120, highlight=False))
    return text.getvalue()


def test_summary_prints_k_eq(tmp_path: Path) -> None:
    """GapFT recovers everything, beyond every drawn sample; replay forgets everything."""
    inputs = planted.build_inputs(conditions=("gapft", "replay", "uniform"), sizes=(40, 35, 25))
    flows = {"gapft": (1.0, 1.0, 0.0), "replay": (0.0, 0.0, 1.0), "uniform": (0.5, 0.1, 0.1)}
    arms = [planted.build_arm(inputs.audit, a.arm.condition, a.arm.seed, flows[a.arm.condition])
            for a in inputs.arms]  # fmt: skip
    write_report(replace(inputs, arms=tuple(arms)), tmp_path / "report")
    text = read_summary(tmp_path / "report/results.json")
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    markdown = (tmp_path / "report/report.md").read_text("utf-8")
    results = json.loads((tmp_path / "report/results.json").read_text())
    labels = {name: results["conditions"][name]["K_eq"] for name in flows}
    assert labels["gapft"] == "8"
    assert labels["replay"] == "<1"
    assert labels["uniform"] in set("1234567")
    expected = {"gapft": "\N{GREATER-THAN OR EQUAL TO}8", "replay": "<1"}
    for name, value in {**labels, **expected}.items():
        assert rows[name][-3] == value, text
        assert value in markdown
    assert "−" in "".join(rows["replay"]), "it forgets all"
    assert "-" not in "".join(rows["replay"]), "one minus sign, as in the report"


def test_summary_ends_with_allocation_contrast(tmp_path: Path) -> None:
    write_report(planted.build_allocation_inputs(sizes=(12, 9, 8)), tmp_path / "report")
    contrast = json.loads((tmp_path / "report/results.json").read_text())["allocation"]["contrast"]
    low, high = (100 * end for end in contrast["ci95"])
    assert read_summary(tmp_path / "report/results.json").splitlines()[-1] == (
        "diffuse minus concentrated on training problems: "
        f"{100 * contrast['mean']:+.1f} points [{low:+.1f}, {high:+.1f}]".replace("-", "−")
    )


@pytest.mark.parametrize(
    ("sizes", "marked", "rates"),
    [((40, 12, 30), ["12†"], False), ((9, 11, 9), ["29†", "9†", "11†", "9†"], True)],
)
def test_marks_rates_over_few_problems(
    sizes: tuple[int, int, int], marked: list[str], rates: bool, tmp_path: Path
) -> None:
    write_report(planted.build_inputs(sizes=sizes), tmp_path / "report")
    text = read_summary(tmp_path / "report/results.json")
    assert re.findall(r"\b\d+†", text) == marked
    passes = [line for line in text.splitlines() if line.startswith((" gapft ", " source, "))]
    assert [("%†" in line) for line in passes] == [rates, rates]


@pytest.mark.parametrize(("half", "mark"), [(29, "†"), (30, "")])
def test_marks_contrasts_over_few_trained_problems(half: int, mark: str, tmp_path: Path) -> None:
    inputs = planted.build_allocation_inputs()
    inputs = replace(
        inputs,
        parts=planted.build_allocation_parts(planted.build_exposures(inputs.seeds, half=half)),
    )
    write_report(inputs, tmp_path / "report")
    text = read_summary(tmp_path / "report/results.json")
    assert text.splitlines()[-1].endswith(f"]{mark}")
