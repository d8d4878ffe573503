"""What came out: the gate first, then every prediction by its rule, refuted ones first.

A figure is computed for each pre-training seed, as a mean over its draws; its interval is Student's
over the seeds. Nothing is told before all seeds are finished. The rules stand here and on
docs/controlled-study.md, and were committed before any arm was trained.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import yaml

from controlled_study.driver import NULL_SLOTS, ROOT, STUDY, run_folder
from controlled_study.sizes import DECIDES, SEEDS
from controlled_study.tasks import MAIN, RUNS
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_json
from gapft_harness.run_directory import layout

Outcome = Literal["refuted", "undecided", "small", "supported", "uninformative", "unfinished"]
_ORDER: Final[tuple[Outcome, ...]] = (
    "refuted", "undecided", "small", "supported", "uninformative", "unfinished",
)  # fmt: skip
#: The gate, in points of all_verified's gain: its mean, its lower bound, and of most policies.
GATE: Final = (8.0, 5.0, 3.0)
#: Policies, of all, that must reach the last.
GATE_POLICIES: Final = 10
#: Problems that every policy's pool must have in each state.
GATE_STATE: Final = 256
#: δ, as a share of all_verified's mean gain: a difference that is worth the name.
DELTA: Final = 0.1
#: Of all intervals of the nulls together.
NULLS_ALPHA: Final = 0.05

#: ``results.json`` of a policy's runs, by run.
Policy = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Figure:
    """A number of every policy, in points.

    Attributes:
        name: what it is.
        values: by pre-training seed.
    """

    name: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over all policies."""
        return float(np.mean(self.values))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Student's interval over the policies."""
        from scipy.stats import t

        error = float(np.std(self.values, ddof=1)) / math.sqrt(len(self.values))
        half = float(t.ppf((1 + level) / 2, len(self.values) - 1)) * error
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.name} {_points(self.mean)} [{_points(low)}, {_points(high)}]"


@dataclass(frozen=True)
class Told:
    """A prediction with what came out.

    Attributes:
        name: its number, with a letter where it has parts.
        claim: the prediction.
        figures: what it is told by; the first one leads.
        outcome: by the rules.
    """

    name: str
    claim: str
    figures: tuple[Figure, ...]
    outcome: Outcome


def more(figure: Figure, delta: float) -> Outcome:
    """The rule of claims that a difference is above 0.

    Supported: the interval lies above 0 and the mean reaches δ. Small: above 0, and the mean does
    not. Refuted: the upper bound is below δ and the lower one not above 0. Else undecided.
    """
    low, high = figure.interval()
    if low > 0:
        return "supported" if figure.mean >= delta else "small"
    return "refuted" if high < delta else "undecided"


def none(figure: Figure, delta: float) -> Outcome:
    """The rule of claims that there is no difference.

    Supported: the whole interval is within δ of 0. Refuted: it excludes 0, and its mean is δ or
    more from it. Else undecided.
    """
    low, high = figure.interval()
    if -delta < low and high < delta:
        return "supported"
    return "refuted" if (low > 0 or high < 0) and abs(figure.mean) >= delta else "undecided"


def gain(policies: Sequence[Policy], a: str, b: str, run: str = MAIN) -> Figure:
    """Pass@1 of one condition minus another's, or ``source``'s."""

    def rate(policy: Policy, name: str) -> float:
        found = policy[run]["source"] if name == "source" else policy[run]["conditions"][name]
        return 100 * float(found["pass_at_1"])

    where = "" if run == MAIN else f"{run}: "
    values = tuple(rate(policy, a) - rate(policy, b) for policy in policies)
    return Figure(f"{where}`{a}` − `{b}`", values)


def lost(policies: Sequence[Policy], a: str) -> tuple[float, ...]:
    """p_G ρ_G of a condition, in points of the audit."""
    return tuple(
        100 * main["source"]["states"]["G"] / main["source"]["n"] * main["conditions"][a]["rho_G"]
        for main in (policy[MAIN] for policy in policies)
    )


