"""Tests that share something costly run on one worker, and what takes longest begins first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.scheduling import LONGEST, place, unit

ROOT = Path(__file__).parents[1]

CONFTEST = """
import pytest
from tests.conftest import pytest_collection_modifyitems, pytest_xdist_make_scheduler

@pytest.fixture(scope="session")
def costly(tmp_path_factory):
    tmp_path_factory.mktemp("costly")
"""

TESTS = """
import pytest

{mark}

@pytest.mark.parametrize("i", range(6))
def test_it(i{fixture}, worker_id):
    with open("{name}.txt", "a") as file:
        file.write(worker_id + "\\n")
"""


def test_what_is_shared_is_made_by_one_worker(tmp_path: Path) -> None:
    grouped = 'pytestmark = pytest.mark.xdist_group("pair")'
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, mark, fixture in (
        ("first", grouped, ""),
        ("second", grouped, ""),
        ("user", "", ", costly"),
    ):
        text = TESTS.format(name=name, mark=mark, fixture=fixture)
        (tmp_path / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--basetemp", "made"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "18 passed" in done.stdout, done.stdout + done.stderr
    workers = {p.stem: set(p.read_text().split()) for p in tmp_path.glob("*.txt")}
    assert workers["first"] == workers["second"]
    assert len(workers["first"]) == len(workers["user"]) == 1
    assert len(list(tmp_path.glob("made/popen-gw*/costly0"))) == 1


def test_what_is_named_as_long_is_there_and_comes_first() -> None:
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    found = {place(ROOT, str(path)) for path in files}
    assert found == {*range(len(LONGEST) + 1)}
    assert place(ROOT, "tests/end_to_end/test_demo.py") == 0


def test_a_file_is_whole_if_it_uses_what_its_folder_makes_once() -> None:
    folder = ROOT / "tests/end_to_end"
    assert unit(folder / "test_demo_code.py") == unit(folder / "test_demo.py") == "demo"
    assert unit(folder / "test_real_data.py") is None
    assert unit(ROOT / "tests/sandbox/test_hostile.py") is not None
    assert unit(ROOT / "tests/test_audits.py") is not None
