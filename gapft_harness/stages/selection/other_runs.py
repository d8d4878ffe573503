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
from gapft_harness.run_directory.manifest import Manifest, TakenFacts, condition_of
from gapft_harness.run_directory.tables import read_examples, read_problems
from gapft_harness.stages.integrity.rests_on import SECTION, differing, model_state
from gapft_harness.stages.selection.choosing import NotEvidence, Pools, SourceSet, as_evidence

#: Files that define token ids; a fast tokenizer is read from the first alone.
_FAST, _SLOW = "tokenizer.json", ("vocab", "merges.txt", "added_tokens.json")


class OtherRuns:
    """Reads the training sets that a run's arms use from other runs.

    Args:
        run: the run that uses them; its pool is searched.
        plugins: the loaded plugins.
    """

    def __init__(self, run: RunDirectory, plugins: Plugins) -> None:
        self._run, self._plugins = run, plugins
        self._pools: dict[Path, Pools] = {}  # many arms use sets of the same run

    def read(self, arm: Arm) -> SourceSet:
        """Read the set that the recipe names for an arm, and check each example.

        Raises:
            UserError: the set does not exist, or would mean something else in this run.
        """
        key = f"key {f'conditions.{arm.condition}'!r}"
        source, of, file = _find_set(self._run, arm)
        _check_alike(self._run, arm.condition, source)
        examples = read_examples(file)
        _check_problems(
            self._run, arm, source, {n for e in examples for n in (e.problem_id, e.origin)}
        )
        manifest = source.manifest()
        by, recorded = condition_of(manifest, of), manifest["budgets"][of.name]
        pools = self._pools.setdefault(source.path, Pools(source))
        there = of.condition if of.condition in source.recipe.conditions else None
        known = {evidence.problem_id: evidence for evidence in pools.evidence(there)}
        found = []
        for slot, example in enumerate(examples):
            try:
                found.append(as_evidence(example, known))
            except NotEvidence as error:
                raise UserError(
                    f"{key}: {file}, slot {slot}: problem {example.problem_id} {error}. Only "
                    "verified responses can be used"
                ) from error
        matched = bool(recorded.get("matched", True))
        if self._plugins.has("selector", by.selector):
            matched = not self._plugins.selector_traits(by.selector).own_budget
        if not matched and self._run.recipe.conditions[arm.condition].n is not None:
            raise UserError(
                f"{key}: the set {of.name} of {source.path} belongs to a reference with its own "
                "budget; remove n"
            )
        facts: TakenFacts = {
            "run": str(source.path.resolve()),
            "arm": of.name,
            "sha256": sha256(file),
            "k": by.k or source.recipe.search.k,
            "replay": source.recipe.budget.replay,
        }
        return SourceSet(tuple(found), matched, facts)


def set_named(recipe: Recipe, arm: Arm) -> tuple[Path, Arm]:
    """Return the other run's folder and arm that an arm's training set comes from."""
    params = recipe.conditions[arm.condition].params
    return Path(params["run"]), Arm(str(params["condition"]), arm.seed)


def is_copied(run: RunDirectory, manifest: Manifest, arm: Arm) -> bool:
    """Return whether an arm's set of another run is already sealed for its present condition."""
    recorded, file = manifest["budgets"].get(arm.name, {}), layout.selection(arm)
    is_there = file in manifest["files"] and (run.path / file).exists()
    by = run.recipe.conditions[arm.condition].said(arm.condition)
    return is_there and "taken" in recorded and recorded.get("condition") == by


def check_sources(run: RunDirectory, plugins: Plugins, now: Mapping[str, Any]) -> None:
    """Check before a search that the sets of other runs in the recipe can be used.

    Args:
        run: the run, which need not exist yet.
        plugins: the loaded plugins.
        now: the run's inputs for the search; empty if they are not known yet.

    Raises:
        UserError: a set cannot be used; the message names the key.
    """
    manifest = run.manifest_or_new()
    for name, condition in run.recipe.conditions.items():
        if plugins.selector_traits(condition.selector).foreign:
            find_selector(run.recipe, name, plugins)  # checks its parameters
            for arm in (Arm(name, seed) for seed in run.recipe.seeds):
                if not is_copied(run, manifest, arm):
                    _check_alike(run, name, _find_set(run, arm)[0], now)


