"""Data, settings, versions, and how to reproduce the run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gapft_harness.presentation.content import (
    Column,
    Row,
    Section,
    Table,
    add_hidden,
    format_duration,
)
from gapft_harness.report.reading.inputs import ReportInputs

_REPRODUCE = (
    "The run's folder has the resolved recipe, every response with its exact token ids, the "
    "selections, the adapters, and the hashes of all of them (run.json). In it, "
    "gapft run recipe.yaml --run-dir NEW_FOLDER runs everything again, and "
    "gapft run . --only report writes this report again."
)


def build_settings(inputs: ReportInputs) -> Section:
    """Build the section on data and settings."""
    recipe = inputs.recipe
    task = inputs.task
    text = [str(recipe["description"])] if recipe.get("description") else []
    dropped = [{"dropped": line} for line in task.get("dropped", ())]
    shown = {
        **{key: value for key, value in recipe.items() if key not in ("description", "notes")},
        "task": {key: value for key, value in task.items() if key != "dropped"},
        "source": inputs.source,
        **_collect_facts(inputs),
        "versions": inputs.versions,
        "time": {name: format_duration(seconds) for name, seconds in inputs.seconds.items()},
        "days": list(inputs.days),
    }
    rows = list(flatten_settings(shown))
    facts = list(flatten_settings(_collect_facts(inputs)))
    columns = [Column("setting", "setting"), Column("value", "value")]
    tables = [
        Table(
            "dropped", [Column("dropped", "records left out")], dropped, folded="Records left out"
        ),
        Table("", columns, rows, folded="All settings, versions and times"),
        Table("facts", add_hidden((), facts), facts),
        _build_training_facts(inputs),
    ]
    return Section("Data, settings and how to reproduce", [*text, _REPRODUCE], tables)


def _collect_facts(inputs: ReportInputs) -> dict[str, Any]:
    """Collect facts beyond the recipe: the judges, and the origin of imported responses."""
    imported = {
        split: {
            **{key: value for key, value in facts.items() if key != "files"},
            "files": [
                {key: value for key, value in file.items() if key != "path"}
                for file in facts["files"]
            ],
        }
        for split, facts in inputs.imported.items()
    }
    return {"judged_by": inputs.judged_by, "imported": imported}


def _build_training_facts(inputs: ReportInputs) -> Table:
    """Build the table of the trainer's facts on every arm: trainers report different facts.

    Measured times are only in run.json, so that two runs give the same tables.
    """
    rows = [
        {"arm": trained.arm.name, "fact": row["setting"], "value": row["value"]}
        for trained in inputs.arms
        for row in flatten_settings(inputs.training.get(trained.arm.name, {}))
        if "second" not in row["setting"]
    ]
    return Table("training", add_hidden((), rows), rows, csv_only=True)


def flatten_settings(content: Mapping[str, Any], prefix: str = "") -> Iterator[Row]:
    """Yield rows of ``section.key`` and its value as text; lists and empty maps as JSON."""
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from flatten_settings(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield {"setting": f"{prefix}{key}", "value": text}
