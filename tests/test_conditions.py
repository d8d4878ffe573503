"""Conditions that name a selector and its parameters, from the recipe to ``gapft verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import resolve_recipe
from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import _load_cached
from gapft_harness.recipe.reading import Setting, check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.verify.run import verify
from tests.test_changed_recipe import SELECTED, ChangingLetters, write_task

SELECTORS = """
from gapft_harness.api import hookimpl


def inclusion(pool, n, rng, share, late=False):
    \"\"\"A share of the slots for recovered failures, the rest for other verified problems.\"\"\"
    first = pool.draw(pool.recovered, round(share * n), rng)
    rest = [e for e in pool.verified if e not in first]
    return first + pool.draw(rest, n - len(first), rng)


def reverse(pool, n, rng):
    return pool.verified[::-1][:n]


@hookimpl
def register_selectors(register):
    register("inclusion", inclusion)
    register("reverse", reverse)
"""

HALF = {"selector": "inclusion", "params": {"share": 0.5}}
MIXED = {"gapft": {}, "half": HALF, "whole": {"selector": "inclusion", "params": {"share": 1}}}


def build_recipe(conditions: Any, *settings: Setting) -> Recipe:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    return check_recipe(content | {"conditions": conditions}, "test", settings)


def dump_conditions(parsed: Recipe) -> Any:
    return parsed.model_dump(mode="json")["conditions"]


def test_conditions_are_dumped_as_written() -> None:
    assert dump_conditions(build_recipe(["gapft", "replay"])) == ["gapft", "replay"]
    assert dump_conditions(build_recipe({"gapft": {}, "replay": None})) == ["gapft", "replay"]
    assert dump_conditions(build_recipe(MIXED)) == MIXED
    assert (
        dump_conditions(build_recipe(["gapft", {"half": HALF}, {"whole": MIXED["whole"]}])) == MIXED
    )
    assert list(dump_conditions(build_recipe({"b": {"selector": "a"}, "a": {}}))) == ["b", "a"]
    for conditions in (["gapft"], MIXED):
        again = build_recipe(dump_conditions(build_recipe(conditions)))
        assert again == build_recipe(conditions)
    assert build_recipe(MIXED).selectors() == ["gapft", "inclusion"]


def test_options_select_and_set_conditions(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    path.write_text(yaml.safe_dump({**content, "conditions": MIXED}))

    def resolve(*overrides: str, conditions: tuple[str, ...] = ()) -> Any:
        return dump_conditions(
            resolve_recipe(Options(str(path), overrides=overrides, conditions=conditions))
        )

    assert resolve(conditions=("half", "replay")) == {"half": HALF, "replay": {}}
    assert resolve(conditions=("gapft",)) == ["gapft"]
    assert resolve("conditions.half.params.share=0.7")["half"]["params"] == {"share": 0.7}
    changed = resolve("conditions.half.params.late=true", conditions=("half",))
    assert changed == {"half": {"selector": "inclusion", "params": {"share": 0.5, "late": True}}}


class SelectorLetters(ChangingLetters):
    """The letters task with two more selectors."""

    @property
    def plugins(self) -> list[str]:
        return [*super().plugins, str(self.folder / "mine.py")]

    def ids(self, arm: str) -> list[str]:
        """Return the problem ids of an arm's training set."""
        examples = read_examples(self.folder / "r" / "selections" / f"{arm}.parquet")
        return [example.problem_id for example in examples]


@pytest.fixture
def task(tmp_path: Path) -> SelectorLetters:
    (tmp_path / "mine.py").write_text(SELECTORS)
    return SelectorLetters(write_task(tmp_path).folder)


