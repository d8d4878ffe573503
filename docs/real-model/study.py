"""Two studies of a real model: tables of the second from its run, and docs/results.md from both.

::

    python docs/real-model/study.py responses RUN       # writes the search's responses
    python docs/real-model/study.py extract RUN FOLDER  # writes problems.csv and models.csv
    python docs/real-model/study.py power               # prints the power for two predictions
    python docs/real-model/study.py page                # writes the page's parts and figure
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gapft_harness import open_run
from gapft_harness.analysis.decomposition import by_state
from gapft_harness.analysis.estimate import Estimate, estimate_mean
from gapft_harness.analysis.resampling import Scores, resample
from gapft_harness.core.streams import Stream
from gapft_harness.presentation.figures import forest
from gapft_harness.run_directory.recorded import read_training

FOLDER = Path(__file__).parent
SECOND = FOLDER / "second"
PAGE = FOLDER.parent / "results.md"
FIGURE = FOLDER.parent / "images" / "real-model.svg"
SOURCE = "source"
#: The condition of the gate, and its smallest gain.
GATE, GATE_GAIN = "all_verified", 0.05
#: A contrast is refuted if its upper bound is below this share of the gate's gain.
NEGLIGIBLE = 0.1
REPLICATES = 2000
#: The training seeds of the second study: one for each draw, none left out or replaced.
SEEDS = (201, 202, 203, 204)

Passed = NDArray[np.bool_]


# From the run


def write_responses(place: str | Path, folder: Path = SECOND) -> None:
    """Write the responses of a search as ``search.responses`` reads them, a file per split."""
    folder.mkdir(exist_ok=True)
    run = open_run(place)
    for split in ("pool", "audit"):
        columns = ["problem_id", "index", "text", "status", "finish_reason"]
        rows = run.read("responses", columns, split=split).to_pylist()
        lines = [
            {
                "id": row["problem_id"],
                "index": "greedy" if row["index"] == -1 else row["index"],
                "text": row["text"],
                "passed": int(row["status"] == "pass"),
                "finish_reason": row["finish_reason"],
            }
            for row in sorted(rows, key=lambda row: (row["problem_id"], row["index"]))
        ]
        text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
        (folder / f"{split}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def extract(place: str | Path, folder: Path) -> None:
    """Write the tables of a finished run: one line per audit problem, and one per model."""
    folder.mkdir(parents=True, exist_ok=True)
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
        """Compute the difference of two conditions' Pass@1 on some problems."""
        return self.estimate(
            lambda name: self.passed[name][:, members], condition, minus, self.ids[members]
        )

    def estimate(
        self, values: Callable[[str], Passed], a: str, b: str, ids: NDArray[np.str_]
    ) -> Difference:
        """Compute the difference of a mean, a minus b, with the report's bootstrap."""
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
        return Difference(rows["a"].mean(axis=1) - rows["b"].mean(axis=1), replicates)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of Pass@1 as a fraction.

    Attributes:
        draws: of each draw, shape (S,).
        replicates: bootstrap replicates of their mean over draws and problems.
    """

    draws: NDArray[np.float64]
    replicates: NDArray[np.float64]

    @property
    def value(self) -> float:
        """The mean over the draws."""
        return float(self.draws.mean())

    @property
    def estimate(self) -> Estimate:
        """The difference with its 95% percentile interval over draws and problems."""
        return estimate_mean(self.value, self.replicates)

    def __sub__(self, other: Difference) -> Difference:
        return Difference(self.draws - other.draws, self.replicates - other.replicates)

    def __str__(self) -> str:
        return _write_points(self.estimate)


def estimate_over_draws(draws: NDArray[np.float64]) -> Estimate:
    """Estimate a mean over draws with Student's 95% interval."""
    half = stats.t.ppf(0.975, len(draws) - 1) * stats.sem(draws)
    return Estimate(float(draws.mean()), float(draws.mean() - half), float(draws.mean() + half))


def _write_points(estimate: Estimate) -> str:
    numbers = (f"{100 * float(x):+.1f}" for x in (estimate.value, estimate.low, estimate.high))
    return "{} [{}, {}]".format(*numbers).replace("-", "−")


def load_first() -> Study:
    """Load the first study."""
    return load(FOLDER / "first")


