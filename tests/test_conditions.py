"""Conditions that name a selector, its parameters and their number of slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import resolve_recipe
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.stages.selection.choosing import count_condition_slots

HALF = {"selector": "inclusion", "params": {"share": 0.5}}
MIXED = {"gapft": {}, "half": HALF, "whole": {"selector": "inclusion", "params": {"share": 1}}}


def build_recipe(conditions: Any, **more: Any) -> Recipe:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    return check_recipe(content | more | {"conditions": conditions}, "test")


def dump_conditions(parsed: Recipe) -> Any:
    return parsed.model_dump(mode="json")["conditions"]


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


@given(st.integers(0, 6), st.integers(1, 6))
def test_slots_are_counted_from_the_pool(solved: int, recovered: int) -> None:
    states = {"G": solved, "S": recovered, "U": 3}
    parsed = build_recipe({"a": {"n": "verified"}, "b": {"n": 7}, "c": {}, "d": {"n": "recovered"}})
    expected = {"a": solved + recovered, "b": 7, "c": recovered, "d": recovered}
    assert count_condition_slots(parsed, lambda _: states) == expected
