"""Build the oracle from a commit, or check the working tree against it.

``python -m tests.oracle build`` makes ``build/oracle/COMMIT/content`` with the code of the last
commit named in ``BASE``; ``python -m tests.oracle check`` makes the same with the working tree's
code in ``build/oracle/check`` and compares; ``compare`` does only the latter, for what the last
check made. Both sides are made by ``side/make.py`` (the commit's by ``base/make.py``, if that
folder exists; see there).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

from tests.oracle.compare import compare_contents, read_permitted
from tests.oracle.inputs import write_inputs

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = ROOT / "build" / "oracle"
#: The groups of a quick check, about a minute and a half.
DEMO_PART = ("demo", "recipes", "verdicts", "compare")
#: The group that needs the benchmarks' records (GAPFT_DATA_DIR).
REAL_DATA = "real-data"
RUNS = ("demo-code", "controls", "matched", "online", "sampled", "study")
PARTS = {"demo": DEMO_PART}
GROUPS = (*DEMO_PART, "tasks", REAL_DATA, *RUNS)


def main() -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("action", choices=["build", "check", "compare"])
    parser.add_argument(
        "--part", action="append", choices=GROUPS, help="default: all; demo: the quick part"
    )
    parser.add_argument(
        "--environment", type=Path, help="an environment for build, instead of this or a new one"
    )
    options = parser.parse_args()
    commit = (HERE / "BASE").read_text("utf-8").split()[-1]
    groups = list_groups(options.part)
    start = time.monotonic()
    if options.action == "build":
        status = build(commit, options.environment, groups)
    else:
        made = options.action == "check" and make(
            HERE / "side", ROOT, sys.executable, CACHE / "check", groups
        )
        status = compare(commit, groups) or int(made)
    print(f"{options.action}: {time.monotonic() - start:.0f} s")
    return status


def list_groups(parts: list[str] | None) -> list[str]:
    """Return the chosen groups in order."""
    chosen = {group for part in parts or GROUPS for group in PARTS.get(part, (part,))}
    if REAL_DATA in chosen and "GAPFT_DATA_DIR" not in os.environ:
        print(f"NOT COMPARED: {REAL_DATA} (GAPFT_DATA_DIR is not set)")
        chosen.remove(REAL_DATA)
    return [group for group in GROUPS if group in chosen]


def build(commit: str, environment: Path | None, groups: list[str]) -> int:
    """Make the content of a commit, with its own environment if its dependencies differ."""
    folder = CACHE / commit
    tree = folder / "tree"
    if not tree.exists():
        folder.mkdir(parents=True, exist_ok=True)
        add = ["git", "worktree", "add", "--force", "--detach", str(tree), commit]
        subprocess.run(add, cwd=ROOT, check=True)
    python = str(environment / "bin" / "python") if environment else find_python(tree, folder)
    side = HERE / "base" if (HERE / "base").exists() else HERE / "side"
    return make(side, tree, python, folder, groups)


def find_python(tree: Path, folder: Path) -> str:
    """Return this interpreter if a tree declares the same dependencies, else one of its own."""
    if read_dependencies(tree) == read_dependencies(ROOT):
        return sys.executable
    venv = folder / "venv"
    make_venv = ["make", f"VENV={venv}", f"{venv}/installed-test"]
    subprocess.run(make_venv, cwd=tree, check=True)
    return str(venv / "bin" / "python")


def read_dependencies(tree: Path) -> tuple[object, str]:
    """Return what an environment of a tree is installed from."""
    project = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]
    return project, (tree / "constraints.txt").read_text("utf-8")


def make(side: Path, tree: Path, python: str, folder: Path, groups: list[str]) -> int:
    """Make groups with a tree's code; earlier content of the same groups is removed."""
    work, content = folder / "work", folder / "content"
    for place in (work / "inputs", *(p / group for p in (work, content) for group in groups)):
        shutil.rmtree(place, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    content.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "XDG_CACHE_HOME": str(work / "cache"),
    }
    imported = "import gapft_harness as g; print(g.__file__)"
    found = subprocess.check_output([python, "-c", imported], env=environment, cwd=work, text=True)
    if Path(found.strip()).parents[1] != tree.resolve():
        raise SystemExit(f"{python} imports {found.strip()}; expected the package in {tree}")
    write_inputs(work / "inputs")
    command = [python, str(side / "make.py"), str(content), str(work), *groups]
    return subprocess.run(command, env=environment, cwd=work).returncode


def compare(commit: str, groups: list[str]) -> int:
    """Print each difference of the working tree's content from the commit's."""
    expected, made = CACHE / commit / "content", CACHE / "check" / "content"
    if absent := [group for group in groups if not (expected / group).exists()]:
        raise SystemExit(
            f"{', '.join(absent)}: not in {expected}; run: python -m tests.oracle build"
        )
    counts: Counter[str] = Counter()
    permitted = read_permitted(HERE / "permitted.yaml")
    lines = [
        line
        for group in groups
        for line in compare_contents(expected, made, group, permitted, counts)
    ]
    if {*groups, REAL_DATA} == {*GROUPS}:
        lines += [f"permits nothing: {entry}" for entry in permitted if not entry.used]
    print("\n".join([*lines, "compared: " + ", ".join(f"{n:,} {k}" for k, n in counts.items())]))
    print(f"{len(lines)} differences from {commit[:12]}" if lines else f"agrees with {commit[:12]}")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
