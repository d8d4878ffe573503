"""Decisions of compared arms on their training problems, and the contrast in the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.planted_run import SEEDS, read_json, read_rows, write_planted_task

CONDITIONS = ("diffuse", "concentrated")
SLOTS, REPLAY = 8, 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = write_planted_task(
        tmp_path_factory.mktemp("exposed") / "task", range(60), range(200, 220)
    )
    return task.run(
        "compared",
        conditions=list(CONDITIONS),
        budget={"n": SLOTS, "replay": REPLAY},
        experiments={"allocation": {name: name for name in CONDITIONS}},
    )


def read_selected(run: Path, condition: str, seed: int) -> list[str]:
    rows = read_rows(run / f"selections/{condition}-seed{seed}.parquet")
    return [row["problem_id"] for row in rows if row["state"] == "S"]


def read_exposed(run: Path, condition: str, seed: int) -> dict[str, bool]:
    rows = read_rows(run / f"decisions/{condition}-seed{seed}.exposed.parquet")
    assert {row["index"] for row in rows} == {-1}
    assert len({row["problem_id"] for row in rows}) == len(rows)
    return {row["problem_id"]: row["status"] == "pass" for row in rows}


def test_arms_decide_all_trained_problems(run: Path) -> None:
    for seed in SEEDS:
        trained = set(read_selected(run, "diffuse", seed))
        assert len(trained) == SLOTS
        for condition in CONDITIONS:
            assert read_exposed(run, condition, seed).keys() == trained


def test_report_contrast_matches_decisions(run: Path) -> None:
    """Equation 10: the gain of problems once instead of never, less that of twice over once."""
    results = read_json(run / "report/results.json")
    values = {row["quantity"]: row for row in results["allocation"]}
    contrasts = []
    for seed in SEEDS:
        once, twice = (set(read_selected(run, condition, seed)) for condition in CONDITIONS)
        halves = {"A": twice, "B": once - twice}
        assert [len(half) for half in halves.values()] == [4, 4]
        exposed = {condition: read_exposed(run, condition, seed) for condition in CONDITIONS}
        rates = {
            (condition, name): sum(exposed[condition][problem] for problem in half) / 4
            for condition in CONDITIONS
            for name, half in halves.items()
        }
        reported = {name: row[f"seed_{seed}"] for name, row in values.items()}
        assert reported["a_A_1"] == rates["diffuse", "A"]
        assert reported["a_A_2"] == rates["concentrated", "A"]
        assert reported["a_B_0"] == rates["concentrated", "B"]
        assert reported["a_B_1"] == rates["diffuse", "B"]
        gain = rates["diffuse", "B"] - rates["concentrated", "B"]
        loss = rates["concentrated", "A"] - rates["diffuse", "A"]
        assert reported["contrast"] == gain / 2 - loss / 2
        contrasts.append(reported["contrast"])
    assert values["contrast"]["mean"] == sum(contrasts) / len(contrasts)
    assert values["contrast"]["problems"] == 4
    assert "## Coverage against repetition" in (run / "report/index.md").read_text("utf-8")
