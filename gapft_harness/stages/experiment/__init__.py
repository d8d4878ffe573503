"""What an experiment adds to a run. Stages, report, dry run and verify name none.

An experiment is registered by the hook ``register_experiments``; the bundled ones are too. It says
which steps it needs; one driver runs them for all experiments, keeps what is still right, and
``gapft verify`` checks it.
"""

from gapft_harness.stages.experiment.driver import (
    check_experiments,
    count_made,
    require_made,
    run_experiments,
)
from gapft_harness.stages.experiment.protocol import Cost, Experiment
from gapft_harness.stages.experiment.registered import (
    asked,
    every_experiment,
    experiments_of,
    parts,
)
from gapft_harness.stages.experiment.steps import Decode, States, Step, View

__all__ = [
    "Cost",
    "Decode",
    "Experiment",
    "States",
    "Step",
    "View",
    "asked",
    "check_experiments",
    "count_made",
    "every_experiment",
    "experiments_of",
    "parts",
    "require_made",
    "run_experiments",
]
