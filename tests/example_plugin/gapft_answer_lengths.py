"""An experiment in one file: compare the lengths of answers in training and in evaluation.

docs/experiments.md explains it.
"""

import json
from functools import partial
from statistics import fmean, median

from pydantic import Field

from gapft_harness import api

NAME = "answer_lengths"


class Settings(api.RecipeSection):
    """The settings in a recipe: ``experiments: {answer_lengths: {long: 40}}``."""

    long: int = Field(64, gt=0, description="answers with this many tokens or more are long")


class AnswerLengths(api.Experiment):
    """Compares the lengths of the answers that an arm is trained on and of those that it gives."""

    name, section = NAME, Settings

    def steps(self, view):
        """Yield a step for each arm: its output file in the run, and its inputs."""
        settings = self.settings(view.recipe).model_dump()
        yield {
            build_lengths_path(arm): api.Step(
                measure, inputs={"examples": api.layout.selection_path(arm)}, settings=settings
            )
            for arm in view.arms()
        }

    def cost(self, recipe, counts):
        """Describe the work of the steps and their folder, for the dry run."""
        return api.Cost(work={f"measure answers of {counts['adapters']} training sets": NAME})

    def part(self):
        """Return the part of the report."""
        return LengthsPart()


def build_lengths_path(arm):
    """Return the path of an arm's file in the run."""
    return f"{NAME}/{arm.name}.json"


def measure(output, examples, long):
    """Measure the answers of a training set; this is the function of the step."""
    tokens = [len(example.response_ids) for example in api.read_examples(examples)]
    api.write_json(output, describe_lengths(tokens, long))


def describe_lengths(tokens, long):
    """Return the number of answers, the median of their tokens, and how many are long.

    Args:
        tokens: the number of tokens of each answer.
        long: an answer with this many tokens or more counts as long.
    """
    count = sum(length >= long for length in tokens)
    return {"answers": len(tokens), "median": median(tokens), "long": count}


class LengthsPart(api.Part):
    """The part of the report: a section, a figure, a table, an entry in results.json."""

    name, after = NAME, "Training budgets"

    def read(self, run_path, manifest, arms):
        """Read the answers of the source, and the learned and given answers of each arm."""
        long = Settings(**manifest["recipe"]["experiments"][NAME]).long

        def read_given(table):
            judged = (row for _, rows in api.read_judged(run_path / table) for row in rows)
            responses = [row.response for row in judged]
            greedy = [r for r in responses if r.index == api.GREEDY]
            return describe_lengths([len(response.token_ids) for response in greedy], long)

        learned = [json.loads((run_path / build_lengths_path(arm)).read_text()) for arm in arms]
        given = [read_given(api.layout.decisions_path(arm)) for arm in arms]
        source = read_given(api.layout.responses_path("audit"))
        return long, source, [*zip(arms, learned, given, strict=True)]

    def compute(self, inputs, read):
        """Compute the findings: means over the seeds of each condition."""
        long, source, arms = read
        conditions = {}
        for name in inputs.conditions:
            pairs = [(learned, given) for arm, learned, given in arms if arm.condition == name]
            learned, given = map(average_seeds, zip(*pairs, strict=True))
            conditions[name] = {"trained_on": learned, "given": given}
        return {
            "problems": source["answers"],
            "long": long,
            "source": average_seeds([source]),
            "conditions": conditions,
        }

    def results(self, part_findings):
        """Return the entry of results.json."""
        return part_findings

    def sections(self, inputs, findings, part_findings):
        """Return the section, which follows that of the budgets."""
        lead, name = part_findings["conditions"][findings.lead], api.condition_name(findings.lead)
        source = part_findings["source"]
        result = (
            f"The median answer has {source['median']:g} tokens under the source and "
            f"{lead['given']['median']:g} under {name}, whose training answers have "
            f"{lead['trained_on']['median']:g}."
        )
        rows = [["source", "", "", *format_cells(source)]]
        for name, lengths in part_findings["conditions"].items():
            learned, given = format_cells(lengths["trained_on"]), format_cells(lengths["given"])
            rows.append([api.condition_name(name), *learned, *given])
        figure = api.Figure(
            NAME,
            "Tokens of the median answer given: " + "; ".join(f"{r[0]} {r[3]}" for r in rows),
            "Tokens of the median answer, mean over seeds. Open: answers that the condition was "
            "trained on. Filled: answers that it gives on the audit. Line: the source.",
        )
        columns = ["condition", "learned", "long", "given", "long"]
        note = (
            "Tokens of the median answer, mean over seeds. Learned: training answers; given: on "
            f"the audit. Long: share of answers with {part_findings['long']} tokens or more."
        )
        table = api.Table(columns, rows, note=note)
        yield api.Section("Answer lengths", [api.Text(result), figure, table])

    def figures(self, findings, part_findings):
        """Return the figure that the section shows."""
        yield NAME, partial(draw_lengths, part_findings)

    def tables(self, inputs, findings, part_findings):
        """Return a file for tables/: one row for each condition and kind of answers."""
        rows = [("condition", "answers", "median", "long")]
        for name, lengths in part_findings["conditions"].items():
            rows += [(name, kind, row["median"], row["long"]) for kind, row in lengths.items()]
        yield f"{NAME}.csv", rows

    def summary(self, content):
        """Return a line for the end of ``gapft run``."""
        medians = {"source": content["source"]["median"]}
        for name, lengths in content["conditions"].items():
            medians[name] = lengths["given"]["median"]
        listing = ", ".join(f"{name} {median:g}" for name, median in medians.items())
        return api.Summary(f"tokens of the median answer: {listing}", content["problems"])


def average_seeds(seeds):
    """Return the mean of the medians of seeds, and the share of long answers in all of them."""
    long, answers = (sum(lengths[key] for lengths in seeds) for key in ("long", "answers"))
    return {"median": fmean(lengths["median"] for lengths in seeds), "long": long / answers}


def format_cells(lengths):
    """Format the two cells of the table on one kind of answers."""
    return f"{lengths['median']:.1f}", api.percent(lengths["long"], 0)


def draw_lengths(part_findings, findings):
    """Draw a row for each condition, from the answers trained on to the answers given."""
    from matplotlib.figure import Figure

    names = [*part_findings["conditions"]]
    figure = Figure(figsize=(api.style.WIDTH, 0.3 * len(names) + 0.8), layout="constrained")
    axes = figure.subplots()
    axes.axvline(part_findings["source"]["median"], color=api.palette.MUTED, linewidth=0.9)
    for row, lengths in enumerate(part_findings["conditions"].values()):
        colour, marker = api.palette.series(row)
        ends = lengths["trained_on"]["median"], lengths["given"]["median"]
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
    """Register the experiment; a recipe that names it under ``experiments`` runs it."""
    register(NAME, AnswerLengths)
