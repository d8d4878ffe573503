"""A plugin's hash covers the modules that it imports from its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.command import gapft
from tests.kit.letters import CONTAINS, write_letters
from tests.kit.tiny_models import write_byte_llama

PLUGIN = CONTAINS.replace(
    "class Contains", "import helpers_of_letters\n\n\nclass Contains"
).replace("g in r and", "helpers_of_letters.holds(g, r) and")


@pytest.mark.thorough
def test_edited_helper_module_reruns_the_run(tmp_path: Path) -> None:
    write_byte_llama(tmp_path / "model")
    write_letters(tmp_path, {"pool": 8, "audit": 8})
    (tmp_path / "plugin.py").write_text(PLUGIN)
    helper = tmp_path / "helpers_of_letters.py"
    helper.write_text("def holds(gold, text):\n    return gold in text\n")
    (tmp_path / "recipe.yaml").write_text(
        "name: letters\ndata: {task: letters}\nsearch: {k: 2, temperature: 1.0}\n"
        f"model: {{args: {{pretrained: '{tmp_path / 'model'}', dtype: float32, device: cpu}}}}\n"
    )
    command = ["--include-path", "tasks", "--plugin", "plugin.py", "--only", "search"]
    env = {"PYTHONPATH": str(tmp_path)}

    def run() -> tuple[set[str], int, int]:
        done = gapft("run", "recipe.yaml", "--run-dir", "run", *command, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        manifest = json.loads((tmp_path / "run/manifest.json").read_text())
        passed = manifest["verdict_counts"]["pool"].get("pass", 0)
        judged, generated = (
            {path.parent.name for path in tmp_path.glob(f".store/{step}/*/made_from.json")}
            for step in ("judge", "generate")
        )
        return judged, passed, len(generated)

    first = run()
    assert run() == first
    helper.write_text("def holds(gold, text):\n    return True\n")
    done = gapft("run", "run", "--only", "states", "--plugin", "plugin.py", cwd=tmp_path, env=env)
    assert done.returncode == 2, "other stages stop"
    assert "contains" in done.stderr
    again = run()
    assert again[0] > first[0]
    assert again[1] == 8 * 3 > first[1]
    assert again[2] == first[2], "responses are reused"
