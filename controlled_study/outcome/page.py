"""What came out as Markdown and JSON: refuted predictions first, and what is missing."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from controlled_study.driver import STUDY, run_folder
from controlled_study.outcome.figures import Figure
from controlled_study.outcome.predictions import Runs, Told, as_json, luck_by_family, tell
from controlled_study.outcome.readings import Flags, Run, read_run
from controlled_study.sizes import DECIDES, SEEDS
from controlled_study.tasks import MAIN, RUNS
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_json

_ORDER: Final = ("refuted", "undecided", "supported", "unfinished")


def write_outcome(folders: Sequence[Path], out: Path | None) -> str:
    """The outcome of a study, or of parts of one of the same size, as Markdown.

    Args:
        folders: of ``python -m controlled_study run``, each with other pre-training seeds.
        out: where ``outcome.json`` and ``outcome.md`` are written as well.

    Raises:
        UserError: no study, studies of different sizes, or no finished main run.
    """
    size, seeds = read_studies(folders)
    told = tell(seeds)
    missing = missing_figures(told)
    for line in missing:
        print(line, file=sys.stderr)
    text = "\n".join(_page(size, seeds, told, missing)) + "\n"
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        facts = {"size": size, "decides": size == DECIDES, "seeds": list(SEEDS)}
        predictions = {"predictions": [as_json(each) for each in told]}
        write_json(out / "outcome.json", facts | predictions)
        (out / "outcome.md").write_text(text, "utf-8")
    return text


def read_studies(folders: Sequence[Path]) -> tuple[str, dict[int, dict[str, Run]]]:
    """The size, and for every pre-training seed of the design its finished runs by name.

    Raises:
        UserError: see ``write_outcome``; a seed that is in two folders, or not in the design.
    """
    sizes, found = set(), {seed: dict[str, Run]() for seed in SEEDS}
    for folder in folders:
        if not (folder / STUDY).exists():
            raise UserError(f"{folder}: holds no study; expected a folder of `run`")
        study = json.loads((folder / STUDY).read_text("utf-8"))
        sizes.add(study["size"])
        for seed in study["seeds"]:
            if seed not in found:
                raise UserError(f"{folder / STUDY}: has seed {seed}, expected some of {SEEDS}")
            read = {name: read_run(run_folder(folder, seed, name)) for name in RUNS}
            runs = {name: run for name, run in read.items() if run is not None}
            if runs and found[seed]:
                raise UserError(f"{folder}: has seed {seed}, which another folder has too")
            found[seed] |= runs
    if len(sizes) != 1:
        raise UserError(f"studies of different sizes: {', '.join(sorted(sizes))}; expected one")
    if not any(MAIN in runs for runs in found.values()):
        raise UserError("no main run is finished; give the command `run` again")
    return sizes.pop(), found


def missing_figures(told: Sequence[Told]) -> list[str]:
    """For every reason why figures are missing, the seeds and the predictions, as a sentence."""
    found: dict[str, tuple[set[int], set[int]]] = {}
    for each in told:
        for figure in each.figures:
            for seed, why in figure.missing.items():
                seeds, predictions = found.setdefault(why, (set(), set()))
                seeds.add(seed)
                predictions.add(each.number)
    return [
        f"pre-training seed {_listed(seeds)}: {why}; missing for prediction {_listed(predictions)}"
        for why, (seeds, predictions) in found.items()
    ]


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _page(size: str, seeds: Runs, told: Sequence[Told], missing: Sequence[str]) -> list[str]:
    whole = sum(set(runs) == set(RUNS) for runs in seeds.values())
    counts = "This size decides." if size == DECIDES else f"It decides nothing; `{DECIDES}` does."
    if whole < len(SEEDS):
        counts += f" **Unfinished: {whole} of {len(SEEDS)} pre-training seeds are whole.**"
    lines = [
        f"Size `{size}`. {counts} Points, with intervals of 95% over the pre-training seeds "
        f"{', '.join(map(str, SEEDS))}.",
        "",
        "| | prediction | outcome | figures |",
        "|---|---|---|---|",
    ]
    for each in sorted(told, key=lambda each: _ORDER.index(each.outcome)):
        figures = "; ".join(f"{figure.name} {_figure(figure)}" for figure in each.figures)
        lines.append(f"| {each.number} | {each.claim} | **{each.outcome}** | {figures} |")
    if missing:
        lines += ["", "Missing, so that nothing is told by it and no mean taken of the rest:", ""]
        lines += [f"- {line}" for line in missing]
    mains = [runs.get(MAIN) for runs in seeds.values()]
    trained = [run if run is not None and run.n else None for run in mains]
    return [*lines, "", *_policies(seeds), "", *_conditions(trained), "", *_families(trained)]


def _figure(figure: Figure) -> str:
    low, high = figure.interval()
    return f"{_number(figure.mean)} [{_number(low)}, {_number(high)}]"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.1f}".replace("-", "−")


def _policies(seeds: Runs) -> list[str]:
    lines = [
        "| seed | run | pool G/S/U | n | audit Pass@1 | audit G/S/U | lucky passing samples |",
        "|---|---|---|---|---|---|---|",
    ]
    for seed, runs in seeds.items():
        for name, run in runs.items():
            pool, audit = (
                "/".join(str(int((split.state == state).sum())) for state in "GSU")
                for split in (run.pool, run.audit)
            )
            lucky = run.audit.lucky.sum() / max(1, run.audit.passing.sum())
            lines.append(
                f"| {seed} | {name} | {pool} | {run.n} | {100 * run.audit.solved.mean():.1f} "
                f"| {audit} | {100 * lucky:.1f}% |"
            )
    return lines


#: The main run of every pre-training seed; None where it is not finished, or trained nothing.
Mains = Sequence[Run | None]
_OTHERS: Final = ("source", "uniform", "replay")


def _over(mains: Mains, value: Callable[[Run], float]) -> Figure:
    return Figure("", tuple(math.nan if run is None else value(run) for run in mains))


def _conditions(mains: Mains) -> list[str]:
    """Pass@1 by condition, and the same of passing responses whose steps are right too."""

    def line(name: str) -> str:
        rate = _over(mains, lambda run: 100 * float(run.passed[name].mean()))
        gain = _over(mains, lambda run: run.gain(name, "source"))
        sound = _over(mains, lambda run: 100 * float(run.sound[name].mean()))
        each = " ".join(map(_plain, rate.values))
        mean = f"{_plain(rate.mean)} | {_figure(gain)} | {_plain(sound.mean)}"
        return f"| {name} | {each} | {mean} |"

    names = next((run.passed for run in mains if run is not None), {})
    return [
        "| condition | Pass@1, by pre-training seed | mean | - source | steps right too, mean |",
        "|---|---|---|---|---|",
        *map(line, names),
    ]


def _families(mains: Mains) -> list[str]:
    """What the audit says of every family, as means over pre-training seeds."""

    def line(family: str) -> str:
        def here(run: Run) -> Flags:
            return np.equal(run.audit.family, family)

        source = _over(mains, lambda run: 100 * float(run.audit.solved[here(run)].mean()))
        share = _over(mains, lambda run: 100 * float((run.audit.state[here(run)] == "S").mean()))
        luck = _over(mains, lambda run: 100 * luck_by_family(run).get(family, math.nan))

        def gain(other: str) -> str:
            return _number(_over(mains, lambda run: run.gain("gapft", other, here(run))).mean)

        plain = " | ".join(_plain(figure.mean) for figure in (source, share, luck))
        return f"| {family} | {plain} | {' | '.join(map(gain, _OTHERS))} |"

    names = {family for run in mains if run is not None for family in run.audit.family.tolist()}
    return [
        "| family | Pass@1 of the source | S in the audit, % | lucky among kept, % "
        "| gapft - source | gapft - uniform | gapft - replay |",
        "|---|---|---|---|---|---|---|",
        *map(line, sorted(names)),
    ]


def _plain(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1f}"