def test_two_conditions_share_one_selector(
    task: SelectorLetters,
) -> None:
    run = task.change(conditions=MIXED, budget={"n": 6})
    assert len({tuple(sorted(task.ids(f"{name}-seed13"))) for name in ("half", "whole")}) == 2
    manifest = run.manifest()
    assert manifest["recipe"]["conditions"] == MIXED
    assert manifest["budgets"]["half-seed13"]["condition"] == HALF
    assert "condition" not in manifest["budgets"]["gapft-seed13"]
    assert [key for key in manifest["rests_on"]["plugins"] if "selector" in key] == [
        "selector inclusion"
    ]
    report = (run.path / "report/report.md").read_text("utf-8").replace("\\", "")
    assert "| conditions.half.params.share | 0.5 |" in report
    assert task.find_differences() == []


def test_trained_condition_may_change(task: SelectorLetters) -> None:
    """Only the changed condition is selected and trained again; the rest is reused."""
    task.change(conditions=MIXED, budget={"n": 6})
    sealed_before, calls = task.hash_sealed("selections", "adapters"), len(task.read_calls())
    for key, other, changed_key in (
        ("half", {**HALF, "params": {"share": 0.7}}, "conditions.half.params.share"),
        ("half", {"selector": "reverse"}, "conditions.half.selector"),
    ):
        run = task.change(conditions={**MIXED, key: other}, budget={"n": 6})
        assert any(changed_key in line for line in run.changes.selection_changes), run.changes
        sealed_now = task.hash_sealed("selections", "adapters")
        assert {
            name.split("/")[1] for name in sealed_now if sealed_now[name] != sealed_before[name]
        } <= {
            *(f"half-seed{seed}" for seed in (13, 21)),
            *(f"half-seed{seed}.parquet" for seed in (13, 21)),
        }
        assert any(changed_key in line for line in run.manifest()["warnings"])
        assert task.find_differences() == []
    task.change(conditions=MIXED, budget={"n": 6})
    assert task.hash_sealed("selections", "adapters") == sealed_before
    assert {arm.partition("-")[0] for arm, *_ in task.read_calls()[calls:]} <= {"half"}
    new = {"more": {**HALF, "params": {"share": 0.7}}}
    run = task.change(conditions=new, budget={"n": 6})
    assert run.manifest()["recipe"]["conditions"] == MIXED | new
    assert task.hash_sealed("selections", "adapters").items() > sealed_before.items()
    assert task.find_differences() == []


def test_removed_condition_returns_with_its_settings(task: SelectorLetters) -> None:
    """A new seed drops the condition; the old seeds restore it from the manifest."""
    task.change(conditions=["gapft", {"half": HALF}], seeds=[13], budget={"n": 6})
    run = task.change(conditions=["gapft"], seeds=[21], budget={"n": 6})
    assert run.manifest()["recipe"]["conditions"] == ["gapft"]
    run = task.change(conditions=["gapft"], seeds=[13], budget={"n": 6})
    assert run.manifest()["recipe"]["conditions"] == {"gapft": {}, "half": HALF}
    run = task.change(
        conditions=["gapft", {"half": {"selector": "gapft"}}], seeds=[13], budget={"n": 6}
    )
    assert any("half.selector inclusion → gapft" in line for line in run.changes.selection_changes)


def test_untrained_selection_is_recomputed(task: SelectorLetters) -> None:
    keys: dict[str, Any] = {"budget": {"n": 6}, "seeds": [13]}
    task.change(*SELECTED, conditions={"half": HALF}, **keys)
    ids_before = task.ids("half-seed13")
    other = {**HALF, "params": {"share": 1}}
    run = task.change(*SELECTED, conditions={"half": other}, **keys)
    assert task.ids("half-seed13") != ids_before
    assert run.manifest()["budgets"]["half-seed13"]["condition"] == other
    assert task.find_differences() == []


def test_verify_names_the_changed_selector(task: SelectorLetters) -> None:
    task.change(*SELECTED, conditions={"half": HALF}, budget={"n": 6})
    plugin_file = task.folder / "mine.py"
    plugin_file.write_text(plugin_file.read_text().replace("e not in first", "e not in first[:1]"))
    _load_cached.cache_clear()
    with pytest.raises(UserError, match="inclusion"):
        verify(task.folder / "r", task.plugins)
