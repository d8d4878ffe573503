"""The report stage: write tables, figures and pages from sealed files; needs no plugins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gapft_harness.core.records import SOURCE, Gold
from gapft_harness.hooks.checked import find_answer_reader
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import Verifier
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
from gapft_harness.verification.judging import closing_verifier, judge_once_each, verify_unique

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
    with closing_verifier(plugins.create_verifier(rule.name, rule.params)) as verifier:
        verdicts = verify_unique(verifier, texts, golds * len(decodes))
    status_codes = codes([v.status for v in verdicts]).reshape(len(decodes), -1)
    names = [SOURCE, *(item.arm.name for item in inputs.arms)]
    with closing_verifier(plugins.create_verifier(name, params)) as verifier:
        answer_codes, has_openings = _read_answers(verifier, texts, golds * len(decodes))
    answers = answer_codes.reshape(len(decodes), -1) if len(answer_codes) else ()
    return OtherRule(
        rule.name,
        rule.params,
        rule.permissive,
        statuses=dict(zip(names, status_codes, strict=True)),
        answer_codes=dict(zip(names, answers, strict=False)),
        reads_openings=has_openings,
    )


def _read_answers(
    verifier: Verifier, texts: Sequence[str], golds: Sequence[Gold]
) -> tuple[NDArray[np.uint8], bool]:
    """Code the answers that the run's own rule reads; also return whether it reads openings."""
    import numpy as np

    from gapft_harness.report.reading.audits import INVALID, OPENS_RIGHT, VALID

    answers = find_answer_reader(verifier)
    if answers is None:
        return np.zeros(0, dtype=np.uint8), False
    opening = getattr(verifier, "opening", None)

    def code(text: str, gold: Gold, answer: str | None) -> int:
        right = gold.get("answer") if isinstance(gold, Mapping) else gold
        if answer is not None:
            return VALID
        opens = callable(opening) and opening(text, gold) == right
        return OPENS_RIGHT if opens else INVALID

    def read(texts: Sequence[str], golds: Sequence[Gold]) -> list[int]:
        return list(map(code, texts, golds, answers.read(texts, golds)))

    return np.array(judge_once_each(read, texts, golds), dtype=np.uint8), callable(opening)
