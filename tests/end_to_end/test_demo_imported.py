"""The demo's search, exported as JSON lines and imported, gives the same selections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from gapft_harness.recipe.bundled import find_recipe
from gapft_harness.recipe.reading import read_recipe
from tests.kit.command import succeed


def has_other_tokens(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return bool(first["token_ids"] != second["token_ids"])


def test_imported_search_equals_the_search(demo_run: Path, tmp_path: Path) -> None:
    """Examples are equal; the tables differ only in the sources of verdicts and ids."""
    run, odd = tmp_path / "run", set[tuple[str, int]]()
    for split in ("pool", "audit"):
        rows = pq.read_table(demo_run / split / "responses.parquet").to_pylist()
        lines = [
            {
                "id": row["problem_id"],
                "index": "greedy" if row["index"] < 0 else row["index"],
                "text": row["text"],
                "passed": row["status"] == "pass",
                "finish_reason": row["finish_reason"],
            }
            for row in rows
        ]
        file = tmp_path / f"{split}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        succeed("import", run, file, "--split", split, "--recipe", "demo")
        imported = pq.read_table(run / split / "responses.parquet").to_pylist()
        pairs = list(zip(rows, imported, strict=True))
        keys = {key for first, second in pairs for key in first if first[key] != second[key]}
        assert keys - {"token_ids"} == {"tokens_from", "reason", "seed"}
        odd |= {
            (first["problem_id"], first["index"])
            for first, second in pairs
            if has_other_tokens(first, second)
        }
        assert len(odd) * 1000 <= len(rows), "a special token that was drawn stands in no text"
        states = f"{split}/states.parquet"
        assert pq.read_table(run / states).equals(pq.read_table(demo_run / states))
    succeed("run", run, "--only", "select")
    names = [f"{c}-seed" for c in read_recipe(find_recipe("demo"))["conditions"]]
    files = [file for file in (run / "selections").iterdir() if file.name.startswith(tuple(names))]
    assert len(files) == 12
    for file in files:
        chosen = pq.read_table(file).to_pylist()
        for first, second in zip(
            chosen, pq.read_table(demo_run / "selections" / file.name).to_pylist(), strict=True
        ):
            if (first["problem_id"], first["response_index"]) in odd:
                del first["response_ids"], second["response_ids"]
            assert first == second
    verified = succeed("verify", run).stdout
    assert verified.count("judged again, 0 of them differ") == 2
