"""Import and ``gapft compare`` work on a system without ``fcntl`` and ``resource``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.kit.command import COMMON, ROOT, succeed
from tests.kit.patience import PATIENCE_S

#: Blocks the two modules as on Windows, then runs the code.
_BLOCKED = "import sys; sys.modules['fcntl'] = sys.modules['resource'] = None; "
_COMMAND = "sys.argv[0] = 'gapft'; from gapft_harness.cli.main import main; main()"
_IMPORTS = """
import gapft_harness
for name in gapft_harness.__all__:
    getattr(gapft_harness, name)
verdicts = gapft_harness.load_verifier("option_letter").verify(["B"], ["B"])
assert [verdict.status for verdict in verdicts] == ["pass"], verdicts
"""


def run_blocked(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter that has neither ``fcntl`` nor ``resource``."""
    return subprocess.run(
        [sys.executable, "-c", _BLOCKED + code, *arguments],
        cwd=cwd,
        env={**os.environ, **COMMON, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_package_and_bundled_verifiers_load(tmp_path: Path) -> None:
    done = run_blocked(_IMPORTS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_compare_writes_same_files(tmp_path: Path) -> None:
    done = run_blocked(_COMMAND, "compare", "--example", "--out", "blocked", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    usual = succeed("compare", "--example", "--out", "usual", cwd=tmp_path)
    assert done.stdout.replace("blocked/", "usual/") == usual.stdout
    names = {path.name for path in (tmp_path / "usual").iterdir()}
    assert names == {path.name for path in (tmp_path / "blocked").iterdir()}
    for name in ("results.json", "tables/models.csv", "tables/items.csv"):
        assert (tmp_path / "usual" / name).read_bytes() == (
            tmp_path / "blocked" / name
        ).read_bytes()


def test_training_and_search_report_what_they_need(tmp_path: Path) -> None:
    done = run_blocked(_COMMAND, "run", "demo", "--only", "search", cwd=tmp_path)
    assert done.returncode == 2
    assert "Python's module fcntl is required" in done.stderr
    assert "need Linux" in done.stderr
    assert "Traceback" not in done.stderr
