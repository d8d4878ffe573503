"""Counts in dry runs of the paper's recipes and controls match the later run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import resolve_recipe, run_recipe
from gapft_harness.recipe.bundled import list_bundled_recipes
from gapft_harness.recipe.conditions import convert_to_mapping
from gapft_harness.recipe.reading import load_recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.recorded import read_training
from tests.kit.dry_runs import parse_section
from tests.kit.records import read_records

EXPERIMENTS = ("search_depth", "stability", "allocation", "online")
#: Together 64, the number of update groups of the code recipes.
SLOTS, REPLAY = 40, 24


def build_reduced_recipe(name: str, **sections: Any) -> dict[str, Any]:
    """Build a bundled recipe with the demo's model and few problems."""
    demo = resolve_recipe(Options("demo")).model_dump(mode="json", exclude_unset=True)
    recipe = load_recipe(list_bundled_recipes()[name]).model_dump(mode="json", exclude_unset=True)
    settings_by_name = convert_to_mapping(recipe["conditions"])
    conditions: dict[str, Any] = {
        key: {"selector": key, **settings} for key, settings in settings_by_name.items()
    }
    for condition in conditions.values():
        params = condition.setdefault("params", {})
        if "by" in params:
            params |= {"by": ["operations"], "tokens": None}
        if condition["selector"] in ("gold_labels", "core_gold"):
            params["answer_only"] = False
    core = any(c["selector"].startswith("core_") for c in conditions.values())
    n: int | str = "verified" if recipe["budget"]["n"] == "verified" and core else SLOTS
    training = {"dtype": "float32", "gradient_checkpointing": False, "start_tokens": None}
    return {
        **{key: demo[key] for key in ("model", "evidence", "executor")},
        "search": {**demo["search"], "k": 8},
        "name": "reduced",
        "data": {"task": "gapft_demo", "pool_limit": 160, "audit_limit": 24},
        "conditions": conditions,
        "seeds": recipe["seeds"],
        "budget": {"n": n, "replay": REPLAY if recipe["budget"].get("replay") else 0},
        "training": {**recipe["training"], **training},
        "statistics": {"replicates": 20},
        **sections,
    }


def read_forecast(recipe: Path) -> tuple[int, int]:
    """Return the numbers of adapters and of responses, without GRPO's, in a dry run."""
    steps = parse_section(describe_dry_run(Options(str(recipe)), None), "steps")
    adapters = re.findall(r"at most (\d+) adapters", steps["train"])[0]
    counts = [re.findall(r"^([\d,]+) new", steps[f"search {split}"])[0] for split in SPLITS]
    counts += re.findall(r"= ([\d,]+) responses", steps["audit"])
    experiments = [line for name, line in steps.items() if name in EXPERIMENTS]
    counts += [count for line in experiments for count in re.findall(r"([\d,]+) = ", line)]
    return int(adapters), sum(int(count.replace(",", "")) for count in counts)


def write_recipe(folder: Path, recipe: dict[str, Any]) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def count_responses(run: Path) -> int:
    """Count a run's responses, without GRPO's; arms that reuse an adapter have their own tables."""
    decisions = [name for name in read_records(run) if name.startswith(f"{layout.DECISIONS}/")]
    tables = [*map(layout.responses_path, SPLITS), *decisions]
    return sum(pq.read_metadata(run / table).num_rows for table in tables)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "experiments"),
    [
        ("controls/llama-reclor", {"search_depth": {}, "stability": {"sets": 2, "k": 8}}),
        ("paper/qwen-coder-livecodebench", {"allocation": {
            "diffuse": "diffuse", "concentrated": "concentrated"
        }}),
        ("controls/online", {"online": {}}),
    ],
)  # fmt: skip
def test_run_generates_predicted_responses(
    tmp_path: Path, name: str, experiments: dict[str, Any]
) -> None:
    content = build_reduced_recipe(name, seeds=[13], experiments=experiments)
    content["data"] |= {"pool_limit": 150, "audit_limit": 16}
    content["training"] |= {"repetitions": 1, "micro_batch": 8, "accumulation": 1}
    path = write_recipe(tmp_path, content)
    adapters, responses = read_forecast(path)
    run_recipe(Options(str(path)), tmp_path / "run")
    assert count_responses(tmp_path / "run") == responses
    assert adapters == len(read_training(RunDirectory.open(tmp_path / "run")))
