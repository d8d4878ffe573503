"""Runs with a server as the model: a server that stops, and API keys."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import pytest

from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_source
from tests import toy_server
from tests.kit.command import gapft
from tests.toy_server import ToyServer

K, PROBLEMS, AUDIT, CHUNK = 2, 12, 3, 4
#: A chunk's requests: one for each response, since each has a seed of its own.
REQUESTS = CHUNK * (1 + K)
KEY = "sk-very-secret"
POOL = ("--split", "pool")


@pytest.fixture
def server():
    with ToyServer() as toy:
        toy.behaviour.key = KEY
        yield toy


def write_recipe(folder: Path, url: str, **args: object) -> Path:
    content = {
        "name": "served",
        "data": {"task": "gapft_demo", "pool_limit": PROBLEMS, "audit_limit": AUDIT},
        "model": {
            "backend": "local-completions",
            "args": {
                "pretrained": "bundled:demo",
                "model": "toy",
                "base_url": url,
                "tokenizer_backend": "None",
                "num_concurrent": 4,
                "max_retries": 2,
            }
            | args,
        },
        "search": {"k": K, "chunk": CHUNK},
    }
    path = folder / "served.yaml"
    path.write_text(json.dumps(content))  # JSON is YAML
    return path


def run_search(run: Path, path: Path, *more: object):
    return gapft(
        "run", path, "--run-dir", run, "--only", "search", *more, env={"OPENAI_API_KEY": KEY}
    )


def read_stored(folder: Path) -> dict[Path, bytes]:
    """Read the response files in the store of a folder's runs."""
    return {path: path.read_bytes() for path in folder.glob(".store/generate_chunks/*/*/*.jsonl")}


def count_answers(*servers: ToyServer) -> collections.Counter[str]:
    """Count how often each request was answered by all servers, without the probes."""
    bodies = [body for server in servers for body in server.served if body["prompt"] != "Hello."]
    return collections.Counter(map(json.dumps, bodies))


@pytest.mark.thorough
def test_run_continues_on_another_server(server, tmp_path):
    run = tmp_path / "run"
    probes, chunk = [toy_server.answer] * 2, [toy_server.answer] * REQUESTS
    server.behaviour.faults.extend(probes + chunk + [toy_server.fail_with_status(503)] * 100)
    stopped = run_search(run, write_recipe(tmp_path, server.url()), *POOL)
    assert stopped.returncode == 1
    assert server.url() in stopped.stderr
    assert "Traceback" not in stopped.stderr
    stored_responses = read_stored(tmp_path)
    assert stored_responses
    with ToyServer(toy_server.Behaviour(key=KEY)) as other:
        path = write_recipe(tmp_path, other.url(), num_concurrent=2, max_retries=3, timeout=60)
        other.behaviour.models = [{"id": "another"}]
        refused = run_search(run, path, *POOL)
        assert refused.returncode == 2
        assert "'toy'" in refused.stderr
        assert read_stored(tmp_path) == stored_responses
        other.behaviour.models = [{"id": "toy"}]
        done = run_search(run, path, *POOL)
        assert done.returncode == 0, done.stderr
        served = count_answers(server, other)
        assert len(served) == PROBLEMS * (1 + K)
        assert set(served.values()) == {1}, "what is stored is not asked for again"
        assert other.most_parallel <= 2
        assert len(count_answers(server)) == REQUESTS
        source = read_source(RunDirectory.open(run))
        assert (source["url"], source["model"]) == (other.url(), "toy")
    for file in (*run.rglob("*"), *(tmp_path / ".store").rglob("*")):
        assert file.is_dir() or KEY.encode() not in file.read_bytes(), file
    for command in (stopped, refused, done):
        assert KEY not in command.stderr + command.stdout


@pytest.mark.parametrize(
    ("args", "key"),
    [
        ({"auth_token": KEY}, "model.args.auth_token"),
        ({"header": {"Authorization": f"Bearer {KEY}"}}, "header.Authorization"),
        ({"base_url": f"http://me:{KEY}@localhost/v1/completions"}, "model.args.base_url"),
        ({"base_url": f"http://localhost/v1/completions?api-key={KEY}"}, "model.args.base_url"),
        ({"base_url": f"http://localhost/v1/completions?api%5Fk%65y={KEY}"}, "model.args.base_url"),
    ],
)
def test_rejects_recipe_with_api_key(tmp_path, args, key):
    path = write_recipe(tmp_path, "http://localhost:1/v1/completions", **args)
    refused = gapft("run", path, "--run-dir", tmp_path / "run", "--dry-run")
    assert refused.returncode == 2
    assert key in refused.stderr
    assert "OPENAI_API_KEY" in refused.stderr
    assert KEY not in refused.stderr + refused.stdout


def test_missing_server_costs_nothing(server, tmp_path):
    server.behaviour.models = [{"id": "another"}]
    path, run = write_recipe(tmp_path, server.url()), tmp_path / "run"
    refused = run_search(run, path, *POOL)
    assert refused.returncode == 2
    assert "model.args.model" in refused.stderr
    assert not run.exists()
    env = {"OPENAI_API_KEY": KEY}
    output = gapft("run", path, "--run-dir", run, "--dry-run", env=env).stdout
    assert "'toy'" in output
    assert server.requests == []
