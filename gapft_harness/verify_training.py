"""What ``gapft verify`` checks of an adapter: its log and facts against its selection."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from gapft_harness.model_files import weights_hash
from gapft_harness.records import Arm, Example
from gapft_harness.run_directory import RunDirectory
from gapft_harness.sealing import read_facts
from gapft_harness.training.ledger import Step, ledger, ledger_facts
from gapft_harness.training.plan import budget, plan, sequences

#: What every arm of a run must have in common, whatever its examples.
_ALIKE = ("settings", "optimizer", "base_sha256", "processes", "versions")

#: Keys of ``adapter_config.json`` and the settings that they come from.
_CONFIG = {"r": "rank", "lora_alpha": "alpha", "lora_dropout": "dropout"}


def check_adapter(
    run: RunDirectory, arm: Arm, examples: Sequence[Example], manifest: dict[str, Any]
) -> Iterable[str]:
    """Compares one arm's folder, facts and log with what its selection and the recipe give."""
    settings = run.recipe.training
    folder, where = run.path / "adapters" / arm.name, f"adapters/{arm.name}"
    facts = json.loads((folder / "training.json").read_text("utf-8"))
    fitted = {s.slot: s for s in sequences(examples, settings)}
    steps = ledger(plan(fitted, settings, arm.seed), fitted, settings)
    expected = {
        "condition": arm.condition,
        "seed": arm.seed,
        **ledger_facts(steps),
        "budget": asdict(budget(examples, settings)),
        "truncated": sum(s.truncated for s in fitted.values()),
        "settings": settings.model_dump(mode="json"),
        "adapter_sha256": weights_hash(folder),
    }
    searched = manifest["source"].get("weights_sha256")
    if searched is not None:
        expected["base_sha256"] = searched
    yield from unequal(f"{where}/training.json", facts, expected)
    recorded = {k: v for k, v in manifest["training"].get(arm.name, {}).items() if k != "seconds"}
    if recorded:
        yield from unequal(f"{where}/training.json", facts, recorded, "the manifest has")
    yield from _log(f"{where}/training_log.jsonl", (folder / "training_log.jsonl"), steps, facts)
    config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    right = {key: getattr(settings, name) for key, name in _CONFIG.items()}
    right |= {"target_modules": sorted(settings.target_modules), "bias": "none"}
    yield from unequal(f"{where}/adapter_config.json", config, right)
    decisions = run.path / "decisions" / f"{arm.name}.parquet"
    if decisions.exists() and (audited := read_facts(decisions).get("adapter")):
        used = audited["weights_sha256"]
        if used != expected["adapter_sha256"]:
            yield f"decisions/{arm.name}.parquet: was decoded with another adapter ({used})"


def check_alike(run: RunDirectory, arms: Sequence[Arm]) -> Iterable[str]:
    """Compares what the recipe gives all arms alike."""
    first: tuple[Arm, dict[str, Any]] | None = None
    for arm in arms:
        path = run.path / "adapters" / arm.name / "training.json"
        facts = json.loads(path.read_text("utf-8"))
        first = first or (arm, facts)
        for key in _ALIKE:
            a, b = first[1].get(key), facts.get(key)
            if b is None:
                yield f"adapters/{arm.name}/training.json: does not say {key}"
            elif a != b:
                yield f"arms {first[0].name} and {arm.name} differ in {key}: {a} and {b}"
        if first[1].get("fsdp") != facts.get("fsdp"):
            yield f"arms {first[0].name} and {arm.name} differ in fsdp: one shared the base out"


def _log(where: str, path: Any, steps: Sequence[Step], facts: dict[str, Any]) -> Iterable[str]:
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


def unequal(
    where: str, found: dict[str, Any], expected: dict[str, Any], says: str = "computed again it is"
) -> Iterable[str]:
    """Yields a sentence for each expected value that is not the one found."""
    for key, value in expected.items():
        if key not in found:
            yield f"{where}: does not say {key}, so it cannot be verified"
        elif found[key] != value:
            if isinstance(value, dict) and isinstance(found[key], dict):
                yield from unequal(f"{where}, {key}", found[key], value, says)
            else:
                yield f"{where}: {key} is {_short(found[key])}, {says} {_short(value)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
