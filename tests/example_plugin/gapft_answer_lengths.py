"""An experiment in one file: how long the answers are that each arm learns, and those it gives.

docs/experiments.md goes through it.
"""

import json
from functools import partial
from statistics import fmean, median

from pydantic import Field

from gapft_harness import api

NAME = "answer_lengths"


class Settings(api.RecipeSection):
    """What a recipe says of it: ``experiments: {answer_lengths: {long: 40}}``."""

    long: int = Field(64, gt=0, description="tokens from which an answer counts as long")


class AnswerLengths(api.Experiment):
    """How long the answers are that each arm is trained on, and those that it gives."""

    name, section = NAME, Settings

    def steps(self, view):
        """A step an arm: the file that it makes in the run, and from what."""
        settings = self.settings(view.recipe).model_dump()
        yield {
            lengths_file(arm): api.Step(
                measure, inputs={"examples": api.layout.selection(arm)}, settings=settings
            )
            for arm in view.arms()
        }

    def cost(self, recipe, counts):
        """Its line in the dry run, with the folder that it fills."""
        return api.Cost(work={f"measure answers of {counts['adapters']} training sets": NAME})

    def part(self):
        """Its part of the report."""
        return LengthsPart()


def lengths_file(arm):
    """The file of an arm, in the run."""
    return f"{NAME}/{arm.name}.json"


def measure(output, examples, long):
    """The step's function: how long the answers of a training set are."""
    tokens = [len(example.response_ids) for example in api.read_examples(examples)]
    api.write_json(output, described(tokens, long))


def described(tokens, long):
    """How many answers there are, the tokens of the median one, and how many are long."""
    count = sum(length >= long for length in tokens)
    return {"answers": len(tokens), "median": median(tokens), "long": count}


class LengthsPart(api.Part):
    """What it adds to the report: a section, a figure, a table, an entry in results.json."""

    name, after = NAME, "Training budgets"

    def read(self, run_path, manifest, arms):
        """The source's answers, and of each arm those that it learned and those that it gave."""
        long = Settings(**manifest["recipe"]["experiments"][NAME]).long

        def given(table):
            found = (one.response for _, rows in api.read_judged(run_path / table) for one in rows)
            return described([len(r.token_ids) for r in found if r.index == api.GREEDY], long)

        learned = [json.loads((run_path / lengths_file(arm)).read_text()) for arm in arms]
        gave = [given(api.layout.decisions(arm)) for arm in arms]
        return long, given(api.layout.responses("audit")), [*zip(arms, learned, gave, strict=True)]

    def compute(self, inputs, read):
        """The findings: over the seeds of each condition."""
        long, source, arms = read
        found = {"problems": source["answers"], "long": long, "source": over_seeds([source])}
        conditions = found["conditions"] = {}
        for name in inputs.conditions:
            of = [(learned, gave) for arm, learned, gave in arms if arm.condition == name]
            learned, gave = map(over_seeds, zip(*of, strict=True))
            conditions[name] = {"trained_on": learned, "given": gave}
        return found

    def results(self, found):
        """Its entry in results.json."""
        return found

    def sections(self, inputs, findings, found):
        """Its section, after that of the budgets."""
        lead, name = found["conditions"][findings.lead], api.condition_name(findings.lead)
        result = (
            f"The median answer has {found['source']['median']:g} tokens under the source and "
            f"{lead['given']['median']:g} under {name}, which was trained on answers of "
            f"{lead['trained_on']['median']:g}."
        )
        rows = [["source", "", "", *cells(found["source"])]]
        for name, of in found["conditions"].items():
            rows.append([api.condition_name(name), *cells(of["trained_on"]), *cells(of["given"])])
        figure = api.Figure(
            NAME,
            "Tokens of the median answer given: " + "; ".join(f"{r[0]} {r[3]}" for r in rows),
            "Tokens of the median answer, mean over seeds: open, of those that a condition was "
            "trained on; filled, of those that it gives on the audit. Line: the source's.",
        )
        columns = ["condition", "learned", "long", "given", "long"]
        note = (
            "Tokens of the median answer, mean over seeds: learned, of those trained on; given, on "
            f"the audit. Long: the share of answers of {found['long']} tokens or more."
        )
        table = api.Table(columns, rows, note=note)
        yield api.Section("Answer lengths", [api.Text(result), figure, table])

    def figures(self, findings, found):
        """The figure that the section shows."""
        yield NAME, partial(draw, found)

    def tables(self, inputs, findings, found):
        """A file in tables/: for each condition a line for either kind of answers."""
        rows = [("condition", "answers", "median", "long")]
        for name, of in found["conditions"].items():
            rows += [(name, which, of[which]["median"], of[which]["long"]) for which in of]
        yield f"{NAME}.csv", rows

    def summary(self, content):
        """A line on the terminal when ``gapft run`` ends."""
        said = [f"source {content['source']['median']:g}"]
        said += [f"{name} {of['given']['median']:g}" for name, of in content["conditions"].items()]
        return api.Summary(f"tokens of the median answer: {', '.join(said)}", content["problems"])


def over_seeds(found):
    """The mean of the seeds' medians, and the share of long answers among all of theirs."""
    long, answers = (sum(each[key] for each in found) for key in ("long", "answers"))
    return {"median": fmean(each["median"] for each in found), "long": long / answers}


def cells(of):
    """Two cells of the table."""
    return f"{of['median']:.1f}", api.percent(of["long"], 0)


def draw(found, findings):
    """The figure: a row a condition, from the answers trained on to the answers given."""
    from matplotlib.figure import Figure

    names = [*found["conditions"]]
    figure = Figure(figsize=(api.style.WIDTH, 0.3 * len(names) + 0.8), layout="constrained")
    axes = figure.subplots()
    axes.axvline(found["source"]["median"], color=api.palette.MUTED, linewidth=0.9)
    for row, of in enumerate(found["conditions"].values()):
        colour, marker = api.palette.series(row)
        ends = of["trained_on"]["median"], of["given"]["median"]
        axes.plot(ends, [row, row], color=colour, linewidth=1.6)
        axes.plot(ends[0], row, marker, color=colour, markersize=9, mfc=axes.get_facecolor())
        axes.plot(ends[1], row, marker, color=colour, markersize=5)
    axes.set_yticks(range(len(names)), [api.condition_name(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("tokens of the median answer")
    api.style.rows_alone(axes)
    return figure


@api.hookimpl
def register_experiments(register):
    """Registers the experiment; a recipe that names it under ``experiments`` runs it."""
    register(NAME, AnswerLengths)
