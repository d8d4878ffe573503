"""Verification of arms: their adapters, and the prompts that GRPO drew."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gapft_harness.core.extras import find_version
from gapft_harness.core.records import Arm, Example
from gapft_harness.core.weights import weights_hash
from gapft_harness.engine.outputs import Output
from gapft_harness.engine.run import RECORDS
from gapft_harness.engine.step import Step
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registration import TrainerTraits
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_source
from gapft_harness.run_directory.tables import read_examples, read_states
from gapft_harness.stages.verify.differences import compare_values
from gapft_harness.stages.verify.searches import compare_weights
from gapft_harness.training.groups import (
    GROUPS,
    find_group_faults,
    group_facts,
    plan_prompts,
    read_groups,
)
from gapft_harness.training.ledger import (
    OPTIMIZER,
    PlannedStep,
    build_ledger,
    compute_ledger_facts,
    hash_sequences,
)
from gapft_harness.training.plan import budget, build_sequences, plan_steps

#: Facts that must be equal for all arms of a run, of one trainer, and of the same settings.
_RUN_KEYS = ("base_sha256", "end_id")
_TRAINER_KEYS = ("versions",)
_SETTINGS_KEYS = ("settings", "optimizer", "attention", "adapter_config.json")

#: Keys of ``adapter_config.json`` that may differ between arms: the base's location, the version of
#: PEFT, and a value that PEFT sets by the base's kind of layer, whatever the file contains.
_FREE_KEYS = ("base_model_name_or_path", "peft_version", "fan_in_fan_out")


def check_adapter(run: RunDirectory, plugins: Plugins, step: Step, output: Output) -> Iterable[str]:
    """Compare an adapter's folder, facts and log with its selection and the recipe.

    Args:
        run: the run.
        plugins: the loaded plugins.
        step: the step that trained it.
        output: the adapter's folder.
    """
    arm = Arm(*step.operational["arm"])
    where = step.name
    folder = output.path
    settings = run.recipe.resolve_training(arm.condition)
    trainer = plugins.get("trainer", settings.trainer)
    documented = trainer.require_traits(TrainerTraits).as_documented
    examples = read_examples(run.path / layout.selection_path(arm))
    facts = json.loads((folder / "training.json").read_text("utf-8"))
    sequences_by_slot = {s.slot: s for s in build_sequences(examples, settings)}
    steps = build_ledger(
        plan_steps(sequences_by_slot, settings, arm.seed), sequences_by_slot, settings
    )
    expected = {
        "seed": arm.seed,
        **compute_ledger_facts(steps),
        "sequences_sha256": hash_sequences(sequences_by_slot.values()),
        "budget": asdict(budget(examples, settings)),
        "truncated": sum(s.truncated for s in sequences_by_slot.values()),
        "settings": settings.model_dump(mode="json"),
        "adapter_sha256": weights_hash(folder),
    }
    source = read_source(run)
    if source.get("weights_sha256") is not None:
        expected["base_sha256"] = source["weights_sha256"]
    if documented:
        expected["optimizer"] = OPTIMIZER
    else:  # another trainer may leave out facts; those it gives must be right
        expected = {key: value for key, value in expected.items() if key in facts}
    yield from compare_values(f"{where}/training.json", facts, expected)
    recorded = {key: value for key, value in output.facts.items() if key != "seconds"}
    yield from compare_values(f"{where}/training.json", facts, recorded, f"{RECORDS} has")
    yield from compare_weights(where, step.settings["base"], facts.get("base_sha256"))
    if documented:  # another trainer may report fewer facts than its folder has
        for key in sorted(facts.keys() - recorded.keys()):
            yield f"{RECORDS}, {where}: the fact {key} is missing"
        needs_end = any(sequence.eos for sequence in sequences_by_slot.values())
        if (facts.get("end_id") is not None) != needs_end:
            yield (
                f"{where}/training.json: end_id is {facts.get('end_id')}, but "
                f"{'an' if needs_end else 'no'} end of a sequence is supervised"
            )
        end_ids = source.get("end_ids")
        if needs_end and end_ids is not None and facts.get("end_id") not in end_ids:
            yield (
                f"{where}/training.json: end_id is {facts.get('end_id')}, but the search's "
                f"responses ended with one of {end_ids}"
            )
        config = _read_own_config(folder / "adapter_config.json")
        expected = _build_config(settings)
        known = {key: expected[key] for key in expected.keys() & config.keys()}  # to this PEFT
        yield from compare_values(f"{where}/adapter_config.json", config, known)
    if (folder / GROUPS).is_file():
        yield from _check_groups(run, arm, examples, facts)
    log = folder / "training_log.jsonl"
    if documented or log.exists():
        yield from _check_log(f"{where}/training_log.jsonl", log, steps, facts)


def check_common_facts(run: RunDirectory, arms: Sequence[Arm]) -> Iterable[str]:
    """Compare the facts that arms must have in common, as far as their trainers give them."""
    first_values: dict[tuple[str, str], tuple[Arm, Any]] = {}
    for arm in arms:
        settings = run.recipe.resolve_training(arm.condition)
        path = run.path / layout.adapter_path(arm) / "training.json"
        facts = json.loads(path.read_text("utf-8"))
        facts["adapter_config.json"] = _read_own_config(path.with_name("adapter_config.json"))
        keys_by_scope = {
            "": _RUN_KEYS,
            f"trainer {settings.trainer}": _TRAINER_KEYS,
            settings.model_dump_json(): _SETTINGS_KEYS,
        }
        for scope, keys in keys_by_scope.items():
            for key in keys:
                if (b := facts.get(key)) is None:
                    continue
                other, a = first_values.setdefault((scope, key), (arm, b))
                if a != b:
                    places = f"{layout.adapter_path(other)} and {layout.adapter_path(arm)}"
                    yield f"{places} differ in {key}: {a} and {b}"


def _build_config(settings: Training) -> dict[str, Any]:
    """Build the configuration that PEFT writes for an adapter of these settings.

    Without PEFT, only what the recipe sets; ``find_unchecked_config`` says so.
    """
    if not find_version("peft"):
        return {
            "r": settings.rank,
            "lora_alpha": settings.alpha,
            "lora_dropout": settings.dropout,
            "target_modules": sorted(settings.target_modules),
        }
    from gapft_harness.training.model import build_lora_config

    config = build_lora_config(settings).to_dict() | {"inference_mode": True}  # as PEFT saves it
    plain: dict[str, Any] = json.loads(json.dumps(config, default=sorted))  # sets become lists
    return plain


def find_unchecked_config() -> str:
    """Describe what of an adapter's configuration is not compared here; empty if all is."""
    if find_version("peft"):
        return ""
    return (
        "not compared, because peft is not installed: what the recipe does not set in the "
        "adapters' adapter_config.json"
    )


