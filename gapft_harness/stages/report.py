"""The report stage: write tables, figures and pages from sealed files; needs no plugins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gapft_harness.core.records import Gold
from gapft_harness.hooks.checked import answers_of
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import only, require_recorded
from gapft_harness.run_directory.directory import RunDirectory, stated
from gapft_harness.stages.alternatives import list_alternatives
from gapft_harness.stages.context import Context, require_selected
from gapft_harness.stages.experiment import experiments_of, parts, require_made
from gapft_harness.stages.generation.sealing import closing_verifier
from gapft_harness.stages.selection.stage import arms
from gapft_harness.verification.judging import once_each, verify_unique

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gapft_harness.report.reading.audits import OtherRule
    from gapft_harness.report.reading.inputs import ReportInputs


def report_stage(context: Context) -> None:
    """Write tables, figures, report.md, index.html, explorer.html and results.json."""
    from gapft_harness.report import write_report

    folder = context.run.path / layout.REPORT
    write_report(report_inputs(context), folder, context.plugins.report_sections())


def report_inputs(context: Context) -> ReportInputs:
    """Read the inputs of a report, check their hashes, and judge the audit by the other rule.

    Raises:
        UserError: a file is missing or was changed (the recipe included).
    """
    from gapft_harness.report.reading.inputs import read_inputs

    require_recorded(context.run.path, context.run.recipe, context.run.manifest())
    shown = only(context.run.recipe, context.conditions, context.seeds)
    for experiment in experiments_of(context):
        if not {*experiment.conditions(context.run.recipe)} <= {*shown.conditions}:
            shown = shown.without(experiment.name)
    context = replace(context, run=RunDirectory(context.run.path, shown))
    run = context.run
    require_sealed(run)
    require_made(context)
    manifest = run.manifest() | {"recipe": shown.model_dump(mode="json")}
    left_out: dict[str, list[str]] = {}
    for arm in run.trained_arms():
        if arm not in arms(shown):
            left_out.setdefault(arm.condition, []).append(str(arm.seed))
    if left_out:
        found = (f"{name} (seeds {', '.join(seeds)})" for name, seeds in left_out.items())
        line = (
            "trained, but not in this report, which has every condition for every seed: "
            f"{'; '.join(found)}"
        )
        manifest["warnings"].append(line)
        context.warn([line])
    lines = list_alternatives(run, shown)
    manifest["warnings"] += lines
    context.warn(lines)
    inputs = read_inputs(run.path, manifest, parts(experiments_of(context)))
    return replace(inputs, other_rule=judge_by_other_rule(inputs, context.plugins))


def require_sealed(run: RunDirectory) -> None:
    """Check the hashes of all files that a report reads, for the arms of the run's recipe.

    Raises:
        UserError: a file is missing or was changed.
    """
    require_selected(run)
    for split in stated(run.recipe):
        for table in (layout.problems, layout.responses, layout.states):
            run.sealed(table(split))
    budgets = run.manifest()["budgets"]
    for arm in (arm for arm in arms(run.recipe) if arm.name in budgets):
        run.sealed(layout.selection(arm))
        for audit in ("", *run.recipe.further):
            run.sealed(layout.decisions_on(arm, audit))
    for name in run.recipe.subsets:
        run.sealed(layout.items(layout.audit(name)))


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
        return OtherRule(why=f"the verifier {name} is not loaded (--plugin FILE)")
    other = plugins.other_rule(name, params)
    if other is None:
        return OtherRule(why=f"the verifier {name} declares no other rule for these parameters")
    decodes = [inputs.audit.greedy_texts, *(arm.texts for arm in inputs.arms)]
    golds = [json.loads(gold) for gold in inputs.audit.golds]
    texts = [text for of in decodes for text in of]
    with closing_verifier(plugins.verifier(other.name, other.params)) as verifier:
        verdicts = verify_unique(verifier, texts, golds * len(decodes))
    said = codes([v.status for v in verdicts]).reshape(len(decodes), -1)
    names = [of.arm.name for of in inputs.arms]
    arms = dict(zip(names, said[1:], strict=True))
    with closing_verifier(plugins.verifier(name, params)) as verifier:
        read, opens = _read(verifier, texts, golds * len(decodes))
    by_model = read.reshape(len(decodes), -1) if len(read) else ()
    return OtherRule(
        other.name,
        other.params,
        other.permissive,
        "",
        said[0],
        arms,
        dict(zip(["", *names], by_model, strict=True)) if len(read) else {},
        opens,
    )


def _read(
    verifier: Verifier, texts: Sequence[str], golds: Sequence[Gold]
) -> tuple[NDArray[np.uint8], bool]:
    """Code the answers that the run's own rule reads; also return whether it reads openings."""
    import numpy as np

    from gapft_harness.report.reading.audits import INVALID, OPENS_RIGHT, VALID

    answers = answers_of(verifier)
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

    return np.array(once_each(read, texts, golds), dtype=np.uint8), callable(opening)
