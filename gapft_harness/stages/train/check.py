"""What ``gapft verify`` checks of an adapter: its log and facts against its selection."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Arm, Example
from gapft_harness.core.weights import weights_hash
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.facts import Manifest
from gapft_harness.stages.differences import unequal
from gapft_harness.stages.train.replicates import seeds_of
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

    Args:
        run: the run.
        arm: its condition and seed.
        examples: those of its selection.
        manifest: the run's.
        documented: whether its trainer declares ``as_documented``.
    """
    settings = run.recipe.training_of(arm.condition)
    where = layout.adapter(arm)
    folder = run.path / where
    facts = json.loads((folder / "training.json").read_text("utf-8"))
    fitted = {s.slot: s for s in sequences(examples, settings)}
    seeds = seeds_of(arm)
    steps = ledger(plan(fitted, settings, seeds.get("order", arm.seed)), fitted, settings)
    expected = {
        "condition": arm.condition,
        "seed": arm.seed,
        **({"variant": arm.variant, "seeds": seeds} if arm.variant else {}),
        **ledger_facts(steps),
        "sequences_sha256": sequences_hash(fitted.values()),
        "budget": asdict(budget(examples, settings)),
        "truncated": sum(s.truncated for s in fitted.values()),
        "settings": _settings(settings, facts),
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
    recorded = {k: v for k, v in manifest["training"].get(arm.name, {}).items() if k != "seconds"}
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
        config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
        yield from _config(f"{where}/adapter_config.json", config, settings)
    log = folder / "training_log.jsonl"
    if documented or log.exists():
        yield from _log(f"{where}/training_log.jsonl", log, steps, facts)


def _settings(settings: Training, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What an adapter has to say it was trained by; before there was a choice, it was plain."""
    whole, said = settings.model_dump(mode="json"), facts.get("settings")
    if settings.kernels == "plain" and isinstance(said, dict) and "kernels" not in said:
        del whole["kernels"]
    return whole


def check_alike(
    run: RunDirectory, arms: Sequence[Arm], documented: Mapping[str, bool]
) -> Iterable[str]:
    """Compares what the recipe gives arms alike.

    Args:
        run: the run.
        arms: those that are trained.
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
                if a != b:
                    yield f"arms {other.name} and {arm.name} differ in {key}: {a} and {b}"
        other, a = first.setdefault((settings.trainer, "fsdp"), (arm, facts.get("fsdp")))
        if a != facts.get("fsdp"):
            yield f"arms {other.name} and {arm.name} differ in fsdp: one shared the base out"


def _config(where: str, config: dict[str, Any], settings: Training) -> Iterable[str]:
    """The adapter's whole configuration is the one that the trainer makes of the settings.

    A key that the file lacks has PEFT's default, as it has when the adapter is loaded.
    """
    from gapft_harness.training.adapter.saving import default_config, saved_config

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
