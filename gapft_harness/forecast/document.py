"""The forecast as blocks and as figures, for the terminal, forecast.md and forecast.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.flat_groups import FlatGroups, solved_share
from gapft_harness.analysis.forecast.mixtures import PARTS, REJECTED, SHAPES
from gapft_harness.analysis.pass_at_k import reported_k
from gapft_harness.forecast.findings import CORRECTED, Fitted, Forecast, Guess, SplitFindings
from gapft_harness.report.findings.ledger import Spent
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Bullets, Section, Table, Text
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import duration, percent, points, rounded, whole

#: Of longer searches only some k are shown; forecast.json has all.
_SHOWN = 10
#: Intervals of Pass@k that are wider are warned of.
WIDE = 0.15

Answer = Literal["worth training", "may be too little to see", "not worth training"]


def document(of: Forecast) -> Document:
    """All of it."""
    return Document(
        title="Forecast",
        sections=sections(of),
        names=("forecast.md", "forecast.json"),
        results=results(of),
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, and why in a few sentences."""

    answer: Answer
    why: str


def judge(of: Forecast) -> Verdict:
    """Compares the S term of the gain with the smallest effect that seeds and items can detect.

    The S term p_S kappa_S is what training on recovered failures adds by correcting such failures.
    It is at most p_S, and between 2/5 and 2/3 of it at the paper's correction rates. Where even
    the whole of p_S, or 2/3 of it, is below the detectable effect, it is not worth training.
    """
    pool, judged = of.splits.get("pool"), of.judged
    if pool is not None and not pool.recovered:
        return Verdict(
            "not worth training",
            f"Search recovered none of the {whole(pool.missed)} pool problems that one decode "
            "missed: there is nothing to train on. Search deeper (search.k), at a higher "
            "temperature, or take an easier pool.",
        )
    least = of.detectable[of.seeds]
    seeds = f"{of.seeds} seed{'s' if of.seeds > 1 else ''} and {whole(of.items)} audit items"
    if least is None:
        why = f"{seeds.capitalize()} cannot tell any effect from retraining noise: add items."
        return Verdict("not worth training", why)
    p_s = judged.p_s
    low, high = (share * p_s for share in CORRECTED)
    said = (
        f"Search recovers {percent(p_s)} of the problems ({whole(judged.recovered)} of "
        f"{whole(judged.problems)}); correcting two fifths to two thirds of them, the paper's "
        f"range, adds {points(low)} to {points(high)} points, and {seeds} detect "
        f"{points(least)} or more."
    )
    if high < least:
        more = (
            "Even all of them corrected could not be told from retraining noise. This is the "
            "paper's case of Qwen2.5-7B, whose one decode solves nearly all that search can reach."
            if p_s < least
            else "That could not be told from retraining noise; more seeds or items could."
        )
        return Verdict("not worth training", f"{said} {more}")
    if low < least:
        return Verdict(
            "may be too little to see",
            f"{said} The lower end could not be told from noise: more seeds or items would.",
        )
    return Verdict("worth training", f"{said} There is room for an effect that can be seen.")


def sections(of: Forecast) -> list[Section]:
    """The whole forecast."""
    said = judge(of)
    lead = Text(f"{said.answer.capitalize()}. {said.why}", "lead")
    found = [
        Section("", [lead, *(Text(text, "warning") for text in warnings(of))]),
        Section("What search found", [_searched(of), _first(of)]),
    ]
    if any(each.flat for each in of.splits.values()):
        found.append(Section("Groups that teach GRPO nothing", [_flat(of)]))
    if of.depths:
        found.append(Section(f"Beyond K = {of.k} samples", _beyond(of)))
    found += [
        Section("What can be detected", [_detectable(of)]),
        Section("Costs", [_costs(of)]),
        Section("Assumptions", [Bullets(assumptions(of))]),
    ]
    return found


