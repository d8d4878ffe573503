"""Logs are found by path, folder, pattern and name; their task has a version."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from tests.compare.logs import compare_logs, join_notes, write_log


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