def _find_set(run: RunDirectory, arm: Arm) -> tuple[RunDirectory, Arm, Path]:
    """Find the run, the arm and the file that an arm's set comes from.

    Raises:
        UserError: the set does not exist, was changed, or comes from a third run itself.
    """
    path, of = set_named(run.recipe, arm)
    key = f"key {f'conditions.{arm.condition}.params'!r}"
    if path.resolve() == run.path.resolve():
        raise UserError(f"{key}: {path} is this run; name another run")
    try:
        source = RunDirectory.open(path)
    except UserError as error:
        raise UserError(f"{key}: {error}; name the folder of a run after its selection") from error
    manifest = source.manifest()
    if of.name not in (budgets := manifest["budgets"]):
        raise UserError(
            f"{key}: {path} has no training set {of.name}; it has: "
            f"{', '.join(budgets) or '(none; gapft run --only select creates them)'}"
        )
    if taken := budgets[of.name].get("taken"):
        raise UserError(
            f"{key}: {of.name} of {path} is itself a set of {taken['run']}; name that run instead"
        )
    return source, of, source.sealed(layout.selection(of))


def _check_alike(
    run: RunDirectory, condition: str, source: RunDirectory, now: Mapping[str, Any] | None = None
) -> None:
    """Require that task, verifier and tokenizer equal those of another run.

    Args:
        run: the run.
        condition: the condition that uses a set of the other run.
        source: the other run.
        now: the run's inputs before its search; None if it is searched.

    Raises:
        UserError: one of them differs; the message has both values.
    """
    theirs = source.manifest()
    ours: Mapping[str, Any] = run.manifest()[SECTION] if now is None else now
    task, other = run.recipe.data.task, source.recipe.data.task
    lines = [] if task == other else [f"task: {task} in this run, {other} in the other"]
    changes = differing(*(_task_and_verifier(section) for section in (theirs[SECTION], ours)))
    lines += [f"{line} (other run → this run)" for line in changes]
    if now is None:
        a, b = run.manifest()["task"], theirs["task"]
        for key in ("verifier", "verifier_params"):
            if a[key] != b[key]:
                lines.append(f"task, {key}: {a[key]} in this run, {b[key]} in the other")
    lines += _compare_tokenizers(run.recipe, source, is_searched=now is None)
    if lines:
        raise UserError(
            f"key {f'conditions.{condition}.params.run'!r}: the training sets of {source.path} do "
            f"not fit this run: {'; '.join(lines)}. Use sets of the same task, verifier and "
            "tokenizer, or remove the condition"
        )


def _task_and_verifier(section: Mapping[str, Any]) -> dict[str, Any]:
    codes = section.get("plugins") or {}
    verifiers = {key: code for key, code in codes.items() if key.startswith("verifier ")}
    return {"task": section.get("task"), "plugins": verifiers}


def _compare_tokenizers(recipe: Recipe, source: RunDirectory, *, is_searched: bool) -> list[str]:
    """Describe different tokenizers; before a search the model may not be downloaded yet."""
    states = [model_state(recipe), source.manifest()[SECTION].get("model")]
    if states[0] is None and not is_searched:
        return []
    arguments = [recipe.model.args, source.recipe.model.args]
    if None in states or any("tokenizer" in each for each in arguments):
        here, there = (str(each.get("tokenizer") or each["pretrained"]) for each in arguments)
    else:
        here, there = (_tokenizer_files(state["files"]) for state in states if state)
    return [] if here == there else [f"tokenizer: {here} in this run, {there} in the other"]


def _tokenizer_files(files: Mapping[str, str]) -> str:
    names = (
        [_FAST]
        if _FAST in files
        else [name for name in sorted(files) if name.startswith(_SLOW) or name.endswith(".model")]
    )
    return ", ".join(f"{name} {files[name][:12]}" for name in names)


def _check_problems(run: RunDirectory, arm: Arm, source: RunDirectory, ids: set[str]) -> None:
    here, there = (_hash_problems(each.path, ids) for each in (run, source))
    if others := sorted(name for name in ids if here.get(name) != there.get(name)):
        raise UserError(
            f"key {f'conditions.{arm.condition}.params.run'!r}: {len(others)} of the {len(ids)} "
            f"problems of {set_named(run.recipe, arm)[1].name} in {source.path} are not in this "
            f"run's pool with the same prompt, gold and prompt tokens; first: {others[0]}. Search "
            "a pool that contains them (data.pool_limit, the task's data), with the same prompt "
            "format (model.chat_template, model.system_instruction)"
        )


def _hash_problems(path: Path, ids: set[str]) -> dict[str, str]:
    """Hash prompt, gold and prompt ids of some problems of a pool, by problem id."""
    return {
        problem.id: content_hash([problem.prompt, problem.gold, prompt_ids])
        for problem, prompt_ids in read_problems(path / layout.problems("pool"))
        if problem.id in ids
    }
