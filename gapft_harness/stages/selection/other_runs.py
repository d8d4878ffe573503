"""Training sets of other runs, for selectors that are registered with ``responses="foreign"``.

Another model may be trained on such a set, with other settings. Task, verifier and tokenizer must
be the same, so that ids and verdicts mean the same. Each example must be a verified response of the
other run to a problem that is also in this run's pool, with the same prompt, gold and prompt ids,
so no audit problem gets in. The set is sealed in this run, with the hash of the original file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import ForeignSetFacts, Manifest, find_condition
from gapft_harness.run_directory.tables import read_examples, read_problems
from gapft_harness.stages.integrity.inputs import SECTION, describe_changed_inputs, read_model_state
from gapft_harness.stages.selection.choosing import (
    ConditionPools,
    ForeignSet,
    NotEvidence,
    find_evidence,
)

#: Files that define token ids; a fast tokenizer is read from the first alone.
_FAST, _SLOW = "tokenizer.json", ("vocab", "merges.txt", "added_tokens.json")


class OtherRunSets:
    """Reads the training sets that a run's arms use from other runs.

    Args:
        run: the run that uses them; its pool is searched.
        plugins: the loaded plugins.
    """

    def __init__(self, run: RunDirectory, plugins: Plugins) -> None:
        self._run, self._plugins = run, plugins
        self._pools: dict[Path, ConditionPools] = {}  # many arms use sets of the same run

    def read_set(self, arm: Arm) -> ForeignSet:
        """Read the set that the recipe names for an arm, and check each example.

        Raises:
            UserError: the set does not exist, or would mean something else in this run.
        """
        key = f"key {f'conditions.{arm.condition}'!r}"
        source, source_arm, file = _find_set(self._run, arm)
        _require_compatible(self._run, arm.condition, source)
        examples = read_examples(file)
        _check_problems(
            self._run, arm, source, {n for e in examples for n in (e.problem_id, e.origin)}
        )
        manifest = source.manifest()
        condition, budget = (
            find_condition(manifest, source_arm),
            manifest["budgets"][source_arm.name],
        )
        pools = self._pools.setdefault(source.path, ConditionPools(source))
        condition_name = (
            source_arm.condition if source_arm.condition in source.recipe.conditions else None
        )
        pool_evidence = {
            evidence.problem_id: evidence for evidence in pools.read_evidence(condition_name)
        }
        evidence_list = []
        for slot, example in enumerate(examples):
            try:
                evidence_list.append(find_evidence(example, pool_evidence))
            except NotEvidence as error:
                raise UserError(
                    f"{key}: {file}, slot {slot}: problem {example.problem_id} {error}. Only "
                    "verified responses can be used"
                ) from error
        is_matched = bool(budget.get("matched", True))
        if self._plugins.has("selector", condition.selector):
            is_matched = not self._plugins.find_selector_traits(condition.selector).has_own_budget
        if not is_matched and self._run.recipe.conditions[arm.condition].n is not None:
            raise UserError(
                f"{key}: the set {source_arm.name} of {source.path} belongs to a reference with "
                "its own budget; remove n"
            )
        facts: ForeignSetFacts = {
            "run": str(source.path.resolve()),
            "arm": source_arm.name,
            "sha256": sha256(file),
            "k": condition.k or source.recipe.search.k,
            "replay": source.recipe.budget.replay,
        }
        return ForeignSet(tuple(evidence_list), is_matched, facts)


def parse_set_name(recipe: Recipe, arm: Arm) -> tuple[Path, Arm]:
    """Return the other run's folder and arm that an arm's training set comes from."""
    params = recipe.conditions[arm.condition].params
    return Path(params["run"]), Arm(str(params["condition"]), arm.seed)


def has_sealed_copy(run: RunDirectory, manifest: Manifest, arm: Arm) -> bool:
    """Return whether an arm's set of another run is already sealed for its present condition."""
    budget, file = manifest["budgets"].get(arm.name, {}), layout.selection_path(arm)
    is_sealed = file in manifest["files"] and (run.path / file).exists()
    settings = run.recipe.conditions[arm.condition].dump_settings(arm.condition)
    return is_sealed and "taken" in budget and budget.get("condition") == settings


def check_source_runs(run: RunDirectory, plugins: Plugins, inputs: Mapping[str, Any]) -> None:
    """Check before a search that the sets of other runs in the recipe can be used.

    Args:
        run: the run, which need not exist yet.
        plugins: the loaded plugins.
        inputs: the run's inputs for the search; empty if they are not known yet.

    Raises:
        UserError: a set cannot be used; the message names the key.
    """
    manifest = run.read_or_new_manifest()
    for name, condition in run.recipe.conditions.items():
        if plugins.find_selector_traits(condition.selector).is_foreign:
            find_selector(run.recipe, name, plugins)  # checks its parameters
            for arm in (Arm(name, seed) for seed in run.recipe.seeds):
                if not has_sealed_copy(run, manifest, arm):
                    _require_compatible(run, name, _find_set(run, arm)[0], inputs)


