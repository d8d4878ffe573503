"""What ``gapft verify`` checks of decisions: whose problems, which adapter, which verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.facts import Manifest
from gapft_harness.run_directory.tables import read_facts, read_ids
from gapft_harness.stages.differences import Differences, unequal_ids
from gapft_harness.stages.experiment import Answered, Experiment
from gapft_harness.stages.search.judges import Judges


def check_decisions(
    run: RunDirectory,
    manifest: Manifest,
    selected: Sequence[Arm],
    trained: Sequence[Arm],
    experiments: Sequence[Experiment],
    judge: Judges,
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
        tables = [
            Answered(layout.decisions_on(arm, audit), layout.audit(audit))
            for audit in _audits(manifest)
        ]
        tables += [table for each in experiments for table in each.answered(run, arm)]
        for table in (table for table in tables if table.file in manifest["files"]):
            found.gather(table.file, partial(_problems, run, table))
            found.gather(table.file, partial(judge.check, run, manifest, table.file, table.split))
            if not there:
                found.differences.append(f"{table.file}: is there, and {adapter} is not")
        for made in (each.file(arm) for each in experiments if each.folder):
            if not there and made in manifest["files"]:
                found.differences.append(f"{made}: is there, and {adapter} is not")
    for audit in _audits(manifest):
        files = {arm: layout.decisions_on(arm, audit) for arm in trained}
        audited = {arm: file for arm, file in files.items() if file in manifest["files"]}
        found.gather(layout.DECISIONS, partial(decoded_with, run, audited))
        on = f" on {audit}" if audit else ""
        found.missing += [f"{arm.name} is not audited{on}" for arm in trained if arm not in audited]
        if audited:
            whose = f"the audit {audit}'s" if audit else "the audit's"
            found.checked.append(
                f"{len(audited)} arms' decisions are of {whose} problems, each once, and were "
                "decoded with their adapters"
            )


def _audits(manifest: Manifest) -> list[str]:
    """The run's own audit, which has no name, and the further ones that are searched."""
    return ["", *manifest.get("audits", {})]


def _problems(run: RunDirectory, table: Answered) -> Iterable[str]:
    """A table answers all problems of its split, or those that its experiment names."""
    of = layout.problems(table.split)
    ids: Iterable[str] = read_ids(run.path / of)
    if table.ids is not None:
        ids, of = table.ids(), table.of
    yield from unequal_ids(table.file, read_ids(run.path / table.file), of, ids)


def decoded_with(run: RunDirectory, audited: Mapping[Arm, str]) -> Iterable[str]:
    """Decisions name the adapters that are there, where the sampler says anything.

    Args:
        run: the run.
        audited: of each arm, which may be a replicate, its table.
    """
    said = {arm: read_facts(run.path / file).get("adapter") for arm, file in audited.items()}
    for arm, adapter in said.items():
        table = audited[arm]
        if adapter is None:
            if any(said.values()):
                yield f"{table}: does not say what it was decoded with, as others do"
            continue
        if adapter["arm"] != arm.name:
            yield f"{table}: was decoded with the adapter of {adapter['arm']}"
        elif adapter["weights_sha256"] != weights_hash(run.path / layout.adapter(arm)):
            yield (f"{table}: was decoded with another adapter ({adapter['weights_sha256']})")