def load_second() -> Study | None:
    """Load the second study; None before all its draws are trained."""
    folders = [SECOND / f"draw-{seed}" for seed in SEEDS]
    if not all(folder.exists() for folder in folders):
        return None
    study = load(*folders)
    if any(study.seeds[name] != SEEDS for name in study.conditions):
        raise SystemExit(f"{SECOND}: expected each condition with the seeds {SEEDS}")
    return study


def load(*folders: Path) -> Study:
    """Load a study from the tables of its draws, which have the same problems and source."""
    models: dict[str, dict[str, str]] = {}
    columns: dict[str, list[str]] = {}
    for folder in folders:
        draw_models, rows = (_read(folder / name) for name in ("models.csv", "problems.csv"))
        models |= {row["model"]: row for row in draw_models}
        for name in rows[0]:
            column = [row[name] for row in rows]
            if columns.setdefault(name, column) != column:
                raise SystemExit(f"{folder}: {name} differs from that of {folders[0]}")
    passed: dict[str, list[list[bool]]] = {}
    seeds: dict[str, list[int]] = {}
    for model in models:
        condition, _, seed = model.partition("-seed")
        passed.setdefault(condition, []).append([mark == "1" for mark in columns[model]])
        seeds.setdefault(condition, []).append(int(seed or 0))
    return Study(
        *(np.array(columns[key]) for key in ("problem", "family", "state")),
        passed={name: np.array(decisions) for name, decisions in passed.items()},
        seeds={name: tuple(numbers) for name, numbers in seeds.items()},
        models=models,
    )


def _read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


#: The families in which GapFT's lead over uniform was larger in the first study.
MANY = ("fraction_simplification", "number_filtering")


def predict(study: Study) -> dict[str, Difference]:
    """Compute each predicted difference; a prediction says that it is above 0."""

    def find_regressions(condition: str) -> Passed:
        return (study.states == "G") & ~study.passed[condition]

    is_many = np.isin(study.families, MANY)
    many, few = (study.change("gapft", "uniform", part) for part in (is_many, ~is_many))
    return {
        "1. GapFT above uniform": study.change("gapft", "uniform"),
        "2. GapFT above replay": study.change("gapft", "replay"),
        "3. GapFT above half replay": study.change("gapft", "half_replay"),
        "4. uniform above unverified": study.change("uniform", "unverified"),
        "5. wrong below the source": study.change(SOURCE, "wrong"),
        "6. regressions above replay": study.estimate(
            find_regressions, "gapft", "replay", study.ids
        ),
        "7. larger in two families": many - few,
    }


def judge(difference: Difference, negligible: float) -> str:
    """Judge a prediction by both intervals; only one that is not supported can be refuted."""
    estimate = difference.estimate
    if estimate.low > 0 and estimate_over_draws(difference.draws).low > 0:
        return "**supported**"
    return "**refuted**" if estimate.high < negligible else "undecided"


def compute_power(first: Study, name: str, shared: float, repeats: int = 100_000) -> float:
    """Simulate how often a prediction is supported if the first study's difference is true.

    The draws differ only by the part of the variance over problems that they do not share. The
    bootstrap counts this part more than once: when it draws problems, and when it draws draws.

    Args:
        first: the study with the difference and its variance over problems.
        name: the prediction.
        shared: share of this variance that all draws have in common.
        repeats: simulated studies.
    """
    generator = Stream(0, "power").generator()
    difference = predict(first)[name]
    variance = float(np.var(difference.replicates))
    common = generator.normal(difference.value, np.sqrt(shared * variance), (repeats, 1))
    n = len(SEEDS)
    draws = common + generator.normal(0, np.sqrt((1 - shared) * variance), (repeats, n))
    over_problems = variance * (shared + (1 - shared) * (2 * n - 1) / n**2)
    total = np.sqrt(over_problems + draws.var(axis=1) / n)
    over_draws = stats.t.ppf(0.975, n - 1) * stats.sem(draws, axis=1)
    lowest = draws.mean(axis=1) - np.maximum(stats.norm.ppf(0.975) * total, over_draws)
    return float(np.mean(lowest > 0))


def describe_power(first: Study) -> str:
    """Describe the power for the first two predictions."""
    lines = []
    for name in list(predict(first))[:2]:
        shares = ", ".join(
            f"{100 * compute_power(first, name, shared):.0f}% at {shared}"
            for shared in (0.2, 0.5, 0.8)
        )
        lines.append(f"{name}: {shares}")
    return "\n".join(lines)


# The page


