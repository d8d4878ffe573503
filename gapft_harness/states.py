"""Evidence states: G solved in one decode, S recovered by search, U missed by search.

Reads a split's responses; writes ``SPLIT/states.parquet`` (Section 3.2, Equations 3 to 6).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from gapft_harness.early_stop import stops
from gapft_harness.errors import PluginError
from gapft_harness.files import replace_file
from gapft_harness.plugin_manager import load_plugins
from gapft_harness.protocols import ResponseRule
from gapft_harness.records import GREEDY, Response, State
from gapft_harness.run_directory import RunDirectory, require
from gapft_harness.tables import Judged, read_judged

#: Problems written at a time.
_BATCH = 10_000


def state_of(greedy_passed: bool, samples_passed: Sequence[bool], k: int | None = None) -> State:
    """The state of one problem at search budget K.

    Args:
        greedy_passed: V(x, d_src(x)).
        samples_passed: V(x, y_1), ..., in order of sample number.
        k: use the first k samples as the nested budget; default all.
    """
    if greedy_passed:
        return "G"
    return "S" if any(samples_passed[:k]) else "U"


def partition(run_path: str, split: str, plugin_files: Sequence[str] = ()) -> dict[str, Any]:
    """Writes the states of one split and the evidence kept for each problem.

    Returns:
        Facts for the manifest: ``states``, the counts of G, S and U.
    """
    run = RunDirectory.open(run_path)
    path = run.path / split / "states.parquet"
    responses = run.sealed(f"{split}/responses.parquet")
    keep = run.manifest()["task"]["keep"]
    search = run.recipe.search
    counts: Counter[str] = Counter({"G": 0, "S": 0, "U": 0})

    plugins = load_plugins(plugin_files)

    def rule(passing: Sequence[Response]) -> Response:
        with plugins.blaming("response rule", keep) as entry:
            chosen: Response = entry.value(passing)
        return chosen

    def rows() -> Iterator[dict[str, Any]]:
        for problem_id, judged in read_judged(responses):
            row = state_row(problem_id, judged, search.k, stops(search, split), rule, keep)
            counts[row["state"]] += 1
            yield row

    replace_file(path, lambda beside: _write(beside, rows(), counts))
    return {"states": dict(counts)}


def _check_samples(problem_id: str, judged: Sequence[Judged], k: int, stop: bool) -> None:
    """Holds a problem's responses to the search: all K samples, fewer only where it is solved."""
    indices = [j.response.index for j in judged]
    drawn = len(indices) - 1
    solved = any(j.verdict.passed for j in judged)
    require(
        indices == [GREEDY, *range(drawn)] and (drawn == k or (stop and drawn < k and solved)),
        f"problem {problem_id}: expected one greedy response and samples 0 to {k - 1}"
        f"{', fewer where one of them passes' if stop else ''}, found {indices}",
    )


def state_row(
    problem_id: str, judged: Sequence[Judged], k: int, stop: bool, rule: ResponseRule, keep: str
) -> dict[str, Any]:
    """One problem's row of the states table.

    Args:
        problem_id: the problem.
        judged: its greedy response and samples with their verdicts, in order.
        k: K.
        stop: whether sampling may have stopped at the first success.
        rule: chooses which passing sample is kept.
        keep: the rule's name, for messages.
    """
    _check_samples(problem_id, judged, k, stop)
    greedy, *samples = judged
    passed = [j.verdict.passed for j in samples]
    state = state_of(greedy.verdict.passed, passed)
    kept: int | None = None
    if state == "G":
        kept = GREEDY
    elif state == "S":
        passing = [j.response for j in samples if j.verdict.passed]
        chosen = rule(passing)
        if chosen not in passing:
            raise PluginError(
                f"response rule {keep!r}: gave a response to problem {problem_id} that is none of "
                f"its {len(passing)} passing samples"
            )
        kept = chosen.index
    return {
        "problem_id": problem_id,
        "state": state,
        "samples": len(passed),
        "passing_samples": sum(passed),
        "first_success": passed.index(True) if any(passed) else None,
        "kept_index": kept,
    }


def _write(path: Path, rows: Iterator[dict[str, Any]], counts: Counter[str]) -> None:
    """Writes the table, streamed; the counts are complete once all rows are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gapft_harness.schemas import STATES

    with pq.ParquetWriter(path, STATES, compression="zstd") as writer:
        while batch := list(islice(rows, _BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema=STATES))
        writer.add_key_value_metadata({"gapft": json.dumps({"states": dict(counts)})})
