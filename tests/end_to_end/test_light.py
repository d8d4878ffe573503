"""The environment of ``pip install gapft-harness`` without extras, hence without torch.

It holds the declared dependencies and their dependencies, so undeclared packages are missing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tests.kit.patience import COMMAND_S

ROOT = Path(__file__).parents[2]


def find_requirements(
    name: str, extras: frozenset[str], seen: set[tuple[str, str]]
) -> Iterator[Distribution]:
    """Yield a distribution and its requirements on this platform, with some extras."""
    try:
        package = distribution(name)
    except PackageNotFoundError:  # for another platform or Python
        return
    if (name, "") not in seen:
        yield package
    for extra in ("", *extras):
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in package.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                yield from find_requirements(requirement.name, frozenset(requirement.extras), seen)


@pytest.fixture(scope="module")
def light_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python interpreter of the light environment."""
    folder = tmp_path_factory.mktemp("light")
    packages = folder / "packages"
    packages.mkdir()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    requirements, seen = map(Requirement, declared["dependencies"]), set[tuple[str, str]]()
    for package in (
        dependency
        for requirement in requirements
        for dependency in find_requirements(requirement.name, frozenset(requirement.extras), seen)
    ):
        for top in {file.parts[0] for file in package.files or () if file.parts[0] != ".."}:
            installed = Path(str(package.locate_file(top)))
            if installed.exists() and not (packages / top).exists():
                (packages / top).symlink_to(installed)
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    (site / "light.pth").write_text(f"{packages}\n{ROOT}\n")
    return folder / "venv" / "bin" / "python"


def run_gapft(
    light_python: Path, *arguments: object, cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Run gapft in the light environment."""
    path = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    command = [light_python, "-m", "gapft_harness.cli.main", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=path, capture_output=True, text=True, check=False, timeout=COMMAND_S
    )


def test_environment_lacks_the_extras(light_python: Path) -> None:
    code = "import importlib.util as u; print([n for n in {!r} if u.find_spec(n)])"
    names = ("torch", "transformers", "peft", "accelerate", "vllm", "lm_eval", "sympy")
    output = subprocess.run(
        [light_python, "-c", code.format(names)], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "['lm_eval', 'sympy']"


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "--example", "--out", "{}/example"),
        ("compare", "runs/before", "runs/after"),
        ("compare", "runs/before", "--task", "gapft_demo", "--verifier", "math"),
        ("gap", "runs/demo"),
        ("list", "tasks"),
        ("doctor",),
        ("export", "runs/demo", "--to", "dataset", "--out", "{}/dataset"),
        ("export", "runs/demo", "--to", "trl", "--out", "{}/trl"),
    ],
    ids=lambda arguments: " ".join(arguments[:3]),
)
def test_log_and_run_commands_work(
    light_python: Path, readme_run: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = run_gapft(
        light_python, *(argument.format(tmp_path) for argument in arguments), cwd=readme_run
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if arguments == ("compare", "runs/before", "runs/after"):
        assert done.stdout == run_gapft(Path(sys.executable), *arguments, cwd=readme_run).stdout
    if arguments == ("doctor",):
        assert "torch: NOT installed; pip install 'gapft-harness[hf]'" in done.stdout


def test_verify_needs_no_peft(light_python: Path, readme_run: Path) -> None:
    done = run_gapft(
        light_python, "verify", "runs/demo", "--plugin", "most_reachable.py", cwd=readme_run
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verified: the arms differ only" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "demo", "--run-dir", "{}/run"),
        ("run", "demo", "--dry-run"),
        ("gap", "gapft_demo", "--model-args", "pretrained=x", "--limit", "2"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_model_commands_name_the_missing_extra(
    light_python: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = run_gapft(
        light_python, *(argument.format(tmp_path) for argument in arguments), cwd=tmp_path
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "gapft: the package torch is required, but is not installed: pip install"
    )


def test_example_equals_readmes_first_fifty_problems(readme_run: Path) -> None:
    for side in ("before", "after"):
        (shipped,) = (ROOT / "gapft_harness/demo/logs" / side).glob("samples_*.jsonl")
        (log,) = (readme_run / "runs" / side).rglob("samples_*.jsonl")
        assert shipped.read_text().splitlines() == log.read_text().splitlines()[:50]
    shipped = sum(file.stat().st_size for file in (ROOT / "gapft_harness/demo/logs").rglob("*.*"))
    assert shipped <= 100_000


def test_action_compares_in_light_environment(
    light_python: Path, readme_run: Path, tmp_path: Path
) -> None:
    """Run the action's second step in a shell; ``light_python`` replaces its install step."""
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    install, compare = action["runs"]["steps"]
    assert install["run"].endswith('"$GITHUB_ACTION_PATH"')
    command = tmp_path / "bin" / "gapft"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {light_python} -m gapft_harness.cli.main "$@"\n')
    command.chmod(0o755)
    summary = tmp_path / "summary.md"
    action_inputs = {"before": "runs/before", "after": "runs/after", "fail-if-worse": "0.01"}

    def run(**inputs: str) -> subprocess.CompletedProcess[str]:
        summary.write_text("")
        values = {
            name: specification.get("default", "")
            for name, specification in action["inputs"].items()
        } | inputs
        env = {
            key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], text)
            for key, text in compare["env"].items()
        }
        env["PATH"] = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
        env["GITHUB_STEP_SUMMARY"] = str(summary)
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", compare["run"]],
            cwd=readme_run,
            env={**os.environ, "PYTHONPATH": "", **env},
            capture_output=True,
            text=True,
            check=False,
        )

    done = run(**action_inputs, arguments="--show 1")
    assert done.returncode == 0, done.stderr
    assert "PASS: 1 of 1 checks." in summary.read_text()
    assert "| runs/after | 51.0% |" in summary.read_text()
    done = run(**action_inputs | {"before": "runs/after", "after": "runs/before"})
    assert done.returncode == 1
    assert "BLOCK: 1 of 1 checks." in summary.read_text()
    policy, junit = tmp_path / "policy.yaml", tmp_path / "gate.xml"
    policy.write_text("tasks: {gapft_demo: {pass@1: {warn: 0}}}")
    done = run(before="runs/before", after="runs/after", policy=str(policy), junit=str(junit))
    assert done.returncode == 0, done.stderr
    assert "PASS: 1 of 1 checks." in summary.read_text()
    assert "PASS: runs/after" in junit.read_text()
    done = run(**action_inputs | {"before": '$(touch "it ran")'})
    assert done.returncode == 2
    assert not (readme_run / "it ran").exists()