def _read_own_config(path: Path) -> dict[str, Any]:
    """Return an adapter's configuration without the keys that may differ."""
    config = json.loads(path.read_text("utf-8"))
    return {key: value for key, value in config.items() if key not in _FREE_KEYS}


def _check_groups(
    run: RunDirectory, arm: Arm, examples: Sequence[Example], facts: Mapping[str, Any]
) -> Iterator[str]:
    """Compare an online training's groups of responses with the plan of its prompts."""
    settings = run.recipe.resolve_training(arm.condition)
    where = layout.adapter_path(arm)
    groups = list(read_groups(run.path / where))
    table = run.path / layout.states_path("pool")
    states = {row.problem_id: row.state for row in read_states(table)}
    updates = budget(examples, settings).steps
    plan = plan_prompts(sorted(states), updates, settings.grpo, arm.seed)
    yield from find_group_faults(f"{where}/{GROUPS}", groups, plan, states, settings.grpo)
    expected = {"updates": updates, **group_facts(groups)}
    yield from compare_values(f"{where}/training.json", facts, expected)
    log = f"{where}/updates.jsonl"
    lines = (run.path / log).read_text("utf-8").splitlines()
    if [json.loads(line)["update"] for line in lines] != [*range(1, updates + 1)]:
        yield f"{log}: does not have the updates 1 to {updates}, each once"


def _check_log(
    where: str, path: Path, steps: Sequence[PlannedStep], facts: dict[str, Any]
) -> Iterable[str]:
    """Compare the log with the planned steps: order, members, tokens and weights."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    if len(lines) != len(steps):
        yield f"{where}: has {len(lines)} steps, but the plan has {len(steps)}"
    for number, (line, step) in enumerate(zip(lines, steps, strict=False), start=1):
        yield from compare_values(
            f"{where}, line {number}", line, step.to_log_line(), "the plan gives"
        )
        for key in ("loss", "grad_norm"):
            if not math.isfinite(line[key]):
                yield f"{where}, line {number}: {key} is {line[key]}"
    if lines:
        losses = {"first_loss": lines[0]["loss"], "last_loss": lines[-1]["loss"]}
        yield from compare_values(
            where.replace("_log.jsonl", ".json"), facts, losses, "the log has"
        )
