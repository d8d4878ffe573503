"""Results of third-party experiments are checked; errors name plugin, hook and line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gapft_harness.core.errors import PluginError
from gapft_harness.executors.local import LocalExecutor
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment import (
    View,
    find_experiments,
    list_report_parts,
    load_all_experiments,
)

HEAD = "from pydantic import BaseModel\nfrom gapft_harness import api\n\n\n"
HOOK = "\n\n@api.hookimpl\ndef register_experiments(register):\n    register('mine', Mine)\n"


def load_experiment(folder: Path, code: str) -> Any:
    """Write a plugin file with this code and return its experiment, the class ``Mine``."""
    (folder / "mine.py").write_text(HEAD + code + HOOK)
    plugins = load_plugins([str(folder / "mine.py")])
    return next(
        experiment for experiment in load_all_experiments(plugins) if experiment.name == "mine"
    )


def build_class(attributes: str = "", method: str = "") -> str:
    body = "".join(f"    {line}\n" for line in ("name = 'mine'", *filter(None, [attributes])))
    return f"class Mine(api.Experiment):\n{body}    {method}\n"


def check_blame(error: pytest.ExceptionInfo[Any], folder: Path) -> str:
    message = str(error.value)
    path = re.escape(str(folder / "mine.py"))
    assert f"experiment 'mine' (plugin {folder / 'mine.py'}, hook register_experiments)" in message
    assert re.search(rf"at {path}, line \d+", message), message
    assert "\n" not in message
    return message


CLASSES = {
    "class Mine:\n    name = 'mine'\n": "returned Mine, expected an Experiment",
    "class Mine(api.Experiment):\n    name = 'other'\n": "has the name 'other'",
    "class Mine(api.Experiment):\n    def __init__(self):\n        1 / 0\n": "ZeroDivisionError",
    build_class(
        "section = type('Lax', (BaseModel,), {})"
    ): "silently ignore unknown keys; derive them from",
}


@pytest.mark.parametrize("code", CLASSES)
def test_rejects_invalid_class(tmp_path: Path, code: str) -> None:
    with pytest.raises(PluginError) as caught:
        load_experiment(tmp_path, code)
    assert CLASSES[code] in str(caught.value)
    check_blame(caught, tmp_path)


METHODS = {
    "def faults(self, _): return 'one line'": "returned 'one line', expected a list of str",
    "def faults(self, _): return [3]": "returned 3 in a list, expected str",
    "def faults(self, _): yield 1 / 0": "failed: ZeroDivisionError",
    "def faults(self, _): raise SystemExit(0)": "failed: SystemExit",
}


@pytest.mark.parametrize("method", METHODS)
def test_rejects_wrong_method_result(tmp_path: Path, method: str) -> None:
    experiment = load_experiment(tmp_path, build_class(method=method))
    with pytest.raises(PluginError) as caught:
        experiment.faults(None)
    assert METHODS[method] in check_blame(caught, tmp_path)


def test_rejects_wrong_cost(tmp_path: Path) -> None:
    experiment = load_experiment(tmp_path, build_class(method="def cost(self, *_): return 4"))
    with pytest.raises(PluginError, match="returned 4 as cost, expected Cost"):
        experiment.cost(None, {})


STEPS = {
    "return ['a file']": "expected a generator",
    "yield ['a file']": "expected steps by file",
    "yield {'mine/x': 3}": "yielded 3, expected a Step",
    "yield {1 / 0: 3}": "ZeroDivisionError",
    "yield {'x.json': api.Step(len)}": "'x.json': expected",
    "yield {'mine/.x': api.Step(len)}": "'mine/.x': expected",
    "yield {'../x': api.Step(len)}": "'../x': expected",
    "yield {'adapters/x': api.Step(len)}": "'adapters/x': expected",
    "yield {'mine/x': view.decode(api.Arm('a', 1))}": "'mine/x': expected layout.decisions_path",
}


@pytest.mark.parametrize("body", STEPS)
def test_rejects_wrong_steps(tmp_path: Path, body: str) -> None:
    experiment = load_experiment(tmp_path, build_class(method=f"def steps(self, view): {body}"))
    with pytest.raises(PluginError) as caught:
        [*experiment.steps(View(cast(Any, None), cast(Any, None), ()))]
    assert STEPS[body] in check_blame(caught, tmp_path)


PART = "class Its(api.Part):\n    name = 'mine'\n    {}\n\n\n"
PARTS: dict[tuple[str, str], str] = {
    ("sections", "return [api.Section('t', ['text'])]"): "expected a block such as Text or Table",
    (
        "sections",
        "return [api.Section('t', [api.Table(['a'], [[1]])])]",
    ): "the cell 1, expected",
    ("sections", "return [api.Section('t', [api.Table(['a'], [['1', '2']])])]"): "a row of 2 cells",
    ("sections", "yield api.Section(1 / 0, [])"): "ZeroDivisionError",
    ("tables", "return [('../x.csv', [])]"): "invalid name '../x.csv'",
    ("tables", "yield 'x.csv', (1 / 0 for _ in 'a')"): "ZeroDivisionError",
    ("figures", "return [('x', 3)]"): "expected a name and a",
    ("results", "return {'rate': float('nan')}"): "nan, not a JSON number",
    ("summary", "return 'a line'"): "returned 'a line' as summary, expected Summary",
}


@pytest.mark.parametrize(("name", "body"), PARTS)
def test_rejects_wrong_report_part(tmp_path: Path, name: str, body: str) -> None:
    code = PART.format(f"def {name}(self, *_): {body}")
    experiment = load_experiment(
        tmp_path, code + build_class(method="def part(self): return Its()")
    )
    [part] = list_report_parts([experiment])
    with pytest.raises(PluginError) as caught:
        getattr(part, name)(None, None, None)
    assert PARTS[name, body] in check_blame(caught, tmp_path)


def test_reports_failing_figure(tmp_path: Path) -> None:
    code = PART.format("def figures(self, *_): yield 'x', lambda findings: 1 / 0")
    [part] = list_report_parts(
        [load_experiment(tmp_path, code + build_class(method="def part(self): return Its()"))]
    )
    [(_, draw)] = part.figures(None, None)
    with pytest.raises(PluginError) as caught:
        draw(None)  # type: ignore[arg-type]
    assert "ZeroDivisionError" in check_blame(caught, tmp_path)


@pytest.mark.parametrize(
    ("name", "message"), [("other", "not its name; expected 'mine'"), ("pool", "pool")]
)
def test_rejects_part_with_other_name(tmp_path: Path, name: str, message: str) -> None:
    code = PART.replace("mine", name).format("")
    experiment = load_experiment(
        tmp_path, code + build_class(method="def part(self): return Its()")
    )
    with pytest.raises(PluginError, match="names its part") as caught:
        list_report_parts([experiment])
    assert message in str(caught.value)


def test_experiments_are_loaded_once_per_context(tmp_path: Path) -> None:
    """A context with another recipe has its own experiments."""
    code = build_class("made = []", "def __init__(self): self.made.append(1)")
    (tmp_path / "mine.py").write_text(HEAD + code + HOOK)
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    with_it = check_recipe(content | {"experiments": {"mine": {}}}, "test")
    context = Context(
        RunDirectory(tmp_path, with_it),
        LocalExecutor({"workers": 1, "threads": 1}),
        [str(tmp_path / "mine.py")],
    )
    experiments = find_experiments(context)
    assert [experiment.name for experiment in experiments] == ["mine"]
    assert find_experiments(context) is experiments
    assert len(experiments[0].made) == 1  # type: ignore[attr-defined]
    plain = replace(context, run=RunDirectory(tmp_path, check_recipe(content, "test")))
    assert find_experiments(plain) == []
    assert find_experiments(context) is experiments