def warnings(of: Forecast) -> list[str]:
    """What to know before a figure is believed."""
    said = [*of.told]
    said += [f"k = {k}: {of.k} samples were drawn, so it is measured: see below" for k in of.drawn]
    for split, found in of.splits.items():
        if found.problems < STABLE_ITEMS:
            few = f"{split}: {found.problems} problems, fewer than {STABLE_ITEMS}"
            said.append(f"{few}: every share of them is unstable")
        if not of.depths:
            continue
        if found.curve is None:
            why = "its search stopped early (search.stop), so how often problems pass is not known"
            held = "; |S| is forecast from the audit's greedy failures" if found.recoverable else ""
            said.append(f"{split}: {why}, and its Pass@k is not forecast{held}")
        elif found.all is None:
            passed = "no sample" if found.curve[0] == 0 else "every sample"
            said.append(
                f"{split}: {passed} passed, so nothing tells how chances are spread; nothing is "
                "forecast beyond K"
            )
        if found.curve is not None and found.all is not None and found.failures is None:
            said.append(
                f"{split}: no sample passed on a problem that one decode misses"
                if found.missed
                else f"{split}: one decode misses no problem that samples leave unsolved"
            )
    for name, fitted in _fits(of):
        if fitted.one.rejected:
            p = wording.p_said(fitted.one.p_value)
            said.append(
                f"{name}: one beta-binomial distribution does not fit (chi-squared test, {p}); "
                "the other families are weighed in, and the true uncertainty beyond "
                f"K = {of.k} is larger than for a pool that one fits"
            )
        if fitted.fits < REJECTED:
            said.append(
                f"{name}: no family fits (posterior predictive check, "
                f"{wording.p_said(fitted.fits)}); do not rely on what is forecast beyond "
                f"K = {of.k}"
            )
    for split, found in of.splits.items():
        widths = {k: guess.high - guess.low for k, guess in found.pass_at_k.items()}
        said += [
            f"{split}: the 80% interval of Pass@{k} is {100 * width:.0f} points wide: {of.k} "
            f"samples of {found.problems:,} problems tell little of it"
            for k, width in widths.items()
            if width > WIDE
        ]
    return said


def _fits(of: Forecast) -> list[tuple[str, Fitted]]:
    """The fits that anything rests on, by name."""
    found = []
    for split, each in of.splits.items():
        if each.all is not None and each.pass_at_k:
            found.append((f"{split}, all problems", each.all))
        if each.failures is not None and each.recoverable and each.curve is not None:
            found.append((f"{split}, greedy failures", each.failures))
    return found


def _searched(of: Forecast) -> Table:
    shown = sorted({*reported_k(of.k), *of.drawn})
    return Frame([*SEARCHED[:-1], *map(pass_at, shown)], [*of.splits.items()]).table(
        f"G: one decode passes; S: it does not, and one of {of.k} samples does; U: none does. "
        "Pass@k: of the samples alone, without bias."
    )


SplitRow = tuple[str, SplitFindings]
_SPLIT = "its size and states"
_DECODES = "of the greedy decode; of k samples, measured or forecast"
_P_S = "share of S (Section 3.4); beyond K of |S|"


def pass_at(k: int | str) -> Column[SplitRow]:
    """Measured Pass@k."""

    def value(row: SplitRow) -> float | None:
        return None if row[1].curve is None else row[1].curve[int(k) - 1]

    return Column("", _DECODES, value, f"Pass@{k}", percent)


def by(k: int | str) -> Column[SplitRow]:
    """How much of S the first samples recover."""
    return Column(
        "",
        "share of S first recovered among k samples",
        lambda row: percent(row[1].first[int(k) - 1]) if row[1].first else "–",
        f"by {k}",
    )


