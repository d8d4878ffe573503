"""The reader that recognises a log reads it, also that of a plugin."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from gapft_harness.compare.comparison import compare
from gapft_harness.compare.options import CompareOptions
from gapft_harness.compare.page import build_page
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Problem
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.outcomes.logs import open_log
from gapft_harness.recipe.bundled import find_recipe
from gapft_harness.recipe.reading import Setting, check_recipe, read_recipe
from gapft_harness.recipe.sections import LogResponses
from gapft_harness.stages.search.recorded import LogImport, describe_logs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def answers_plugin(tmp_path: Path) -> str:
    """The plugin of docs/plugins.md."""
    text = (ROOT / "docs" / "plugins.md").read_text()
    text = text.partition("## A log reader in one file")[2]
    found = re.findall(r"```python[^\n]*\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "answers.py").write_text(found)
    return str(tmp_path / "answers.py")


def write_table(path: Path, right: Sequence[str], samples: int = 0) -> str:
    """Write a log of the plugin's format, of single responses or of several to each question."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("question", "gold", "answer", "right", *["sample"][:samples]))
        for row, verdict in enumerate(right):
            for number in range(samples or 1):
                cells = f"{row}+1?", row + 1, f"\\boxed{{{row + 1}}} {path.stem}", verdict
                writer.writerow((*cells, *[number][:samples]))
    return str(path)


def test_compares_plugin_logs(answers_plugin: str, tmp_path: Path) -> None:
    before = write_table(tmp_path / "before.csv", ["yes", "no", "no", "no"])
    after = write_table(tmp_path / "after.csv", ["yes", "yes", "yes", "no"])
    comparison = compare(before, [after], CompareOptions(plugin_files=[answers_plugin]))
    (paired,) = comparison.models.values()
    assert (paired.before, paired.after, paired.gained, paired.lost) == (0.25, 0.75, 2, 0)
    build_page(comparison, written=True).write(tmp_path / "out")
    assert "boxed{2} after" in (tmp_path / "out/tables/items.csv").read_text()


def test_search_takes_plugin_logs(answers_plugin: str, tmp_path: Path) -> None:
    greedy = write_table(tmp_path / "greedy.csv", ["yes", "no"])
    samples = write_table(tmp_path / "samples.csv", ["no", "yes"], samples=2)
    problems = [
        Problem(f"p{row}", f"{row}+1?", row + 1, {"question": f"{row}+1?"}) for row in range(2)
    ]
    logs = LogResponses(audit=(samples,), greedy={"audit": greedy}, on=("question",))
    LogImport(logs, problems, "audit", 2, [answers_plugin]).write(tmp_path / "responses.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "responses.jsonl").open()]
    passed = {(line["id"], line["index"]): line["passed"] for line in lines}
    assert passed == {
        ("p0", "greedy"): True, ("p0", 0): False, ("p0", 1): False,
        ("p1", "greedy"): False, ("p1", 0): True, ("p1", 1): True,
    }  # fmt: skip


def test_edited_reader_is_another_search(answers_plugin: str, tmp_path: Path) -> None:
    table = write_table(tmp_path / "samples.csv", ["no"], samples=2)
    setting = Setting("search.responses", {"audit": [table], "on": ["question"]}, "--set")
    recipe = check_recipe(read_recipe(find_recipe("demo")), "demo", [setting])
    source = Path(answers_plugin).read_text()
    described = []
    for number, text in enumerate((source, source, source.replace('"yes"', '"no"'))):
        plugin = tmp_path / str(number) / "answers.py"
        plugin.parent.mkdir()
        plugin.write_text(text)
        described.append(describe_logs(recipe, "audit", load_plugins([str(plugin)])))
    assert described[0] == described[1] != described[2]


def test_names_plugins_that_claim_same_file(answers_plugin: str, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(Path(answers_plugin).read_text().replace('"answers"', '"others"'))
    with pytest.raises(UserError, match=r"'answers'.*'others'"):
        open_log(tmp_path / "a.csv", [answers_plugin, str(other)])


def test_ignores_json_files_of_other_programs(tmp_path: Path) -> None:
    log = {"version": 2, "status": "success", "eval": {"task": "sums"}, "samples": []}
    others = {"metrics.json": {"accuracy": 0.5}, "eval.json": {"eval": {}}, "list.json": [1]}
    for name, content in {**others, "2026_sums.json": log}.items():
        (tmp_path / name).write_text(json.dumps(content, indent=2))
    readers = {path.name: load_plugins().find_log_reader(path) for path in tmp_path.iterdir()}
    assert {name for name, reader in readers.items() if reader} == {"2026_sums.json"}
    (tmp_path / "2026_sums.json").unlink()
    with pytest.raises(UserError):
        compare(str(tmp_path), [str(tmp_path)], CompareOptions())
