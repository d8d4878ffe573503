"""The command line: help, lm_eval's option names, shell completion."""

from __future__ import annotations

import functools
import json
import operator
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from gapft_harness.cli.main import app
from tests.kit.patience import PATIENCE_S

DRY = ("--model-args", "pretrained=bundled:demo", "--set", "training.dtype=float32", "--dry-run")


def run_command(*arguments: str) -> str:
    """Return the output of a command on a terminal of 80 columns."""
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}, prog_name="gapft")
    assert done.exit_code == 0, done.output
    return done.output


def parse_recipe(text: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(text.split("# conditions")[0])
    return content


def test_run_accepts_lm_eval_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = run_command(
        "run", "--task", "gapft_demo", "--include-path", ".", "--set", "data.pool_limit=3",
        "--set", "data.audit_limit=3", "--set", "model.backend=dummy", *DRY,
    )  # fmt: skip
    lm_eval_output = run_command(
        "run", "--tasks", "gapft_demo", "--include_path", ".", "--limit", "3", "--model", "dummy",
        *(option.replace("model-args", "model_args") for option in DRY),
    )  # fmt: skip
    assert parse_recipe(lm_eval_output) == parse_recipe(output)
    assert "pool_limit: 3" in lm_eval_output


def test_set_overrides_every_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sets = {
        "model.backend": "dummy",
        "data.pool_limit": 5,
        "data.audit_limit": 7,
        "data.task": "gapft_demo_pool",
        "model.args.pretrained": "none",
        "conditions": ["uniform"],
        "seeds": [3],
    }
    options = ("--task", "gapft_demo", "--model", "hf", "--limit", "2", "--condition", "gapft")
    options += ("--model-args", "pretrained=bundled:demo", "--seed", "1")
    overrides = [f"--set={key}={json.dumps(value)}" for key, value in sets.items()]
    done = CliRunner().invoke(app, ["run", "demo", *options, *overrides, "--dry-run"])
    content = parse_recipe(done.output)
    content["conditions"] = [*content["conditions"]]
    for key, value in sets.items():
        assert functools.reduce(operator.getitem, key.split("."), content) == value, key


def test_has_eight_commands_and_few_options() -> None:
    commands = typer.main.get_command(app).commands
    assert [*commands] == ["run", "verify", "compare", "gap", "export", "list", "store", "doctor"]
    options = [p for command in commands.values() for p in command.params if p.opts[0][0] == "-"]
    assert len(options) <= 65


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gapft run paper/llama", {"paper/llama-logiqa", "paper/llama-reclor"}),
        ("gapft run --only sea", {"search"}),
        ("gapft run --tasks gapft_demo_po", {"gapft_demo_pool", "gapft_demo_pool_passk"}),
        ("gapft run my_reci", set()),
    ],
)
def test_shell_completes_names(line: str, expected: set[str], tmp_path: Path) -> None:
    typed = line.split()
    done = subprocess.run(
        [Path(sys.executable).with_name("gapft")],
        cwd=tmp_path,
        env={
            **os.environ,
            "_GAPFT_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(typed) - 1),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert set(done.stdout.split()) == expected, done.stderr
