"""What stages record in the manifest of what their jobs found: changes for ``update_manifest``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, SPLITS
from gapft_harness.run_directory.manifest import (
    AuditFacts,
    Manifest,
    TaskFacts,
    record_warnings,
    verifier_of,
)


def record_search(split: str, facts: dict[str, Any]) -> Callable[[Manifest], None]:
    """The task, the model and the verdicts of a split's search.

    Args:
        facts: what its search found; of a further audit with ``said``, by what choice.

    Raises:
        UserError: when it is applied, if another split was searched with another model.
    """

    def change(manifest: Manifest) -> None:
        task, name = cast(TaskFacts, dict(facts["task"])), layout.further(split)
        record_warnings(manifest, task.pop("warnings", []))
        if name:
            audit: AuditFacts = {"task": task, "said": facts["said"]}
            record_warnings(manifest, _other_params(manifest, name, task))
            manifest.setdefault("audits", {})[name] = audit
        else:
            _record_task(manifest, task)
        require_same_model(manifest, split, facts["source"])
        if "imported" in facts:
            manifest.setdefault("imported", {})[split] = facts["imported"]
        if "imported" not in facts or not manifest["source"]:
            manifest["source"] = facts["source"]  # what a model says of itself is said of a run
        record_judging(manifest, split, facts)

    return change


def _record_task(manifest: Manifest, task: TaskFacts) -> None:
    """The run's own task, of which pool, audit and calibration are."""
    earlier = manifest["task"].get("dropped", [])
    task["dropped"] = earlier + [line for line in task["dropped"] if line not in earlier]
    if "keep" in manifest["task"]:  # another response rule may have made the states since
        task["keep"] = manifest["task"]["keep"]
    manifest["task"] = task


def _other_params(manifest: Manifest, name: str, task: TaskFacts) -> list[str]:
    """A warning if an audit's answers are judged by the run's verifier under another rule."""
    own = manifest["task"]
    key: Final = "verifier_params"
    if own.get("verifier") != task["verifier"] or own[key] == task[key]:
        return []
    return [
        f"audit {name}: verified by {task['verifier']} with {task[key]}, the run's own task with "
        f"{own[key]}; key audits.{name}.verifier changes it, in a new run directory"
    ]


def require_same_model(manifest: Manifest, split: str, source: Mapping[str, Any]) -> None:
    """Stops if a split's model is another than that of the splits that are recorded.

    Two models are told apart by their weights' hashes; where one has none (servers, plugins), by
    the names that both say. The start tokens of their prompts are part of them.

    Raises:
        UserError: it is another; the message holds both hashes or names.
    """
    before = manifest["source"]
    hashes = "weights_sha256"
    keys = ["model", "pretrained"]
    if before.get(hashes) and source.get(hashes):
        keys = [hashes]
    elif source.get("adapter"):  # a server has a model of its own name for each adapter
        keys = ["pretrained"]
    for key in (*keys, "start_ids"):
        earlier, now = before.get(key), source.get(key)
        told = "start_ids" in before if key == "start_ids" else None not in (earlier, now)
        if told and earlier != now:
            others = [s for s in (*SPLITS, CALIBRATION) if s in manifest["verdict_counts"]]
            searched = " and ".join(s for s in others if s != split) or "the run"
            raise UserError(
                f"{split}: its model is another than that of {searched}: {key} {now} here, "
                f"{earlier} there; expected one model for all splits: restore it, remove the "
                f"folder {split}/ of the run directory if it holds responses, and run the same "
                "command again, or start a new run directory"
            )


def require_same_rules(
    manifest: Manifest, name: str, verifier: str, said: Mapping[str, Any]
) -> None:
    """Stops before responses are generated whose verdicts could not be told from other rules'.

    For verifiers whose verdicts are not judged again (``rejudge=False``): ``gapft verify`` could
    not say which of them differ.

    Args:
        verifier: the name of what judges it; what another one judged is not compared.

    Raises:
        UserError: others of the run were judged by other rules.
    """
    for other, before in manifest["judged_by"].items():
        if other == name or verifier_of(manifest, other) != verifier:
            continue
        if before.get("rules") != said.get("rules"):
            raise UserError(
                f"{name}: would be judged by other rules than {other}: {said.get('rules')} here, "
                f"{before.get('rules') or 'none told'} there; expected one "
                "edition for a whole run, or its rates could not be compared. Go on with the "
                "version of gapft-harness that began it, or start a new run directory"
            )


def record_judging(manifest: Manifest, name: str, facts: dict[str, Any]) -> None:
    """What was found when the responses of a split or an arm were judged, and by what."""
    for section, key in (
        ("verdict_counts", "verdicts"),
        ("finish_reasons", "finish_reasons"),
        ("drawn", "drawn"),
        ("judged_by", "judged_by"),
        ("executions", "executions"),
        ("stored", "stored"),
        ("reused", "reused"),
        ("made_with", "made_with"),
    ):
        if key in facts:
            cast(dict[str, Any], manifest).setdefault(section, {})[name] = facts[key]
    record_warnings(manifest, [f"{name}: {warning}" for warning in facts["warnings"]])


def recorder(section: str, key: str, value: Any) -> Callable[[Manifest], None]:
    """One entry of a section."""

    def change(manifest: Manifest) -> None:
        cast(dict[str, Any], manifest).setdefault(section, {})[key] = value

    return change
