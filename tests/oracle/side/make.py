"""Make what the oracle compares, with the ``gapft_harness`` that is on the path.

Usage: ``python make.py CONTENT WORK GROUP...``, with the inputs in ``WORK/inputs``. Runs are made
in ``WORK/GROUP``; what is compared is written to ``CONTENT/GROUP``: a JSON file for a table (column
-> values) or document (path -> value), or a safetensors file.

This folder is the only place that knows commands, recipe keys, the files of a run, and modules of
the package. If one of them changes, copy this folder to ``tests/oracle/base`` before you adapt it:
the oracle is made with ``base`` where it exists, the working tree always with this folder.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq

Values = dict[str, Any]
#: Names with values, or with the file of an adapter's weights.
Items = Iterator[tuple[str, Values | Path]]

LETTERS = "--include-path ../inputs/tasks"
#: The commands of each group, in its folder; one that prints JSON adds a document of that name.
COMMANDS: Mapping[str, Mapping[str, str]] = {
    "demo": {"run": "run demo --run-dir run", "gap": "gap run --format json"},
    "demo-code": {"run": "run demo-code --run-dir run"},
    "controls": {"run": "run ../inputs/recipes/controls.yaml --run-dir run"},
    "matched": {"run": "run ../inputs/recipes/matched.yaml --run-dir run"},
    "online": {"run": "run ../inputs/recipes/online.yaml --run-dir run"},
    "sampled": {"run": f"run ../inputs/recipes/sampled.yaml {LETTERS} --run-dir run"},
    "study": {
        "study": f"run ../inputs/recipes/study.yaml {LETTERS} --run-dir study",
        "gap": "gap study/cells/letters --format json",
    },
    "compare": {
        "example": "compare --example",
        "models": "compare ../inputs/logs/before one=../inputs/logs/after-1 "
        "two=../inputs/logs/after-2 --cluster passage --by subject --out models",
        "seeds": "compare ../inputs/logs/before ../inputs/logs/after-1 ../inputs/logs/after-2 "
        "--seeds --metric f1 --out seeds",
    },
}

#: Keys that name a row of a list in results.json.
ROW_KEYS = (
    *("cell", "environment", "split", "view", "of", "model", "minus", "arm", "condition", "a", "b"),
    *("seed", "problem_id", "state", "scale", "k", "K", "group"),
)


def run_commands(group: str, work: Path) -> Items:
    """Run a group's commands and read all that they wrote."""
    folder = work / group
    folder.mkdir()
    for name, words in COMMANDS[group].items():
        command = [sys.executable, "-m", "gapft_harness.cli.main", *words.split()]
        log = folder / f"{name}.log"
        with log.open("w") as errors:
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors)
        if done.returncode:
            raise RuntimeError(f"gapft {words}: exit status {done.returncode}\n{log.read_text()}")
        if "--format json" in words:
            (folder / f"{name}.json").write_bytes(done.stdout)
            yield name, dict(flatten(json.loads(done.stdout)))
    for name, values in read_folder(folder):
        yield name.replace("tables/", "") if group == "compare" else name, values
    if group == "study":
        yield from read_pooled(folder / "study" / "report" / "tables")


def read_pooled(folder: Path) -> Items:
    """Read the pooled tables of the condition gapft alone, which the oracle pools alone."""
    for name in ("scaling", "scaling_bounds"):
        table = read_csv(folder / f"{name}.csv")
        rows = [i for i, condition in enumerate(table["condition"]) if condition == "gapft"]
        yield f"pooled/{name}", {key: [values[i] for i in rows] for key, values in table.items()}


def read_folder(folder: Path) -> Items:
    """Read tables, logs of training, results and adapters of a run, study or comparison."""
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        name = place.with_suffix("").as_posix()
        name = re.sub(r"(^|/)states/(\w+)(?=$|/\d)", r"\1\2/states", name)  # as in the base
        if any(part.startswith(".") for part in place.parts):
            continue  # the store
        if path.suffix == ".parquet":
            yield name, pq.read_table(path).to_pydict()
        elif path.suffix == ".csv":
            yield name, read_csv(path)
        elif path.suffix == ".jsonl":
            yield name, to_columns(read_lines(path))
        elif path.name == "results.json":
            yield name, dict(flatten(json.loads(path.read_text("utf-8"))))
        elif path.name == "adapter_model.safetensors":
            yield name, path


