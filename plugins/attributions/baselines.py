"""Attributions that every method should beat: states alone, alike words, a linear datamodel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapft_harness.api import AttributionTask, RegisterAttribution, hookimpl

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def states(task: AttributionTask) -> NDArray[np.float64]:
    """States alone: what a recovered failure does to each state of the audit, by regression.

    All examples of a state have one score for all problems of a state: the least-squares slope of
    the share that fitting arms solve on how many of their slots are recovered failures.
    """
    import numpy as np

    recovered = np.array([example.state == "S" for example in task.examples], dtype=np.float64)
    slots = task.included @ recovered
    centred = slots - slots.mean()
    of_problem = np.array([problem.state for problem in task.problems])
    scores = np.zeros((len(task.examples), len(task.problems)))
    for state in np.unique(of_problem) if centred.any() else ():
        rates = task.passed[:, of_problem == state].mean(axis=1)
        slope = centred @ rates / (centred @ centred)
        scores[:, of_problem == state] = slope * recovered[:, None]
    return scores


def similarity(task: AttributionTask) -> NDArray[np.float64]:
    """Alike words: the cosine of two prompts' character 2- to 4-grams, weighted by TF-IDF.

    It looks at no decision.
    """
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    prompts = [item.prompt for item in (*task.examples, *task.problems)]
    rows = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)).fit_transform(prompts)
    examples, problems = rows[: len(task.examples)], rows[len(task.examples) :]
    return np.asarray((examples @ problems.T).todense())


def datamodel(task: AttributionTask) -> NDArray[np.float64]:
    """A datamodel: ridge regression of each problem's decisions on which examples an arm has.

    After Ilyas et al. 2022, whose penalty is the lasso's. The penalty here is the mean squared
    length of the arms' centred inclusions, so that nothing is tuned.
    """
    import numpy as np

    included, passed = (of - of.mean(axis=0) for of in (task.included, task.passed))
    products = included @ included.T
    penalty = max(np.trace(products) / len(products), 1.0)
    weights = np.linalg.solve(products + penalty * np.eye(len(products)), passed)
    return np.asarray(included.T @ weights)


@hookimpl
def register_attributions(register: RegisterAttribution) -> None:
    """Registers the three."""
    register("states", states)
    register("similarity", similarity)
    register("datamodel", datamodel)
