"""What ``--out`` writes: figures, tables, a page as HTML and as Markdown, and every document."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gapft_harness.analysis.pass_at_k import k_label, mean_pass_at_k, reported_k
from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.findings import ByState, Paired
from gapft_harness.compare.items import changed, entries
from gapft_harness.compare.page import changes, sections
from gapft_harness.compare.reading import Rows
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import replace_file, require_folder, write_json
from gapft_harness.core.text import whole, whole_text
from gapft_harness.report.explorer import packing as explorer
from gapft_harness.report.explorer.explored import EQUAL, HIGHER, LOWER, Explored, Model, outcome
from gapft_harness.report.rendering import page
from gapft_harness.report.rendering.markdown import render
from gapft_harness.report.rendering.wording import number
from gapft_harness.report.tables import as_csv

#: Most documents that explorer.html shows.
EXPLORED = 20_000
#: The files, those for people first.
FILES = (
    "comparison.html", "comparison.md", "explorer.html", "results.json", "comparison.csv",
    "items.csv",
)  # fmt: skip


def require_free(folder: Path, files: Sequence[str] = FILES, *, overwrite: bool = False) -> None:
    """Holds a folder to have none of some files, so that none is overwritten silently.

    Raises:
        UserError: it has, and not ``overwrite``; or it cannot be written.
    """
    require_folder(folder)
    for name in () if overwrite else files:
        if (folder / name).exists():
            raise UserError(
                f"--out {folder}: holds {name} already; give another folder, or --overwrite "
                "(in Python overwrite=True) to replace it"
            )


def write(of: Comparison, folder: Path, *, overwrite: bool = False) -> None:
    """Writes the files.

    Args:
        of: the comparison.
        folder: where; it is made.
        overwrite: replace those of an earlier comparison.

    Raises:
        UserError: the folder holds a comparison already.
        GapftError: the folder cannot be written, or the disk is full.
    """
    require_free(folder, overwrite=overwrite)
    shown = _explored(of, EXPLORED)
    built = sections(of, dict(zip(shown, _names(of, shown), strict=True)))
    write_json(folder / "results.json", whole(results(of)))
    write_text(folder / "comparison.csv", as_csv(_rows(of)))
    write_text(folder / "comparison.md", render("Comparison", "", built))
    written = page.render("Comparison", "", built, (), {"": "explorer.html"}, tables=False)
    write_text(folder / "comparison.html", written)
    replace_file(folder / "items.csv", lambda beside: _write_items(of, beside))
    write_text(folder / "explorer.html", explorer.render(explored(of)))


def results(of: Comparison) -> dict[str, Any]:
    """The content of results.json (schema 1; keys in docs/comparing.md)."""
    models: dict[str, dict[str, Any]] = {}
    for name, runs in of.after.items():
        judged = of.judged(name)
        one = of.found.models.get(name)
        models[name] = {
            "logs": [_paths(rows) for rows, _ in runs],
            "seeds": len(runs),
            "seed_names": of.seeds[name],
            **({} if one is None else paired(one, judged)),
            "by": _each(of.found.groups, name, judged),
            "groups": _each(of.found.aggregates, name, judged),
        }
        if name in of.found.by_state:
            models[name]["decomposition"] = _by_state(of.found.by_state[name])
    clusters, figure = of.table.clusters, of.figure
    content: dict[str, Any] = {
        "schema": 1,
        "tasks": {
            task: {
                "metric": figure.metric,
                "filter": figure.filter,
                "higher_is_better": of.directions[task],
            }
            for task, figure in of.figures.items()
        },
        "metric": figure and figure.metric,
        "filter": figure and figure.filter,
        "higher_is_better": of.higher_is_better,
        "n": len(of.items),
        "by": (of.choice.by or "task") if of.found.groups else None,
        "groups": {
            one.name: {"tasks": list(one.tasks), "weight_by_size": one.weighted}
            for one in of.aggregates
        },
        "cluster": of.choice.cluster,
        "clusters": len(of.items) if clusters is None else int(clusters.max()) + 1,
        "before": {
            "logs": _paths(of.before),
            "mean": float(of.table.before.mean()) if of.found.models else None,
        },
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


def _each(
    found: Mapping[str, Mapping[str, Paired]], model: str, judged: bool
) -> dict[str, dict[str, Any]]:
    """One model's figures by group."""
    return {
        group: {"n": by_model[model].items, **paired(by_model[model], judged)}
        for group, by_model in found.items()
    }


def _paths(rows: Rows) -> list[str]:
    return [str(log.path) for log in rows.logs]


