"""results.json: the findings for programs. Rates are from 0 to 1; an undefined rate is null."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from gapft_harness.analysis.decomposition import Decomposition
from gapft_harness.analysis.pass_at_k import list_reported_k
from gapft_harness.core.records import Budget
from gapft_harness.recipe.sections import Deployment
from gapft_harness.report.findings import cases
from gapft_harness.report.findings.computation import (
    NOTHING_TO_TRAIN_ON,
    ConditionFindings,
    Contrast,
    Findings,
    SeedFindings,
    find_differing_settings,
    is_budget_matched,
)
from gapft_harness.report.frame import Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.sections import (
    comparison,
    other_rule,
    paper,
    provenance,
    replicates,
)
from gapft_harness.report.sections import episodes as episodes_section
from gapft_harness.report.sections import failures as failures_section
from gapft_harness.run_directory.manifest import ImportFacts

#: Keys of the report itself: an experiment cannot have one of these names.
RESERVED_KEYS = (
    "schema", "recipe", "task", "k", "source", "pool", "conditions", "contrasts",
    "cases", "endings", "episodes", "judged_by", "imported", "failures", "message",
    "verifier_audit", "paper", "replicates", "chosen_after_results",
    "deployment",
)  # fmt: skip


def build_results(inputs: ReportInputs, findings: Findings) -> dict[str, Any]:
    """Build the content of results.json (schema 1; keys in docs/report.md).

    It contains no time, and no path except those in the description of a changed setting.
    """
    audit_results = _build_audit(inputs, findings)
    content: dict[str, Any] = {
        "schema": 1,
        "recipe": inputs.recipe["name"],
        "task": inputs.task["name"],
        "k": inputs.k,
        **_build_deployment(inputs.deployment),
        "source": audit_results["source"],
        "pool": {
            "n": sum(findings.pool_states.values()),
            "states": dict(findings.pool_states),
            "recovered_by_k": {
                str(k): count for k, count in enumerate(inputs.pool_recovered, start=1)
            },
        },
        **audit_results,
    }
    for entry in findings.parts:
        part_results = entry.part.results(entry.findings)
        if part_results is not None:
            content[entry.part.name] = part_results
    if findings.conditions:
        content["cases"] = cases.build_content(inputs, findings.lead)
    if findings.replicates:
        content["replicates"] = replicates.build_content(findings)
    if inputs.endings:
        content["endings"] = provenance.list_endings(inputs)
    if inputs.episodes is not None:
        content["episodes"] = episodes_section.build_content(inputs.episodes)
    if inputs.judged_by:
        content["judged_by"] = dict(inputs.judged_by)
    if inputs.imported:
        content["imported"] = {
            split: _build_import(entry) for split, entry in inputs.imported.items()
        }
    if inputs.failures:
        content["failures"] = failures_section.build_content(inputs.failures, inputs.deployment)
    if paper_figures := paper.collect_figures(inputs, findings):
        content["paper"] = paper.build_content(paper_figures)
    if inputs.other_rule is not None:
        content["verifier_audit"] = other_rule.build_content(inputs, findings, inputs.other_rule)
    if inputs.late_changes:
        content["chosen_after_results"] = [*inputs.late_changes]
    if not findings.conditions:
        content["message"] = NOTHING_TO_TRAIN_ON
    return content


def _build_audit(inputs: ReportInputs, findings: Findings) -> dict[str, Any]:
    """Build the entries of one audit: the source, the conditions and their contrasts."""
    source = findings.source
    return {
        "source": {
            "n": source.n,
            "pass_at_1": float(source.pass_at_1),
            "pass_at_k": {str(k): float(source.curve[k]) for k in list_reported_k(inputs.k)},
            "maj_at_k": None if source.majority is None else {str(inputs.k): source.majority},
            "states": dict(source.states),
            "unstable": list(source.unstable_states),
            "verdicts": dict(source.verdicts),
        },
        "conditions": {
            name: _build_condition(condition, inputs.k)
            for name, condition in findings.conditions.items()
        },
        "contrasts": [_build_contrast(contrast, findings) for contrast in findings.contrasts],
    }


def _build_deployment(deployment: Deployment | None) -> dict[str, Any]:
    """Build the entry on sampled deployment decodes; empty if they are greedy."""
    return {"deployment": deployment.model_dump(mode="json")} if deployment else {}


def _build_condition(condition: ConditionFindings, k: int) -> dict[str, Any]:
    row = comparison.ModelRow.from_condition(condition, k)
    (figures,) = Frame([*comparison.ACCURACY, *comparison.RATES], [row]).entries()
    del figures["condition"]  # it is the key
    return {
        **figures,
        **({"own": dict(condition.own)} if condition.own else {}),
        "seeds": {
            str(seed): _build_seed(seed_findings) for seed, seed_findings in condition.seeds.items()
        },
    }


def _build_seed(seed: SeedFindings) -> dict[str, Any]:
    parts = seed.decomposition
    return {
        "pass_at_1": float(parts.pass_at_1),
        **_build_rates(parts),
        "counts": {
            "correct": parts.correct,
            "S_corrected": parts.corrected_s,
            "U_corrected": parts.corrected_u,
            "G_regressed": parts.regressed_g,
        },
        "verdicts": dict(seed.verdicts),
        "budget": _build_budget(seed.budget) | {"problems": seed.problems},
        **({"trained_as": seed.trained_as} if seed.trained_as else {}),
        **({"unverified": seed.unverified} if seed.unverified else {}),
    }


def _build_rates(parts: Decomposition) -> dict[str, Any]:
    return {
        "kappa_S": to_float(parts.kappa_s),
        "kappa_U": to_float(parts.kappa_u),
        "rho_G": to_float(parts.rho_g),
        "terms": {
            state: float(term) for state, term in comparison.split_by_state(parts.terms).items()
        },
    }


def _build_contrast(contrast: Contrast, findings: Findings) -> dict[str, Any]:
    names = (contrast.a, contrast.b)
    sides = [findings.conditions[name] for name in names if name in findings.conditions]
    (figures,) = Frame(comparison.CONTRASTS, [(findings, contrast)]).entries()
    return {
        **figures,
        "matched_budget": len(sides) == 2 and is_budget_matched(*sides),
        **({"differs": list(settings)} if (settings := find_differing_settings(*sides)) else {}),
    }


def _build_import(facts: ImportFacts) -> dict[str, Any]:
    """Build the entry of an import, without the paths of its files."""
    files = [{key: fact for key, fact in file.items() if key != "path"} for file in facts["files"]]
    all_facts: Mapping[str, Any] = facts
    keys = ("responses", "samples", "left_out", "verdicts", "verdict_field")
    return {**{key: all_facts[key] for key in keys}, "files": files}


def _build_budget(budget: Budget) -> dict[str, int]:
    return {
        "n": budget.n,
        "R": budget.repetitions,
        "N": budget.exposures,
        "L": budget.tokens,
        "L_supervised": budget.supervised_tokens,
        "J": budget.steps,
    }


def to_float(rate: Fraction | None) -> float | None:
    """Convert an exact rate to a float; None where it is undefined."""
    return None if rate is None else float(rate)
