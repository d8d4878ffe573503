"""All hooks of GapFT Harness. Bundled and third-party plugins use the same hooks.

A plugin is a module with functions marked ``@hookimpl`` (from ``gapft_harness.api``). Each hook
gets a ``register`` function and calls it once per component. The options that a component of a kind
can declare are the fields of the kind's class in ``registration.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pluggy

PROJECT = "gapft_harness"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Register(Protocol):
    """Registers a component under a name, with options of its kind."""

    def __call__(self, name: str, component: Callable[..., Any], /, **options: Any) -> None:
        """Register one component."""


@hookspec
def register_verifiers(register: Register) -> None:
    """``register(name, factory, rejudge=True, ...)``: ``factory(**params)`` has ``verify``."""


@hookspec
def register_selectors(register: Register) -> None:
    """``register(name, select, budget="matched", ...)``: ``select(pool, n, rng, **params)``."""


@hookspec
def register_response_rules(register: Register) -> None:
    """``register(name, rule)``: ``rule(passing)`` -> response to keep."""


@hookspec
def register_samplers(register: Register) -> None:
    """``register(name, factory, ...)``: ``factory(settings, adapter)`` -> ``Sampler``."""


@hookspec
def register_trainers(register: Register) -> None:
    """``register(name, train, as_documented=False)``: ``train(job)`` writes an adapter folder."""


@hookspec
def register_executors(register: Register) -> None:
    """``register(name, factory, ...)``: ``factory(settings, files)`` -> ``Executor``."""


@hookspec
def register_experiments(register: Register) -> None:
    """``register(name, factory)``: ``factory()`` returns an ``Experiment`` of that name."""


@hookspec
def register_log_readers(register: Register) -> None:
    """``register(name, read, recognises=, task=)``: ``read(path)`` yields ``api.Sample``s."""
