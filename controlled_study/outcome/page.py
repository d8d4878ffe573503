"""What came out as Markdown and JSON: refuted predictions first."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from controlled_study.driver import STUDY, run_folder
from controlled_study.outcome.predictions import Figure, Runs, Told, as_json, luck_by_family, tell
from controlled_study.outcome.readings import Run, read_run
from controlled_study.tasks import MAIN, RUNS
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_json

_ORDER: Final = ("refuted", "undecided", "supported")


def write_outcome(folders: Sequence[Path], out: Path | None) -> str:
    """The outcome of a study, or of parts of one of the same size, as Markdown.

    Args:
        folders: of ``python -m controlled_study run``, each with other pre-training seeds.
        out: where ``outcome.json`` and ``outcome.md`` are written as well.

    Raises:
        UserError: no study, studies of different sizes, or no finished main run.
    """
    size, seeds = read_studies(folders)
    told = tell(list(seeds.values()))
    text = "\n".join(_page(size, seeds, told)) + "\n"
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_json(
            out / "outcome.json",
            {"size": size, "seeds": list(seeds), "predictions": [as_json(each) for each in told]},
        )
        (out / "outcome.md").write_text(text, "utf-8")
    return text


def read_studies(folders: Sequence[Path]) -> tuple[str, dict[int, dict[str, Run]]]:
    """The size, and by pre-training seed the finished runs; unfinished ones are named on the way.

    Raises:
        UserError: see ``write_outcome``.
    """
    sizes, found = set(), dict[int, dict[str, Run]]()
    for folder in folders:
        if not (folder / STUDY).exists():
            raise UserError(f"{folder}: holds no study; expected a folder of `run`")
        study = json.loads((folder / STUDY).read_text("utf-8"))
        sizes.add(study["size"])
        for seed in study["seeds"]:
            runs = {name: read_run(run_folder(folder, seed, name)) for name in RUNS}
            if missing := [name for name, run in runs.items() if run is None]:
                said = f"seed {seed}: not finished, left out: {', '.join(missing)}"
                print(said, file=sys.stderr)
            if runs[MAIN] is not None:
                if seed in found:
                    raise UserError(f"{folder}: has seed {seed}, which another folder has too")
                found[seed] = {name: run for name, run in runs.items() if run is not None}
    if len(sizes) != 1:
        raise UserError(f"studies of different sizes: {', '.join(sorted(sizes))}; expected one")
    if not found:
        raise UserError("no main run is finished; give the command `run` again")
    if empty := [seed for seed, runs in found.items() if not runs[MAIN].n]:
        raise UserError(f"seed {empty[0]}: the main run had nothing to train on")
    return sizes.pop(), dict(sorted(found.items()))


def _page(size: str, seeds: Mapping[int, Mapping[str, Run]], told: Sequence[Told]) -> list[str]:
    ordered = sorted(told, key=lambda each: _ORDER.index(each.outcome))
    lines = [
        f"Size `{size}`, pre-training seeds {', '.join(map(str, seeds))}. Points, with intervals "
        "of 95% over pre-training seeds.",
        "",
        "| | prediction | outcome | figures |",
        "|---|---|---|---|",
    ]
    for each in ordered:
        figures = "; ".join(map(_figure, each.figures))
        lines.append(f"| {each.number} | {each.claim} | **{each.outcome}** | {figures} |")
    runs = list(seeds.values())
    return [*lines, "", *_policies(seeds), "", *_conditions(runs), "", *_families(runs)]


def _figure(figure: Figure) -> str:
    return f"{figure.name} {_number(figure.mean)} [{_number(figure.low)}, {_number(figure.high)}]"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.1f}"


def _policies(seeds: Mapping[int, Mapping[str, Run]]) -> list[str]:
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


def _conditions(runs: Runs) -> list[str]:
    """Pass@1 by condition, and the same of passing responses whose steps are right too."""
    mains = [each[MAIN] for each in runs]
    lines = [
        "| condition | Pass@1, by pre-training seed | mean | - source | steps right too, mean |",
        "|---|---|---|---|---|",
    ]
    for name in mains[0].passed:
        rates = [100 * float(run.passed[name].mean()) for run in mains]
        gain = Figure.of("", [run.gain(name, "source") for run in mains])
        sound = np.mean([100 * run.sound[name].mean() for run in mains])
        each = " ".join(f"{rate:.1f}" for rate in rates)
        lines.append(f"| {name} | {each} | {np.mean(rates):.1f} |{_figure(gain)} | {sound:.1f} |")
    return lines


def _families(runs: Runs) -> list[str]:
    """What the audit says of every family, as means over pre-training seeds."""
    mains = [each[MAIN] for each in runs]
    lines = [
        "| family | Pass@1 of the source | S in the audit | lucky among kept | gapft - source "
        "| gapft - uniform | gapft - replay |",
        "|---|---|---|---|---|---|---|",
    ]
    for family in np.unique(mains[0].audit.family).tolist():
        here = [run.audit.family == family for run in mains]
        each = list(zip(mains, here, strict=True))
        source = _mean([100 * float(run.audit.solved[where].mean()) for run, where in each])
        share = _mean([100 * float((run.audit.state[where] == "S").mean()) for run, where in each])
        luck = _mean([100 * luck_by_family(run).get(family, math.nan) for run in mains])
        gains = [
            _number(_mean([run.gain("gapft", other, where) for run, where in each]))
            for other in ("source", "uniform", "replay")
        ]
        lucky = "–" if math.isnan(luck) else f"{luck:.0f}%"
        lines.append(f"| {family} | {source:.1f} | {share:.1f}% | {lucky} | {' | '.join(gains)} |")
    return lines


def _mean(values: Sequence[float]) -> float:
    """The mean of those that are defined; NaN where none is."""
    return Figure.of("", values).mean
