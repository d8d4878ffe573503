"""All hooks of GapFT Harness. Bundled and third-party plugins use the same hooks.

A plugin is a module with functions marked ``@hookimpl`` (from ``gapft_harness.api``). Each hook
gets a ``register`` function bound to the plugin, and calls it once per component.
"""

from __future__ import annotations

import pluggy

from gapft_harness.hooks.protocols import (
    RegisterExecutor,
    RegisterExperiment,
    RegisterLogReader,
    RegisterReportSection,
    RegisterResponseRule,
    RegisterSampler,
    RegisterSelector,
    RegisterTrainer,
    RegisterVerifier,
)

PROJECT = "gapft_harness"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_verifiers(register: RegisterVerifier) -> None:
    """``register(name, factory, rejudge=True, ...)``: ``factory(**params)`` has ``verify``."""


@hookspec
def register_selectors(register: RegisterSelector) -> None:
    """``register(name, select, budget="matched", repeats=False, responses="kept")``."""


@hookspec
def register_response_rules(register: RegisterResponseRule) -> None:
    """``register(name, rule)``: ``rule(passing)`` -> response to keep."""


@hookspec
def register_samplers(register: RegisterSampler) -> None:
    """``register(name, factory, ...)``: ``factory(settings, adapter)`` -> ``Sampler``."""


@hookspec
def register_trainers(register: RegisterTrainer) -> None:
    """``register(name, train, as_documented=False)``: ``train(job)`` writes an adapter folder."""


@hookspec
def register_executors(register: RegisterExecutor) -> None:
    """``register(name, factory, ...)``: ``factory(settings, files)`` -> ``Executor``."""


@hookspec
def register_report_sections(register: RegisterReportSection) -> None:
    """``register(title, build)``: ``build(results)`` -> tables of a section of the report."""


@hookspec
def register_experiments(register: RegisterExperiment) -> None:
    """``register(name, factory)``: ``factory()`` returns an ``Experiment`` of that name."""


@hookspec
def register_log_readers(register: RegisterLogReader) -> None:
    """``register(name, read, recognises=, task=)``: ``read(path)`` yields ``api.Sample``s."""
