"""The stages of a run in order. Each can run alone, and continues where it was interrupted.

search (pool and audit) → states → select → train → audit → experiments → report
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import Changes
from gapft_harness.run_directory.directory import splits_of, stated
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.stages.audit import audit_arm
from gapft_harness.stages.context import Context, require_selected
from gapft_harness.stages.experiment import Experiment, check_experiments, run_experiments
from gapft_harness.stages.experiment.driver import seal_decisions
from gapft_harness.stages.generation.foreseen import FORESEEN, Foreseen, describe_tables
from gapft_harness.stages.generation.generation import check_early_stop
from gapft_harness.stages.integrity.rests_on import SECTION, Changed, hold, record_plugins
from gapft_harness.stages.report import report_stage
from gapft_harness.stages.search.stage import read_data, search_stage
from gapft_harness.stages.search.states import Window, partition
from gapft_harness.stages.selection.stage import replicate_warnings, select
from gapft_harness.stages.train.stage import train_stage
from gapft_harness.stages.train.stored import originals


def settle_changes(context: Context, given: Sequence[str], stages: Sequence[str]) -> None:
    """Reset a run if its recipe, task, data, plugins or model changed.

    The stages then repeat the work, and reuse what the store has.

    Args:
        context: the run, with the new recipe.
        given: folders with task YAML given to the command; empty for the folders of the search.
        stages: the stages that will run.

    Raises:
        UserError: inputs changed, and these stages cannot repeat the work, or work would be lost
            that is not in the store.
    """
    run = context.run
    there = [s for s in splits_of(run.recipe) if layout.responses(s) in run.manifest()["files"]]
    searches = "search" in stages and {*there} <= {*context.splits}
    renews = searches and context.searching is None
    if run.is_empty() and not run.changes:
        return
    lines, held = run.changes.of_search, None
    if not lines:
        try:
            held = hold(run, run.manifest(), context.plugins, given, partial(read_data, context))
        except Changed as error:
            if not renews:
                raise
            lines = error.lines
            told = "; ".join(lines)
            context.say(f"warning: {run.path}: inputs changed: {told}; repeating dependent work")
    elif not renews:
        raise UserError(
            f"run directory {run.path}: settings changed: {'; '.join(lines)}. Run the command "
            "without --only and --split, or use another --run-dir"
        )
    run.changes = Changes(lines, run.changes.of_selection)
    if not run.is_empty():
        if lines:
            read_data(context, given or None)  # if this fails, the run is unchanged
        if run.changes:
            run.require_stored()
    if lines:
        context.warn(run.record_changes(lines))
        run.renew()
    if held is None:
        return
    if held.again is not None:
        places = {key: held.again[key] for key in ("files", "include_paths", "data_dir")}
        run.update_manifest(lambda manifest: manifest[SECTION].update(places))
    for line in held.unchecked:
        context.say(line)


def states_stage(context: Context) -> None:
    """Compute the states (G, S, U) of pool and audits, and the evidence kept for each problem."""
    run = context.run
    _settle_rule(context)
    for split in stated(run.recipe):
        if not run.is_sealed(layout.states(split)):
            partition(str(run.path), split, context.plugin_files)
        run.seal(layout.states(split))
    for k in run.recipe.windows():
        table = layout.states("pool", (0, k))
        if not run.is_sealed(table):
            partition(str(run.path), "pool", context.plugin_files, Window(0, k))
        run.seal(table)


def _settle_rule(context: Context) -> None:
    """Remove states made by another response rule; nothing is trained on them yet."""
    run, task = context.run, context.run.manifest()["task"]
    keep = run.recipe.evidence.keep
    if keep is None or keep == task.get("keep", keep):
        return
    check_early_stop(run.recipe.search, context.plugins.get("response rule", keep), task)
    places = {name: layout.read(name) for name in run.manifest()["files"]}
    windows = [name for name, place in places.items() if place and place.window]
    run.unseal([*(layout.states(split) for split in stated(run.recipe)), *windows])
    run.update_manifest(lambda manifest: manifest["task"].update({"keep": keep}))


def select_stage(context: Context) -> None:
    """Choose every arm's training set and budget, before anything is trained."""
    run = context.run
    facts = select(run, context.plugin_files)
    context.warn(run.record_changes())
    if run.changes.of_selection:
        run.drop_trained()
    run.commit()

    def change(manifest: Manifest) -> None:
        trained = {arm.name for arm in run.trained_arms()}
        kept = {name: of for name, of in manifest["budgets"].items() if name in trained}
        manifest["n"] = facts["n"]
        manifest["budgets"] = kept | facts["budgets"]
        record_plugins(
            manifest, context.plugins, [("selector", name) for name in run.recipe.selectors()]
        )

    run.update_manifest(change)
    for arm in context.arms():
        run.seal(layout.selection(arm))
    for line in (*_budgets_told(context), *replicate_warnings(run.recipe)):
        context.say(line)
    check_experiments(context, context.arms())