def read_csv(path: Path) -> Values:
    """Read a table; one of an arm's facts gets a column for each fact, so that facts have keys."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    if header != ["arm", "fact", "value"]:
        return {key: [row[i] for row in rows] for i, key in enumerate(header)}
    facts: Values = {}
    for arm, fact, value in rows:
        facts.setdefault(fact, []).append([arm, value])
    return facts


def read_lines(path: Path) -> list[Any]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def to_columns(rows: Any) -> Values:
    """Turn rows into columns; None where a row has no such key."""
    rows = [*rows]
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: [row.get(key) for row in rows] for key in keys}


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a JSON document by dotted path, except for prose: texts with spaces."""
    prefix = f"{path}." if path else ""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from flatten(child, f"{prefix}{key}")
    elif path == "run" and isinstance(value, list):
        yield from flatten(value[0], path)  # a table of one row
    elif isinstance(value, list) and value:
        seen: dict[str, int] = {}
        for number, child in enumerate(value):
            keys = [k for k in ROW_KEYS if k in child] if isinstance(child, dict) else []
            name = ",".join(str(child[key]) for key in keys) or str(number)
            seen[name] = seen.get(name, 0) + 1
            name += f"#{seen[name]}" if seen[name] > 1 else ""
            yield from flatten(child, f"{prefix}{name}")
    elif not (isinstance(value, str) and " " in value):
        yield path, value


def make_verdicts(group: str, work: Path) -> Items:
    """Judge the stored responses, one table for each verifier and its parameters."""
    stored = read_lines(work / "inputs" / "responses.jsonl")
    pairs: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for entry in stored:
        members = pairs.setdefault((entry["verifier"], json.dumps(entry["params"])), [])
        members += itertools.product(entry["responses"], entry["golds"])
    for (verifier, params), members in pairs.items():
        verdicts = judge(verifier, json.loads(params), members)
        rows = [
            {"response": response, "gold": gold, "status": v.status, "reason": v.reason}
            for (response, gold), v in zip(members, verdicts, strict=True)
        ]
        name = re.sub(r"\W+", "-", params).strip("-")
        yield f"{verifier}/{name or 'default'}", to_columns(rows)


def judge(verifier: str, params: Mapping[str, Any], pairs: Sequence[tuple[str, Any]]) -> list[Any]:
    """Judge pairs of response and gold."""
    from gapft_harness import load_verifier

    instance = load_verifier(verifier, **params)
    try:
        return instance.verify([r for r, _ in pairs], [g for _, g in pairs])
    finally:
        getattr(instance, "close", lambda: None)()


def make_tasks(group: str, work: Path) -> Items:
    """Read every bundled task, with benchmark files of the oracle's own."""
    from gapft_harness.lm_eval_bridge.discovery import list_tasks

    with patch.dict(os.environ, GAPFT_DATA_DIR=str(work / "inputs" / "data")):
        for info in list_tasks():
            if info.split != "group":
                yield from read_task(info.name)


def read_task(name: str) -> Items:
    """Read the settings and problems of a task."""
    from gapft_harness.api import UserError
    from gapft_harness.lm_eval_bridge.discovery import load_task

    task = load_task(name)
    settings = {"verifier": task.verifier, "params": task.verifier_params, "keep": task.keep}
    yield name, settings | dict(flatten({"decoding": vars_of(task.build_decoding())}))
    for split in ("pool", "audit", "validation"):
        try:
            problems = task.read("calibration" if split == "validation" else split)
        except UserError:
            yield f"{name}/{split}", {"refused": [True]}
            continue
        rows = [
            {"id": p.id, "prompt": p.prompt, "gold": json.dumps(p.gold, sort_keys=True)}
            for p in problems
        ]
        yield f"{name}/{split}", to_columns(rows)


