"""Verification of arms: their adapters, and the decisions made with them."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.extras import has
from gapft_harness.core.records import SOURCE, Arm, Example
from gapft_harness.core.weights import weights_hash
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.run_directory.parquet import read_facts, read_ids
from gapft_harness.stages.audit import open_adapter
from gapft_harness.stages.integrity.differences import Differences, unequal, unequal_ids
from gapft_harness.stages.train.online import check_groups
from gapft_harness.stages.train.stored import OF_THE_MANIFEST
from gapft_harness.stages.verify.judging import Rejudge
from gapft_harness.stages.verify.keys import Keys
from gapft_harness.stages.verify.versions import is_recorded
from gapft_harness.training.ledger import OPTIMIZER, Step, ledger, ledger_facts, sequences_hash
from gapft_harness.training.plan import budget, plan, sequences

#: Facts that must be equal for all arms of a run, of one trainer, and of the same settings.
_OF_RUN = ("base_sha256",)
_OF_TRAINER = ("processes", "versions")
_OF_SETTINGS = ("settings", "optimizer", "adapter_config.json")

#: Keys of ``adapter_config.json`` that may differ: the base's location, the version of PEFT, and a
#: value that PEFT sets by the base's kind of layer, whatever the file contains.
_FREE = ("base_model_name_or_path", "peft_version", "fan_in_fan_out")

#: Keys that PEFT rewrites for a base with fused experts, instead of modules' names.
_REWRITTEN = ("target_modules", "target_parameters", "rank_pattern", "alpha_pattern")


def check_adapter(
    run: RunDirectory,
    arm: Arm,
    examples: Sequence[Example],
    manifest: Manifest,
    documented: bool,
) -> Iterable[str]:
    """Compare one arm's folder, facts and log with its selection and the recipe.

    Without PEFT the adapter's configuration is not compared; the caller reports this.

    Args:
        run: the run.
        arm: the arm.
        examples: its training set.
        manifest: the run's manifest.
        documented: whether its trainer declares ``as_documented``.
    """
    settings = run.recipe.training_of(arm.condition)
    where = layout.adapter(arm)
    folder = run.path / where
    facts = json.loads((folder / "training.json").read_text("utf-8"))
    fitted = {s.slot: s for s in sequences(examples, settings)}
    steps = ledger(plan(fitted, settings, arm.seed), fitted, settings)
    expected = {
        "condition": arm.condition,
        "seed": arm.seed,
        **ledger_facts(steps),
        "sequences_sha256": sequences_hash(fitted.values()),
        "budget": asdict(budget(examples, settings)),
        "truncated": sum(s.truncated for s in fitted.values()),
        "settings": settings.model_dump(mode="json"),
        "adapter_sha256": weights_hash(folder),
    }
    searched = manifest["source"].get("weights_sha256")
    if searched is not None:
        expected["base_sha256"] = searched
    if documented:
        expected["optimizer"] = OPTIMIZER
    else:  # another trainer may leave out facts; those it gives must be right
        expected = {key: value for key, value in expected.items() if key in facts}
    yield from unequal(f"{where}/training.json", facts, expected)
    said = manifest["training"].get(arm.name, {})
    recorded = {key: value for key, value in said.items() if key not in OF_THE_MANIFEST}
    yield from unequal(f"{where}/training.json", facts, recorded, "the manifest has")
    if not recorded:
        yield f"manifest.json: has no facts on the training of {arm.name}"
    if documented:  # another trainer's manifest may have fewer facts than its folder
        for key in sorted(facts.keys() - recorded.keys()) if recorded else ():
            yield f"manifest.json, training of {arm.name}: {key} is missing"
        needs_end = any(sequence.eos for sequence in fitted.values())
        if (facts.get("end_id") is not None) != needs_end:
            yield (
                f"{where}/training.json: end_id is {facts.get('end_id')}, but "
                f"{'an' if needs_end else 'no'} end of a sequence is supervised"
            )
        ends = manifest["source"].get("end_ids")
        if needs_end and ends is not None and facts.get("end_id") not in ends:
            yield (
                f"{where}/training.json: end_id is {facts.get('end_id')}, but the search's "
                f"responses ended with one of {ends}"
            )
        config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
        if has("peft"):
            yield from _config(f"{where}/adapter_config.json", config, settings)
    yield from check_groups(run, arm, examples, facts)
    log = folder / "training_log.jsonl"
    if documented or log.exists():
        yield from _log(f"{where}/training_log.jsonl", log, steps, facts)


def check_alike(
    run: RunDirectory, arms: Sequence[Arm], documented: Mapping[str, bool]
) -> Iterable[str]:
    """Compare the facts that arms must have in common.

    Args:
        run: the run.
        arms: the arms.
        documented: whether each trainer declares ``as_documented``.
    """
    first: dict[tuple[str, str], tuple[Arm, Any]] = {}
    for arm in arms:
        settings = run.recipe.training_of(arm.condition)
        path = run.path / layout.adapter(arm) / "training.json"
        facts = json.loads(path.read_text("utf-8"))
        facts["adapter_config.json"] = _own(path.with_name("adapter_config.json"))
        alike = {
            "": (_OF_RUN, ("end_id",)),
            f"trainer {settings.trainer}": (_OF_TRAINER, ()),
            settings.model_dump_json(): (_OF_SETTINGS, ("attention",)),
        }
        for whose, (keys, sometimes) in alike.items():
            for key in (*keys, *sometimes):  # the latter may be missing
                b = facts.get(key)
                must = key in keys and (
                    documented[settings.trainer] or (whose and (whose, key) in first)
                )
                if b is None and must:
                    yield f"{layout.adapter(arm)}/training.json: {key} is missing"
                if b is None:
                    continue
                other, a = first.setdefault((whose, key), (arm, b))
                if key == "versions" and is_recorded(run.manifest(), other, arm):
                    continue  # ``check_versions`` reports it
                if a != b:
                    yield f"arms {other.name} and {arm.name} differ in {key}: {a} and {b}"
        other, a = first.setdefault((settings.trainer, "fsdp"), (arm, facts.get("fsdp")))
        if a != facts.get("fsdp"):
            yield f"arms {other.name} and {arm.name} differ in fsdp: one sharded the base"


def _config(where: str, config: dict[str, Any], settings: Training) -> Iterable[str]:
    """Compare an adapter's configuration with the one that the trainer builds from the settings.

    A missing key has PEFT's default, as when the adapter is loaded.
    """
    from gapft_harness.training.adapter import default_config, saved_config

    free = {*_FREE, *(_REWRITTEN if config.get("target_parameters") else ())}
    right = {k: _or_none(v) for k, v in saved_config(settings).items() if k not in free}
    said = {k: _or_none(v) for k, v in (default_config() | config).items()}
    yield from unequal(where, said, right)
    for key in sorted(config.keys() - right.keys() - free):
        if said[key]:  # a newer PEFT's key that is off changes nothing
            yield (
                f"{where}: has the key {key}, which the installed PEFT does not know; the file was "
                f"written by PEFT {config.get('peft_version')}"
            )


def _or_none(value: Any) -> Any:
    """Return None for an empty list or mapping: PEFT writes either, by the base's kind."""
    return None if value in ([], {}) else value


