"""The study of a real model: its tables from its run, and the figures of docs/results.md from them.

::

    python docs/real-model/study.py extract runs/reasoning-gym  # writes problems.csv and models.csv
    python docs/real-model/study.py page                        # writes the page's parts and figure
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness import open_run
from gapft_harness.analysis.decomposition import by_state
from gapft_harness.analysis.estimate import Estimate, estimate_mean
from gapft_harness.analysis.resampling import Scores, resample
from gapft_harness.core.streams import Stream
from gapft_harness.presentation.figures import forest
from gapft_harness.run_directory.recorded import read_training

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "results.md"
FIGURE = FOLDER.parent / "images" / "real-model.svg"
SOURCE = "source"
#: The condition of the gate, and its smallest gain.
GATE, GATE_GAIN = "all_verified", 0.05
#: A contrast is refuted if its upper bound is below this share of the gate's gain.
NEGLIGIBLE = 0.1
REPLICATES = 2000

Passed = NDArray[np.bool_]


# From the run


def extract(place: str | Path, folder: Path = FOLDER) -> None:
    """Write the tables of a finished run: one line per audit problem, and one per model."""
    run = open_run(place)
    states = {row["problem_id"]: row for row in run.states.to_pylist() if row["split"] == "audit"}
    problems = run.read("problems", ["problem_id", "document"], split="audit").to_pylist()
    families = {p["problem_id"]: json.loads(p["document"])["generator"] for p in problems}
    columns = ["problem_id", "status", "text", "answer", "finish_reason"]
    responses = run.read("responses", ["index", *columns], split="audit").to_pylist()
    by_model = {SOURCE: [row for row in responses if row["index"] == -1]}
    decisions = run.read("decisions", columns).to_pylist()
    for condition in run.directory.recipe.conditions:
        for row in decisions:
            if (row["condition"], row["of"]) == (condition, ""):
                by_model.setdefault(f"{condition}-seed{row['training_seed']}", []).append(row)
    passed = {
        model: {row["problem_id"]: int(row["status"] == "pass") for row in rows}
        for model, rows in by_model.items()
    }
    _write(
        folder / "problems.csv",
        ["problem", "family", "state", "passing_samples", *by_model],
        (
            [name, families[name], states[name]["state"], states[name]["passing_samples"]]
            + [passed[model][name] for model in by_model]
            for name in sorted(families)
        ),
    )
    training = read_training(run.directory)
    _write(
        folder / "models.csv",
        ["model", "responses", "marked", "no_answer", "cut", "n", "steps", "tokens", "seconds"],
        (_describe(model, rows, training.get(model)) for model, rows in by_model.items()),
    )


def _describe(model: str, rows: Sequence[Any], facts: Any) -> list[object]:
    """Count a model's responses with "Answer:", without an answer and cut; add its training."""
    return [
        model,
        len(rows),
        sum("Answer:" in row["text"] for row in rows),
        sum(row["answer"] is None for row in rows),
        sum(row["finish_reason"] == "length" for row in rows),
        *([facts["budget"][key] for key in ("n", "steps", "tokens")] if facts else [""] * 3),
        round(facts["seconds"]) if facts else "",
    ]


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


# From the tables


