"""Merging the shards of a split into the split's whole tables, a few rows in memory at a time.

Reads ``SPLIT/shards/I-of-N/{problems,responses}.parquet`` of one or more run directories; writes
``SPLIT/{problems,responses}.parquet``. The same shards give the same bytes in whatever order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import GREEDY
from gapft_harness.hooks.manager import Plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import differences
from gapft_harness.run_directory.directory import RunDirectory, Split, require
from gapft_harness.run_directory.parquet import read_facts, write_batches
from gapft_harness.run_directory.shards import (
    IdsHash,
    Shard,
    begun_parts,
    part_of,
    require_unbegun,
)
from gapft_harness.run_directory.tables import problem_schema, response_schema
from gapft_harness.stages.integrity.rests_on import require_common
from gapft_harness.verdicts.copies import AlikeWatch

#: Facts of a part alone, or that have a rule of their own below.
_OWN = frozenset({"shard", "recipe", "task", "source", "said", "judged_by", "warnings"})

#: Facts of a model that two machines may differ in without notice: its folder is the recipe's, and
#: how patiently a server was asked changes no sample.
_UNREMARKED = frozenset({"pretrained", "num_concurrent", "max_retries", "timeout"})


def merge_facts(parts: Sequence[tuple[Shard, dict[str, Any]]]) -> dict[str, Any]:
    """Counts added up, lists joined, warnings kept with the shard they are of.

    Where shards ran in different circumstances (device, versions, sandbox), those of the first
    stand, and a warning says what differed.

    Args:
        parts: each shard with its facts, in the order of their numbers; of one task and model.

    Returns:
        Facts as ``stage.search`` gives of a whole split.
    """
    first = parts[0][1]
    warnings = [
        f"shard {shard}: {warning}" for shard, facts in parts for warning in facts["warnings"]
    ]
    for key in ("source", "judged_by"):
        for shard, facts in parts[1:]:
            if found := _differing(first.get(key), facts.get(key), key):
                warnings.append(f"shard {shard} ran otherwise than {parts[0][0]}: {found}")
    dropped = [line for _, facts in parts for line in facts["task"]["dropped"]]
    merged: dict[str, Any] = {
        "task": {**first["task"], "dropped": list(dict.fromkeys(dropped))},
        "source": first["source"],
        "judged_by": first.get("judged_by", {}),
        "warnings": warnings,
    }
    if "said" in first:  # the same in all
        merged["said"] = first["said"]
    for key in sorted({key for _, facts in parts for key in facts} - _OWN):
        merged[key] = _added([facts[key] for _, facts in parts if key in facts], key)
    return merged


def _differing(a: Any, b: Any, key: str) -> str:
    """The places at which two descriptions differ, in words; empty if they do not."""
    if isinstance(a, dict) and isinstance(b, dict):
        inner = [
            _differing(a.get(name), b.get(name), f"{key}.{name}")
            for name in sorted({*a, *b} - _UNREMARKED)
        ]
        return "; ".join(filter(None, inner))
    return "" if a == b else f"{key} is {b!r}, not {a!r}"


def _added(values: Sequence[Any], key: str) -> Any:
    """Numbers are added, lists joined and sorted, sections merged key by key.

    ``executions.times`` is a setting, the same in all.
    """
    if key.endswith(".times") or isinstance(values[0], str | bool):
        if any(value != values[0] for value in values):
            raise GapftError(f"shards differ in {key}: {values}")
        return values[0]
    if all(isinstance(value, int | float) for value in values):
        return sum(values)
    if all(isinstance(value, list) for value in values):
        return sorted(item for value in values for item in value)
    if all(isinstance(value, dict) for value in values):
        names = sorted({name for value in values for name in value})
        return {
            name: _added([value[name] for value in values if name in value], f"{key}.{name}")
            for name in names
        }
    raise GapftError(f"shards' {key} cannot be merged: {values}")


#: Rows read of a part at a time, and rows of the merged table written at a time.
_READ, _WRITE = 1024, 8192


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """A finished shard: where it lies, its tables by name, and the facts it carries."""

    shard: Shard
    run: RunDirectory
    split: Split
    tables: dict[str, Path]
    facts: dict[str, Any]

    def __str__(self) -> str:
        return f"shard {self.shard} in {self.run.path}"


def merge_split(
    run: RunDirectory,
    split: Split,
    sources: Sequence[RunDirectory],
    plugins: Plugins | None = None,
) -> dict[str, Any] | None:
    """Merges one split's shards into a run's own tables.

    Args:
        run: the run that gets the whole split; its lock is held.
        sources: the runs in which the shards lie, once each; ``run`` may be among them.

    Returns:
        Facts for the manifest, those that ``stage.search`` gives of a whole split, with
        ``shards``, their number. None if no source has a shard of the split.

    Raises:
        UserError: a shard is missing, there twice or unfinished; shards of several divisions,
            recipes, tasks, data or models; or the run has searched the split otherwise.
    """
    whole = run.path / layout.responses(split)
    found = [(source, shard) for source in sources for shard in begun_parts(source.path, split)]
    if not found:
        return None
    if whole.exists():
        facts = read_facts(whole)
        if facts.get("shards") != found[0][1].of:
            raise UserError(
                f"{whole}: the {split} is searched already, and not from these shards; merge "
                "into another run directory"
            )
        return facts
    require_unbegun(run.path, split)
    _check_division(split, found)
    parts = sorted(
        (_open(source, split, shard) for source, shard in found), key=lambda p: p.shard.number
    )
    _check_identities(run, parts, plugins)
    facts, size = merge_facts([(part.shard, part.facts) for part in parts]), len(parts)
    _write(run.path / layout.problems(split), problem_schema(), parts, "problems")
    _merge_responses(whole, parts, facts | {"shards": size})
    return read_facts(whole)


def _check_division(split: Split, parts: Sequence[tuple[RunDirectory, Shard]]) -> None:
    """All shards of one division, each once."""
    where: dict[Shard, RunDirectory] = {}
    for source, shard in parts:
        first = parts[0]
        if shard.of != first[1].of:
            raise UserError(
                f"{split}: shards of different divisions: {first[1]} in {first[0].path}, {shard} "
                f"in {source.path}; expected all of one N"
            )
        if shard in where:
            raise UserError(
                f"{split}: shard {shard} is there twice: in {where[shard].path} and in "
                f"{source.path}; give one of them"
            )
        where[shard] = source
    if missing := [shard for shard in Shard.all(parts[0][1].of) if shard not in where]:
        raise UserError(
            f"{split}: {len(missing)} of {parts[0][1].of} shards are missing: "
            f"{', '.join(map(str, missing))}; search them (--only search --shard), and give "
            "their run directories too"
        )


def _open(source: RunDirectory, split: Split, shard: Shard) -> FinishedShard:
    part = part_of(split, shard)
    found = source.path / layout.responses(part)
    if not found.exists():
        raise UserError(
            f"{split}: shard {shard} in {source.path} is not finished; give gapft run "
            f"{source.path} --only search --split {split} --shard {shard} again"
        )
    tables = {
        "problems": source.sealed(layout.problems(part)),
        "responses": source.sealed(layout.responses(part)),
    }
    return FinishedShard(shard, source, split, tables, read_facts(found))


def _check_identities(
    run: RunDirectory, parts: Sequence[FinishedShard], plugins: Plugins | None
) -> None:
    """Every part of the run's recipe, and all of one task, one split and one model."""
    for part in parts:
        if differing := differences(run.recipe.identity(plugins), part.facts["recipe"]):
            raise UserError(
                f"{part} was searched by another recipe than {run.path}; differing: "
                f"{'; '.join(differing)}"
            )
    for name, identity, advice in _IDENTITIES:
        for part in parts[1:]:
            expected, found = identity(parts[0].facts), identity(part.facts)
            if expected != found:
                raise UserError(
                    f"{part.split}: {part} is of another {name} than {parts[0]}: {found} there, "
                    f"{expected} here; {advice}"
                )
    require_common([(str(of.path), of.manifest()) for of in (run, *(part.run for part in parts))])


