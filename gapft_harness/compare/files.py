"""What ``--out`` writes: results.json, comparison.csv, items.csv and comparison.md."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.analysis.k_equivalent import k_label
from gapft_harness.analysis.pass_at_k import mean_pass_at_k, reported_k
from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.findings import ByState, Paired
from gapft_harness.compare.items import changed, prompt, response
from gapft_harness.compare.page import changes, sections
from gapft_harness.compare.reading import Rows
from gapft_harness.core.files import replace_file, write_json
from gapft_harness.core.text import whole, whole_text
from gapft_harness.report.rendering.markdown import render
from gapft_harness.report.tables import as_csv


def write(of: Comparison, folder: Path) -> None:
    """Writes the four files; what is there of an earlier comparison is replaced.

    Raises:
        GapftError: the folder cannot be written, or the disk is full.
    """
    write_json(folder / "results.json", whole(results(of)))
    _write_text(folder / "comparison.csv", as_csv(_rows(of)))
    _write_text(folder / "comparison.md", render("Comparison", "", sections(of)))
    replace_file(folder / "items.csv", lambda beside: _write_items(of, beside))


def results(of: Comparison) -> dict[str, Any]:
    """The content of results.json (schema 1; keys in docs/comparing.md)."""
    models = {}
    for name, one in of.found.models.items():
        judged = of.judged(name)
        models[name] = {
            "logs": [_paths(rows) for rows, _ in of.after[name]],
            "seeds": one.seeds,
            **_paired(one, judged),
            "by": {
                group: {"n": by_model[name].items, **_paired(by_model[name], judged)}
                for group, by_model in of.found.groups.items()
            },
        }
        if name in of.found.by_state:
            models[name]["decomposition"] = _by_state(of.found.by_state[name])
    clusters = of.table.clusters
    content: dict[str, Any] = {
        "schema": 1,
        "tasks": [log.task for log in of.before.logs],
        "metric": of.figure.metric,
        "filter": of.figure.filter,
        "higher_is_better": of.higher_is_better,
        "n": len(of.items),
        "by": (of.choice.by or "task") if of.found.groups else None,
        "cluster": of.choice.cluster,
        "clusters": len(of.items) if clusters is None else int(clusters.max()) + 1,
        "before": {"logs": _paths(of.before), "mean": float(of.table.before.mean())},
        "models": models,
        "notes": list(of.notes),
    }
    if of.samples is not None and of.found.states is not None:
        passing, k = of.samples.passing, of.samples.k
        content["source_samples"] = {
            "k": k,
            "states": {state: int((of.found.states == state).sum()) for state in "GSU"},
            "pass_at_k": {str(n): float(mean_pass_at_k(passing, k, n)) for n in reported_k(k)},
        }
    return content


def _paths(rows: Rows) -> list[str]:
    return [str(log.path) for log in rows.logs]


def _paired(one: Paired, judged: bool) -> dict[str, Any]:
    return {
        "before": one.before,
        "after": one.after,
        "difference": one.difference,
        "ci95": None if one.interval is None else [one.interval.low, one.interval.high],
        "test": one.test,
        "p": one.p_value,
        "p_holm": one.p_holm,
        ("gained" if judged else "higher"): one.gained,
        ("lost" if judged else "lower"): one.lost,
    }


def _by_state(of: ByState) -> dict[str, Any]:
    counts, terms = of.counts, of.counts.terms
    rates = (counts.kappa_s, counts.kappa_u, counts.rho_g)
    kappa_s, kappa_u, rho_g = (None if rate is None else float(rate) for rate in rates)
    return {
        "kappa_S": kappa_s,
        "kappa_U": kappa_u,
        "rho_G": rho_g,
        "terms": {"S": float(terms.s), "U": float(terms.u), "G": float(terms.g)},
        "K_eq": k_label(of.k_eq),
    }


def _rows(of: Comparison) -> Iterator[tuple[object, ...]]:
    """A row for each model over all documents, then for each group."""
    yield (
        "model", "group", "documents", "seeds", "before", "after", "difference", "ci95_low",
        "ci95_high", "test", "p", "p_holm", *changes(of), "kappa_S", "kappa_U", "rho_G",
        "term_S", "term_U", "term_G", "K_eq",
    )  # fmt: skip
    for group, by_model in [("", of.found.models), *of.found.groups.items()]:
        for name, one in by_model.items():
            terms: list[object] = [""] * 7
            if not group and name in of.found.by_state:
                told = _by_state(of.found.by_state[name])
                rates = [told[key] for key in ("kappa_S", "kappa_U", "rho_G")]
                terms = ["" if rate is None else rate for rate in rates]
                terms += [*told["terms"].values(), told["K_eq"]]
            yield (
                *(name, group, one.items, one.seeds, one.before, one.after, one.difference),
                *(("", "") if one.interval is None else (one.interval.low, one.interval.high)),
                *(one.test, one.p_value),
                "" if one.p_holm is None else one.p_holm,
                *(one.gained, one.lost, *terms),
            )


def _write_items(of: Comparison, path: Path) -> None:
    """One line for each gained or lost document and seed, with whole texts."""
    rose, fell = changes(of)
    states = of.found.states
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(
            (
                *("model", "seed", "change", "task", "doc_id", "document", "group", "state"),
                *("value_before", "value_after", "prompt", "gold", "before", "after"),
            )
        )
        for one in changed(of):
            task, digest, _ = of.items[one.position]
            groups = of.table.groups
            cells = (
                *(one.model, one.seed, rose if one.gained else fell, task),
                *(one.before.get("doc_id"), digest.hex()),
                "" if groups is None else groups[one.position],
                "" if states is None else states[one.position],
                of.table.before[one.position],
                of.table.after[one.model][one.seed - 1, one.position],
                *(prompt(one.before), one.before.get("target", "")),
                *(response(one.before), response(one.after)),
            )
            lines.writerow([whole_text(c) if isinstance(c, str) else c for c in cells])


def _write_text(path: Path, text: str) -> None:
    replace_file(path, lambda beside: beside.write_text(whole_text(text), encoding="utf-8"))
