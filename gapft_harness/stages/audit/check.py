"""What ``gapft verify`` checks of decisions: whose problems, which adapter, which verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from gapft_harness.analysis.scaling import FIXED, SCALES
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.experiments.allocation.halves import exposed_file, read_halves
from gapft_harness.experiments.scaling.job import FOLDER, calibration_file, scaled_file
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory
from gapft_harness.run_directory.tables import read_ids
from gapft_harness.stages.differences import Findings, unequal_ids
from gapft_harness.stages.generation.sealing import read_facts
from gapft_harness.stages.search.check import Judge


def check_decisions(
    run: RunDirectory,
    manifest: dict[str, Any],
    selected: Sequence[Arm],
    trained: Sequence[Arm],
    judge: Judge,
    found: Findings,
) -> None:
    """Every table of decisions: its problems, its verdicts, and what it was decoded with."""
    for arm in selected:
        there = (run.path / "adapters" / arm.name).is_dir()
        for relative, split in _tables(manifest, arm):
            found.gather(relative, partial(_problems, run, arm, relative, split))
            found.gather(relative, partial(judge.check, run, manifest, relative, split))
            if not there:
                found.differences.append(f"{relative}: is there, and adapters/{arm.name} is not")
        if not there and f"{FOLDER}/{arm.name}" in manifest["files"]:
            found.differences.append(
                f"{FOLDER}/{arm.name}: is there, and adapters/{arm.name} is not"
            )
    audited = [arm for arm in trained if _audit(arm) in manifest["files"]]
    found.gather("decisions", partial(_decoded_with, run, audited))
    found.missing += [f"{arm.name} is not audited" for arm in trained if arm not in audited]
    if audited:
        found.checked.append(
            f"{len(audited)} arms' decisions are of the audit's problems, each once, and were "
            "decoded with their adapters"
        )


def _audit(arm: Arm) -> str:
    return f"decisions/{arm.name}.parquet"


def _tables(manifest: dict[str, Any], arm: Arm) -> Iterator[tuple[str, str]]:
    """The tables of an arm's decisions that are sealed, each with the split it answers."""
    files = [(_audit(arm), "audit"), (exposed_file(arm), "pool")]
    files += [(calibration_file(arm, scale), str(CALIBRATION)) for scale in SCALES]
    files += [(scaled_file(arm, scale), "audit") for scale in {*SCALES, FIXED} - {1.0}]
    return ((file, split) for file, split in files if file in manifest["files"])


def _problems(run: RunDirectory, arm: Arm, relative: str, split: str) -> Iterable[str]:
    """A table answers all problems of its split, or those that an allocation compares."""
    ids: Iterable[str] = read_ids(run.path / split / "problems.parquet")
    of = f"{split}/problems.parquet"
    allocation = run.recipe.allocation
    if relative == exposed_file(arm) and allocation is not None:
        ids, of = read_halves(run, allocation, arm.seed).problems, "the halves of its seed"
    yield from unequal_ids(relative, read_ids(run.path / relative), of, ids)


def _decoded_with(run: RunDirectory, audited: Sequence[Arm]) -> Iterable[str]:
    """The audits' decisions name the adapters that are there, where the sampler says anything."""
    said = {arm: read_facts(run.path / _audit(arm)).get("adapter") for arm in audited}
    for arm, adapter in said.items():
        if adapter is None:
            if any(said.values()):
                yield f"{_audit(arm)}: does not say what it was decoded with, as others do"
            continue
        if adapter["arm"] != arm.name:
            yield f"{_audit(arm)}: was decoded with the adapter of {adapter['arm']}"
        elif adapter["weights_sha256"] != weights_hash(run.path / "adapters" / arm.name):
            yield (f"{_audit(arm)}: was decoded with another adapter ({adapter['weights_sha256']})")
