"""The commands of docs/machines.md for several GPUs, a cluster and a server, with a small model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tests.engines.needs_vllm  # noqa: F401
from gapft_harness.executors.ray_cluster import start_ray
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_source
from tests.end_to_end.readme import read_blocks
from tests.kit.command import succeed
from tests.kit.report_tables import read_results

PAGE = Path(__file__).parents[2] / "docs" / "machines.md"

#: Replacements for what a test machine lacks: the paper's model and data, GPUs and cores.
INSTEAD = {
    "paper/llama-logiqa": "demo",
    "executor.gpus=1": "executor.gpus=0",
    "executor.workers=8": "executor.workers=2",
    "executor.workers=32": "executor.workers=2",
}
SMALL = [
    *("--condition", "gapft", "--seed", 13, "--set", "data.pool_limit=40"),
    *("--set", "data.audit_limit=20", "--set", "search.k=4", "--set", "training.repetitions=2"),
]


def find_command(word: str) -> str:
    """Return the page's only command that contains a word, without line breaks."""
    text = "".join(b.text for b in read_blocks(PAGE) if b.language == "console")
    commands = re.findall(r"^gapft (run .*)$", text.replace("\\\n", " "), re.M)
    [match] = [line for line in commands if word in line]
    return str(match)


def run_command(line: str, folder: Path, **replacements: str) -> dict[str, Any]:
    """Run a command with the replacements; return the description of its model."""
    for page_text, local_text in (INSTEAD | replacements).items():
        line = line.replace(page_text, local_text)
    succeed(*line.split(), *SMALL, "--run-dir", "run", cwd=folder)
    assert read_results(folder / "run")["conditions"]
    return read_source(RunDirectory.open(folder / "run"))


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a Ray cluster that other processes can join."""
    start_ray(2)
    import ray  # Ray reads its settings on import

    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


def test_eight_gpus_of_one_machine(tmp_path: Path) -> None:
    source = run_command(find_command("executor.workers=8"), tmp_path)
    assert source["backend"] == "vllm"


def test_a_ray_cluster(tmp_path: Path, cluster: str) -> None:
    source = run_command(find_command("head:6379"), tmp_path, **{"head:6379": cluster})
    assert source["backend"] == "vllm"


def test_an_existing_server(tmp_path: Path, url: str) -> None:
    source = run_command(
        find_command("local-completions"), tmp_path, **{"http://localhost:8000/v1": url}
    )
    assert source["url"] == f"{url}/completions"
