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
from gapft_harness.cli.runs import resolve_recipe, run_recipe, run_stages_alone
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.bundled import list_bundled_recipes
from gapft_harness.recipe.conditions import convert_to_mapping
from gapft_harness.recipe.reading import check_recipe, load_recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.pipeline import run_stages
from gapft_harness.stages.train.job import read_searched_pool
from gapft_harness.stages.train.stored import TRAINED_AS, compute_groups, predict_shared
from tests.kit.recording_run import InProcessExecutor
from tests.test_dry_run import parse_requirements

RECIPES = sorted(
    name for name in list_bundled_recipes() if name.startswith(("paper/", "controls/"))
)
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


def read_count(line: str) -> int:
    """Return the first number of a line."""
    return int(re.findall(r"\d[\d,]*", line)[0].replace(",", ""))


class DryRunForecast:
    """The counts that a dry run prints for a recipe file."""

    def __init__(self, recipe: Path) -> None:
        text = describe_dry_run(Options(str(recipe)), None)
        self.adapters = int(re.findall(r"^train +(\d+) adapters", text, flags=re.M)[0])
        self.bounded = "conditions that select the same" in text
        requirements = parse_requirements(text)
        self.responses = [line.strip() for line in requirements["responses"].splitlines()]
        self.steps = requirements["steps"].splitlines()

    def count_audits(self) -> int:
        """Return the number of greedy decodes of the audit."""
        (line,) = (text for text in self.responses if text.startswith("audit:"))
        return read_count(line)

    def count_steps(self, condition: str, bound: bool) -> int:
        """Return the number of steps of a condition's adapter."""
        for line in self.steps:
            match = re.search(r" an adapter(?: of (.*))?, of \d+ adapters", line)
            assert match is not None, line
            if match[1] is None or condition in match[1].split(", "):
                assert line.strip().startswith("at most") == bound, line
                return read_count(line)
        raise AssertionError(f"{condition}: {self.steps}")


@pytest.fixture(scope="module")
def searched_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run whose search all reduced recipes share."""
    folder = tmp_path_factory.mktemp("forecast")
    write_recipe(folder, build_reduced_recipe("controls/search-depth"))
    run_stages_alone(["search"], str(folder / "run"), Options(str(folder / "recipe.yaml")))
    return folder


def write_recipe(folder: Path, recipe: dict[str, Any]) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


@pytest.mark.parametrize("name", RECIPES)
def test_dry_run_counts_match_run(searched_folder: Path, name: str) -> None:
    content = build_reduced_recipe(name)
    path = write_recipe(searched_folder, content)
    forecast = DryRunForecast(path)
    recipe, plugins = check_recipe(content, name), load_plugins()
    run = RunDirectory.create_or_open(searched_folder / "run", recipe)
    context = Context(run, InProcessExecutor(), [], [], SPLITS, None)
    run_stages(context, ["states", "select"], lambda stage: None)
    arms = context.list_trainable_arms()
    keys = compute_groups(run, arms, plugins, lambda: read_searched_pool(run, plugins, []))
    once = {group.key: arm for arm, group in reversed(keys.items())}
    reused = {arm for arm in arms if arm not in once.values()}
    expected = predict_shared(recipe, plugins)
    assert {arm.condition for arm in reused} >= set(expected)
    trained = [arm for arm in arms if arm not in reused]
    if any(condition.selector == "matched_strata" for condition in recipe.conditions.values()):
        # the demo's policy has one right response for many problems, so sets may be equal
        assert forecast.adapters >= len(trained)
        trained = [arm for arm in arms if arm.condition not in expected]
    assert forecast.adapters == len(trained)
    assert forecast.bounded == (len({arm.condition for arm in trained}) > 1)
    assert forecast.count_audits() == 24 * len(trained)
    budgets = run.manifest()["budgets"]
    for arm in trained:
        is_exact = isinstance(recipe.find_slots(arm.condition), int) and budgets[arm.name].get(
            "matched", True
        )
        predicted, steps = (
            forecast.count_steps(arm.condition, not is_exact),
            budgets[arm.name]["steps"],
        )
        assert predicted == steps if is_exact else predicted >= steps, arm.name


def count_responses(run: Path) -> int:
    """Count a run's responses, without those of arms that reuse an adapter."""
    manifest = RunDirectory.open(run).manifest()
    training = manifest["training"].items()
    shared_tables = {
        f"{layout.DECISIONS}/{arm}.parquet" for arm, facts in training if TRAINED_AS in facts
    }
    tables = [name for name in manifest["files"] if name.endswith(".parquet")]
    read = [name for name in tables if name.startswith(f"{layout.DECISIONS}/")]
    rows = sum(pq.read_metadata(run / name).num_rows for name in read if name not in shared_tables)
    searches = [run / layout.responses_path(split) for split in SPLITS]
    online = sum(facts.get("responses", 0) for facts in manifest["training"].values())
    return rows + sum(pq.read_metadata(path).num_rows for path in searches) + online


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
    forecast = DryRunForecast(path)
    run_recipe(Options(str(path)), str(tmp_path / "run"))
    assert count_responses(tmp_path / "run") == sum(map(read_count, forecast.responses))
    done = RunDirectory.open(tmp_path / "run").manifest()["training"]
    assert forecast.adapters == sum("seconds" in facts for facts in done.values())
