"""What a stranger's experiment gives is checked; errors name it, its plugin, hook and line."""

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


def made(folder: Path, code: str) -> Any:
    """The experiment of a plugin file with this code, in which it is the class ``Mine``."""
    (folder / "mine.py").write_text(HEAD + code + HOOK)
    plugins = load_plugins([str(folder / "mine.py")])
    return next(each for each in load_all_experiments(plugins) if each.name == "mine")


def of(attributes: str = "", method: str = "") -> str:
    body = "".join(f"    {line}\n" for line in ("name = 'mine'", *filter(None, [attributes])))
    return f"class Mine(api.Experiment):\n{body}    {method}\n"


def blamed(error: pytest.ExceptionInfo[Any], folder: Path) -> str:
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
    of("section = type('Lax', (BaseModel,), {})"): "silently ignore unknown keys; derive them from",
}


@pytest.mark.parametrize("code", CLASSES)
def test_a_class_that_is_none(tmp_path: Path, code: str) -> None:
    with pytest.raises(PluginError) as caught:
        made(tmp_path, code)
    assert CLASSES[code] in str(caught.value)
    blamed(caught, tmp_path)


METHODS = {
    "def faults(self, _): return 'one line'": "returned 'one line', expected a list of str",
    "def faults(self, _): return [3]": "returned 3 in a list, expected str",
    "def faults(self, _): yield 1 / 0": "failed: ZeroDivisionError",
    "def faults(self, _): raise SystemExit(0)": "failed: SystemExit",
}


@pytest.mark.parametrize("method", METHODS)
def test_a_method(tmp_path: Path, method: str) -> None:
    experiment = made(tmp_path, of(method=method))
    with pytest.raises(PluginError) as caught:
        experiment.faults(None)
    assert METHODS[method] in blamed(caught, tmp_path)


def test_what_it_costs_is_a_cost(tmp_path: Path) -> None:
    experiment = made(tmp_path, of(method="def cost(self, *_): return 4"))
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
def test_its_steps(tmp_path: Path, body: str) -> None:
    experiment = made(tmp_path, of(method=f"def steps(self, view): {body}"))
    with pytest.raises(PluginError) as caught:
        [*experiment.steps(View(cast(Any, None), cast(Any, None), ()))]
    assert STEPS[body] in blamed(caught, tmp_path)


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
def test_its_part_of_the_report(tmp_path: Path, name: str, body: str) -> None:
    code = PART.format(f"def {name}(self, *_): {body}")
    experiment = made(tmp_path, code + of(method="def part(self): return Its()"))
    [part] = list_report_parts([experiment])
    with pytest.raises(PluginError) as caught:
        getattr(part, name)(None, None, None)
    assert PARTS[name, body] in blamed(caught, tmp_path)


def test_a_figure_that_cannot_be_drawn(tmp_path: Path) -> None:
    code = PART.format("def figures(self, *_): yield 'x', lambda findings: 1 / 0")
    [part] = list_report_parts([made(tmp_path, code + of(method="def part(self): return Its()"))])
    [(_, draw)] = part.figures(None, None)
    with pytest.raises(PluginError) as caught:
        draw(None)  # type: ignore[arg-type]
    assert "ZeroDivisionError" in blamed(caught, tmp_path)


@pytest.mark.parametrize(
    ("name", "said"), [("other", "not its name; expected 'mine'"), ("pool", "pool")]
)
def test_a_part_of_another_name(tmp_path: Path, name: str, said: str) -> None:
    code = PART.replace("mine", name).format("")
    experiment = made(tmp_path, code + of(method="def part(self): return Its()"))
    with pytest.raises(PluginError, match="names its part") as caught:
        list_report_parts([experiment])
    assert said in str(caught.value)


def test_experiments_are_made_and_checked_once_for_a_context(tmp_path: Path) -> None:
    """Another recipe is another context's."""
    code = of("made = []", "def __init__(self): self.made.append(1)")
    (tmp_path / "mine.py").write_text(HEAD + code + HOOK)
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    with_it = check_recipe(content | {"experiments": {"mine": {}}}, "test")
    context = Context(
        RunDirectory(tmp_path, with_it),
        LocalExecutor({"workers": 1, "threads": 1}),
        [str(tmp_path / "mine.py")],
    )
    found = find_experiments(context)
    assert [each.name for each in found] == ["mine"]
    assert find_experiments(context) is found
    assert len(found[0].made) == 1  # type: ignore[attr-defined]
    plain = replace(context, run=RunDirectory(tmp_path, check_recipe(content, "test")))
    assert find_experiments(plain) == []
    assert find_experiments(context) is found
