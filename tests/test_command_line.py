"""The command line: options, completion, questions, progress, and folders of users."""

from __future__ import annotations

import functools
import io
import itertools
import json
import operator
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from rich.console import Console
from typer.testing import CliRunner

from gapft_harness.cli.display import Display
from gapft_harness.cli.main import app
from gapft_harness.cli.summary import print_summary
from gapft_harness.report import write_report
from tests.kit.command import call, gapft
from tests.kit.kills import list_changed_files, read_files
from tests.kit.patience import PATIENCE_S
from tests.kit.plugins import write_plugin
from tests.kit.runs import RunAt
from tests.report import planted

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


# Before results change: a warning, and a question on a terminal


@pytest.mark.thorough
def test_warns_before_headline_changes(run_at: RunAt) -> None:
    done = run_at("reported", "demo").resume("--seed", 14)
    assert done.returncode == 0, done.stderr
    message = " ".join(done.stderr.split())
    assert message.index("under seeds 13, 14") < message.index("✓ train")


def test_asks_on_terminal_before_change(run_at: RunAt) -> None:
    run = run_at("reported", "demo")
    before = read_files(run.path)
    main, side = pty.openpty()
    command = [sys.executable, "-m", "gapft_harness.cli.main", "run", str(run.path), "--seed", "14"]
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side) as process:
        os.close(side)
        os.write(main, b"n\n")
        output = b""
        while True:
            try:
                output += (part := os.read(main, 4096))
            except OSError:  # the command has ended
                break
            if not part:
                break
    os.close(main)
    assert process.returncode == 2, output.decode()
    assert list_changed_files(before, read_files(run.path)) == []


# Folders of users stay as they are


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("thesis.tex", "mine"),
        ("run.json", '{"name": "a web page"}'),
        ("run.json", '{"format": 8, "outputs": {"pool": {"place": "0"}}}'),
        ("run.json", "["),
        ("film.mkv.partial", "half"),
        ("log.jsonl", ""),
    ],
)
def test_run_leaves_a_folder_of_the_user(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    done = call("run", "demo", "--run-dir", tmp_path)
    assert done.returncode == 2
    assert "recipe.yaml" in done.stderr
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    texts.pop("run.lock", None)
    assert texts == {name: content}


# Warnings of libraries are hidden, their errors are not

NOISY = """
import logging
import warnings

log = logging.getLogger("noisy")
log.warning("failed to load a kernel: no module named kernels")
warnings.warn("this way is deprecated", FutureWarning)
"""


@pytest.mark.parametrize(
    ("more", "expected"), [("", ""), ('log.error("the disk is on fire")', "the disk is on fire")]
)
def test_hides_library_warnings_but_not_errors(more: str, expected: str, tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "noisy.py", NOISY + more, verifiers=[])
    done = gapft("list", "plugins", "--plugin", plugin)
    assert done.returncode == 0
    assert done.stderr == (f"noisy: {expected}\n" if expected else "")


# Progress


def report(terminal: bool, *calls: tuple[Any, ...]) -> list[str]:
    """Report progress on a terminal or a file, every twenty seconds; return the new outputs."""
    text, outputs, seconds = io.StringIO(), list[str](), itertools.count(step=20.0)
    now = next(seconds)
    console = Console(
        file=text, width=80, highlight=False, force_terminal=terminal, color_system=None
    )
    display = Display(console, clock=lambda: now)
    for reported in calls:
        length = len(text.getvalue())
        display.report_progress(*reported)
        outputs.append(text.getvalue()[length:])
        now = next(seconds)
    return outputs


def test_shows_each_note_once() -> None:
    notes = ("memory ran out", "memory ran out", "another")
    shown = report(False, *(("search pool", 3, 400, 9, note) for note in notes))
    assert "memory ran out" in shown[0]
    assert shown[1] == ""
    assert "another" in shown[2]


def test_prints_one_line_a_minute_or_bars_on_a_terminal() -> None:
    calls = [("audit a", done, 1000) for done in range(9)]
    shown = [bool(text) for text in report(False, *calls)]
    assert shown == [number in (3, 6) for number in range(9)]
    assert report(True, *calls) == [""] * 9


# The closing lines


def test_first_screen_has_warnings_answer_and_every_condition(tmp_path: Path) -> None:
    """They repeat cells of the page."""
    text, folder = io.StringIO(), tmp_path / "report"
    write_report(planted.build_inputs(sizes=(40, 35, 25)), folder)
    print_summary(folder / "results.json", Console(file=text, width=80, highlight=False))
    lines = text.getvalue().splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("warning: pool: all 8 samples")
    page = (tmp_path / "report/index.md").read_text("utf-8")
    for label in ("source, greedy", "GapFT", "uniform", "replay", "all verified *"):
        (line,) = (line for line in lines if line.startswith(f" {label}  "))
        cells = [cell for cell in line.split("  ") if cell.strip()]
        row = next(
            row for row in page.splitlines() if row.startswith(f"| {label} ".replace("*", "\\*"))
        )
        assert [cell.strip() for cell in cells[1:]] == [
            cell.strip() for cell in row.strip("|").split("|")[1 : len(cells)]
        ]
