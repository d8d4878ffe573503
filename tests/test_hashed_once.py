"""The weights of a model are hashed once for all commands, runs and processes on a machine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run

#: A plugin that every process loads. It writes a line each time the weights are read for a hash;
#: libraries that load the weights do not open the file through Python or do so elsewhere.
_COUNT = """
import os
import sys
from gapft_harness.api import hookimpl


def count(event, arguments):
    if event != "open" or not str(arguments[0]).endswith("model/model.safetensors"):
        return
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "sha256":
            with open(LOG, "a") as log:
                log.write(f"{os.getpid()} {sys.argv}\\n")
            return
        frame = frame.f_back


sys.addaudithook(count)


@hookimpl
def register_selectors(register):
    register("counting", lambda request: [])
"""


@pytest.mark.thorough
def test_hashes_model_weights_once(tmp_path: Path) -> None:
    prepare_letters_run(tmp_path)
    recipe = (tmp_path / "recipe.yaml").read_text()
    (tmp_path / "recipe.yaml").write_text(recipe.replace("[13, 21]", "[13]"))
    cache, log = tmp_path / "cache", tmp_path / "log"
    (tmp_path / "count.py").write_text(f"LOG = {str(log)!r}\n{_COUNT}")
    weights = tmp_path / "model" / "model.safetensors"
    _pad_weights(weights, 3 << 20)
    time.sleep(2.1)  # recently written files are always hashed again
    environment = {"XDG_CACHE_HOME": str(cache)}
    more = ("--include-path", "tasks", "--plugin", "plugin.py", "--plugin", "count.py")
    for words in (
        ("run", "recipe.yaml", "--run-dir", "one", *more, "--dry-run"),
        ("run", "recipe.yaml", "--run-dir", "one", *more),
        ("verify", "one", *more[2:]),
        ("run", "recipe.yaml", "--run-dir", "two", *more, "--set", "search.k=5"),
    ):
        succeed(*words, cwd=tmp_path, env=environment)
    assert len(log.read_text().splitlines()) == 1, log.read_text()


def _pad_weights(weights: Path, size: int) -> None:
    """Pad the header of a weights file, so that the file is large enough for the hash cache."""
    content = weights.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].rstrip()
    padded = header + b" " * (-len(header) % 8 + size)
    weights.write_bytes(len(padded).to_bytes(8, "little") + padded + content[8 + length :])