def gate(policies: Sequence[Policy]) -> tuple[Figure, int, int, bool]:
    """all_verified's gain, policies that gain enough, the least state, and whether it is passed."""
    reached = gain(policies, "all_verified", "source")
    mean, lower, each = GATE
    enough = sum(value > each for value in reached.values)
    least = min(min(policy[MAIN]["pool"]["states"].values()) for policy in policies)
    passed = (
        reached.mean >= mean
        and reached.interval()[0] >= lower
        and enough >= GATE_POLICIES
        and least >= GATE_STATE
    )
    return reached, enough, least, passed


def tell(policies: Sequence[Policy]) -> list[Told]:
    """All predictions, in their order."""
    reached, _, _, passed = gate(policies)
    delta = DELTA * reached.mean

    def between(a: str, b: str) -> Figure:
        return gain(policies, a, b)

    main, group = between("gapft", "uniform"), between("gapft", "uniform_grouped")
    state = between("S_as_G", "G_as_S")
    regressed = Figure(
        "p_G ρ_G of `gapft` − of `replay`",
        tuple(np.subtract(lost(policies, "gapft"), lost(policies, "replay")).tolist()),
    )
    net = between("gapft", "replay")
    small = between("gapft_64", "uniform_64")
    rungs = Figure("at n = 64 − at n = 256", tuple(np.subtract(small.values, main.values).tolist()))
    gold, luck = between("gapft", "gold"), between("S_as_U", "U_as_S")
    coverage = between("gapft", "repetition")
    both = (more(regressed, delta), more(net, delta))
    found = [
        Told("1", "GapFT gains more than uniform", (main,), more(main, delta)),
        Told("2", "At equal p, S gains more than G", (state,), more(state, delta)),
        Told("3", "GapFT gains more than uniform matched by group", (group,), more(group, delta)),
        Told("4a", "Gold for U gains less than GapFT", (gold,), more(gold, delta)),
        Told("4b", "At equal p, S and U gain the same", (luck,), none(luck, delta)),
        Told(
            "5", "GapFT regresses more than replay, with a net gain", (regressed, net),
            min(both, key=_ORDER.index),
        ),
        Told("6", "The contrast is larger at n = 64", (rungs, small), more(rungs, delta)),
        Told("7", "Where nothing can be learned, intervals hold 0", *_nulls(policies, delta)),
        Told("8", "Coverage beats repetition", (coverage,), more(coverage, delta)),
    ]  # fmt: skip
    if not passed:
        found = [Told(t.name, t.claim, t.figures, "uninformative") for t in found]
    return found


def _nulls(policies: Sequence[Policy], delta: float) -> tuple[tuple[Figure, ...], Outcome]:
    """Supported: every interval holds 0 and is within δ of it.

    Refuted: an interval excludes 0 at a level that makes up for their number (Bonferroni).
    """
    figures = (
        gain(policies, "twin", "uniform"),
        *(
            gain(policies, "gapft", other, run)
            for run in RUNS if run != MAIN for other in ("uniform", "replay")
        ),
    )  # fmt: skip
    strict = [figure.interval(1 - NULLS_ALPHA / len(figures)) for figure in figures]
    if any(low > 0 or high < 0 for low, high in strict):
        return figures, "refuted"
    holds = all(low <= 0 <= high for low, high in (figure.interval() for figure in figures))
    narrow = all(none(figure, delta) == "supported" for figure in figures)
    return figures, "supported" if holds and narrow else "undecided"


def conclusions(told: Sequence[Told]) -> list[str]:
    """What is said of 1 where a contrast that explains it is refuted."""
    outcomes = {each.name: each.outcome for each in told}
    if outcomes["1"] not in ("supported", "small"):
        return []
    said = {
        "2": "1 holds and 2 is refuted: what GapFT gains is *difficulty*, not *state*.",
        "3": "1 holds and 3 is refuted: what GapFT gains is *coverage of groups*.",
    }
    return [text for name, text in said.items() if outcomes[name] == "refuted"]


