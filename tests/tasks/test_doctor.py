"""gapft doctor: available data, verified counts, and errors."""

import pytest

from tests.kit.command import call


@pytest.fixture
def run_doctor(monkeypatch):
    """Return a function that gives the doctor's lines; its offline settings are undone."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    return lambda: call("doctor").stdout.splitlines()


def select_lines(name: str, lines: list[str]) -> list[str]:
    """Return the line of a task and the indented lines below it."""
    start = next(i for i, line in enumerate(lines) if line.startswith(f"  {name}: "))
    rest = lines[start + 1 :]
    end = next((i for i, line in enumerate(rest) if not line.startswith("    ")), len(rest))
    return [lines[start], *rest[:end]]


def test_reports_counts_that_differ_from_published(data, run_doctor):
    lines = run_doctor()
    logiqa_lines = select_lines("gapft_logiqa", lines)
    assert logiqa_lines[0] == "  gapft_logiqa: 3 pool problems, 2 audit problems"
    assert len(logiqa_lines) == 6, "three lines on what was dropped, and two counts"
    assert "found audit 2" in logiqa_lines[-1]
    assert "expected audit 1,367" in logiqa_lines[-1]
    assert "expected audit 500" in select_lines("gapft_reclor", lines)[-1]
    assert select_lines("gapft_demo", lines) == [
        "  gapft_demo: 400 pool problems, 1000 audit problems"
    ]
    assert select_lines("gapft_math", lines)[0].endswith(" 600 audit problems")


def test_reports_error_of_broken_file(data, run_doctor):
    path = data / "logiqa2" / "train.txt"
    # Text of a different error in the content must not hide this error.
    path.write_text('{"id": "was found neither"}\n{"id": 1', encoding="utf-8")
    (data / "reclor" / "val.json").unlink()
    lines = run_doctor()
    (line,) = select_lines("gapft_logiqa", lines)
    assert line.startswith(f"  gapft_logiqa: {path}, line 2: ")
    assert "val.json" in select_lines("gapft_reclor", lines)[0]