SPLIT: Column[SplitRow] = Column("", _SPLIT, lambda row: row[0], "split")
SEARCHED: tuple[Column[SplitRow], ...] = (
    SPLIT,
    Column("", _SPLIT, lambda row: row[1].problems, "problems", whole),
    Column("", _SPLIT, lambda row: row[1].solved, "G", whole),
    Column("", _SPLIT, lambda row: row[1].recovered, "S", whole),
    Column("", _SPLIT, lambda row: row[1].missed, "U", whole),
    Column("", _P_S, lambda row: row[1].p_s, "p_S", percent),
    Column("", _DECODES, lambda row: row[1].pass_at_1, "greedy", percent),
    pass_at("k"),
)
FIRST = (SPLIT, by("k"))


def _first(of: Forecast) -> Table:
    shown = range(1, of.k + 1) if of.k <= _SHOWN else reported_k(of.k)
    return Frame([SPLIT, *map(by, shown)], [*of.splits.items()]).table(
        "The share of S whose first passing sample is among the first k."
    )


def _flat(of: Forecast) -> Table:
    splits = [(split, each) for split, each in of.splits.items() if each.flat]
    shares = (f"{split} {percent(solved_share(each.flat or ()))}" for split, each in splits)
    rows = [(split, groups) for split, each in splits for groups in each.flat or ()]
    return Frame(FLAT, rows).table(
        f"The K = {of.k} samples of a problem as one group: flat, if all of them pass or none "
        f"does. Of the flat groups those of G: {', '.join(shares)}. This is of the model that was "
        "searched; a model in training has other ones."
    )


FLAT: tuple[Column[tuple[str, FlatGroups]], ...] = (
    Column("", _SPLIT, lambda row: row[0], "split"),
    Column("", "the problem's state", lambda row: row[1].state, "state"),
    Column("", _SPLIT, lambda row: row[1].groups, "problems", whole),
    Column("", "all K samples pass", lambda row: row[1].solved, "all pass", whole),
    Column("", "no sample passes", lambda row: row[1].failed, "none pass", whole),
    Column("", "share of the state's problems", lambda row: row[1].share, "flat", percent),
)


def _beyond(of: Forecast) -> list[Block]:
    rows = [Depth(split, k, each) for split, each in of.splits.items() for k in of.depths]
    note = (
        "Pass@k: of k samples drawn anew, of these problems. |S|: problems recovered if further "
        "samples, up to k, came to those drawn; of the pool those that could be trained on."
    )
    beyond = Frame(BEYOND, rows).table(note)
    if not _fits(of):
        return [beyond]
    return [
        beyond,
        Frame(FITS, _fits(of)).table(
            "one, mass at 0, two: the weight of the families in which chances follow one "
            "distribution, one and a share of problems that never pass, or two; logit: the weight "
            "of those whose distributions are logit-normal, the others' are beta. p of one: "
            "chi-squared test of one beta distribution; p of all: posterior predictive check of "
            f"all families; below {REJECTED:g} there is no fit. held back: fitted on the first "
            "half of the samples alone, how many further problems the other half solves "
            "(80% interval), and how many it did; four in five intervals should hold it.",
        ),
    ]


@dataclass(frozen=True, slots=True)
class Depth:
    """A split with k samples, more than were drawn."""

    split: str
    k: int
    found: SplitFindings

    @property
    def reached(self) -> Guess | None:
        """Pass@k."""
        return self.found.pass_at_k.get(self.k)

    @property
    def recovered(self) -> Guess | None:
        """|S|."""
        return self.found.recoverable.get(self.k)


def _value(guess: Guess | None) -> float | None:
    return None if guess is None else guess.value


def _p_s(row: Depth) -> float | None:
    return None if row.recovered is None else row.recovered.value / row.found.problems


