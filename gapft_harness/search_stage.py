"""The search stage: each split whole, in shards that are then merged, or one shard of it.

Which parts there are is decided here; searching is a job (``search.py``), merging is not: it reads
and writes a few rows at a time (``merging.py``).
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.errors import GapftError, UserError
from gapft_harness.merging import merge_split
from gapft_harness.protocols import Job
from gapft_harness.recording import record_search
from gapft_harness.run_directory import CALIBRATION, RunDirectory, Split
from gapft_harness.scale import no_scale_warning
from gapft_harness.search import finished
from gapft_harness.shards import Shard, part_folder, plan_search

if TYPE_CHECKING:
    from gapft_harness.pipeline import Context

#: Seconds until a file that another machine has written must be seen here.
_PATIENCE_S = 90.0

#: A split whole, or one shard of it.
Part = tuple[Split, Shard | None]


def search_stage(context: Context) -> None:
    """One greedy decode and K samples, on pool and audit; the first alone to calibrate on.

    What is finished is sealed even if another part fails, now or, after a kill, by the next
    command: before that searches anything, so that it is held to the same task and model.
    """
    run, of = context.run, context.run.recipe.executor.shards
    parts = [
        (split, shard)
        for split in context.splits
        for shard in plan_search(run.path, split, context.shard, of)
    ]
    unsealed = deque(parts)
    _take_up(context, unsealed)
    left = [part for part in unsealed if finished(part_folder(run.path, *part)) is None]
    if left:
        try:
            _search(context, left)
        except GapftError:
            with contextlib.suppress(GapftError):  # the first error is the one
                _take_up(context, unsealed)
            raise
        _take_up(context, unsealed)
    if context.shard is None:
        for split in {split: None for split, shard in parts if shard}:
            merge_stage(context, split, [run])


def _search(context: Context, parts: Sequence[Part]) -> None:
    """Searches parts side by side, once the data of all of them are known to be good."""
    splits = list(dict.fromkeys(split for split, _ in parts))
    if len(splits) > 1:  # of one split alone, every job reads all before it begins
        check = Job(
            "read data", "gapft_harness.search:check_data", _arguments(context, splits=splits)
        )
        context.executor.run([check], context.progress)
    context.executor.run([_job(context, *part) for part in parts], context.progress)
    for part in parts:
        _wait_for(part_folder(context.run.path, *part))


def _wait_for(folder: Path) -> None:
    """Until the tables of a search that has ended are seen here.

    A shared file system may remember for a while that they were not there.

    Raises:
        GapftError: they do not come.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while finished(folder) is None:
        if time.monotonic() > deadline:
            raise GapftError(
                f"{folder}: its search has ended, and {_PATIENCE_S:g} s later its tables are not "
                "seen here; do all machines see the same run directory? The same command goes on"
            )
        time.sleep(0.5)


def _take_up(context: Context, parts: deque[Part]) -> None:
    """Seals the parts that are finished and takes them out, up to the first that is not.

    In their order: a run that was interrupted ends with the same manifest.
    """
    while parts and (facts := finished(part_folder(context.run.path, *parts[0]))) is not None:
        split, shard = parts.popleft()
        if shard is None:
            _finish(context, split, facts)
        else:
            _seal(context.run, f"{split}/{shard.folder}")
            if context.shard:
                _tell(context, f"{split}, shard {shard}", facts)


def merge_stage(context: Context, split: Split, sources: Sequence[RunDirectory]) -> bool:
    """Makes a split whole of its shards in ``sources``; False if they hold none of it."""
    facts = merge_split(context.run, split, sources)
    if facts is None:
        return False
    _finish(context, split, facts)
    return True


def merge_all(context: Context, shard_runs: Sequence[RunDirectory]) -> None:
    """Merges every split of which the run itself or one of ``shard_runs`` holds shards.

    Raises:
        UserError: none of them holds any.
    """
    places = {run.path.resolve(): run for run in (context.run, *shard_runs)}
    if not [split for split in context.splits if merge_stage(context, split, [*places.values()])]:
        raise UserError(
            f"no shards in {', '.join(str(run.path) for run in places.values())}: expected "
            "pool/shards/I-of-N or audit/shards/I-of-N, which gapft search --shard I/N makes"
        )


def _job(context: Context, split: Split, shard: Shard | None) -> Job:
    label, arguments = f"search {split}", _arguments(context, split=split)
    if shard is not None:
        label, arguments = f"{label}, shard {shard}", {**arguments, "shard": str(shard)}
    return Job(label, "gapft_harness.search:search", arguments, context.own_process)


def _arguments(context: Context, **more: Any) -> dict[str, Any]:
    return {
        "run_path": str(context.run.path),
        "plugin_files": list(context.plugin_files),
        "include_paths": [str(path) for path in context.include_paths],
        **more,
    }


def _finish(context: Context, split: Split, facts: dict[str, Any]) -> None:
    """A whole split is there: seal it, record what was found, say what people should see."""
    settings = context.run.recipe.scaling
    if split == CALIBRATION and settings is not None:
        hopeless = no_scale_warning(facts["verdicts"].get("pass", 0), settings)
        facts = {**facts, "warnings": [*facts["warnings"], *([hopeless] if hopeless else [])]}
    record = record_search(split, facts)
    record(context.run.manifest())  # on a copy: what is refused is not sealed
    _seal(context.run, split)
    context.run.update_manifest(record)
    _tell(context, split, facts)


def _seal(run: RunDirectory, folder: str) -> None:
    for file in ("problems", "responses"):
        run.seal(f"{folder}/{file}.parquet")


def _tell(context: Context, name: str, facts: dict[str, Any]) -> None:
    for line in facts["task"]["dropped"]:
        context.say(line)
    for warning in facts["warnings"]:
        context.say(f"warning: {name}: {warning}")