def read_study(folder: Path) -> tuple[str, dict[int, Policy]]:
    """The size, and by pre-training seed the results of those whose runs are all finished.

    Raises:
        UserError: no study; or a run whose settings are not the study's.
    """
    if not (folder / STUDY).exists():
        raise UserError(f"{folder}: holds no study; expected a folder of `run`")
    size = json.loads((folder / STUDY).read_text("utf-8"))["size"]
    found: dict[int, Policy] = {}
    for seed in SEEDS:
        runs = {name: _read_run(run_folder(folder, seed, name), name, size) for name in RUNS}
        finished = {name: run for name, run in runs.items() if run is not None}
        if len(finished) == len(RUNS):
            found[seed] = finished
    return size, found


def _read_run(folder: Path, run: str, size: str) -> Mapping[str, Any] | None:
    results = folder / layout.REPORT / "results.json"
    if not results.exists():
        return None
    ours = yaml.safe_load((ROOT / f"controlled_study/recipes/{size}.yaml").read_text("utf-8"))
    theirs = yaml.safe_load((folder / layout.RECIPE).read_text("utf-8"))
    if run != MAIN:
        ours["conditions"] = ["gapft", "uniform", "replay"]
        ours["budget"] = {"n": NULL_SLOTS[size]}

    for section in ("search", "evidence", "conditions", "budget", "seeds", "training"):
        if not _holds(theirs[section], ours[section]):
            raise UserError(
                f"{folder / layout.RECIPE}: {section} is {theirs[section]}, expected the study's "
                f"own, {ours[section]}; give the command `run` with another --out"
            )
    found: Mapping[str, Any] = json.loads(results.read_text("utf-8"))
    return found


def _holds(theirs: Any, ours: Any) -> bool:
    """Whether a value is ours, or has all keys of ours with their values."""
    if not isinstance(ours, Mapping):
        return bool(theirs == ours)
    return isinstance(theirs, Mapping) and all(
        key in theirs and _holds(theirs[key], value) for key, value in ours.items()
    )


def write_outcome(folder: Path, out: Path | None) -> str:
    """The outcome of a study as Markdown; where ``out`` is given, its data and a picture as well.

    Raises:
        UserError: see ``read_study``.
    """
    size, found = read_study(folder)
    decides = "" if size == DECIDES else f" It decides nothing; `{DECIDES}` does."
    lines = [f"Size `{size}`.{decides}", ""]
    policies = list(found.values())
    if len(found) < len(SEEDS):
        lines += [
            f"**Unfinished**: {len(found)} of {len(SEEDS)} policies are finished. Nothing is told.",
            "", *_states(found),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"
    told = tell(policies)
    lines += [*_gate(policies), "", *_predictions(told), "", *_conditions(policies)]
    lines += ["", *_states(found)]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "outcome.json", _as_json(size, policies, told))
        _draw(policies, told, out / "controlled-study.png")
    return "\n".join(lines) + "\n"


def _gate(policies: Sequence[Policy]) -> list[str]:
    reached, enough, least, passed = gate(policies)
    mean, lower, each = GATE
    return [
        f"**Gate {'passed' if passed else 'missed'}.** {reached} (at least {mean:.0f}, lower bound "
        f"at least {lower:.0f}); more than {each:.0f} in {enough} of {len(policies)} policies (at "
        f"least {GATE_POLICIES}); the smallest state of a pool has {least} problems (at least "
        f"{GATE_STATE}). δ is {DELTA * reached.mean:.1f}."
    ]


def _predictions(told: Sequence[Told]) -> list[str]:
    lines = ["| | prediction | outcome | figures, points |", "|---|---|---|---|"]
    for each in sorted(told, key=lambda each: _ORDER.index(each.outcome)):
        figures = "; ".join(map(str, each.figures))
        lines.append(f"| {each.name} | {each.claim} | **{each.outcome}** | {figures} |")
    said = conclusions(told)
    return [*lines, *([""] if said else []), *said]


