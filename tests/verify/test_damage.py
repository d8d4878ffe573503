"""``gapft verify`` reports any damage to a run's files and never crashes."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_json
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.verify.run import verify
from tests.kit.tampering import (
    ARM,
    change_manifest,
    change_rows,
    find_differences,
    read_rows,
    seal_again,
)

pytestmark = pytest.mark.xdist_group("verify")

#: Files that no stage seals: locks, and the report, which ``--only report`` writes again.
UNSEALED = ("run.lock", "jobs.lock", "report")


def flip_bit(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: path.unlink(),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a bit flipped": lambda path: flip_bit(path, random.Random(path.name).random()),
    "empty": lambda path: path.write_bytes(b""),
    "something else": lambda path: path.write_bytes(b"[1, null]\n"),
}


def list_files(run: Path) -> list[str]:
    """List the run's files that verification reads, except the manifest."""
    return sorted(
        relative.as_posix()
        for file in run.rglob("*")
        if file.is_file()
        and (relative := file.relative_to(run)).parts[0] not in (*UNSEALED, "manifest.json")
    )


@contextlib.contextmanager
def damage_file(run: Path, relative: str, damage: str) -> Iterator[None]:
    """Damage a file, then restore it."""
    content = (run / relative).read_bytes()
    DAMAGE[damage](run / relative)
    yield
    (run / relative).write_bytes(content)


@pytest.mark.parametrize("damage", DAMAGE)
def test_detects_damage_to_every_file(workspace: Path, run: Path, damage: str) -> None:
    sealed = json.loads((run / "manifest.json").read_text())["files"]
    files = list_files(run)
    assert len(files) == 1 + 6 + 4 + 4 * 6 + 4  # recipe, splits, selections, adapters, decisions
    for relative in files:
        with damage_file(run, relative, damage):
            first = find_differences(workspace, run)[0]
        entries = [entry for entry in sealed if relative.startswith(entry)] or ["recipe.yaml"]
        assert first.startswith(f"{entries[0]}: "), relative
    assert find_differences(workspace, run) == []


@pytest.mark.parametrize("damage", DAMAGE)
def test_detects_damage_sealed_again(workspace: Path, run: Path, damage: str) -> None:
    """A flipped bit or an edited model card may change nothing; a crash is always wrong."""
    manifest = json.loads((run / "manifest.json").read_text())
    entries = [e for e in manifest["files"] if ARM in e or e.startswith(("pool", "audit"))]
    for relative in list_files(run):
        for entry in entries:
            if not relative.startswith(entry):
                continue
            with damage_file(run, relative, damage):
                if (run / entry).exists():
                    seal_again(run, entry)
                differences = find_differences(workspace, run)
            assert differences or damage == "a bit flipped" or relative.endswith("README.md"), (
                relative
            )
            write_json(run / "manifest.json", manifest)


@pytest.mark.parametrize("damage", sorted(DAMAGE.keys() - {"a bit flipped"}))
def test_detects_damaged_manifest(workspace: Path, run: Path, damage: str) -> None:
    with damage_file(run, "manifest.json", damage):
        assert any(line.startswith("manifest.json: ") for line in find_differences(workspace, run))


def test_survives_flipped_bits_in_manifest(workspace: Path, run: Path) -> None:
    """Some bits do not concern the arms (times, hardware); none may crash the command."""
    size = (run / "manifest.json").stat().st_size
    detected = 0
    for place in random.Random(0).sample(range(size), 16):
        content = (run / "manifest.json").read_bytes()
        flip_bit(run / "manifest.json", place / size)
        try:
            detected += bool(find_differences(workspace, run))
        except UserError:  # the recorded inputs seem edited
            detected += 1
        (run / "manifest.json").write_bytes(content)
    assert detected > 1  # about 8 +- 2, depending on the length of paths and times


def test_survives_missing_facts_of_task(workspace: Path, run: Path) -> None:
    content = (run / "manifest.json").read_bytes()
    for key in json.loads(content)["task"]:
        change_manifest(run, lambda manifest, key=key: manifest["task"].pop(key))
        try:
            differences = find_differences(workspace, run)
        except UserError:  # the recorded inputs seem edited
            differences = [key]
        (run / "manifest.json").write_bytes(content)
        assert differences or key == "dropped", key  # notices, which decide nothing


@pytest.mark.parametrize("table", ["problems", "responses", "states"])
def test_detects_missing_problem_in_table(workspace: Path, run: Path, table: str) -> None:
    def drop(rows: list[dict[str, object]]) -> None:
        last = rows[-1]["problem_id"]
        rows[:] = [row for row in rows if row["problem_id"] != last]

    change_rows(run, f"pool/{table}.parquet", drop)
    where = "responses" if table == "problems" else table
    assert any(
        line.startswith(f"pool/{where}.parquet: has other problems than pool/problems.parquet")
        for line in find_differences(workspace, run)
    )


def test_detects_missing_column(workspace: Path, run: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = run / "pool/states.parquet"
    rows = [{k: v for k, v in row.items() if k != "samples"} for row in read_rows(path)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    differences = find_differences(workspace, run)
    assert "pool/states.parquet: was changed after it was sealed" in differences
    assert "pool: cannot be read (KeyError: 'samples')" in differences


@pytest.mark.parametrize("section", ["recipe", "task", "source", "files", "budgets", "training"])
def test_detects_missing_manifest_section(workspace: Path, run: Path, section: str) -> None:
    change_manifest(run, lambda manifest: manifest.pop(section))
    assert f"manifest.json: has no section {section}" in find_differences(workspace, run)


def test_reads_missing_recipe_from_manifest(workspace: Path, run: Path) -> None:
    (run / "recipe.yaml").unlink()
    shutil.rmtree(run / f"adapters/{ARM}")
    differences = find_differences(workspace, run)
    assert any(line.startswith("recipe.yaml: ") for line in differences)
    assert f"adapters/{ARM}: is sealed in the manifest, but missing" in differences
    assert f"decisions/{ARM}.parquet: exists, but adapters/{ARM} does not" in differences


def test_unfinished_search_is_not_damage(workspace: Path, run: Path, tmp_path: Path) -> None:
    """A table exists before its split is sealed, and stays if the command is killed."""
    path = RunDirectory.create_or_open(tmp_path / "begun", RunDirectory.open(run).recipe).path
    (path / "pool").mkdir()
    shutil.copyfile(run / "pool/problems.parquet", path / "pool/problems.parquet")
    report = verify(path, [str(workspace / "plugin.py")])
    [unsealed] = report.differences
    assert unsealed.startswith("pool/problems.parquet: exists, but is not sealed")
    assert "the pool is not searched" in report.missing


def test_failing_verifier_is_user_error(workspace: Path, run: Path, tmp_path: Path) -> None:
    """For example, its data are missing. Other differences are still reported."""
    plugin = tmp_path / "plugin.py"
    text = (workspace / "plugin.py").read_text()
    plugin.write_text(
        text + "\n\ndef away():\n    raise RuntimeError('no data here')\n\n\nContains = away\n"
    )
    change_manifest(
        run, lambda manifest: manifest["rests_on"]["plugins"].clear()
    )  # the plugin was edited
    with pytest.raises(UserError, match="no data here"):
        verify(run, [str(plugin)])
    (run / "audit/states.parquet").write_bytes(b"")
    differences = verify(run, [str(plugin)]).differences
    assert "audit/states.parquet: was changed after it was sealed" in differences
    assert any("no data here" in line for line in differences)
