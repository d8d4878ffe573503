"""The scope matrix: fixed models' decomposition at several search budgets of one search."""

from __future__ import annotations

from gapft_harness.hooks.specs import hookimpl


def scope() -> object:
    """Every condition's decomposition at several search budgets, from one search."""
    from gapft_harness.experiments.scope.experiment import ScopeExperiment

    return ScopeExperiment()


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers the matrix."""
    register("scope", scope)