@dataclass(frozen=True, slots=True)
class Study:
    """The decisions of all models on the audit.

    Attributes:
        ids, families, states: shape (P,).
        passed: by condition, shape (S, P); the source has one row.
        seeds: the training seeds by condition, in the order of the rows.
        models: the lines of models.csv by model.
    """

    ids: NDArray[np.str_]
    families: NDArray[np.str_]
    states: NDArray[np.str_]
    passed: dict[str, Passed]
    seeds: dict[str, tuple[int, ...]]
    models: dict[str, dict[str, str]]

    @property
    def conditions(self) -> list[str]:
        """All conditions without the source."""
        return [name for name in self.passed if name != SOURCE]

    def list_families(self) -> list[str]:
        """List the families in alphabetical order."""
        return sorted(set(self.families.tolist()))

    def list_models(self, condition: str) -> list[dict[str, str]]:
        """List the lines of models.csv of a condition's draws."""
        if condition == SOURCE:
            return [self.models[SOURCE]]
        return [self.models[f"{condition}-seed{seed}"] for seed in self.seeds[condition]]

    def change(self, condition: str, minus: str = SOURCE, members: Any = slice(None)) -> Difference:
        """Difference the difference of two conditions' Pass@1 on some problems."""
        return self.estimate(
            lambda name: self.passed[name][:, members], condition, minus, self.ids[members]
        )

    def estimate(
        self, values: Callable[[str], Passed], a: str, b: str, ids: NDArray[np.str_]
    ) -> Difference:
        """Difference a mean over draws and problems, of a minus b, with the report's bootstrap."""
        seeds = max(self.seeds[a], self.seeds[b], key=len)  # the source has one row
        shape = len(seeds), len(ids)
        rows = {
            "a": np.broadcast_to(values(a), shape),
            "b": np.broadcast_to(values(b), shape),
        }
        resampled = resample(
            Scores(rows, np.array(seeds), ids),
            replicates=REPLICATES,
            stream=Stream(0, "report/bootstrap"),
        )
        replicates = resampled.subtract("a", "b") / resampled.scores.decisions
        return Difference(float(rows["a"].mean() - rows["b"].mean()), replicates)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of Pass@1 as a fraction, with its bootstrap replicates."""

    value: float
    replicates: NDArray[np.float64]

    @property
    def estimate(self) -> Estimate:
        """The difference with its 95% percentile interval."""
        return estimate_mean(self.value, self.replicates)

    def __sub__(self, other: Difference) -> Difference:
        return Difference(self.value - other.value, self.replicates - other.replicates)

    def __str__(self) -> str:
        low, high = (f"{100 * bound:+.1f}" for bound in (self.estimate.low, self.estimate.high))
        return f"{100 * self.value:+.1f} [{low}, {high}]".replace("-", "−")


def load(folder: Path = FOLDER) -> Study:
    """Load the tables of a folder."""
    with (folder / "problems.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (folder / "models.csv").open() as file:
        models = {row["model"]: row for row in csv.DictReader(file)}
    passed: dict[str, list[list[bool]]] = {}
    seeds: dict[str, list[int]] = {}
    for model in models:
        condition, _, seed = model.partition("-seed")
        passed.setdefault(condition, []).append([row[model] == "1" for row in rows])
        seeds.setdefault(condition, []).append(int(seed or 0))
    return Study(
        *(np.array([row[key] for row in rows]) for key in ("problem", "family", "state")),
        passed={name: np.array(decisions) for name, decisions in passed.items()},
        seeds={name: tuple(numbers) for name, numbers in seeds.items()},
        models=models,
    )


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction, its estimate, and whether it holds for a difference of either sign."""

    text: str
    difference: Difference
    either_sign: bool = False

    def judge(self, negligible: float) -> str:
        """Compare the interval with 0 and with the smallest difference that matters."""
        estimate = self.difference.estimate
        low, high = estimate.low, estimate.high
        if low > 0 or (self.either_sign and high < 0):
            return "**supported**"
        if high < negligible and (not self.either_sign or low > -negligible):
            return "**refuted**"
        return "undecided"


def predict(study: Study) -> list[Prediction]:
    """Difference each prediction."""

    def find_regressions(condition: str) -> Passed:
        return (study.states == "G") & ~study.passed[condition]

    families = study.list_families()
    shares = [np.mean(study.states[study.families == family] == "S") for family in families]
    ordered = [families[place] for place in np.argsort(shares, kind="stable")]
    half = len(ordered) // 2
    few, many = (
        study.change("gapft", "uniform", np.isin(study.families, part))
        for part in (ordered[:half], ordered[len(ordered) - half :])
    )
    regressions = study.estimate(find_regressions, "gapft", "replay", study.ids)
    return [
        Prediction("1. GapFT above uniform", study.change("gapft", "uniform")),
        Prediction("2. GapFT above replay", study.change("gapft", "replay")),
        Prediction("3. half replay above GapFT", study.change("half_replay", "gapft")),
        Prediction("4. uniform above unverified", study.change("uniform", "unverified")),
        Prediction("5. wrong below the source", study.change(SOURCE, "wrong")),
        Prediction("6. regressions above replay", regressions),
        Prediction("7. differs with the share of S", many - few, True),
    ]


