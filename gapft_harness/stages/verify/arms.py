"""What ``gapft verify`` checks of arms: their adapters, and the decisions made with them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.extras import has
from gapft_harness.core.records import Arm, Example
from gapft_harness.core.weights import weights_hash
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.run_directory.parquet import read_facts, read_ids
from gapft_harness.stages.experiment import Answered, Experiment
from gapft_harness.stages.integrity.differences import Differences, unequal, unequal_ids
from gapft_harness.stages.train.online import check_groups
from gapft_harness.stages.train.stored import OF_THE_MANIFEST
from gapft_harness.stages.verify.judging import Rejudge
from gapft_harness.stages.verify.keys import Keys
from gapft_harness.stages.verify.versions import is_recorded
from gapft_harness.training.ledger import OPTIMIZER, Step, ledger, ledger_facts, sequences_hash
from gapft_harness.training.plan import budget, plan, sequences

#: What arms must have in common, whatever their examples: those of one run, of one trainer, and of
#: the same settings.
_OF_RUN = ("base_sha256",)
_OF_TRAINER = ("processes", "versions")
_OF_SETTINGS = ("settings", "optimizer", "adapter_config.json")

#: Keys of ``adapter_config.json`` that may differ: where the base lay, who wrote the file, and what
#: PEFT sets by the base's kind of layer, whatever the file says.
_FREE = ("base_model_name_or_path", "peft_version", "fan_in_fan_out")

#: What PEFT writes of its own where a base holds its experts fused, in place of modules' names.
_REWRITTEN = ("target_modules", "target_parameters", "rank_pattern", "alpha_pattern")


def check_adapter(
    run: RunDirectory,
    arm: Arm,
    examples: Sequence[Example],
    manifest: Manifest,
    documented: bool,
) -> Iterable[str]:
    """Compares one arm's folder, facts and log with what its selection and the recipe give.

    Without PEFT the adapter's configuration is not compared; the caller says so.

    Args:
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
    else:  # another trainer says what it likes; what it says must hold
        expected = {key: value for key, value in expected.items() if key in facts}
    yield from unequal(f"{where}/training.json", facts, expected)
    said = manifest["training"].get(arm.name, {})
    recorded = {key: value for key, value in said.items() if key not in OF_THE_MANIFEST}
    yield from unequal(f"{where}/training.json", facts, recorded, "the manifest has")
    if not recorded:
        yield f"manifest.json: holds nothing of the training of {arm.name}"
    if documented:  # another trainer's manifest may say less than its folder
        for key in sorted(facts.keys() - recorded.keys()) if recorded else ():
            yield f"manifest.json, training of {arm.name}: does not say {key}"
        needs_end = any(sequence.eos for sequence in fitted.values())
        if (facts.get("end_id") is not None) != needs_end:
            yield (
                f"{where}/training.json: end_id is {facts.get('end_id')}, and "
                f"{'an' if needs_end else 'no'} end of a sequence is supervised"
            )
        ends = manifest["source"].get("end_ids")
        if needs_end and ends is not None and facts.get("end_id") not in ends:
            yield (
                f"{where}/training.json: end_id is {facts.get('end_id')}, and the search's "
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
    """Compares what the recipe gives arms alike.

    Args:
        documented: by trainer, whether it declares ``as_documented``.
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
            for key in (*keys, *sometimes):  # not every arm says one of the latter
                b = facts.get(key)
                must = key in keys and (
                    documented[settings.trainer] or (whose and (whose, key) in first)
                )
                if b is None and must:
                    yield f"{layout.adapter(arm)}/training.json: does not say {key}"
                if b is None:
                    continue
                other, a = first.setdefault((whose, key), (arm, b))
                if key == "versions" and is_recorded(run.manifest(), other, arm):
                    continue  # named by ``check_versions``
                if a != b:
                    yield f"arms {other.name} and {arm.name} differ in {key}: {a} and {b}"
        other, a = first.setdefault((settings.trainer, "fsdp"), (arm, facts.get("fsdp")))
        if a != facts.get("fsdp"):
            yield f"arms {other.name} and {arm.name} differ in fsdp: one shared the base out"


def _config(where: str, config: dict[str, Any], settings: Training) -> Iterable[str]:
    """The adapter's whole configuration is the one that the trainer makes of the settings.

    A key that the file lacks has PEFT's default, as it has when the adapter is loaded.
    """
    from gapft_harness.training.adapter import default_config, saved_config

    free = {*_FREE, *(_REWRITTEN if config.get("target_parameters") else ())}
    right = {k: _or_none(v) for k, v in saved_config(settings).items() if k not in free}
    said = {k: _or_none(v) for k, v in (default_config() | config).items()}
    yield from unequal(where, said, right)
    for key in sorted(config.keys() - right.keys() - free):
        if said[key]:  # a later PEFT's key that is off changes nothing
            yield (
                f"{where}: says {key}, which the installed PEFT does not know; it was written by "
                f"version {config.get('peft_version')}"
            )


def _or_none(value: Any) -> Any:
    """Nothing at all for an empty list or mapping: PEFT writes either, by the base's kind."""
    return None if value in ([], {}) else value


def _own(path: Path) -> dict[str, Any]:
    """What an adapter's configuration says of the adapter itself."""
    config = json.loads(path.read_text("utf-8"))
    return {key: value for key, value in config.items() if key not in _FREE}


def _log(where: str, path: Path, steps: Sequence[Step], facts: dict[str, Any]) -> Iterable[str]:
    """The log has every planned step once, in order, with its members, tokens and weight."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    if len(lines) != len(steps):
        yield f"{where}: has {len(lines)} steps, the plan {len(steps)}"
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
    experiments: Sequence[Experiment],
    judge_of: Mapping[str, Rejudge],
    keys: Keys,
    findings: Differences,
) -> list[str]:
    """Every table of decisions: its problems, its verdicts, and what it was decoded with.

    Args:
        judge_of: as ``judges`` gives them.
        experiments: all that are registered: what one sealed is checked though the recipe does
            not ask for it any more.
        keys: computes the tables' keys again.

    Returns:
        The tables.
    """
    seen = set[str]()
    for arm in selected:
        adapter = layout.adapter(arm)
        there = (run.path / adapter).is_dir()
        tables = [
            Answered(layout.decisions_on(arm, audit), layout.audit(audit))
            for audit in _audits(manifest)
        ]
        tables += [table for each in experiments for table in each.answered(run, arm)]
        for table in (of for of in tables if of.file in manifest["files"].keys() - seen):
            seen.add(table.file)
            findings.gather(table.file, partial(_problems, run, table))
            judge = judge_of.get(layout.further(table.split), judge_of[""])
            findings.gather(
                table.file,
                partial(judge.check, run, manifest, table.file, table.split, table.sampled),
            )
            findings.gather(table.file, partial(keys.check_table, table.file, table.split))
            if not there:
                findings.differences.append(f"{table.file}: is there, and {adapter} is not")
        for made in (each.file(arm) for each in experiments if each.folder):
            if not there and made in manifest["files"]:
                findings.differences.append(f"{made}: is there, and {adapter} is not")
    for audit in _audits(manifest):
        files = {arm: layout.decisions_on(arm, audit) for arm in trained}
        audited = {arm: file for arm, file in files.items() if file in manifest["files"]}
        findings.gather(layout.DECISIONS, partial(decoded_with, run, audited))
        on = f" on {audit}" if audit else ""
        findings.missing += [
            f"{arm.name} is not audited{on}" for arm in trained if arm not in audited
        ]
        if audited:
            whose = f"the audit {audit}'s" if audit else "the audit's"
            findings.checked.append(
                f"{len(audited)} arms' decisions are of {whose} problems, each once, and were "
                "decoded with their adapters"
            )
    return sorted(seen)


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
    """Yield a sentence for each table of decisions that names another adapter than the sealed one.

    Where no sampler said what it decoded with, there is none.

    Args:
        run: the run directory.
        audited: of each arm its table.
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
