"""A run in a bucket: a real S3 client against a real S3 server on loopback (moto)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gapft_harness.run_directory.directory import RunDirectory
from tests.command import gapft, succeed
from tests.recording_run import Letters, letters

URL = "s3://runs-bucket/study/letters"


@pytest.fixture
def account() -> Iterator[dict[str, str]]:
    """An empty account: the environment in which S3 clients find it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    server.stop()


def store(account: dict[str, str]):
    """The account, seen by a client of the test's own that remembers nothing."""
    import s3fs

    return s3fs.S3FileSystem(
        key=account["AWS_ACCESS_KEY_ID"],
        secret=account["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=account["AWS_ENDPOINT_URL"],
        skip_instance_cache=True,
        use_listings_cache=False,
    )


@pytest.fixture
def task(tmp_path: Path) -> Letters:
    return letters(tmp_path)


def command(task: Letters) -> list[object]:
    recipe = task.run("r", splits=("pool", "audit"), search={"k": 4}).path / "recipe.yaml"
    options = ["--include-path", task.folder / "tasks", "--plugin", task.plugins[0]]
    return ["run", recipe, "--run-dir", URL, "--only", "search", *options]


def test_a_bucket_that_is_not_there_is_refused_and_not_made(
    account: dict[str, str], task: Letters, tmp_path: Path
) -> None:
    env = {**account, "GAPFT_WORK_DIR": str(tmp_path / "work")}
    done = gapft(*command(task), env=env)
    assert done.returncode == 2
    assert done.stderr.startswith(f"gapft: run directory {URL}: cannot be written: ")
    assert "bucket does not exist" in done.stderr
    assert "Traceback" not in done.stderr
    assert store(account).ls("/") == []
    assert not (tmp_path / "work").exists()


def test_a_run_in_a_bucket_goes_on_on_another_machine(
    account: dict[str, str], task: Letters, tmp_path: Path
) -> None:
    store(account).mkdir("runs-bucket")
    search = command(task)
    asked_by_the_fixture = len([call for call in task.log("r") if call.get("id")])
    first, second = (
        {**account, "GAPFT_WORK_DIR": str(tmp_path / machine)} for machine in ("first", "second")
    )
    succeed(*search, "--split", "pool", env=first)
    there = store(account)
    root = URL.removeprefix("s3://")
    assert {path.removeprefix(f"{root}/") for path in there.find(root)} == {
        "recipe.yaml", "manifest.json", "pool/problems.parquet", "pool/responses.parquet",
    }  # fmt: skip

    succeed(*search, env=second)
    assert len([call for call in task.log("r") if call.get("id")]) == 2 * asked_by_the_fixture, (
        "the pool, which another machine searched, is not searched again"
    )
    succeed("run", URL, "--only", "states", "--plugin", task.plugins[0], env=second)
    manifest = json.loads(store(account).cat_file(f"{root}/manifest.json"))
    assert {"pool/states.parquet", "audit/states.parquet"} < set(manifest["files"])
    alone = RunDirectory.open(task.folder / "r").manifest()["files"]
    assert alone.items() <= manifest["files"].items(), (
        "the files of the run in a folder, byte by byte"
    )
