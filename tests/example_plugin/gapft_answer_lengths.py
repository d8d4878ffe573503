"""An experiment in one file: compare the lengths of answers in training and in evaluation.

docs/experiments.md explains it.
"""

import json
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
        """Yield a step for each arm: its output file in the run, its function and its inputs."""
        settings = self.settings(view.recipe).model_dump()
        yield [
            view.step(
                build_lengths_path(arm),
                measure,
                inputs={"examples": api.layout.selection_path(arm)},
                settings=settings,
            )
            for arm in view.arms()
        ]

    def part(self):
        """Return the part of the report."""
        return LengthsPart()


def build_lengths_path(arm):
    """Return the path of an arm's file in the run."""
    return f"{NAME}/{arm.name}.json"


def measure(output, examples, long):
    """Measure the answers of a training set; this is the function of the step."""
    tokens = [len(example.response_ids) for example in api.read_examples(examples)]
    output.write_text(json.dumps(describe_lengths(tokens, long)))


def describe_lengths(tokens, long):
    """Return the number of answers, the median of their tokens, and how many are long.

    Args:
        tokens: the number of tokens of each answer.
        long: an answer with this many tokens or more counts as long.
    """
    count = sum(length >= long for length in tokens)
    return {"answers": len(tokens), "median": median(tokens), "long": count}


class LengthsPart(api.Part):
    """The part of the report: a section, a file of rows, an entry in results.json."""

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
        rows = [["source", "", "", *format_cells(part_findings["source"])]]
        for name, lengths in part_findings["conditions"].items():
            learned, given = format_cells(lengths["trained_on"]), format_cells(lengths["given"])
            rows.append([name, *learned, *given])
        columns = ["condition", "learned", "long", "given", "long"]
        note = (
            "Tokens of the median answer, mean over seeds. Learned: training answers; given: on "
            f"the audit. Long: share of answers with {part_findings['long']} tokens or more."
        )
        yield api.Section("Answer lengths", [api.Table(columns, rows, note=note)])

    def tables(self, inputs, findings, part_findings):
        """Return a file for tables/: one row for each condition and kind of answers."""
        rows = [("condition", "answers", "median", "long")]
        for name, lengths in part_findings["conditions"].items():
            rows += [(name, kind, row["median"], row["long"]) for kind, row in lengths.items()]
        yield f"{NAME}.csv", rows


def average_seeds(seeds):
    """Return the mean of the medians of seeds, and the share of long answers in all of them."""
    long, answers = (sum(lengths[key] for lengths in seeds) for key in ("long", "answers"))
    return {"median": fmean(lengths["median"] for lengths in seeds), "long": long / answers}


def format_cells(lengths):
    """Format the two cells of the table on one kind of answers."""
    return f"{lengths['median']:.1f}", f"{lengths['long']:.0%}"


@api.hookimpl
def register_experiments(register):
    """Register the experiment; a recipe that names it under ``experiments`` runs it."""
    register(NAME, AnswerLengths)