_K = "samples a problem; of the figure before it"
BEYOND: tuple[Column[Depth], ...] = (
    Column("", _SPLIT, lambda row: row.split, "split"),
    Column("", _K, lambda row: row.k, "k"),
    Column("", _DECODES, lambda row: _value(row.reached), "Pass@k", percent),
    Column("", _K, lambda row: _percents(row.reached), "80% interval"),
    Column(
        "",
        "problems recovered with k samples",
        lambda row: _value(row.recovered),
        "|S|",
        rounded,
    ),
    Column("", _K, lambda row: _counts(row.recovered), "80% interval"),
    Column("", _P_S, _p_s, "p_S", percent),
)
FitRow = tuple[str, Fitted]


def _weight(title: str, kind: str, meaning: str) -> Column[FitRow]:
    """The weight of the families of a kind."""

    def value(row: FitRow) -> str:
        weights = row[1].fit.weights.items()
        return percent(float(sum(each[0] for family, each in weights if kind in family)), 0)

    return Column("", meaning, value, title)


def _held_back(row: FitRow) -> str:
    held = row[1].held
    return "–" if held is None else f"{round(held.forecast.value)} {_counts(held.forecast)}"


def _was_found(row: FitRow) -> str:
    held = row[1].held
    return "–" if held is None else f"{held.found}{'' if held.inside else ', outside'}"


_FAMILY = "which problems; weights of [the families](gap.md#passk-beyond-k)"
_TESTS = "tests of one beta distribution, of all families"
_HELD = "recovered by the samples' second half: forecast, real"
FITS: tuple[Column[FitRow], ...] = (
    Column("", _FAMILY, lambda row: row[0], "fit to"),
    Column("", _FAMILY, lambda row: row[1].problems, "problems", whole),
    *(
        _weight(title, part, _FAMILY)
        for title, part in zip(("one", "mass at 0", "two"), PARTS, strict=True)
    ),
    _weight("logit", "logit_normal", "weight of the logit-normal ones"),
    Column("", _TESTS, lambda row: row[1].one.p_value, "p of one", wording.p_value),
    Column("", _TESTS, lambda row: row[1].fits, "p of all", wording.p_value),
    Column("", _HELD, _held_back, "held back"),
    Column("", _HELD, _was_found, "found"),
)


def _detectable(of: Forecast) -> Table:
    rows = [(n, of.items, least) for n, least in of.detectable.items()]
    return Frame(DETECTABLE, rows).table(
        "Found with probability 80% by a two-sided paired test at level 5%. Assumed: two trained "
        f"models differ on {percent(of.discordance)} of the items; {percent(of.shared, 0)} of the "
        "variance of their differences comes back under every seed."
    )


_EFFECT = "found with probability 80%"
DETECTABLE: tuple[Column[tuple[int, int, float | None]], ...] = (
    Column("", _EFFECT, lambda row: row[0], "seeds"),
    Column("", _EFFECT, lambda row: row[1], "audit items", whole),
    Column(
        "",
        _EFFECT,
        lambda row: row[2],
        "smallest effect (points)",
        lambda least: "none" if least is None else points(least, 2),
    ),
)
_COST = "costs"
COSTS: tuple[Column[tuple[str, Spent]], ...] = (
    Column("", _COST, lambda row: row[0], "step"),
    Column("", _COST, lambda row: row[1].tokens, "tokens", rounded),
    Column(
        "",
        _COST,
        lambda row: row[1].seconds,
        "time",
        lambda seconds: "–" if seconds is None else duration(seconds),
    ),
)


def _costs(of: Forecast) -> Table:
    costs = of.costs
    rows = [("this search (done)", costs.search)]
    rows += [(f"search with k = {k}, a new run", cost) for k, cost in costs.deeper.items()]
    adapters = f"{costs.arms} adapter{'' if costs.arms == 1 else 's'}"
    rows += [(f"train {adapters}", costs.training), (f"audit {adapters}", costs.audit)]
    unmeasured = []
    if costs.search.seconds is None:
        unmeasured.append("the search's seconds are not recorded")
    if costs.training.tokens is None:
        unmeasured.append("without a pool whose tokens are counted, training is not foreseen")
    elif costs.training.seconds is None:
        unmeasured.append("no training of this run has recorded its seconds")
    if costs.search.tokens is None:
        unmeasured.append("the backend gave no tokens to count")
    elif any(cost.tokens is None for cost in costs.deeper.values()):
        unmeasured.append("how much a search draws that stops early is not foreseen")
    note = (
        "Search and audit: generated tokens, at the rate of this run's search (wall time, starting "
        "included). Training: processed tokens, every condition at the recipe's matched budget, at "
        "the rate of what this run has trained."
    )
    return Frame(COSTS, rows).table(note + f" –: {'; '.join(unmeasured)}." * bool(unmeasured))


