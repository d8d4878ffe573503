"""The stages of a run in order. Each can be called by itself; each goes on where it stopped.

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
    """Empties a run as far as its recipe, task, data, plugins or model were changed since.

    The stages then make it anew, from the store as far as that has it.

    Args:
        context: the run, with the recipe that is given now.
        given: folders with task YAML that the command was given; none: those of the search.
        stages: those that will run.

    Raises:
        UserError: they were, and these stages cannot make it anew, or the store lacks what would
            be lost.
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
            context.say(f"warning: {run.path}: what depends on these changes is made again: {told}")
    elif not renews:
        raise UserError(
            f"run directory {run.path}: was made otherwise; differing: {'; '.join(lines)}. Give "
            "the command without --only and --split, or another --run-dir"
        )
    run.changes = Changes(lines, run.changes.of_selection)
    if not run.is_empty():
        if lines:
            read_data(context, given or None)  # what cannot be read leaves the run as it was
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
    """G, S and U of pool and audits, and the evidence kept for each problem."""
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
    """Takes away states that another response rule made; nothing is trained on them yet."""
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
    """Every arm's training set and budget, before anything is trained."""
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
    """A sentence on each budget, with the conditions that have it."""
    budgets = context.run.manifest()["budgets"]
    told: dict[str, dict[str, None]] = {}
    for arm in context.arms():
        of = budgets[arm.name]
        said = f"n = {of['n']:,}, N = {of['exposures']:,}, J = {of['steps']:,}"
        told.setdefault(said, {})[arm.condition] = None
    if not told:
        yield "search recovered no failure, so there is nothing to train on"
    for said, conditions in told.items():
        yield f"{said}: {', '.join(conditions)}"


def audit_stage(context: Context) -> None:
    """The greedy decode of every arm on each audit."""
    run = context.run
    require_selected(run)
    arms, taken = context.arms(), originals(run.manifest())
    foreseen: dict[str, list[Foreseen]] = {}
    # who has another's adapter comes after it, and finds its responses in the store
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
    """Return the name under which tables of decisions are reported together: their audit's."""
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
    """The stages that a run with these experiments goes through, in order."""
    has_steps = any(each.has_steps for each in experiments)
    return [name for name in STAGES if name != "experiments" or has_steps]


def run_stages(
    context: Context,
    names: Sequence[str],
    begin: Callable[[str], None],
    end: Callable[[], None] = lambda: None,
) -> Path:
    """Runs stages in order; ``begin`` is called with each name first, ``end`` after each.

    Returns:
        The path of the report's page.
    """
    for name in names:
        begin(name)
        with context.run.timed("import" if context.searching else name):
            STAGES[name](context)
        end()
    return context.run.path / layout.REPORT / "index.html"
