"""results.json: the findings for programs. Rates are from 0 to 1; an undefined rate is null."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from gapft_harness.analysis.decomposition import Decomposition
from gapft_harness.analysis.pass_at_k import reported_k
from gapft_harness.core.records import Budget
from gapft_harness.report.findings import cases, ledger
from gapft_harness.report.findings.whole import (
    NOTHING_TO_TRAIN_ON,
    ConditionFindings,
    Contrast,
    Findings,
    SeedFindings,
    budget_matched,
    differs,
)
from gapft_harness.report.frame import Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.sections import (
    budgets,
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
OWN_KEYS = (
    "schema", "recipe", "task", "k", "source", "pool", "conditions", "contrasts", "audits",
    "cases", "ledger", "endings", "episodes", "judged_by", "imported", "failures", "message",
    "verifier_audit", "paper", "replicates", "chosen_after_results",
)  # fmt: skip


def results(inputs: ReportInputs, findings: Findings) -> dict[str, Any]:
    """Build the content of results.json (schema 1; keys in docs/report.md).

    It contains no time, and no path except those in the description of a changed setting.
    """
    of_audit = _on_audit(inputs, findings)
    content: dict[str, Any] = {
        "schema": 1,
        "recipe": inputs.recipe["name"],
        "task": inputs.task["name"],
        "k": inputs.k,
        "source": of_audit["source"],
        "pool": {
            "n": sum(findings.pool_states.values()),
            "states": dict(findings.pool_states),
            "recovered_by_k": {
                str(k): count for k, count in enumerate(inputs.pool_recovered, start=1)
            },
        },
        **of_audit,
    }
    if inputs.further:
        content["audits"] = {
            of.name: {
                **({"of": of.of} if of.of else {"task": of.inputs.task["name"]}),
                **_on_audit(of.inputs, findings.further[of.name]),
            }
            for of in inputs.further
        }
    if budgets.stopped(inputs):
        content["pool"]["drawn"] = budgets.pool_drawn(inputs)
    for of in findings.parts:
        own = of.part.results(of.found)
        if own is not None:
            content[of.part.name] = own
    if findings.conditions:
        content["cases"] = cases.content(inputs, findings.lead)
        content["ledger"] = ledger.content(inputs, findings)
    if findings.replicates:
        content["replicates"] = replicates.content(findings)
    if inputs.endings:
        content["endings"] = provenance.endings(inputs)
    if inputs.episodes is not None:
        content["episodes"] = episodes_section.content(inputs.episodes)
    if inputs.judged_by:
        content["judged_by"] = dict(inputs.judged_by)
    if inputs.imported:
        content["imported"] = {split: _imported(of) for split, of in inputs.imported.items()}
    if inputs.failures:
        content["failures"] = failures_section.content(inputs.failures)
    if beside := paper.figures(inputs, findings):
        content["paper"] = paper.content(beside)
    if inputs.other_rule is not None:
        content["verifier_audit"] = other_rule.content(inputs, findings, inputs.other_rule)
    if inputs.late:
        content["chosen_after_results"] = [*inputs.late]
    if not findings.conditions:
        content["message"] = NOTHING_TO_TRAIN_ON
    return content


def _on_audit(inputs: ReportInputs, findings: Findings) -> dict[str, Any]:
    """Build the entries of one audit: the source, the conditions and their contrasts."""
    source = findings.source
    return {
        "source": {
            "n": source.n,
            "pass_at_1": float(source.pass_at_1),
            "pass_at_k": {str(k): float(source.curve[k]) for k in reported_k(inputs.k)},
            "states": dict(source.states),
            "unstable": list(source.unstable),
            "verdicts": dict(source.verdicts),
        },
        "conditions": {
            name: _condition(condition, inputs.k) for name, condition in findings.conditions.items()
        },
        "contrasts": [_contrast(contrast, findings) for contrast in findings.contrasts],
    }


def _condition(condition: ConditionFindings, k: int) -> dict[str, Any]:
    row = comparison.Model.of(condition, k)
    (figures,) = Frame([*comparison.ACCURACY, *comparison.RATES], [row]).entries()
    del figures["condition"]  # it is the key
    return {
        **figures,
        **({"own": dict(condition.own)} if condition.own else {}),
        "seeds": {str(seed): _seed(found) for seed, found in condition.seeds.items()},
    }


def _seed(seed: SeedFindings) -> dict[str, Any]:
    parts = seed.decomposition
    return {
        "pass_at_1": float(parts.pass_at_1),
        **_rates(parts),
        "counts": {
            "correct": parts.correct,
            "S_corrected": parts.corrected_s,
            "U_corrected": parts.corrected_u,
            "G_regressed": parts.regressed_g,
        },
        "verdicts": dict(seed.verdicts),
        "budget": _budget(seed.budget) | {"problems": seed.problems},
        **({"trained_as": seed.trained_as} if seed.trained_as else {}),
        **_taken(seed.taken),
    }


def _taken(taken: Mapping[str, Any] | None) -> dict[str, Any]:
    """Build the entry of a training set from another run: arm, hash, K and replay, but no path."""
    return {} if taken is None else {"taken": {k: v for k, v in taken.items() if k != "run"}}


def _rates(parts: Decomposition) -> dict[str, Any]:
    return {
        "kappa_S": number(parts.kappa_s),
        "kappa_U": number(parts.kappa_u),
        "rho_G": number(parts.rho_g),
        "terms": {state: float(term) for state, term in comparison.by_state(parts.terms).items()},
    }


def _contrast(contrast: Contrast, findings: Findings) -> dict[str, Any]:
    names = (contrast.a, contrast.b)
    sides = [findings.conditions[name] for name in names if name in findings.conditions]
    (figures,) = Frame(comparison.CONTRASTS, [(findings, contrast)]).entries()
    return {
        **figures,
        "matched_budget": len(sides) == 2 and budget_matched(*sides),
        **({"differs": list(found)} if (found := differs(*sides)) else {}),
    }


def _imported(facts: ImportFacts) -> dict[str, Any]:
    """Build the entry of an import, without the paths of its files."""
    files = [{key: said for key, said in file.items() if key != "path"} for file in facts["files"]]
    told: Mapping[str, Any] = facts
    keys = ("responses", "samples", "left_out", "verdicts", "told_by")
    return {**{key: told[key] for key in keys}, "files": files}


def _budget(budget: Budget) -> dict[str, int]:
    return {
        "n": budget.n,
        "R": budget.repetitions,
        "N": budget.exposures,
        "L": budget.tokens,
        "L_supervised": budget.supervised_tokens,
        "J": budget.steps,
    }


def number(rate: Fraction | None) -> float | None:
    """Convert an exact rate to a float; None where it is undefined."""
    return None if rate is None else float(rate)
