"""The comparison as blocks: one content for the terminal and for comparison.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.compare.choice import REPLICATES
from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.findings import Paired
from gapft_harness.compare.items import SHOWN, Changed, changed, prompt, response
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Bullets, Case, Cases, Section, Table, Text
from gapft_harness.report.rendering.wording import UNSTABLE, percent, points, whole

_TESTS = {"mcnemar": "McNemar's exact test", "sign_flip": "sign flips of {}s"}


@dataclass(frozen=True, slots=True)
class _Words:
    """How numbers of this metric are written, and what a change of one is called."""

    level: Callable[[float], str]
    change: Callable[[float], str]
    rose: str
    fell: str
    unit: str

    def interval(self, of: Interval) -> str:
        return f"[{self.change(of.low)}, {self.change(of.high)}]"


def sections(of: Comparison) -> list[Section]:
    """The whole comparison."""
    words = _words(of)
    found = [
        Section("", [Text(_opening(of), "lead"), *_remarks(of)]),
        Section("Before and after", [_models(of, words)]),
    ]
    if of.found.groups:
        found.append(Section(f"By {of.choice.by or 'task'}", [_groups(of, words)]))
    if of.samples is not None:
        found.append(Section("Where the change comes from", _states(of)))
    order = list(of.table.after)
    few = sorted(changed(of, SHOWN), key=lambda one: (order.index(one.model), not one.gained))
    cases = [_case(of, words, one) for one in few]
    if cases:
        found.append(Section(f"{words.rose.capitalize()} and {words.fell}", [Cases(cases)]))
    return found


def _words(of: Comparison) -> _Words:
    if of.table.binary:
        return _Words(percent, points, "gained", "lost", "points")
    return _Words("{:.4g}".format, "{:+.4g}".format, "higher", "lower", of.figure.metric)


def _opening(of: Comparison) -> str:
    tasks = [log.task for log in of.before.logs if log.task]
    filtered = "" if of.figure.filter == "none" else f", filter {of.figure.filter}"
    return (
        f"{', '.join(tasks[:5])}{' and more' if len(tasks) > 5 else ''}"
        f"{': ' if tasks else ''}{whole(len(of.items))} documents, {of.figure.metric}{filtered}; "
        f"before: {of.before_name}"
    )


def _remarks(of: Comparison) -> list[Block]:
    warned = [note for note in of.notes if note.startswith("warning: ")]
    plain = [note for note in of.notes if note not in warned]
    blocks: list[Block] = [Text(note.removeprefix("warning: "), "warning") for note in warned]
    return [*blocks, *([Bullets(plain)] if plain else [])]


def _models(of: Comparison, words: _Words) -> Table:
    models = of.found.models
    seeds = any(one.seeds > 1 for one in models.values())
    columns = [
        "model", *(["seeds"] if seeds else []), "before", "after",
        f"difference ({words.unit})", "95% interval", "p",
        words.rose, words.fell,
    ]  # fmt: skip
    rows = [
        [name, *([str(one.seeds)] if seeds else []), *_row(one, words)]
        for name, one in models.items()
    ]
    return Table(_with_holm(columns, columns.index("p") + 1, models.values()), rows, note=_note(of))


def _groups(of: Comparison, words: _Words) -> Table:
    several = len(of.table.after) > 1
    columns = [
        of.choice.by or "task", *(["model"] if several else []), "documents", "before", "after",
        f"difference ({words.unit})", "95% interval", "p", words.rose, words.fell,
    ]  # fmt: skip
    rows = []
    for group, by_model in of.found.groups.items():
        for name, one in by_model.items():
            few = UNSTABLE if one.items < STABLE_ITEMS else ""
            start = [group, *([name] if several else []), f"{whole(one.items)}{few}"]
            rows.append([*start, *_row(one, words)])
    everything = [one for by_model in of.found.groups.values() for one in by_model.values()]
    note = ""
    if len(everything) > 1:
        note = f"p (Holm): adjusted for the {len(everything)} tests of this table."
    if any(one.items < STABLE_ITEMS for one in everything):
        note = f"{note} {UNSTABLE} fewer than {STABLE_ITEMS} documents: unstable.".strip()
    columns = _with_holm(columns, columns.index("p") + 1, everything)
    return Table(columns, rows, words=2 if several else 1, note=note)


def _row(one: Paired, words: _Words) -> list[str]:
    adjusted = [] if one.p_holm is None else [wording.p_value(one.p_holm)]
    return [
        words.level(one.before),
        words.level(one.after),
        words.change(one.difference),
        words.interval(one.interval),
        wording.p_value(one.p_value),
        *adjusted,
        whole(one.gained),
        whole(one.lost),
    ]


def _with_holm(columns: Sequence[str], at: int, of: Iterable[Paired]) -> list[str]:
    adjusted = any(one.p_holm is not None for one in of)
    return [*columns[:at], *(["p (Holm)"] if adjusted else []), *columns[at:]]


def _note(of: Comparison) -> str:
    seeds = any(one.seeds > 1 for one in of.found.models.values())
    drawn = "documents"
    if of.table.clusters is not None:
        drawn = f"{whole(int(of.table.clusters.max()) + 1)} clusters ({of.choice.cluster})"
    unit = "document" if of.table.clusters is None else "cluster"
    tests = sorted({_TESTS[one.test].format(unit) for one in of.found.models.values()})
    note = (
        f"Interval: {whole(REPLICATES)} bootstrap replicates of {drawn}"
        f"{' and training seeds together' if seeds else ''}. p: {wording.listed(tests)}, two-sided."
    )
    if seeds:
        words = "gained and lost" if of.table.binary else "higher and lower"
        note += f" Means are over seeds; {words} are summed over them."
    if len(of.found.models) > 1:
        note += f" p (Holm): adjusted for the {len(of.found.models)} models."
    return note


def _states(of: Comparison) -> list[Block]:
    assert of.samples is not None
    rows, sizes = [], next(iter(of.found.by_state.values())).counts
    seeds = {name: one.seeds for name, one in of.found.models.items()}
    for name, one in of.found.by_state.items():
        counts, terms = one.counts, one.counts.terms
        rows.append(
            [
                name,
                *(points(term) for term in (terms.s, terms.u, terms.g, terms.total)),
                *(percent(rate) for rate in (counts.kappa_s, counts.kappa_u, counts.rho_g)),
                wording.k_eq(one.k_eq, of.samples.k),
            ]
        )
    first = next(iter(seeds.values()))
    shares = ", ".join(
        f"{state} {whole(n // first)}{UNSTABLE if n // first < STABLE_ITEMS else ''}"
        for state, n in (("G", sizes.n_g), ("S", sizes.n_s), ("U", sizes.n_u))
    )
    text = (
        f"States before: {shares}. G: right before; S: wrong before, right in at least one of "
        f"{of.samples.k} samples; U: in none."
    )
    if UNSTABLE in shares:
        text += f" {UNSTABLE} fewer than {STABLE_ITEMS} documents: rates on them are unstable."
    note = (
        "difference = p_S κ_S + p_U κ_U − p_G ρ_G, in points, exactly. κ_S and κ_U: share of S "
        "and U that is right after; ρ_G: share of G that is wrong after. K_eq: the most samples of "
        "the model before, with a verifier to choose among them, that one answer after is worth."
    )
    columns = [
        "model", "p_S κ_S", "p_U κ_U", "−p_G ρ_G", "difference", "κ_S", "κ_U", "ρ_G", "K_eq",
    ]  # fmt: skip
    return [Text(text), Table(columns, rows, note=note)]


def _case(of: Comparison, words: _Words, one: Changed) -> Case:
    seeds = of.found.models[one.model].seeds
    which = f"{one.model}, seed {one.seed}" if seeds > 1 else one.model
    return Case(
        heading=f"{words.rose if one.gained else words.fell}: doc_id {one.before.get('doc_id')} "
        f"({which})",
        prompt=prompt(one.before),
        gold=str(one.before.get("target", "")),
        before=response(one.before),
        after=response(one.after),
        gained=one.gained,
    )