def assumptions(of: Forecast) -> list[str]:
    """What the figures rest on."""
    return [
        "Samples of a problem are independent and pass with a chance of the problem's own; greedy "
        "decodes are not mixed in as samples.",
        "Beyond K: chances follow one beta or logit-normal distribution, one and a mass at zero, "
        "or two, each equally probable before the counts were seen. Where rarely solved problems "
        "are spread "
        "otherwise, intervals are too narrow: K samples do not show chances far below 1/K.",
        "Pool and audit are alike; |S| counts problems recovered under this verifier, with these "
        "decoding settings.",
        "The verdict: training corrects two fifths to two thirds of recovered audit failures, the "
        "paper's range; corrections of missed failures and regressions are left out.",
        f"Discordance {of.discordance:.3f}"
        + (
            ": the paper's 331 of 1,367 items that change when a LogiQA model is trained again."
            if abs(of.discordance - 331 / 1367) < 1e-12
            else ", as given."
        ),
    ]


def _percents(of: Guess | None) -> str:
    return "–" if of is None else f"[{100 * of.low:.1f}, {100 * of.high:.1f}]"


def _counts(of: Guess | None) -> str:
    return "–" if of is None else f"[{round(of.low):,}, {round(of.high):,}]"


def results(of: Forecast) -> dict[str, Any]:
    """The content of forecast.json (schema 1; keys in docs/gap.md)."""
    said = judge(of)
    splits = {}
    for split, each in of.splits.items():
        splits[split] = {
            "n": each.problems,
            "pass_at_1": each.pass_at_1,
            "recovered": each.recovered,
            "missed": each.missed,
            "p_S": each.p_s,
            "first_recovered": list(each.first),
            "measured_pass_at_k": None if each.curve is None else list(each.curve),
            "pass_at_k": {str(k): asdict(guess) for k, guess in each.pass_at_k.items()},
            "recoverable": {str(k): asdict(guess) for k, guess in each.recoverable.items()},
            "flat": each.flat and [asdict(groups) for groups in each.flat],
            "fit": {"all": _fitted(each.all), "failures": _fitted(each.failures)},
        }
    return {
        "schema": 1,
        "verdict": {"answer": said.answer, "why": said.why},
        "warnings": warnings(of),
        "k": of.k,
        "splits": splits,
        "power": {
            "seeds": of.seeds,
            "items": of.items,
            "discordance": of.discordance,
            "shared": of.shared,
            "detectable": {str(n): least for n, least in of.detectable.items()},
        },
        "costs": {
            **{name: asdict(getattr(of.costs, name)) for name in ("search", "training", "audit")},
            "deeper": {str(k): asdict(cost) for k, cost in of.costs.deeper.items()},
            "arms": of.costs.arms,
        },
        "assumptions": assumptions(of),
    }


def _fitted(of: Fitted | None) -> dict[str, Any] | None:
    if of is None:
        return None
    held = of.held
    return {
        "n": of.problems,
        "weights": {
            shape: {
                family.parts: float(weight[0])
                for family, weight in of.fit.weights.items()
                if family.shape == shape
            }
            for shape in SHAPES
        },
        "p": of.fits,
        "one": {"alpha": of.one.alpha, "beta": of.one.beta, "p": of.one.p_value},
        "held_back": None if held is None else asdict(held),
    }
