"""Experiments: additional steps of a run. No other module names a particular one.

An experiment is registered by the hook ``register_experiments``, bundled ones too. It yields its
steps, which the engine makes, plans and checks.
"""

from gapft_harness.engine.step import Step
from gapft_harness.stages.experiment.loading import (
    list_report_parts,
    load_all_experiments,
    load_experiments,
)
from gapft_harness.stages.experiment.protocol import Experiment
from gapft_harness.stages.experiment.stage import check_experiments, run_experiments
from gapft_harness.stages.experiment.view import View

__all__ = [
    "Experiment",
    "Step",
    "View",
    "check_experiments",
    "list_report_parts",
    "load_all_experiments",
    "load_experiments",
    "run_experiments",
]
