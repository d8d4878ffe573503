"""The workflows of a public home, as far as they can be held to the repository without one."""

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


def read(path: Path) -> dict[Any, Any]:
    """A workflow; YAML 1.1 reads its key ``on`` as true."""
    content: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return {"on" if key is True else key: value for key, value in content.items()}


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def shell(path: Path) -> str:
    """All that a workflow runs itself."""
    return "\n".join(step["run"] for step in steps(path) if "run" in step)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_step_runs_something_that_is_there(path: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(MAKE.findall(shell(path))) <= targets
    for step in steps(path):
        assert ("run" in step) != ("uses" in step), step
        assert re.fullmatch(r"[\w-]+/[\w-]+@[\w./]+", step.get("uses", "a/b@c")), step
    for script in (step["run"] for step in steps(path) if "run" in step):
        plain = re.sub(r"\$\{\{.*?\}\}", "x", script)
        subprocess.run(["bash", "-n", "-c", plain], check=True)


def test_every_python_that_the_package_names_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    named = [f"3.{c.removeprefix(prefix)}" for c in project["classifiers"] if c.startswith(prefix)]
    (job,) = read(ROOT / ".github/workflows/ci.yml")["jobs"].values()
    tried = job["strategy"]["matrix"]["python"]
    assert set(named) <= set(tried)
    assert project["requires-python"] == f">={tried[0]}"


def test_the_citation_is_of_this_version() -> None:
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (said["version"], said["license"]) == (__version__, project["license"])
    assert said["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= said.keys()
