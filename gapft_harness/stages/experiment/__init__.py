"""The seam: what an experiment adds to a run. Stages, report, dry run and verify name none.

An experiment is registered by the hook ``register_experiments``; the bundled ones are too. The
harness goes through those that a recipe asks for and calls each where it has something to add.
"""

from gapft_harness.stages.experiment.protocol import Answered, Decodes, Experiment
from gapft_harness.stages.experiment.registered import (
    asked,
    every_experiment,
    experiments_of,
    keep,
    parts,
)

__all__ = [
    "Answered",
    "Decodes",
    "Experiment",
    "asked",
    "every_experiment",
    "experiments_of",
    "keep",
    "parts",
]
