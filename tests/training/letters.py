"""A run of the letters task that trains two conditions with two seeds."""

from __future__ import annotations

from pathlib import Path

from tests.letters_task import CONTAINS, write_letters
from tests.tiny_models import write_byte_llama


def prepare(folder: Path) -> list[str]:
    """Write task, data, plugin, model and recipe; return the command's arguments."""
    write_byte_llama(folder / "model")
    write_letters(folder, {"pool": 60, "audit": 40})
    (folder / "plugin.py").write_text(CONTAINS)
    (folder / "recipe.yaml").write_text(
        "name: letters\ndata: {task: letters}\n"
        f"model: {{args: {{pretrained: '{folder / 'model'}', dtype: float32, batch_size: 16}}}}\n"
        "search: {k: 4, temperature: 1.0, top_p: 1.0, chunk: 4}\n"
        "conditions: [gapft, all_verified]\nseeds: [13, 21]\n"
        "training: {dtype: float32, repetitions: 2}\nexecutor: {workers: 2}\n"
    )
    return ["run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py", "--run-dir"]