def render(first: Study, second: Study | None) -> dict[str, str]:
    """Render the page's parts as Markdown, by name."""
    newest, which = (second, "second") if second else (first, "first")
    both = (first, second) if second else (first,)
    gate = newest.change(GATE)
    passed_gate = round(gate.value, 9) >= GATE_GAIN and gate.estimate.low > 0
    negligible = NEGLIGIBLE * gate.value
    gate_text = f"In the {which} study, `{GATE}` gains {gate} points, so the gate is " + (
        f"passed and δ = {100 * negligible:.1f} points." if passed_gate else "**not** passed."
    )
    earlier = predict(first)
    header: tuple[str, ...] = ("prediction", "first study")
    rows: list[tuple[object, ...]] = list(earlier.items())
    verdicts = ["", ""]
    if second:
        found = predict(second)
        verdicts = [
            judge(difference, negligible) if passed_gate else "uninformative"
            for difference in found.values()
        ]
        header += ("second study", "t over its draws", "outcome", "t over all 5 draws")
        rows = [
            (
                *row,
                found[name],
                _write_points(estimate_over_draws(found[name].draws)),
                verdict,
                _write_points(
                    estimate_over_draws(np.concatenate([earlier[name].draws, found[name].draws]))
                ),
            )
            for row, name, verdict in zip(rows, found, verdicts, strict=True)
        ]
    against_uniform, against_replay = (
        f" ({verdict.strip('*')})" if verdict else "" for verdict in verdicts[:2]
    )
    return {
        "outcome": (
            f"**Outcome** of the {which} study: GapFT changes Pass@1 by {newest.change('gapft')} "
            f"points; against uniform RFT the difference is {newest.change('gapft', 'uniform')} "
            f"points{against_uniform}, against replay {newest.change('gapft', 'replay')}"
            f"{against_replay}."
        ),
        "gate": gate_text,
        "predictions": _table(header, rows),
        "conditions": _table(
            (
                *("condition", "n", "Pass@1", *_name_columns("change", both)),
                *("κ_S", "κ_U", "ρ_G", "“Answer:”", "cut"),
            ),
            (
                _render_condition(newest, name, [_render_change(s, name) for s in both])
                for name in newest.passed
            ),
        ),
        "families": _table(
            (
                *("family", "G", "S", "U", "GapFT", "minus replay"),
                *_name_columns("minus uniform", both),
            ),
            (
                [
                    *_render_family(newest, name),
                    *(s.change("gapft", "uniform", s.families == name) for s in both),
                ]
                for name in newest.list_families()
            ),
        ),
        "costs": _describe_costs(newest),
    }


def _name_columns(title: str, studies: Sequence[Study]) -> list[str]:
    return [title] if len(studies) == 1 else [f"{title}: first study", "second study"]


def _render_change(study: Study, name: str) -> str:
    return "–" if name == SOURCE else str(study.change(name))


def _render_family(study: Study, family: str) -> list[object]:
    members = study.families == family
    shares = [f"{100 * np.mean(study.states[members] == state):.0f}" for state in "GSU"]
    differences = [study.change("gapft", minus, members) for minus in (SOURCE, "replay")]
    return [_code(family), *shares, *differences]


def _render_condition(study: Study, name: str, changes: Sequence[str]) -> list[object]:
    models = study.list_models(name)
    responses, marked, cut = (
        sum(int(model[key]) for model in models) for key in ("responses", "marked", "cut")
    )
    shares = [f"{100 * study.passed[name].mean():.1f}", *changes]
    if name == SOURCE:
        shares += ["–"] * 3
    else:
        parts = by_state(study.states, study.passed[name])
        rates = (parts.kappa_s, parts.kappa_u, parts.rho_g)
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


def draw(first: Study, second: Study | None) -> str:
    """Draw GapFT's change and the predicted differences in each study, as SVG."""
    rows = []
    for name, study in (("first", first), ("second", second)):
        if study:
            differences = {"GapFT minus source": study.change("gapft"), **predict(study)}
            rows.append([(f"{text} ({name})", d.estimate) for text, d in differences.items()])
    return forest([row for pair in zip(*rows, strict=True) for row in pair], "points of Pass@1")


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
        case ["responses", place]:
            write_responses(place)
        case ["extract", place, folder]:
            extract(place, Path(folder))
        case ["power"]:
            print(describe_power(load_first()))
        case ["page"]:
            studies = load_first(), load_second()
            PAGE.write_text(insert_parts(PAGE.read_text(), render(*studies)))
            FIGURE.write_text(draw(*studies))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
