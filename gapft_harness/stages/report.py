"""The report stage: write tables, figures and pages from finished files.

It needs the plugins of the run's experiments. Those of trainer, sampler and verifier are optional:
without them less is checked, and the verifier's other rule is not judged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapft_harness.core.files import sha256
from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import SOURCE, Gold
from gapft_harness.engine.planner import StrictPlanner
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.manager import Plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, list_arms
from gapft_harness.run_directory.facts import ReportFacts
from gapft_harness.run_directory.recipe_changes import restrict_recipe
from gapft_harness.stages.context import Context, require_selected
from gapft_harness.stages.experiment.loading import load_experiments
from gapft_harness.stages.experiment.view import View
from gapft_harness.stages.steps import follow_arms, follow_selections

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gapft_harness.report.reading.audits import OtherVerdicts
    from gapft_harness.report.reading.inputs import ReportInputs


def run_report_stage(context: Context) -> None:
    """Write the pages, results.json, tables and figures of the report."""
    from gapft_harness.report import write_report

    run = context.run
    folder = run.path / layout.REPORT
    write_report(check_and_read_report_inputs(context), folder)
    report: ReportFacts = {
        "conditions": [*context.conditions],
        "seeds": [*context.seeds],
        "inputs_hash": hash_report_inputs(run),
        "digest": sha256(folder),
    }
    run.update_facts(lambda facts: facts.update({"report": report}))


def is_report_current(context: Context) -> bool:
    """Return whether the run's report shows what the run has now.

    With plugins that are not bundled it does not: their authors edit parts of the report, so it is
    written again.
    """
    run = context.run
    report = context.run.facts()["report"]
    folder = run.path / layout.REPORT
    return (
        folder.is_dir()
        and not context.plugins.describe_origins()
        and report.get("conditions") == [*context.conditions]
        and report.get("seeds") == [*context.seeds]
        and report.get("inputs_hash") == hash_report_inputs(run)
        and report.get("digest") == sha256(folder)
    )


def hash_report_inputs(run: RunDirectory) -> str:
    """Hash the outputs of a run and its facts.

    Facts of the report itself, and places of plugins and task files, are left out: the report does
    not depend on them.
    """
    facts: dict[str, Any] = {**run.facts()}
    facts["stages"] = {name: item for name, item in facts["stages"].items() if name != "report"}
    for name in ("report", "plugins", "include_paths"):
        del facts[name]
    digests = {name: record.digest for name, record in run.read_records().items()}
    return content_hash([facts, digests])


def check_and_read_report_inputs(context: Context) -> ReportInputs:
    """Check that a run's outputs are whole and current, and read the inputs of its report.

    Raises:
        UserError: a file is missing or was changed (the recipe included).
    """
    context.run.require_recorded_recipe()
    shown = restrict_run(context.run, context.plugins, context.conditions, context.seeds)
    context = replace(context, run=shown)
    _require_current_outputs(context)
    notes = _describe_left_out(shown)
    context.warn(notes)
    return read_report_inputs(shown, context.plugins)


def restrict_run(
    run: RunDirectory, plugins: Plugins, conditions: Sequence[str], seeds: Sequence[int]
) -> RunDirectory:
    """Restrict a run to what a report shows; empty lists keep all conditions or seeds.

    Experiments that compare other conditions are left out.
    """
    shown_recipe = restrict_recipe(run.recipe, conditions, seeds)
    for experiment in load_experiments(run.recipe, plugins):
        if not {*experiment.conditions(run.recipe)} <= {*shown_recipe.conditions}:
            shown_recipe = shown_recipe.without_experiment(experiment.name)
    return RunDirectory(run.path, shown_recipe)


def read_report_inputs(shown: RunDirectory, plugins: Plugins) -> ReportInputs:
    """Read the inputs of a report, and judge the audit by the verifier's other rule.

    Args:
        shown: the run, restricted to what the report shows.
        plugins: the loaded plugins.
    """
    from gapft_harness.report.reading.inputs import read_inputs

    experiments = load_experiments(shown.recipe, plugins)
    reads_answers = plugins.can_read_answers(shown.task["verifier"])
    inputs = read_inputs(shown, experiments, _describe_left_out(shown), reads_answers)
    return replace(inputs, other_rule=judge_by_other_verifier(inputs, plugins))


def _describe_left_out(shown: RunDirectory) -> list[str]:
    """Describe trained arms that a report does not show; empty if there are none."""
    left_out: dict[str, list[str]] = {}
    for arm in shown.find_trained_arms():
        if arm not in list_arms(shown.recipe):
            left_out.setdefault(arm.condition, []).append(str(arm.seed))
    if not left_out:
        return []
    descriptions = (f"{name} (seeds {', '.join(seeds)})" for name, seeds in left_out.items())
    return [
        "trained, but not in this report, which has every condition for every seed: "
        f"{'; '.join(descriptions)}"
    ]


def _require_current_outputs(context: Context) -> None:
    """Require that the run's outputs were made with its recipe, and were not changed since.

    The code of plugins may have changed: authors edit their parts of the report. Without the
    plugins of trainers, sampler and verifier only the contents are checked.

    Raises:
        UserError: an output is missing, was changed, or was made with other settings.
    """
    run = context.run
    plugins = context.plugins
    require_selected(run)
    needed = [("trainer", name) for name in run.recipe.list_trainers()]
    needed += [("sampler", run.recipe.model.backend), ("verifier", run.task["verifier"])]
    if not all(plugins.has(kind, name) for kind, name in needed):
        for name in run.read_records():
            run.file(name)
        return
    arms = context.list_trainable_arms()
    files = context.plugin_files
    view = View(run, plugins, arms, files, cache=context.cache)
    planner = StrictPlanner(run, free_parts=("machine", "code"))
    follow_selections(view, planner)
    follow_arms(view, planner, load_experiments(run.recipe, plugins))


def judge_by_other_verifier(inputs: ReportInputs, plugins: Plugins) -> OtherVerdicts:
    """Judge the responses to the audit by the other rule, stricter or not, of the run's verifier.

    Also record in which responses the run's own rule reads an answer.

    Args:
        inputs: the inputs of the report.
        plugins: the loaded plugins; the run's verifier need not be among them.
    """
    from gapft_harness.report.reading.audits import OtherVerdicts
    from gapft_harness.report.reading.columns import codes

    name = inputs.task["verifier"]
    params = inputs.task.get("verifier_params", {})
    if not plugins.has("verifier", name):
        return OtherVerdicts(reason=f"the verifier {name} is not loaded (--plugin FILE)")
    other = plugins.find_other_verifier(name, params)
    if other is None:
        reason = f"the verifier {name} declares no other rule for these parameters"
        return OtherVerdicts(reason=reason)
    # all responses, model by model
    decodes = [inputs.audit.deployed, *(arm.deployed for arm in inputs.arms)]
    models = [SOURCE, *(arm.arm.name for arm in inputs.arms)]
    texts = [text for decode in decodes for text in decode.texts]
    golds = [*map(json.loads, inputs.audit.golds)] * len(decodes)
    # verdicts of the other rule
    with plugins.create_verifier(other.name, other.params) as judge:
        verdicts = judge.verify(texts, golds)
    statuses = codes([verdict.status for verdict in verdicts]).reshape(len(decodes), -1)
    # does the run's own rule read an answer?
    answer_codes: dict[str, NDArray[np.uint8]] = {}
    with plugins.create_verifier(name, params) as judge:
        if judge.reads_answers:
            rows = _code_answers(judge, texts, golds).reshape(len(decodes), -1)
            answer_codes = dict(zip(models, rows, strict=True))
        reads_openings = judge.reads_answers and judge.reads_openings
    return OtherVerdicts(
        other.name,
        other.params,
        other.permissive,
        statuses=dict(zip(models, statuses, strict=True)),
        answer_codes=answer_codes,
        reads_openings=reads_openings,
    )


def _code_answers(judge: Judge, texts: Sequence[str], golds: Sequence[Gold]) -> NDArray[np.uint8]:
    """Code for each response whether the run's own rule reads an answer in it."""
    import numpy as np

    from gapft_harness.report.reading.audits import INVALID, OPENS_RIGHT, VALID

    answer_codes = [
        INVALID if answer is None else VALID for answer in judge.read_answers(texts, golds)
    ]
    if judge.reads_openings:
        invalid = [index for index, code in enumerate(answer_codes) if code == INVALID]
        openings = judge.read_openings([texts[i] for i in invalid], [golds[i] for i in invalid])
        for index, opening in zip(invalid, openings, strict=True):
            gold = golds[index]
            # no answer by the rule, but the response begins with the right one
            right = gold.get("answer") if isinstance(gold, Mapping) else gold
            if opening is not None and opening == right:
                answer_codes[index] = OPENS_RIGHT
    return np.array(answer_codes, dtype=np.uint8)