def _conditions(policies: Sequence[Policy]) -> list[str]:
    lines = ["| condition | Pass@1 − source, points | p_G ρ_G | by policy |", "|---|---|---|---|"]
    for name in policies[0][MAIN]["conditions"]:
        figure = gain(policies, name, "source")
        low, high = figure.interval()
        each = " ".join(f"{value:.1f}" for value in figure.values)
        lines.append(
            f"| `{name}` | {_points(figure.mean)} [{_points(low)}, {_points(high)}] "
            f"| {np.mean(lost(policies, name)):.1f} | {each} |"
        )
    return lines


def _states(found: Mapping[int, Policy]) -> list[str]:
    lines = ["| seed | pool G/S/U | audit G/S/U | Pass@1 of the source |", "|---|---|---|---|"]
    for seed, policy in found.items():
        pool, audit = (
            "/".join(str(policy[MAIN][split]["states"][state]) for state in "GSU")
            for split in ("pool", "source")
        )
        rate = 100 * policy[MAIN]["source"]["pass_at_1"]
        lines.append(f"| {seed} | {pool} | {audit} | {rate:.1f} |")
    return lines


def _as_json(size: str, policies: Sequence[Policy], told: Sequence[Told]) -> dict[str, Any]:
    def figure(of: Figure) -> dict[str, Any]:
        return {"name": of.name, "mean": of.mean, "ci95": of.interval(), "policies": of.values}

    reached, enough, least, passed = gate(policies)
    return {
        "size": size,
        "gate": {**figure(reached), "enough": enough, "least": least, "passed": passed},
        "predictions": [
            {"name": t.name, "claim": t.claim, "outcome": t.outcome}
            | {"figures": [figure(each) for each in t.figures]}
            for t in told
        ],
    }


def _points(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def power(difference: float, between: float = 1.0, draw: float = 1.0, draws: int = 3) -> float:
    """Chance that a difference's interval lies above 0, by the noncentral t distribution.

    Args:
        difference: the true one, in points.
        between: standard deviation between policies.
        draw: standard deviation between two draws' contrasts on one policy.
        draws: of a policy.
    """
    from scipy.stats import nct, t

    policies = len(SEEDS)
    error = math.sqrt((between**2 + draw**2 / draws) / policies)
    bound = t.ppf(0.975, policies - 1)
    return float(nct.sf(bound, policies - 1, difference / error))


def _draw(policies: Sequence[Policy], told: Sequence[Told], path: Path) -> None:
    """Every contrast with its interval, and the gain along the share of solved problems."""
    import matplotlib.pyplot as plt

    delta = DELTA * gain(policies, "all_verified", "source").mean
    rows = [(each.name, each.figures[0]) for each in told if each.name != "7"]
    rows += [("7", figure) for each in told if each.name == "7" for figure in each.figures]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 4.2), width_ratios=(3, 2), layout="constrained"
    )
    left.axvspan(-delta, delta, color="0.92")
    left.axvline(0, color="0.4", linewidth=0.8)
    for place, (_, each) in enumerate(rows):
        low, high = each.interval()
        left.plot(each.values, [place] * len(each.values), ".", color="0.7", markersize=4)
        left.plot([low, high], [place, place], color="C0", linewidth=2)
        left.plot(each.mean, place, "o", color="C0")
    left.set_yticks(
        range(len(rows)), [f"{name}  {each.name.replace('`', '')}" for name, each in rows]
    )
    left.invert_yaxis()
    left.set_xlabel("points of Pass@1; grey dots: policies, grey band: ±δ")
    shares = {0: "gapft", 0.25: "replay_25", 0.5: "replay_50", 0.75: "replay_75", 1: "replay"}
    curves: dict[str, Callable[[str], Sequence[float]]] = {
        "net gain": lambda name: gain(policies, name, "source").values,
        "regressions, p_G ρ_G": lambda name: lost(policies, name),
    }
    for label, value in curves.items():
        figures = [Figure(name, tuple(value(name))) for name in shares.values()]
        lows, highs = zip(*(each.interval() for each in figures), strict=True)
        (line,) = right.plot(list(shares), [each.mean for each in figures], marker="o", label=label)
        right.fill_between(list(shares), lows, highs, alpha=0.2, color=line.get_color())
    right.set_xlabel("share of G in the training set")
    right.set_ylabel("points of Pass@1")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