def vars_of(record: Any) -> Values:
    """Return the fields of a dataclass that may have slots."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def make_real_data(group: str, work: Path) -> Items:
    """Judge MATH's solutions, with their golds and similar ones; store hashes, never the data."""
    rows = read_lines(Path(os.environ["GAPFT_DATA_DIR"]) / "MATH" / "train.jsonl")
    answers = sorted({row["answer"] for row in rows}, key=lambda answer: (len(answer), answer))
    similar = dict(itertools.pairwise([*answers, answers[0]]))
    pairs = [(row["solution"], row["answer"]) for row in rows]
    pairs += [(row["solution"], similar[row["answer"]]) for row in rows[::3]]
    verdicts = judge("boxed_math", {}, pairs)
    table = [
        {"pair": digest(pair), "status": verdict.status, "reason": digest(verdict.reason)}
        for pair, verdict in zip(pairs, verdicts, strict=True)
    ]
    yield "MATH/verdicts", to_columns(table)
    for name, columns in read_task("gapft_math"):
        if "id" in columns:
            columns = {key: [*map(digest, values)] for key, values in columns.items()}
        yield f"tasks/{name}", columns


def digest(value: Any) -> str:
    """Return a short hash of a JSON value."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def make_recipes(group: str, work: Path) -> Items:
    """Resolve every bundled recipe, and the cells of studies: settings, budgets and arms."""
    from gapft_harness.cli.options import Options
    from gapft_harness.cli.runs import resolve_recipe
    from gapft_harness.recipe.bundled import list_bundled_recipes, list_bundled_studies
    from gapft_harness.study.recipe import read_study

    for name in list_bundled_recipes():
        yield name, describe_recipe(resolve_recipe(Options(name)))
    for name in list_bundled_studies():
        study = read_study(name)
        yield name, dict(flatten(study.model_dump(mode="json")))
        for cell, choice in study.cells.items():
            options = Options(
                choice.recipe, overrides=study.list_overrides(cell), seeds=study.seeds
            )
            yield f"{name}/{cell}", describe_recipe(resolve_recipe(options))


def describe_recipe(recipe: Any) -> Values:
    """Return a recipe's resolved settings, and each condition's settings, slots n, N and J."""
    from gapft_harness.training.plan import count_steps

    conditions = {}
    for name, condition in recipe.conditions.items():
        n, replay = recipe.find_slots(name), recipe.budget.replay
        training = recipe.resolve_training(name)
        fixed = isinstance(n, int)
        exposures = training.repetitions * (n + replay) if fixed else None
        steps = count_steps(exposures, training) if fixed else training.update_groups
        budget = {"n": n, "replay": replay, "N": exposures, "J": steps}
        own = {"k": recipe.find_k(name), "training": training.model_dump(mode="json")}
        conditions[name] = {**condition.model_dump(mode="json"), **own, "budget": budget}
    settings = recipe.model_dump(mode="json") | {"conditions": conditions}
    settings["arms"] = {f"{name}-seed{seed}": True for name in conditions for seed in recipe.seeds}
    return dict(flatten(settings))


MAKERS: dict[str, Callable[[str, Path], Items]] = {
    "recipes": make_recipes,
    "tasks": make_tasks,
    "verdicts": make_verdicts,
    "real-data": make_real_data,
    **dict.fromkeys(COMMANDS, run_commands),
}


def save(folder: Path, name: str, values: Values | Path) -> None:
    """Write an item of the content."""
    path = folder / f"{name}{'.safetensors' if isinstance(values, Path) else '.json'}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        raise FileExistsError(f"{path}: two items have this name")
    if isinstance(values, Path):
        shutil.copyfile(values, path)
    else:
        path.write_text(json.dumps(values), "utf-8")


def main() -> int:
    """Make the groups; report those that fail, which get no content, and go on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("content", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("groups", nargs="+", choices=MAKERS)
    options = parser.parse_args()
    shutil.copytree(Path(__file__).parent / "files", options.work / "inputs", dirs_exist_ok=True)
    status = 0
    for group in options.groups:
        start, unfinished = time.monotonic(), options.work / "content" / group
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            for name, values in MAKERS[group](group, options.work):
                save(unfinished, name, values)
            shutil.move(unfinished, options.content / group)
        except Exception:
            traceback.print_exc()
            status = 1
        print(f"{group}: {time.monotonic() - start:.0f} s", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