def paired(one: Paired, judged: bool) -> dict[str, Any]:
    """One model's figures; ``judged``: a document is right or wrong."""
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
    """A row for each model over all documents, then for each group of tasks, then each group."""
    yield (
        "model", "group", "metric", "filter", "documents", "seeds", "before", "after",
        "difference", "ci95_low", "ci95_high", "test", "p", "p_holm", *changes(of),
        "kappa_S", "kappa_U", "rho_G", "term_S", "term_U", "term_G", "K_eq",
    )  # fmt: skip
    shared = ["", ""] if of.figure is None else [of.figure.metric, of.figure.filter]
    own = {one.name: of.figures[one.tasks[0]] for one in of.aggregates}
    own |= of.figures if of.choice.by is None else {}
    groups = (*of.found.aggregates.items(), *of.found.groups.items())
    for group, by_model in [("", of.found.models), *groups]:
        of_group = own.get(group)
        figure = shared if of_group is None else [of_group.metric, of_group.filter]
        for name, one in by_model.items():
            terms: list[object] = [""] * 7
            if not group and name in of.found.by_state:
                told = _by_state(of.found.by_state[name])
                rates = [told[key] for key in ("kappa_S", "kappa_U", "rho_G")]
                terms = ["" if rate is None else rate for rate in rates]
                terms += [*told["terms"].values(), told["K_eq"]]
            yield (
                *(name, group, *figure, one.items, one.seeds),
                *(one.before, one.after, one.difference),
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
                *(
                    "model",
                    "seed",
                    "seed_name",
                    "change",
                    "task",
                    "doc_id",
                    "document",
                    "group",
                    "state",
                ),
                *("value_before", "value_after", "prompt", "gold", "before", "after"),
            )
        )
        for one in changed(of):
            task, digest, _ = of.items[one.position]
            groups = of.table.groups
            cells = (
                *(one.model, one.seed, of.seeds[one.model][one.seed - 1]),
                *(rose if one.gained else fell, task),
                *(one.before.doc_id, digest.hex()),
                "" if groups is None else groups[one.position],
                "" if states is None else states[one.position],
                of.table.before[one.position],
                of.table.after[one.model][one.seed - 1, one.position],
                *(one.before.prompt, one.before.gold),
                *(one.before.response, one.after.response),
            )
            lines.writerow([whole_text(c) if isinstance(c, str) else c for c in cells])


def explored(of: Comparison, most: int = EXPLORED) -> Explored:
    """What explorer.html shows."""
    positions = _explored(of, most)
    judged = of.judged()

    def verdicts(values: Any) -> list[str]:
        if judged:
            return ["right" if value else "wrong" for value in values]
        return [number(value) for value in values]

    def outcomes(values: Any) -> str:
        if judged:
            return "".join(map(outcome, before == 1, values == 1))
        rose = (values > before).astype(int) - (values < before)
        return "".join({1: HIGHER, 0: EQUAL, -1: LOWER}[change] for change in rose.tolist())

    before, samples, states = of.table.before[positions], of.samples, of.found.states
    tasks = [of.items[position][0] for position in positions]
    fields = {"task": tasks} if len(set(tasks)) > 1 else {}
    if of.choice.by is not None and of.table.groups is not None:
        fields[of.choice.by] = of.table.groups[positions].tolist()
    left_out = ""
    if len(positions) < len(of.items):
        left_out = (
            f" {len(positions):,} of {len(of.items):,} documents are here: of those that changed "
            f"and of the others as many as fit, in the order of a hash."
        )
    return Explored(
        title=f"{', '.join(dict.fromkeys(filter(None, tasks))) or 'Comparison'}: before and after",
        remark=f"Before: {of.before_name}.{left_out}",
        noun="document",
        before="before",
        ids=_names(of, positions),
        verdicts=verdicts(before),
        models=[
            Model(name, name, seed, verdicts(values), outcomes(values))
            for name, runs in of.table.after.items()
            for seed, values in zip(of.seeds[name], runs[:, positions], strict=True)
        ],
        states="" if states is None else "".join(states[positions].tolist()),
        k=0 if samples is None else samples.k,
        passing=() if samples is None else samples.passing[positions].tolist(),
        fields=fields,
        entries=lambda: entries(of, positions),
    )


def _explored(of: Comparison, most: int) -> list[int]:
    """Positions of changed documents first, and of the others as many as fit; as in the log."""
    unchanged = np.ones(len(of.items), dtype=bool)
    for after in of.table.after.values():
        unchanged &= (after == of.table.before).all(axis=0)
    # items are in the order of their hashes, so these are drawn, and always the same
    shown = np.argsort(unchanged, kind="stable")[:most]
    positions: list[int] = shown[np.argsort(of.rows_before[shown])].tolist()
    return positions


def _names(of: Comparison, positions: list[int]) -> list[str]:
    """Distinct names of documents: ``doc_id``, with the task or a hash where it is not enough."""
    rows = of.rows_before[positions].tolist()
    named = [
        (of.items[p][0], of.before.doc_ids[row]) for p, row in zip(positions, rows, strict=True)
    ]
    several = len({task for task, _ in named}) > 1
    names = [" ".join(name if several else name[1:]) for name in named]
    if len(set(names)) == len(names):
        return names
    return [f"{n} {of.items[p][1].hex()}" for n, p in zip(names, positions, strict=True)]


def write_text(path: Path, text: str) -> None:
    """Writes a text that is whole or absent."""
    replace_file(path, lambda beside: beside.write_text(whole_text(text), encoding="utf-8"))
