"""The origin of a run that starts from an arm of an earlier run: ``gapft run --from RUN:ARM``.

Everything that later stages need from the earlier run is copied at the start: its identity into the
manifest's section ``origin``, and its tables of the audit, byte by byte, into ``rounds/NUMBER``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import replace_file, sha256
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import read_training_facts
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest, MergedSource, RoundFacts
from gapft_harness.run_directory.recipe_changes import list_differences
from gapft_harness.stages.integrity.inputs import SECTION, describe_changed_inputs


@dataclass(frozen=True, slots=True)
class Start:
    """The arm of an earlier run that a run starts from.

    Attributes:
        option: the option as the user wrote it, for messages.
        run: the earlier run.
        arm: its arm.
        adapter: the folder of the arm's sealed adapter.
    """

    option: str
    run: RunDirectory
    arm: Arm
    adapter: Path

    def list_model_args(self) -> dict[str, Any]:
        """List the model arguments that locate the base and the adapter."""
        location = {
            key: value
            for key, value in self.run.recipe.model.args.items()
            if key in ("pretrained", "revision", "subfolder")
        }
        return {**location, "peft": str(self.adapter)}


def open_start(text: str) -> Start:
    """Open the arm that ``--from RUN:ARM`` names.

    Args:
        text: the option's value.

    Raises:
        UserError: the folder is not a run, the arm is not trained and audited, or a file of it was
            changed.
    """
    option = f"--from {text}"
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise UserError(f"{option}: expected RUN:ARM, e.g. runs/demo:gapft-seed13")
    try:
        run = RunDirectory.open(Path(place))
        files = run.manifest()["files"]
    except UserError as error:
        raise UserError(f"{option}: {error}; expected the folder of a finished run") from error
    arm = layout.parse_arm(name)
    trained = [a for a in run.find_trained_arms() if layout.decisions_path(a) in files]
    if arm is None or arm not in trained:
        names = ", ".join(a.name for a in trained)
        raise UserError(
            f"{option}: {place} has no trained and audited arm {name}; "
            f"{f'it has: {names}' if names else f'it has none yet; run gapft run {place} first'}"
        )
    try:
        adapter = run.sealed(layout.adapter_path(arm))
        for table in _list_tables(arm).values():
            run.sealed(table)
    except UserError as error:
        raise UserError(f"{option}: {error}") from error
    return Start(option, run, arm, adapter.resolve())


def check_start(start: Start, recipe: Recipe, run_path: Path) -> None:
    """Compare a recipe with that of the earlier run, before anything is computed.

    Raises:
        UserError: the audits cannot be the same.
    """
    if start.run.path.resolve() == run_path.resolve():
        raise UserError(
            f"{start.option}: {run_path} is this run; name another folder with --run-dir"
        )
    before, after = (
        {
            "data.task": content.data.task,
            "data.audit_limit": content.data.audit_limit,
            "verifier": content.verifier.model_dump(mode="json"),
        }
        for content in (start.run.recipe, recipe)
    )
    if lines := list_differences(before, after):
        raise _other_audit_error(start.option, lines)


def complete_origin(merged: MergedSource, start: Start) -> MergedSource:
    """Add the earlier rounds to the facts of a merged source."""
    manifest = start.run.manifest()
    files, origin = manifest["files"], manifest.get("origin")
    trained_base = read_training_facts(start.adapter).get("base_sha256")
    entry: RoundFacts = {
        "run": str(start.run.path.resolve()),
        "recipe": start.run.recipe.name,
        "arm": start.arm.name,
        "base_sha256": str(trained_base or manifest["source"].get("weights_sha256", "")),
        "adapter_sha256": weights_hash(start.adapter),
        "search": start.run.recipe.search.model_dump(mode="json"),
        "sealed": {name: files[table] for name, table in _list_tables(start.arm).items()},
    }
    rests_on = manifest.get(SECTION, {})
    plugins = rests_on.get("plugins", {})
    inputs = {
        "task": rests_on.get("task"),
        "data": {"audit": rests_on.get("data", {}).get("audit")},
        "plugins": {key: code for key, code in plugins.items() if key.startswith("verifier ")},
    }
    earlier_rounds = origin["rounds"] if origin else []
    return {**merged, "rounds": [*earlier_rounds, entry], "inputs": inputs}


def record_origin(run: RunDirectory, origin: MergedSource | None, start: Start | None) -> None:
    """Record where a run's source comes from, and copy the tables of earlier rounds.

    A command that does not name the earlier run keeps what the run has recorded.

    Args:
        run: the run; its lock is held.
        origin: the facts of the merged source; None if the command's recipe names no adapter.
        start: the arm that the command starts from, if any.

    Raises:
        UserError: the earlier run's audit has other problems.
    """
    if origin is None:
        return
    manifest = run.manifest()
    recorded = manifest.get("origin")
    if start is None:
        if recorded is None or recorded["weights_sha256"] != origin["weights_sha256"]:
            _replace_origin(run, origin)
        return
    origin = complete_origin(origin, start)
    if SECTION in manifest:
        require_same_audit(origin, manifest[SECTION], start.option)
    if recorded != origin:
        _replace_origin(run, origin)
    for number, facts in enumerate(origin["rounds"], start=1):
        is_last = number == len(origin["rounds"])
        for name, digest in facts["sealed"].items():
            copy = layout.round_path(number, name)
            place = _list_tables(start.arm)[name] if is_last else copy
            _copy_table(run, copy, start.run.sealed(place), digest)


def require_same_audit(
    origin: MergedSource | None, inputs: Mapping[str, Any], option: str = ""
) -> None:
    """Require that a run's task and audit problems are those of the earlier round.

    Args:
        origin: the manifest's section; None or without rounds: nothing is compared.
        inputs: the inputs of the run, by the keys of ``rests_on``.
        option: the option that names the earlier run; default: from its facts.

    Raises:
        UserError: they differ; the message names each difference.
    """
    if not origin or not origin["rounds"]:
        return
    last = origin["rounds"][-1]
    own = {**inputs, "data": {"audit": inputs.get("data", {}).get("audit")}}
    recorded = dict(origin.get("inputs", {}))
    if own["data"]["audit"] is None or recorded.get("data", {}).get("audit") is None:
        own["data"] = recorded["data"] = {}
    if lines := describe_changed_inputs(recorded, own):
        raise _other_audit_error(option or f"--from {last['run']}:{last['arm']}", lines)


def _other_audit_error(option: str, lines: list[str]) -> UserError:
    return UserError(
        f"{option}: its audit is not that of this recipe (earlier run → this one): "
        f"{'; '.join(lines)}. Rounds are compared on the same problems, judged in the same way: "
        "use the same task, data.audit_limit and verifier"
    )


def _replace_origin(run: RunDirectory, origin: MergedSource) -> None:
    """Write the section, and remove copies that belong to another origin."""
    files = run.manifest()["files"]
    run.unseal([file for file in files if layout.find_top_folder(file) == layout.ROUNDS])
    shutil.rmtree(run.path / layout.ROUNDS, ignore_errors=True)

    def apply(manifest: Manifest) -> None:
        manifest["origin"] = origin

    run.update_manifest(apply)


def _copy_table(run: RunDirectory, copy: str, source: Path, digest: str) -> None:
    path = run.path / copy
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, partial(shutil.copyfile, source))
    if sha256(path) != digest:
        raise UserError(
            f"{path}: is not the table that was sealed in the earlier run; remove it, and run the "
            "command again"
        )
    run.seal(copy)


def _list_tables(arm: Arm) -> dict[str, str]:
    """Map each table of a round to its path in the run that made it."""
    return {
        "states": layout.states_path("audit"),
        "responses": layout.responses_path("audit"),
        "decisions": layout.decisions_path(arm),
    }