# The page


def render(study: Study) -> dict[str, str]:
    """Render the page's parts as Markdown, by name."""
    gate = study.change(GATE)
    passed_gate = gate.value >= GATE_GAIN and gate.estimate.low > 0
    negligible = NEGLIGIBLE * gate.value
    gate_text = (
        f"`{GATE}` gains {gate} points, so the gate is {'' if passed_gate else '**not** '}passed"
        + (f" and δ = {100 * negligible:.1f} points." if passed_gate else ".")
    )
    outcomes = [
        (p.text, p.judge(negligible) if passed_gate else "uninformative", p.difference)
        for p in predict(study)
    ]
    (_, against_uniform, uniform), (_, against_replay, replay), *_ = outcomes
    return {
        "outcome": (
            f"**Outcome**: GapFT changes Pass@1 by {study.change('gapft')} points; against uniform "
            f"RFT the difference is {uniform} points ({against_uniform.strip('*')}), against "
            f"replay {replay} ({against_replay.strip('*')})."
        ),
        "gate": gate_text,
        "predictions": _table(("prediction", "outcome", "points"), outcomes),
        "conditions": _table(
            ("condition", "n", "Pass@1", "change", "κ_S", "κ_U", "ρ_G", "“Answer:”", "cut"),
            (_render_condition(study, name) for name in study.passed),
        ),
        "costs": _describe_costs(study),
    }


def _render_condition(study: Study, name: str) -> list[object]:
    models = study.list_models(name)
    responses, marked, cut = (
        sum(int(model[key]) for model in models) for key in ("responses", "marked", "cut")
    )
    shares = [f"{100 * study.passed[name].mean():.1f}"]
    if name == SOURCE:
        shares += ["–"] * 4
    else:
        parts = by_state(study.states, study.passed[name])
        rates = (parts.kappa_s, parts.kappa_u, parts.rho_g)
        shares += [str(study.change(name))]
        shares += ["–" if rate is None else f"{100 * float(rate):.1f}" for rate in rates]
    ends = [f"{100 * count / responses:.1f}" for count in (marked, cut)]
    return [_code(name), models[0]["n"] or "–", *shares, *ends]


def _describe_costs(study: Study) -> str:
    minutes = {
        name: [int(model["seconds"]) / 60 for model in study.list_models(name)]
        for name in study.conditions
    }
    matched = [value for name, values in minutes.items() if name != GATE for value in values]
    large = study.list_models(GATE)[0]
    return (
        f"Training took {min(matched):.0f} to {max(matched):.0f} minutes per condition, and "
        f"{np.mean(minutes[GATE]):.0f} for `{GATE}` with {large['n']} examples."
    )


def _code(name: str) -> str:
    return f"`{name}`"


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"|{'|'.join(map(str, line))}|" for line in lines)


def draw(study: Study) -> str:
    """Draw the changes against the source and the predicted differences, as SVG."""
    changes = [(f"{name} minus source", study.change(name).estimate) for name in study.conditions]
    predicted = [(p.text, p.difference.estimate) for p in predict(study)]
    return forest([*changes, *predicted], "points of Pass@1")


def insert_parts(page: str, parts: dict[str, str]) -> str:
    """Replace the page's parts, each between two comments with its name."""
    for name, text in parts.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if page.count(start) != 1 or page.count(end) != 1:
            raise SystemExit(f"{PAGE}: expected one part from {start.strip()} to {end}")
        before, rest = page.split(start)
        page = f"{before}{start}{text}\n{end}{rest.split(end)[1]}"
    return page


def main() -> None:
    """Run the command that the module's docstring shows."""
    match sys.argv[1:]:
        case ["extract", place]:
            extract(place)
        case ["page"]:
            study = load()
            PAGE.write_text(insert_parts(PAGE.read_text(), render(study)))
            FIGURE.write_text(draw(study))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
