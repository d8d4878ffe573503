"""What ``--out`` writes: forecast.json and forecast.md."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from gapft_harness.analysis.forecast.mixtures import SHAPES
from gapft_harness.core.files import replace_file, write_json
from gapft_harness.forecast.findings import Fitted, Forecast
from gapft_harness.forecast.page import assumptions, sections, warnings
from gapft_harness.forecast.verdict import judge
from gapft_harness.report.rendering.markdown import render


def write(of: Forecast, folder: Path) -> None:
    """Writes both files; what is there of an earlier forecast is replaced.

    Raises:
        GapftError: the folder cannot be written, or the disk is full.
    """
    write_json(folder / "forecast.json", results(of))
    page = render("Forecast", "", sections(of))
    replace_file(folder / "forecast.md", lambda new: new.write_text(page, "utf-8"))


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