def _find_set(run: RunDirectory, arm: Arm) -> tuple[RunDirectory, Arm, Path]:
    """Find the run, the arm and the file that an arm's set comes from.

    Raises:
        UserError: the set does not exist, was changed, or comes from a third run itself.
    """
    path, source_arm = parse_set_name(run.recipe, arm)
    key = f"key {f'conditions.{arm.condition}.params'!r}"
    if path.resolve() == run.path.resolve():
        raise UserError(f"{key}: {path} is this run; name another run")
    try:
        source = RunDirectory.open(path)
    except UserError as error:
        raise UserError(f"{key}: {error}; name the folder of a run after its selection") from error
    manifest = source.manifest()
    if source_arm.name not in (budgets := manifest["budgets"]):
        raise UserError(
            f"{key}: {path} has no training set {source_arm.name}; it has: "
            f"{', '.join(budgets) or '(none; gapft run --only select creates them)'}"
        )
    if set_source := budgets[source_arm.name].get("taken"):
        raise UserError(
            f"{key}: {source_arm.name} of {path} is itself a set of {set_source['run']}; name that "
            "run instead"
        )
    return source, source_arm, source.sealed(layout.selection_path(source_arm))


def _require_compatible(
    run: RunDirectory, condition: str, source: RunDirectory, inputs: Mapping[str, Any] | None = None
) -> None:
    """Require that task, verifier and tokenizer equal those of another run.

    Args:
        run: the run.
        condition: the condition that uses a set of the other run.
        source: the other run.
        inputs: the run's inputs before its search; None if it is searched.

    Raises:
        UserError: one of them differs; the message has both values.
    """
    source_manifest = source.manifest()
    own_inputs: Mapping[str, Any] = run.manifest()[SECTION] if inputs is None else inputs
    task, source_task = run.recipe.data.task, source.recipe.data.task
    differences = (
        [] if task == source_task else [f"task: {task} in this run, {source_task} in the other"]
    )
    changes = describe_changed_inputs(
        *(_select_task_and_verifier(section) for section in (source_manifest[SECTION], own_inputs))
    )
    differences += [f"{line} (other run → this run)" for line in changes]
    if inputs is None:
        a, b = run.manifest()["task"], source_manifest["task"]
        for key in ("verifier", "verifier_params"):
            if a[key] != b[key]:
                differences.append(f"task, {key}: {a[key]} in this run, {b[key]} in the other")
    differences += _compare_tokenizers(run.recipe, source, is_searched=inputs is None)
    if differences:
        raise UserError(
            f"key {f'conditions.{condition}.params.run'!r}: the training sets of {source.path} do "
            f"not fit this run: {'; '.join(differences)}. Use sets of the same task, verifier and "
            "tokenizer, or remove the condition"
        )


def _select_task_and_verifier(section: Mapping[str, Any]) -> dict[str, Any]:
    codes = section.get("plugins") or {}
    verifiers = {key: code for key, code in codes.items() if key.startswith("verifier ")}
    return {"task": section.get("task"), "plugins": verifiers}


def _compare_tokenizers(recipe: Recipe, source: RunDirectory, *, is_searched: bool) -> list[str]:
    """Describe different tokenizers; before a search the model may not be downloaded yet."""
    states = [read_model_state(recipe), source.manifest()[SECTION].get("model")]
    if states[0] is None and not is_searched:
        return []
    arguments = [recipe.model.args, source.recipe.model.args]
    if None in states or any("tokenizer" in model_args for model_args in arguments):
        own_tokenizer, source_tokenizer = (
            str(model_args.get("tokenizer") or model_args["pretrained"]) for model_args in arguments
        )
    else:
        own_tokenizer, source_tokenizer = (
            _describe_tokenizer_files(state["files"]) for state in states if state
        )
    return (
        []
        if own_tokenizer == source_tokenizer
        else [f"tokenizer: {own_tokenizer} in this run, {source_tokenizer} in the other"]
    )


def _describe_tokenizer_files(files: Mapping[str, str]) -> str:
    names = (
        [_FAST]
        if _FAST in files
        else [name for name in sorted(files) if name.startswith(_SLOW) or name.endswith(".model")]
    )
    return ", ".join(f"{name} {files[name][:12]}" for name in names)


def _check_problems(run: RunDirectory, arm: Arm, source: RunDirectory, ids: set[str]) -> None:
    own_hashes, source_hashes = (
        _hash_problems(checked_run.path, ids) for checked_run in (run, source)
    )
    if differing_ids := sorted(
        name for name in ids if own_hashes.get(name) != source_hashes.get(name)
    ):
        raise UserError(
            f"key {f'conditions.{arm.condition}.params.run'!r}: {len(differing_ids)} of the "
            f"{len(ids)} problems of {parse_set_name(run.recipe, arm)[1].name} in {source.path} "
            "are not in this run's pool with the same prompt, gold and prompt tokens; first: "
            f"{differing_ids[0]}. Search a pool that contains them (data.pool_limit, the task's "
            "data), with the same prompt format (model.chat_template, model.system_instruction)"
        )


def _hash_problems(path: Path, ids: set[str]) -> dict[str, str]:
    """Hash prompt, gold and prompt ids of some problems of a pool, by problem id."""
    return {
        problem.id: content_hash([problem.prompt, problem.gold, prompt_ids])
        for problem, prompt_ids in read_problems(path / layout.problems_path("pool"))
        if problem.id in ids
    }
