"""Modules by the names that they had in 0.1, for plugins that were written for it.

A module under its old name is the new one itself, so its classes are the same. What stands nowhere
below is not found, and the message says where a plugin finds what it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = "gapft_harness"

#: Old name -> new name: what the documents of 0.1 named, and what its bundled plugins imported.
MOVED = {
    "boxes": "verification.boxes",
    "closing": "core.processes",
    "errors": "core.errors",
    "files": "core.files",
    "hookspecs": "hooks.specs",
    "identities": "core.identities",
    "lm_eval_bridge.benchmarks.livecodebench_tests": "verification.packed_tests",
    "lm_eval_bridge.hf_sampler": "lm_eval_bridge.samplers.hf.sampler",
    "lm_eval_bridge.retokenizer": "lm_eval_bridge.samplers.retokenizer",
    "lm_eval_bridge.server_sampler": "lm_eval_bridge.samplers.server.sampler",
    "lm_eval_bridge.sglang_sampler": "lm_eval_bridge.samplers.sglang",
    "lm_eval_bridge.vllm_process": "lm_eval_bridge.samplers.vllm.process",
    "lm_eval_bridge.vllm_sampler": "lm_eval_bridge.samplers.vllm.sampler",
    "math_judge": "verification.math",
    "model_files": "core.weights",
    "plugin_manager": "hooks.manager",
    "program_feedback": "verification.feedback",
    "programs": "verification.programs",
    "protocols": "hooks.protocols",
    "records": "core.records",
    "streams": "core.streams",
    "tracking": "hooks.tracking",
    "unicode_text": "core.text",
    "workers": "verification.pool",
}

_ADVICE = "what a plugin needs is in gapft_harness.api (docs/plugins.md)"


class _OldNames:
    """Finds modules of this package that nothing else finds."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Finds a module that moved.

        Raises:
            ModuleNotFoundError: there is none; the message says what to import instead.
        """
        package, _, rest = name.partition(".")
        if package != _PACKAGE or rest.rpartition(".")[2].startswith("_"):
            return None
        if rest not in MOVED:
            # Without ``name=``, by which ``from gapft_harness import …`` would lose the message.
            raise ModuleNotFoundError(f"there is no {name}; {_ADVICE}")
        return ModuleSpec(name, _Moved(f"{_PACKAGE}.{MOVED[rest]}"))


class _Moved(Loader):
    """Gives a module that is there under another name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._name)
        self._own = module.__spec__  # Python is about to write the old name's over it
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own


def names_of(package: str, module: str, *names: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a package that was a module in 0.1: some names of it, when asked for.

    Args:
        package: its name.
        module: where the names are now.
        names: which.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; {_ADVICE}")
        return getattr(import_module(module), name)

    return find


def install() -> None:
    """Lets the old names be found, after all that is there."""
    sys.meta_path.append(_OldNames)
