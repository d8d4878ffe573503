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


@dataclass(frozen=True, slots=True)
class _Words:
    """How numbers of this metric are written, and what a change of one is called."""

    level: Callable[[float], str]
    change: Callable[[float], str]
    rose: str
    fell: str
    unit: str

    def interval(self, of: Interval | None, units: int) -> str:
        if of is None:
            return "–"
        few = UNSTABLE if units < STABLE_ITEMS else ""
        return f"[{self.change(of.low)}, {self.change(of.high)}]{few}"


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


def changes(of: Comparison) -> tuple[str, str]:
    """What it is called if a document's number rose, and if it fell."""
    return ("gained", "lost") if of.judged() else ("higher", "lower")


def _words(of: Comparison) -> _Words:
    if of.table.binary():
        return _Words(percent, points, *changes(of), "points")
    return _Words("{:.4g}".format, "{:+.4g}".format, *changes(of), of.figure.metric)


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
    columns = _with_holm(columns, columns.index("p") + 1, models.values())
    return Table(columns, rows, note=_note(of, words))


def _groups(of: Comparison, words: _Words) -> Table:
    several = len(of.table.after) > 1
    columns = [
        of.choice.by or "task", *(["model"] if several else []), "documents",
        *(["clusters"] if of.choice.cluster else []), "before", "after",
        f"difference ({words.unit})", "95% interval", "p", words.rose, words.fell,
    ]  # fmt: skip
    rows = []
    for group, by_model in of.found.groups.items():
        for name, one in by_model.items():
            sizes = [one.items, *([one.units] if of.choice.cluster else [])]
            start = [group, *([name] if several else []), *map(whole, sizes)]
            rows.append([*start, *_row(one, words)])
    everything = [one for by_model in of.found.groups.values() for one in by_model.values()]
    note = _tests(of, everything)
    if len(everything) > 1:
        note += f" p (Holm): adjusted for the {len(everything)} tests of this table."
    note += _few(of, everything)
    columns = _with_holm(columns, columns.index("p") + 1, everything)
    return Table(columns, rows, words=2 if several else 1, note=note)


def _row(one: Paired, words: _Words) -> list[str]:
    adjusted = [] if one.p_holm is None else [wording.p_value(one.p_holm)]
    return [
        words.level(one.before),
        words.level(one.after),
        words.change(one.difference),
        words.interval(one.interval, one.units),
        wording.p_value(one.p_value),
        *adjusted,
        whole(one.gained),
        whole(one.lost),
    ]


def _with_holm(columns: Sequence[str], at: int, of: Iterable[Paired]) -> list[str]:
    adjusted = any(one.p_holm is not None for one in of)
    return [*columns[:at], *(["p (Holm)"] if adjusted else []), *columns[at:]]


def _note(of: Comparison, words: _Words) -> str:
    seeds = any(one.seeds > 1 for one in of.found.models.values())
    drawn = "documents"
    if of.table.clusters is not None:
        drawn = f"{whole(int(of.table.clusters.max()) + 1)} clusters ({of.choice.cluster})"
    note = (
        f"Interval: {whole(REPLICATES)} bootstrap replicates of {drawn}"
        f"{' and training seeds together' if seeds else ''}. "
        f"{_tests(of, of.found.models.values())}"
    )
    if seeds:
        note += f" Means are over seeds; {words.rose} and {words.fell} are summed over them."
    if len(of.found.models) > 1:
        note += f" p (Holm): adjusted for the {len(of.found.models)} models."
    return note + _few(of, of.found.models.values())


def _tests(of: Comparison, found: Iterable[Paired]) -> str:
    """Names the tests of a table."""
    names = {"mcnemar": "McNemar's exact test", "sign_flip": f"sign flips of {_unit(of)}s"}
    tests = {one.test for one in found}
    if len(tests) > 1:
        return (
            f"p: {names['mcnemar']} where there is one seed and every number is 0 or 1, else "
            f"{names['sign_flip']}; two-sided."
        )
    return f"p: {names[tests.pop()]}, two-sided."


def _few(of: Comparison, found: Iterable[Paired]) -> str:
    """What to know of intervals from few documents or clusters, or from one."""
    units = {one.units for one in found}
    few, said = _unit(of), ""
    if any(1 < n < STABLE_ITEMS for n in units):
        said += f" {UNSTABLE} fewer than {STABLE_ITEMS} {few}s: likely too narrow."
    if 1 in units:
        said += f" –: one {few} says nothing of others."
    return said


def _unit(of: Comparison) -> str:
    return "document" if of.table.clusters is None else "cluster"


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
    numbers = ""
    if not of.judged():
        old, new = of.table.before[one.position], of.table.after[one.model][one.seed - 1]
        numbers = f", {old:.4g} to {new[one.position]:.4g}"
    return Case(
        heading=f"{words.rose if one.gained else words.fell}{numbers}: "
        f"doc_id {one.before.get('doc_id')} ({which})",
        prompt=prompt(one.before),
        gold=str(one.before.get("target", "")),
        before=response(one.before),
        after=response(one.after),
        gained=one.gained if of.judged() else None,
    )
