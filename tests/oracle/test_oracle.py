"""The comparer reports each kind of difference, and permits only what an entry permits."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.oracle.compare import compare_contents, read_permitted

TABLE = {"problem_id": ["p1", "p2"], "status": ["pass", "fail"], "rate": [0.1, float("nan")]}
RESULTS = {"a,b.ci95.0": 0.3, "gap.seconds": 1.5, "n": 2}


@pytest.fixture
def contents(tmp_path: Path) -> tuple[Path, Path]:
    for folder in (tmp_path / "old/demo", tmp_path / "new/demo"):
        folder.mkdir(parents=True)
        (folder / "responses.json").write_text(json.dumps(TABLE))
        (folder / "results.json").write_text(json.dumps(RESULTS))
        save_file({"lora_A": np.ones((2, 3), np.float32)}, folder / "adapter.safetensors")
    return tmp_path / "old", tmp_path / "new"


def change(folder: Path, name: str, values: dict[str, Any]) -> None:
    path = folder / "demo" / f"{name}.json"
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def compare(contents: tuple[Path, Path], permitted: str = "") -> list[str]:
    """Compare two contents with permitted differences in YAML; add entries that are not used."""
    (contents[0] / "permitted.yaml").write_text(permitted)
    entries = read_permitted(contents[0] / "permitted.yaml")
    lines = compare_contents(*contents, "demo", entries, Counter())
    return [*lines, *(f"permits nothing: {entry.key}" for entry in entries if not entry.used)]


def test_equal_contents_agree(contents: tuple[Path, Path]) -> None:
    change(contents[1], "results", {"gap.seconds": 9.0})
    assert compare(contents) == []


@pytest.mark.parametrize(
    ("item", "key", "value", "line"),
    [
        ("responses", "status", ["pass", "pass"], 'changed: *: row 1 ("p2"): "fail" → "pass"'),
        ("responses", "status", ["pass"], "changed: *: 2 rows → 1 rows"),
        ("responses", "status", None, 'missing: * (was ["pass", "fail"])'),
        ("responses", "index", [0, 0], "additional: * ([0, 0])"),
        ("results", "a,b.ci95.0", 0.30000000000000004, "changed: *: 0.3 → 0.30000000000000004"),
        ("results", "n", 2.0, "changed: *: 2 → 2.0"),
    ],
)
def test_reports_difference(contents, item: str, key: str, value: Any, line: str) -> None:
    change(contents[1], item, {key: value})
    assert compare(contents) == [line.replace("*", f"demo/{item}  {key}")]
    entry = f"- {{in: '*', key: '{key}', kind: {line.partition(':')[0]}, cites: less.md}}"
    assert compare(contents, entry) == []


def test_reports_one_bit_of_an_adapter(contents: tuple[Path, Path]) -> None:
    path = contents[1] / "demo/adapter.safetensors"
    weights = load_file(path)
    weights["lora_A"].view(np.uint8).flat[4] ^= 1
    save_file(weights, path)
    assert "1 of 6 numbers differ" in compare(contents)[0]
    path.unlink()
    assert compare(contents) == ["missing: demo/adapter"]


def test_renames_keys_and_reports_unused_entries(contents: tuple[Path, Path]) -> None:
    change(contents[1], "results", {"a,b.ci95.0": None, "a,b.low": 0.3})
    renamed = "- {in: demo/*, key: '*.ci95.0', kind: renamed, to: '*.low', cites: reading.md}\n"
    assert compare(contents, renamed) == []
    unused = "- {in: '*', key: nothing, kind: changed, cites: less.md}"
    assert compare(contents, renamed + unused) == ["permits nothing: nothing"]


def test_moved_values_must_be_in_the_document(contents: tuple[Path, Path]) -> None:
    moved = "- {in: demo/results, key: 'a*', kind: moved, cites: reading.md}\n"
    added = "- {in: demo/results, key: b, kind: additional, cites: reading.md}\n"
    change(contents[1], "results", {"a,b.ci95.0": None, "b": 0.3})
    assert compare(contents, moved + added) == []
    change(contents[1], "results", {"b": 0.31})
    assert compare(contents, moved + added) == ["missing: demo/results  a,b.ci95.0 (was 0.3)"]
