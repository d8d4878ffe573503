"""What ``gapft verify`` checks of decisions: whose problems, which adapter, which verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_facts, read_ids
from gapft_harness.stages.differences import Differences, unequal_ids
from gapft_harness.stages.experiment import Answered, Experiment
from gapft_harness.stages.search.rejudging import Rejudge


def check_decisions(
    run: RunDirectory,
    manifest: dict[str, Any],
    selected: Sequence[Arm],
    trained: Sequence[Arm],
    experiments: Sequence[Experiment],
    judge: Rejudge,
    found: Differences,
) -> None:
    """Every table of decisions: its problems, its verdicts, and what it was decoded with.

    Args:
        run: the run.
        manifest: its manifest.
        selected: arms that have a training set.
        trained: those of them that have an adapter.
        experiments: all that are registered: what one sealed is checked though the recipe does
            not ask for it any more.
        judge: judges verdicts again.
        found: gets the differences.
    """
    for arm in selected:
        adapter = layout.adapter(arm)
        there = (run.path / adapter).is_dir()
        tables = [Answered(layout.decisions(arm), "audit")]
        tables += [table for each in experiments for table in each.answered(run, arm)]
        for table in (table for table in tables if table.file in manifest["files"]):
            found.gather(table.file, partial(_problems, run, table))
            found.gather(table.file, partial(judge.check, run, manifest, table.file, table.split))
            if not there:
                found.differences.append(f"{table.file}: is there, and {adapter} is not")
        for made in (each.file(arm) for each in experiments if each.folder):
            if not there and made in manifest["files"]:
                found.differences.append(f"{made}: is there, and {adapter} is not")
    audited = [arm for arm in trained if layout.decisions(arm) in manifest["files"]]
    found.gather(layout.DECISIONS, partial(_decoded_with, run, audited))
    found.missing += [f"{arm.name} is not audited" for arm in trained if arm not in audited]
    if audited:
        found.checked.append(
            f"{len(audited)} arms' decisions are of the audit's problems, each once, and were "
            "decoded with their adapters"
        )


def _problems(run: RunDirectory, table: Answered) -> Iterable[str]:
    """A table answers all problems of its split, or those that its experiment names."""
    of = layout.problems(table.split)
    ids: Iterable[str] = read_ids(run.path / of)
    if table.ids is not None:
        ids, of = table.ids(), table.of
    yield from unequal_ids(table.file, read_ids(run.path / table.file), of, ids)


def _decoded_with(run: RunDirectory, audited: Sequence[Arm]) -> Iterable[str]:
    """The audits' decisions name the adapters that are there, where the sampler says anything."""
    said = {arm: read_facts(run.path / layout.decisions(arm)).get("adapter") for arm in audited}
    for arm, adapter in said.items():
        table = layout.decisions(arm)
        if adapter is None:
            if any(said.values()):
                yield f"{table}: does not say what it was decoded with, as others do"
            continue
        if adapter["arm"] != arm.name:
            yield f"{table}: was decoded with the adapter of {adapter['arm']}"
        elif adapter["weights_sha256"] != weights_hash(run.path / layout.adapter(arm)):
            yield (f"{table}: was decoded with another adapter ({adapter['weights_sha256']})")
