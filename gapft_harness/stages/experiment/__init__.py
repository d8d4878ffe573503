"""Experiments: additional steps of a run. No other module names a particular one.

An experiment is registered by the hook ``register_experiments``, bundled ones too. It declares its
steps; one driver runs them for all experiments and keeps finished steps that are still current, and
``gapft verify`` checks them.
"""

from gapft_harness.stages.experiment.driver import (
    check_experiments,
    count_finished_steps,
    require_finished_steps,
    run_experiments,
)
from gapft_harness.stages.experiment.loading import (
    find_experiments,
    list_report_parts,
    load_all_experiments,
    load_experiments,
)
from gapft_harness.stages.experiment.protocol import Cost, Experiment
from gapft_harness.stages.experiment.steps import Decode, States, Step, View

__all__ = [
    "Cost",
    "Decode",
    "Experiment",
    "States",
    "Step",
    "View",
    "check_experiments",
    "count_finished_steps",
    "find_experiments",
    "list_report_parts",
    "load_all_experiments",
    "load_experiments",
    "require_finished_steps",
    "run_experiments",
]
