"""A run's ``run.json``: read and change it, and record files as a run does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from gapft_harness.core.files import sha256, write_json
from gapft_harness.engine.outputs import Output
from gapft_harness.engine.step import Step
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import RunDirectory, hash_recipe

RECORDS = "run.json"


def read_run(run: Path) -> dict[str, Any]:
    """Read ``run.json``."""
    content: dict[str, Any] = json.loads((run / RECORDS).read_text())
    return content


def read_records(run: Path) -> dict[str, Any]:
    """Read the records of a run's outputs by name."""
    outputs: dict[str, Any] = read_run(run)["outputs"]
    return outputs


def change_run(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change ``run.json``."""
    content = read_run(run)
    change(content)
    write_json(run / RECORDS, content)


def change_records(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the records of a run's outputs."""
    change_run(run, lambda content: change(content["outputs"]))


def change_output_facts(run: Path, name: str, **facts: object) -> None:
    """Change facts of an output."""
    change_records(run, lambda records: records[name]["facts"].update(facts))


def find_output(run: Path, file: str) -> str:
    """Return the name of the output that a file is, or is a part of; the file for others."""
    names = read_records(run)
    parents = (path.as_posix() for path in (Path(file), *Path(file).parents))
    return next((name for name in parents if name in names), file)


def record_again(run: Path, *files: str) -> None:
    """Record the current hashes of changed outputs, as someone who forges a run would."""

    def change(content: dict[str, Any]) -> None:
        records = {**content["outputs"], "report": content.get("report", {})}
        for name in {find_output(run, file) for file in files} & records.keys():
            records[name]["digest"] = sha256(run / name)

    change_run(run, change)


def record_files(run: RunDirectory, facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Record files and folders that a test wrote as outputs with these facts, by name."""
    run.put(
        {
            name: (Step(name, _plant, {"name": name}), Output(run.path / name, own_facts))
            for name, own_facts in facts.items()
        }
    )


def _plant(output: Path, name: str) -> None:
    """The function of the steps of planted files, which are never made again."""


def change_recipe(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the recipe of a run, and its recorded hash."""
    content = yaml.safe_load((run / "recipe.yaml").read_text())
    change(content)
    (run / "recipe.yaml").write_text(yaml.safe_dump(content))
    recipe = check_recipe(content, "test")
    change_run(run, lambda facts: facts.update(recipe=hash_recipe(recipe)))