def _own(path: Path) -> dict[str, Any]:
    """Return an adapter's configuration without the keys that may differ."""
    config = json.loads(path.read_text("utf-8"))
    return {key: value for key, value in config.items() if key not in _FREE}


def _log(where: str, path: Path, steps: Sequence[Step], facts: dict[str, Any]) -> Iterable[str]:
    """Compare the log with the planned steps: order, members, tokens and weights."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    if len(lines) != len(steps):
        yield f"{where}: has {len(lines)} steps, but the plan has {len(steps)}"
    for number, (line, step) in enumerate(zip(lines, steps, strict=False), start=1):
        yield from unequal(f"{where}, line {number}", line, step.line(), "the plan gives")
        for key in ("loss", "grad_norm"):
            if not math.isfinite(line[key]):
                yield f"{where}, line {number}: {key} is {line[key]}"
    if lines:
        ends = {"first_loss": lines[0]["loss"], "last_loss": lines[-1]["loss"]}
        yield from unequal(where.replace("_log.jsonl", ".json"), facts, ends, "the log has")


def check_decisions(
    run: RunDirectory,
    manifest: Manifest,
    selected: Sequence[Arm],
    trained: Sequence[Arm],
    judge_of: Mapping[str, Rejudge],
    keys: Keys,
    findings: Differences,
) -> None:
    """Check every table of decisions on an audit: problems, verdicts, adapters.

    Args:
        run: the run.
        manifest: its manifest.
        selected: the arms with a training set.
        trained: the arms with an adapter.
        judge_of: the judges of ``open_judges``.
        keys: recomputes the table's keys.
        findings: receives the results.
    """
    audits = ["", *manifest.get("audits", {})]
    for arm in selected:
        for audit in audits:
            table = layout.decisions_on(arm, audit)
            if table in manifest["files"]:
                check_table(run, manifest, table, layout.audit(audit), judge_of, keys, findings)
                if not (run.path / layout.adapter(arm)).is_dir():
                    findings.differences.append(
                        f"{table}: exists, but {layout.adapter(arm)} does not"
                    )
    for audit in audits:
        files = {layout.decisions_on(arm, audit): arm for arm in trained}
        audited = {file: (arm, 1.0) for file, arm in files.items() if file in manifest["files"]}
        findings.gather(layout.DECISIONS, partial(decoded_with, run, audited))
        on = f" on {audit}" if audit else ""
        findings.missing += [
            f"{arm.name} is not audited{on}" for file, arm in files.items() if file not in audited
        ]
        if audited:
            whose = f"the audit {audit}'s" if audit else "the audit's"
            findings.checked.append(
                f"{len(audited)} arms' decisions are of {whose} problems, each once, and were "
                "decoded with their adapters"
            )


def check_table(
    run: RunDirectory,
    manifest: Manifest,
    table: str,
    split: str,
    judge_of: Mapping[str, Rejudge],
    keys: Keys,
    findings: Differences,
    ids: Iterable[str] | None = None,
    sampled: bool = False,
) -> None:
    """Compare a table of decisions with its problems, and judge it again.

    Args:
        run: the run directory.
        manifest: its manifest.
        table: the table.
        split: the split of its problems.
        judge_of: the judges of ``open_judges``.
        keys: recomputes the table's keys.
        findings: receives the differences.
        ids: the problems that it must answer; None for all problems of the split.
        sampled: whether it contains samples, equally many of each problem.
    """
    problems, judge = layout.problems(split), judge_of.get(layout.further(split), judge_of[""])

    def compare() -> Iterable[str]:
        expected = read_ids(run.path / problems) if ids is None else ids
        whose = problems if ids is None else "its step"
        return unequal_ids(table, read_ids(run.path / table), whose, expected)

    findings.gather(table, compare)
    findings.gather(table, partial(judge.check, run, manifest, table, split, sampled))
    findings.gather(table, partial(keys.check_table, table, split))


def decoded_with(run: RunDirectory, tables: Mapping[str, tuple[Arm, float]]) -> Iterable[str]:
    """Yield a sentence for each table of decisions that names another adapter than its own.

    If no table records its adapter, nothing is compared.

    Args:
        run: the run directory.
        tables: the arm and the scale of its adapter's update for each table.
    """
    there = [table for table in tables if (run.path / table).exists()]
    said = {table: read_facts(run.path / table).get("adapter") for table in there}
    hashes: dict[tuple[Arm, float], str] = {}
    for table, adapter in said.items():
        arm, scale = tables[table]
        at = f" at scale {scale:g}" if scale != 1 else ""
        if arm.condition == SOURCE:
            if adapter is not None:
                yield f"{table}: was decoded with an adapter, but is of the source model"
            continue
        if adapter is None:
            if any(said.values()):
                yield f"{table}: does not record its adapter, but other tables do"
            continue
        if (arm, scale) not in hashes:
            with (
                tempfile.TemporaryDirectory() as folder,
                open_adapter(run, arm, scale, Path(folder) / arm.name) as own,
            ):
                hashes[arm, scale] = weights_hash(Path(own.path)) if own else ""
        if adapter["arm"] != arm.name:
            yield f"{table}: was decoded with the adapter of {adapter['arm']}"
        elif adapter["weights_sha256"] != hashes[arm, scale]:
            yield (
                f"{table}: was decoded with a different adapter than {arm.name}{at} "
                f"({adapter['weights_sha256']})"
            )
