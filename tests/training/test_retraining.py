"""A training that is repeated with the same data, settings and seeds, by the real command."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory import layout
from tests.kit.planted_run import read_json
from tests.kit.records import read_records
from tests.kit.report_tables import find_row
from tests.kit.runs import BaseRun, copy_snapshot, make_base_run

#: The letters run has the condition ``repeated``, a replicate of ``gapft``.
GAPFT, AGAIN = Arm("gapft", 13), Arm("repeated", 13)


@pytest.fixture(scope="module")
def finished(base_root: Path, tmp_path_factory: pytest.TempPathFactory) -> BaseRun:
    """A finished run, which tests only read."""
    folder = make_base_run(base_root, "letters")
    return copy_snapshot(folder, "reported", tmp_path_factory.mktemp("retrained") / "copy")


def read_adapter_facts(run: BaseRun, arm: Arm) -> dict[str, Any]:
    return read_json(run.path / layout.adapter_path(arm) / "training.json")


def read_place(run: BaseRun, arm: Arm) -> str:
    """Return the adapter's place in the store."""
    return str(read_records(run.path)[layout.adapter_path(arm)]["place"])


def test_replicate_has_same_bytes_on_cpu(finished: BaseRun) -> None:
    folders = [finished.path / layout.adapter_path(arm) for arm in (GAPFT, AGAIN)]
    assert weights_hash(folders[0]) == weights_hash(folders[1])
    logs = [(folder / "training_log.jsonl").read_bytes() for folder in folders]
    assert logs[0] == logs[1]
    first, again = (read_adapter_facts(finished, arm) for arm in (GAPFT, AGAIN))
    assert again == first
    assert read_place(finished, GAPFT) != read_place(finished, AGAIN)


def test_report_counts_no_change_for_equal_trainings(finished: BaseRun) -> None:
    report = finished.path / "report"
    results = read_json(report / "results.json")
    (entry,) = results["replicates"]
    assert (entry["condition"], entry["original"], entry["n"]) == ("repeated", "gapft", 40)
    assert [entry[key] for key in ("changed", "lost", "gained", "delta")] == [0] * 4
    assert (entry["seed"], entry["reworded"], entry["same_weights"]) == (13, 0, True)
    pair = find_row(results["contrasts"], a="gapft", b="repeated")
    assert pair["matched_budget"], "they differ in nothing"
    assert pair["delta_low"] < 0 == pair["delta"] < pair["delta_high"], "40 problems leave some"
    with (report / "tables/replicates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["condition"], r["seed"], r["changed"]) for r in rows] == [("repeated", "13", "0")]


# Which conditions are replicates


#: Conditions beside ``gapft``, and the original of each that repeats another's training.
REPLICATES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"again": {"selector": "gapft", "replicate": 1}}, {"again": "gapft"}),
    ({"same_number": {"selector": "gapft", "replicate": 0}}, {}),
    ({"other": {"selector": "uniform", "replicate": 1}}, {}),
    ({"fewer_samples": {"selector": "gapft", "replicate": 1, "k": 4}}, {}),
    ({"other_rank": {"selector": "gapft", "replicate": 1, "training": {"rank": 4}}}, {}),
    # the lowest number is the original
    (
        {
            "third": {"selector": "gapft", "replicate": 2},
            "second": {"selector": "gapft", "replicate": 1},
            "same": {"selector": "gapft"},
            "lone": {"selector": "uniform", "replicate": 3},
            "late": {"selector": "uniform", "replicate": 4},
        },
        {"second": "gapft", "third": "gapft", "late": "lone"},
    ),
]


@pytest.mark.parametrize(("conditions", "originals"), REPLICATES)
def test_conditions_with_equal_settings_are_replicates(
    conditions: dict[str, Any], originals: dict[str, str]
) -> None:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    recipe = check_recipe({**content, "conditions": {"gapft": {}, **conditions}}, "here")
    assert recipe.map_replicates() == originals


def test_dry_run_names_replicates_and_warns(finished: BaseRun) -> None:
    setting = "conditions.alone={selector: uniform, n: 3, replicate: 2}"
    done = finished.resume("--dry-run", "--set", setting)
    assert done.returncode == 0, done.stderr
    assert "repeated: gapft; trains gapft again" in done.stdout
    assert "conditions.alone.replicate" in done.stdout.partition("# warnings")[2]
