"""The CI workflows agree with the repository."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness.version import __version__

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKE = re.compile(r"^\s*make (\w[\w-]*)", re.MULTILINE)


def read_workflow(path: Path) -> dict[Any, Any]:
    """Read a workflow; YAML 1.1 reads its key ``on`` as true."""
    content: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return {"on" if key is True else key: value for key, value in content.items()}


def list_steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read_workflow(path)["jobs"].values() for step in job["steps"]]


def join_shell_scripts(path: Path) -> str:
    """Join the shell scripts of a workflow."""
    return "\n".join(step["run"] for step in list_steps(path) if "run" in step)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_steps_use_existing_targets(path: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(MAKE.findall(join_shell_scripts(path))) <= targets
    for step in list_steps(path):
        assert ("run" in step) != ("uses" in step), step
        assert re.fullmatch(r"[\w-]+/[\w-]+@[\w./]+", step.get("uses", "a/b@c")), step
    for script in (step["run"] for step in list_steps(path) if "run" in step):
        plain = re.sub(r"\$\{\{.*?\}\}", "x", script)
        subprocess.run(["bash", "-n", "-c", plain], check=True)


def test_ci_covers_declared_python_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    declared = [
        f"3.{c.removeprefix(prefix)}" for c in project["classifiers"] if c.startswith(prefix)
    ]
    (job,) = read_workflow(ROOT / ".github/workflows/ci.yml")["jobs"].values()
    tested = job["strategy"]["matrix"]["python"]
    assert set(declared) <= set(tested)
    assert project["requires-python"] == f">={tested[0]}"


def test_citation_matches_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (citation["version"], citation["license"]) == (__version__, project["license"])
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