#: What all parts must share: its name, how to read it off a part's facts, what to do else.
_IDENTITIES: tuple[tuple[str, Callable[[dict[str, Any]], object], str], ...] = (
    (
        "choice",
        lambda facts: facts.get("said"),
        "search all shards of a further audit by what one recipe says of it",
    ),
    (
        "model",
        lambda facts: (facts["source"].get("weights_sha256"), facts["source"].get("model")),
        "search all shards with the same weights",
    ),
)


def _merge_responses(path: Path, parts: Sequence[FinishedShard], facts: dict[str, Any]) -> None:
    """Samples are looked at again: a shard may have too few problems to notice that they repeat."""
    watch = AlikeWatch()

    def see(rows: Any) -> None:
        indices, texts = rows.column("index").to_pylist(), rows.column("text").to_pylist()
        watch.see([t for i, t in zip(indices, texts, strict=True) if i != GREEDY])

    def closing() -> dict[str, Any]:
        alike = watch.warning()
        return {**facts, "warnings": [*facts["warnings"], *([alike] if alike else [])]}

    _write(path, response_schema(), parts, "responses", see, closing)


def _write(
    path: Path,
    schema: Any,
    parts: Sequence[FinishedShard],
    file: str,
    see: Callable[[Any], object] = lambda rows: None,
    facts: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Writes the parts' rows in the order of problem ids, and the facts when all were seen."""
    import pyarrow as pa

    ids = IdsHash()

    def batches() -> Iterator[Any]:
        held: list[Any] = []
        rows = 0
        for problem_id, problem in heapq.merge(
            *(_by_problem(part, file, schema.names) for part in parts), key=lambda pair: pair[0]
        ):
            ids.add(problem_id)
            see(problem)
            held.append(problem)
            rows += problem.num_rows
            if rows >= _WRITE:
                yield pa.concat_tables(held).combine_chunks()
                held, rows = [], 0
        if held:
            yield pa.concat_tables(held).combine_chunks()

    def closing() -> dict[str, Any]:
        require(
            ids.value == parts[0].facts["shard"]["split_ids"],
            f"{layout.shards(parts[0].split)}: the shards' {file} are not those of the whole split",
        )
        return facts()

    write_batches(path, schema, batches(), closing)


def _by_problem(
    part: FinishedShard, file: str, columns: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """Yields each problem's id and rows; a problem's rows follow each other in a part."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    open_end: Any = None  # rows of a problem that may go on in the next batch
    with pq.ParquetFile(part.tables[file]) as table:
        for batch in table.iter_batches(batch_size=_READ, columns=columns):
            rows = pa.Table.from_batches([batch]).replace_schema_metadata()
            if open_end is not None:
                rows = pa.concat_tables([open_end, rows])
            ids = rows.column("problem_id").to_pylist()
            starts = [i for i, each in enumerate(ids) if i == 0 or each != ids[i - 1]]
            for start, end in pairwise(starts):
                yield ids[start], rows.slice(start, end - start)
            open_end = rows.slice(starts[-1])
    if open_end is not None:
        yield open_end.column("problem_id")[0].as_py(), open_end
