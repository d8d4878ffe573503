"""An experiment in one file: compare the lengths of answers in training and in evaluation.

docs/plugins.md explains it.
"""

import json
from statistics import median

from pydantic import Field

from gapft_harness import api

NAME = "answer_lengths"


class Settings(api.RecipeSection):
    """The settings in a recipe: ``experiments: {answer_lengths: {long: 40}}``."""

    long: int = Field(64, gt=0, description="answers with this many tokens or more are long")


class AnswerLengths(api.Experiment):
    """Compares the lengths of the answers that an arm is trained on and of those that it gives."""

    name, section = NAME, Settings
    title, after = "Answer lengths", "Training budgets"

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

    def read(self, run, arms):
        """Read the lengths of the answers that each arm learned from, and of those that it gave."""
        long = Settings(**run.recipe.experiments[NAME]).long

        def read_given(table):
            judged = (row for _, rows in api.read_judged(run.path / table) for row in rows)
            responses = [row.response for row in judged]
            greedy = [r for r in responses if r.index == api.GREEDY]
            return describe_lengths([len(response.token_ids) for response in greedy], long)

        source = read_given(api.layout.responses_path("audit"))
        lengths = [("source", None, "given", source)]
        for arm in arms:
            learned = json.loads((run.path / build_lengths_path(arm)).read_text())
            given = read_given(api.layout.decisions_path(arm))
            lengths.append((arm.condition, arm.seed, "learned", learned))
            lengths.append((arm.condition, arm.seed, "given", given))
        return lengths

    def tables(self, inputs, findings, read):
        """Return the table of the section, which follows that of the budgets."""
        rows = [
            {
                "condition": condition,
                "seed": seed,
                "answers": kind,
                "median": lengths["median"],
                "long": lengths["long"] / lengths["answers"],
            }
            for condition, seed, kind, lengths in read
        ]
        columns = [
            api.Column("condition", "condition"),
            api.Column("seed", "seed"),
            api.Column("answers", "answers"),
            api.Column("median", "median tokens"),
            api.Column("long", "long", "share"),
        ]
        note = "Learned: the training answers; given: on the audit. Long: the recipe's setting."
        return [api.Table(NAME, columns, rows, note)]


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


@api.hookimpl
def register_experiments(register):
    """Register the experiment; a recipe that names it under ``experiments`` runs it."""
    register(NAME, AnswerLengths)
