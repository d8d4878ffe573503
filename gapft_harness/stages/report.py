"""The report stage: write tables, figures and pages from sealed files; needs no plugins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gapft_harness.core.records import SOURCE, Gold
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.manager import Plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.recipe_changes import require_recorded_recipe, restrict_recipe
from gapft_harness.stages.context import Context, require_selected
from gapft_harness.stages.experiment import (
    find_experiments,
    list_report_parts,
    require_finished_steps,
)
from gapft_harness.stages.selection.stage import list_arms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gapft_harness.report.reading.audits import OtherRule
    from gapft_harness.report.reading.inputs import ReportInputs


def run_report_stage(context: Context) -> None:
    """Write the pages, results.json, tables and figures of the report."""
    from gapft_harness.report import write_report

    folder = context.run.path / layout.REPORT
    write_report(build_report_inputs(context), folder, context.plugins.list_report_sections())


def build_report_inputs(context: Context) -> ReportInputs:
    """Read the inputs of a report, check their hashes, and judge the audit by the other rule.

    Raises:
        UserError: a file is missing or was changed (the recipe included).
    """
    from gapft_harness.report.reading.inputs import read_inputs

    require_recorded_recipe(context.run.path, context.run.recipe, context.run.manifest())
    shown_recipe = restrict_recipe(context.run.recipe, context.conditions, context.seeds)
    for experiment in find_experiments(context):
        if not {*experiment.conditions(context.run.recipe)} <= {*shown_recipe.conditions}:
            shown_recipe = shown_recipe.without_experiment(experiment.name)
    context = replace(context, run=RunDirectory(context.run.path, shown_recipe))
    run = context.run
    require_sealed(run)
    require_finished_steps(context)
    manifest = run.manifest() | {"recipe": shown_recipe.model_dump(mode="json")}
    left_out: dict[str, list[str]] = {}
    for arm in run.find_trained_arms():
        if arm not in list_arms(shown_recipe):
            left_out.setdefault(arm.condition, []).append(str(arm.seed))
    if left_out:
        descriptions = (f"{name} (seeds {', '.join(seeds)})" for name, seeds in left_out.items())
        line = (
            "trained, but not in this report, which has every condition for every seed: "
            f"{'; '.join(descriptions)}"
        )
        manifest["warnings"].append(line)
        context.warn([line])
    inputs = read_inputs(run.path, manifest, list_report_parts(find_experiments(context)))
    return replace(inputs, other_rule=judge_by_other_rule(inputs, context.plugins))


def require_sealed(run: RunDirectory) -> None:
    """Check the hashes of all files that a report reads, for the arms of the run's recipe.

    Raises:
        UserError: a file is missing or was changed.
    """
    require_selected(run)
    for split in SPLITS:
        for table in (layout.problems_path, layout.responses_path, layout.states_path):
            run.sealed(table(split))
    budgets = run.manifest()["budgets"]
    for arm in (arm for arm in list_arms(run.recipe) if arm.name in budgets):
        run.sealed(layout.selection_path(arm))
        run.sealed(layout.decisions_path(arm))


def judge_by_other_rule(inputs: ReportInputs, plugins: Plugins) -> OtherRule:
    """Judge each distinct response to the audit once by the verifier's other rule.

    Args:
        inputs: the inputs of the report.
        plugins: the loaded plugins; the run's verifier need not be among them.
    """
    from gapft_harness.report.reading.audits import OtherRule
    from gapft_harness.report.reading.columns import codes

    name, params = inputs.task["verifier"], inputs.task.get("verifier_params", {})
    if not plugins.has("verifier", name):
        return OtherRule(reason=f"the verifier {name} is not loaded (--plugin FILE)")
    rule = plugins.find_other_rule(name, params)
    if rule is None:
        return OtherRule(reason=f"the verifier {name} declares no other rule for these parameters")
    decodes = [inputs.audit.deployed, *(arm.deployed for arm in inputs.arms)]
    golds = list(map(json.loads, inputs.audit.golds))
    texts = [text for item in decodes for text in item.texts]
    with plugins.create_verifier(rule.name, rule.params) as judge:
        verdicts = judge.verify(texts, golds * len(decodes))
    status_codes = codes([v.status for v in verdicts]).reshape(len(decodes), -1)
    names = [SOURCE, *(item.arm.name for item in inputs.arms)]
    with plugins.create_verifier(name, params) as judge:
        answer_codes = _read_answers(judge, texts, golds * len(decodes))
        has_openings = judge.reads_answers and judge.reads_openings
    answers = answer_codes.reshape(len(decodes), -1) if len(answer_codes) else ()
    return OtherRule(
        rule.name,
        rule.params,
        rule.permissive,
        statuses=dict(zip(names, status_codes, strict=True)),
        answer_codes=dict(zip(names, answers, strict=False)),
        reads_openings=has_openings,
    )


def _read_answers(judge: Judge, texts: Sequence[str], golds: Sequence[Gold]) -> NDArray[np.uint8]:
    """Code the answers that the run's own rule reads; empty if it reads none."""
    import numpy as np

    from gapft_harness.report.reading.audits import INVALID, OPENS_RIGHT, VALID

    if not judge.reads_answers:
        return np.zeros(0, dtype=np.uint8)
    answer_codes = [
        INVALID if answer is None else VALID for answer in judge.read_answers(texts, golds)
    ]
    if judge.reads_openings:
        invalid = [place for place, code in enumerate(answer_codes) if code == INVALID]
        openings = judge.read_openings([texts[i] for i in invalid], [golds[i] for i in invalid])
        for place, opening in zip(invalid, openings, strict=True):
            gold = golds[place]
            if opening == (gold.get("answer") if isinstance(gold, Mapping) else gold):
                answer_codes[place] = OPENS_RIGHT
    return np.array(answer_codes, dtype=np.uint8)
