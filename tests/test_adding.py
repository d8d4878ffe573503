"""``gapft store --add``: add the results of another run to a store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gapft_harness.core.files import sha256
from tests.command import gapft, succeed
from tests.recording_run import write_letters_task
from tests.verify.tampering import change_json, change_rows, seal_again

SMALL = (
    "data.pool_limit=24", "data.audit_limit=12", "statistics.replicates=20", "seeds=[13]",
    "conditions=[gapft,uniform]",
)  # fmt: skip


def build_options(settings: tuple[str, ...]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def hash_stored_files(store: Path, *steps: str) -> dict[str, str]:
    """Return the hashes of the files that a store has for some steps, by path."""
    files = [file for step in steps for file in (store / step).rglob("*") if file.is_file()]
    return {str(file.relative_to(store)): sha256(file) for file in files}


@pytest.fixture(scope="module")
def finished_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of the demo policy."""
    folder = tmp_path_factory.mktemp("adding")
    succeed("run", "demo", "--run-dir", "runs/first", *build_options(SMALL), cwd=folder)
    return folder


def test_run_reuses_added_work(finished_folder: Path, tmp_path: Path) -> None:
    done = succeed("store", "--add", finished_folder / "runs/first", cwd=tmp_path)
    assert "left out" not in done.stdout
    steps = ("generate", "judge")
    assert hash_stored_files(tmp_path / "runs/.store", *steps) == hash_stored_files(
        finished_folder / "runs/.store", *steps
    )
    done = succeed("run", "demo", "--run-dir", "runs/second", *build_options(SMALL), cwd=tmp_path)
    output = " ".join((done.stdout + done.stderr).split())
    assert "search pool: reused from first" in output
    assert "train: 2 reused from first" in output
    assert "audit: reused from first" in output
    manifest = json.loads((tmp_path / "runs/second/manifest.json").read_text())
    assert not any("seconds" in facts for facts in manifest["training"].values())
    stored = hash_stored_files(tmp_path / "runs/.store", *steps)
    assert stored == hash_stored_files(finished_folder / "runs/.store", *steps), "no file was added"


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("demo", ("search.k=11",)),
        ("demo-code", ()),
        ("demo-code", ("search.deployment={temperature: 0.8}", "experiments={}")),
    ],
    ids=["a shorter block", "episodes and executions", "sampled episodes"],
)
def test_added_searches_are_reused(recipe: str, settings: tuple[str, ...], tmp_path: Path) -> None:
    chosen = build_options(("data.pool_limit=12", "data.audit_limit=6", *settings))
    for name in ("one", "other"):
        command = ("run", recipe, "--only", "search", "--run-dir", f"{name}/{name}", *chosen)
        done = succeed(*command, cwd=tmp_path)
        if name == "one":
            succeed("store", "other", "--add", "one/one", cwd=tmp_path)
    assert "pool: " in done.stdout + done.stderr
    for split in ("pool", "audit"):
        table = f"{split}/responses.parquet"
        assert sha256(tmp_path / "one/one" / table) == sha256(tmp_path / "other/other" / table)
    names = [
        hash_stored_files(tmp_path / name / ".store", "generate", "judge").keys()
        for name in ("one", "other")
    ]
    assert {n for n in names[0] if "generate" in n} == {n for n in names[1] if "generate" in n}
    reused = json.loads((tmp_path / "other/other/manifest.json").read_text())["reused"]
    assert all(runs for runs in reused.values()), "nothing was generated"


def forge_verdict(run: Path) -> None:
    def pass_one(rows: list[dict[str, object]]) -> None:
        next(row for row in rows if row["status"] == "fail")["status"] = "pass"

    change_rows(run, "audit/responses.parquet", pass_one)


def forge_adapter(run: Path) -> None:
    """Replace an arm's adapter with the adapter of another arm."""
    arms = ("uniform-seed13", "gapft-seed13")
    source, target = (run / "adapters" / arm / "adapter_model.safetensors" for arm in arms)
    target.unlink()
    shutil.copy(source, target)
    seal_again(run, "adapters/gapft-seed13")


def forge_key(run: Path) -> None:
    path = run / "adapters/gapft-seed13/made_from.json"
    change_json(path, lambda content: content.update(seed=14))
    seal_again(run, "adapters/gapft-seed13")


@pytest.mark.parametrize(
    ("forge", "damaged_file"),
    [
        (forge_verdict, "audit/responses.parquet"),
        (forge_adapter, "adapters/gapft-seed13"),
        (forge_key, "adapters/gapft-seed13"),
    ],
)
def test_rejects_forged_run(
    finished_folder: Path, tmp_path: Path, forge: object, damaged_file: str
) -> None:
    run = Path(shutil.copytree(finished_folder / "runs/first", tmp_path / "first"))
    assert callable(forge)
    forge(run)
    done = gapft("store", "runs", "--add", run, cwd=tmp_path)
    assert done.returncode == 1
    assert damaged_file in done.stderr
    assert not (tmp_path / "runs").exists(), "nothing was stored"


def test_skips_adapter_that_differs_in_store(finished_folder: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(finished_folder, tmp_path / "place"))
    stored = {
        name: facts["stored"]
        for name, facts in json.loads((place / "runs/first/manifest.json").read_text())[
            "training"
        ].items()
    }
    gapft_folder, uniform_folder = (
        place / "runs/.store" / stored[f"{c}-seed13"] for c in ("gapft", "uniform")
    )
    (gapft_folder / "index.json").unlink()
    for file in uniform_folder.iterdir():
        if not (gapft_folder / file.name).exists():
            shutil.copy(file, gapft_folder / file.name)
    done = succeed("store", "runs", "--add", "runs/first", cwd=place)
    assert "left out: adapters/gapft-seed13" in done.stdout
    shutil.rmtree(place / "runs/first/adapters/gapft-seed13")
    done = gapft("run", "runs/first", "--only", "train", cwd=place)
    assert done.returncode == 2, "a swapped one is found before it is used, too"
    assert stored["gapft-seed13"] in "".join(done.stderr.split("\n"))


@pytest.mark.parametrize("is_known", [True, False])
def test_skips_model_without_weights_hash(tmp_path: Path, is_known: bool) -> None:
    task = write_letters_task(tmp_path)
    if is_known:
        (tmp_path / "weights").write_text("0" * 64)
    task.run("r", search={"k": 2})
    plugin = ("--plugin", "plugin.py")
    done = succeed("store", "other", "--add", "r", *plugin, cwd=tmp_path)
    assert ("left out: pool/responses.parquet" in done.stdout) == (not is_known)
    assert (tmp_path / "other/.store/generate").exists() == is_known