def _budgets_told(context: Context) -> Iterator[str]:
    """Yield a sentence for each distinct budget, with its conditions."""
    budgets = context.run.manifest()["budgets"]
    told: dict[str, dict[str, None]] = {}
    for arm in context.arms():
        of = budgets[arm.name]
        said = f"n = {of['n']:,}, N = {of['exposures']:,}, J = {of['steps']:,}"
        told.setdefault(said, {})[arm.condition] = None
    if not told:
        yield "search recovered no failures, so there is nothing to train on"
    for said, conditions in told.items():
        yield f"{said}: {', '.join(conditions)}"


def audit_stage(context: Context) -> None:
    """Decode each audit greedily with every arm's adapter."""
    run = context.run
    require_selected(run)
    arms, taken = context.arms(), originals(run.manifest())
    foreseen: dict[str, list[Foreseen]] = {}
    # arms that reuse an adapter come after its owner and find the responses in the store
    for decoded in (
        [arm for arm in arms if arm not in taken],
        [arm for arm in arms if arm in taken],
    ):
        jobs = [
            (
                layout.decisions_on(arm, audit),
                context.arm_job(
                    f"audit {audit}," if audit else "audit",
                    partial(audit_arm, split=layout.audit(audit)),
                    arm,
                ),
            )
            for audit in ("", *run.recipe.further)
            for arm in decoded
        ]
        results = context.executor.run([job for _, job in jobs], context.progress)
        for (file, _), facts in zip(jobs, results, strict=True):
            if FORESEEN in facts:
                foreseen.setdefault(_find_group(file), []).append(Foreseen(**facts.pop(FORESEEN)))
            seal_decisions(context, file, facts)
    for group, of_group in foreseen.items():
        context.say(f"{group}: {describe_tables(of_group, run.path)}")


def _find_group(file: str) -> str:
    """Return the name under which tables of decisions are reported together: that of the audit."""
    place = layout.read(file)
    variant = place.arm.variant if place is not None and place.arm else ""
    return f"audit {variant}".strip()


def _search(context: Context) -> None:
    search_stage(context)
    check_experiments(context, ())


STAGES: dict[str, Callable[[Context], None]] = {
    "search": _search,
    "states": states_stage,
    "select": select_stage,
    "train": train_stage,
    "audit": audit_stage,
    "experiments": run_experiments,
    "report": report_stage,
}


def stages_of(experiments: Iterable[Experiment]) -> list[str]:
    """List the stages of a run with these experiments, in order."""
    has_steps = any(each.has_steps for each in experiments)
    return [name for name in STAGES if name != "experiments" or has_steps]


def run_stages(
    context: Context,
    names: Sequence[str],
    begin: Callable[[str], None],
    end: Callable[[], None] = lambda: None,
) -> Path:
    """Run stages in order.

    Args:
        context: the run.
        names: the stages.
        begin: called with each stage's name before it runs.
        end: called after each stage.

    Returns:
        The path of the report's page.
    """
    for name in names:
        begin(name)
        with context.run.timed("import" if context.searching else name):
            STAGES[name](context)
        end()
    return context.run.path / layout.REPORT / "index.html"
