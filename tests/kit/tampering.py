"""Change a sealed run and hide the change by sealing again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gapft_harness.core.files import sha256, write_json
from gapft_harness.stages.verify.run import verify

ARM = "gapft-seed13"
#: An arm of the plugin's selector.
PLUGIN_ARM = "drawn-seed13"
LOG = f"adapters/{ARM}/training_log.jsonl"

#: A part of the run's plugin.
SELECTOR = """

def drawn(pool, n, rng):
    return pool.draw(pool.verified, n, rng)


@hookimpl
def register_selectors(register):
    register("drawn", drawn)
"""


def find_differences(workspace: Path, run: Path) -> list[str]:
    return verify(run, [str(workspace / "plugin.py")]).differences


def seal_again(run: Path, *relatives: str) -> None:
    """Write the hashes of changed files into the manifest."""
    manifest = json.loads((run / "manifest.json").read_text())
    for relative in relatives:
        manifest["files"][relative] = sha256(run / relative)
    write_json(run / "manifest.json", manifest)


def change_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def change_manifest(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    change_json(run / "manifest.json", change)


def change_facts(run: Path, arm: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change an arm's training facts in ``training.json`` and in the manifest."""
    change_json(run / f"adapters/{arm}/training.json", change)
    change_manifest(run, lambda manifest: change(manifest["training"][arm]))
    seal_again(run, f"adapters/{arm}")


def change_config(run: Path, arm: str, **values: object) -> None:
    change_json(run / f"adapters/{arm}/adapter_config.json", lambda c: c.update(values))
    seal_again(run, f"adapters/{arm}")


def change_log(run: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    lines = [json.loads(line) for line in (run / LOG).read_text().splitlines()]
    change(lines)
    (run / LOG).write_text("".join(json.dumps(line) + "\n" for line in lines))
    seal_again(run, f"adapters/{ARM}")


def read_rows(path: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(path).to_pylist())


def read_facts(path: Path) -> dict[str, Any]:
    """Read the facts that a table records about itself."""
    facts: dict[str, Any] = json.loads(pq.read_metadata(path).metadata[b"gapft"])
    return facts


def write_rows(path: Path, rows: list[dict[str, Any]], **facts: object) -> None:
    """Write rows under the table's schema, and add facts to its own."""
    metadata = pq.read_metadata(path).metadata
    table_metadata = (
        {"gapft": json.dumps({**read_facts(path), **facts})} if b"gapft" in metadata else None
    )
    schema = pq.read_schema(path).with_metadata(table_metadata)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def change_rows(run: Path, relative: str, change: Callable[[list[dict[str, Any]]], None]) -> None:
    rows = read_rows(run / relative)
    change(rows)
    write_rows(run / relative, rows)
    seal_again(run, relative)
