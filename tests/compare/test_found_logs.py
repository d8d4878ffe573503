"""Logs are found by path, folder, pattern and name; samples are read from every form of log."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.outcomes.logs import find_runs
from tests.compare.logs import compare_logs, join_notes, row, write_log


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return write_log(tmp_path / "before", [0, 1, 0, 1])


def test_versions_of_the_task_are_compared(before: Path, tmp_path: Path) -> None:
    """Under its name a log has a version; under another name a note says that none is known."""
    after = write_log(tmp_path / "after", [1] * 4, version=2)
    with pytest.raises(UserError):
        compare_logs(before, after)
    renamed = after.rename(tmp_path / "renamed.jsonl")
    assert "Versions" in join_notes(compare_logs(before, renamed))


def test_sample_formats_give_equal_states(before: Path, tmp_path: Path) -> None:
    """Compare verdicts of our tasks, pass@1 of a stock task, and one log per sample."""
    passing = [2, 0, 1, 0]
    after = write_log(tmp_path / "after", [1] * 4)
    samples = {
        "verdicts": [
            row(i, 0, verdicts=[{"status": s} for s in ["pass"] * c + ["timeout"] * (2 - c)])
            for i, c in enumerate(passing)
        ],
        "pass": [row(i, 0, resps=[["x", "y"]], **{"pass@1": c / 2}) for i, c in enumerate(passing)],
    }
    samples_choices = [
        [str(write_log(tmp_path / name, rows=rows))] for name, rows in samples.items()
    ]
    separate_logs = [write_log(tmp_path / f"k{k}", [int(c > k) for c in passing]) for k in (0, 1)]
    results = []
    for samples_choice in [
        *samples_choices,
        [f"{tmp_path}/k*"],
        [str(path) for path in separate_logs],
    ]:
        comparison = compare_logs(before, after, source_samples=samples_choice)
        assert comparison.samples is not None
        assert comparison.findings.states is not None
        results.append(
            (comparison.samples.passing.tolist(), comparison.samples.k,
             comparison.findings.states.tolist())
        )  # fmt: skip
    assert all(result == results[0] for result in results)
    states = dict(zip((item[1] for item in comparison.joined.items), results[0][2], strict=True))
    by_question = {
        json.loads(line)["doc"]["question"]: comparison.before.contents[number]
        for number, line in enumerate(before.read_text().splitlines())
    }
    assert [states[by_question[f"q{i}"]] for i in range(4)] == ["S", "G", "S", "G"]


@pytest.mark.parametrize("name", ["lr=1e-4", "out[1]", "a=b[2]", "what?", "x=y"])
def test_accepts_special_characters_in_paths(
    before: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test the path alone, after a model name, and in a pattern."""
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        write_log(tmp_path / f"{name}_seed{seed}", [1] * 4)
        write_log(tmp_path / name / f"seed{seed}", [1] * 4)
    for argument, model, seeds in (
        (f"{name}_seed1", f"{name}_seed1", 1),
        (f"tuned={name}_seed1", "tuned", 1),
        (f"{name.replace('[', '[[]')}_seed*", None, 2),
        (f"{name}/seed*", None, 2),
        (f"tuned={name}/seed*", "tuned", 2),
    ):
        comparison = compare_logs(before, argument)
        (paired,) = comparison.findings.models.values()
        assert (paired.before, paired.after, paired.seeds) == (0.5, 1.0, seeds), argument
        assert model in (None, *comparison.findings.models), argument


def test_log_search_ignores_vanished_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below /proc. An unreadable folder is an error, since it may contain logs."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b/samples_t.jsonl").touch()
    really, failing = os.scandir, FileNotFoundError(errno.ENOENT, "gone", str(tmp_path / "a"))

    def scandir(path: str) -> object:
        if str(path) == str(tmp_path / "a"):
            raise failing
        return really(path)

    monkeypatch.setattr(os, "scandir", scandir)
    [run] = find_runs(str(tmp_path))
    assert [log.path for log in run.logs] == [tmp_path / "b/samples_t.jsonl"]
    failing = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "a"))
    with pytest.raises(UserError, match=str(tmp_path / "a")):
        find_runs(str(tmp_path))
