"""GapFT Harness: learn from the gap between Pass@K and Pass@1, on top of lm-evaluation-harness.

Importing this package imports neither torch nor lm_eval. ``open_run`` and ``compare``, for
notebooks and scripts, load when they are asked for.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gapft_harness.hooks.specs import hookimpl
from gapft_harness.version import __version__

if TYPE_CHECKING:
    from gapft_harness.hooks.judge import Judge
    from gapft_harness.interactive.functions import compare
    from gapft_harness.interactive.runs import Run, open_run

__all__ = [
    "Run",
    "__version__",
    "compare",
    "hookimpl",
    "load_verifier",
    "open_run",
]


def load_verifier(name: str, **params: Any) -> Judge:
    """Load a verifier by its registered name.

    Args:
        name: a bundled verifier (``option_letter``, ``boxed_math``, ``task_metric``) or one of an
            installed plugin.
        **params: the verifier's own parameters, e.g. ``rule="first_explicit"``.

    Returns:
        An object with ``verify(texts, golds) -> list[Verdict]`` and ``read_answers(texts, golds)``.
        It ignores text inside ``<think>`` and similar tags.

    Raises:
        UserError: the name or a parameter is unknown.
    """
    from gapft_harness.hooks.manager import load_plugins

    return load_plugins().create_verifier(name, params)


if not TYPE_CHECKING:  # type checkers use the imports above

    def __getattr__(name: str) -> object:
        if name not in ("Run", "open_run"):
            raise AttributeError(f"module 'gapft_harness' has no attribute {name!r}")
        from gapft_harness.interactive import runs

        return getattr(runs, name)

    class _Package(ModuleType):
        """This package, whose attribute ``compare`` is the function and never the subpackage."""

        @property
        def compare(self) -> object:
            from gapft_harness.interactive.functions import compare

            return compare

        @compare.setter
        def compare(self, module: ModuleType) -> None:
            """Ignore the subpackage, which Python sets at import; it stays in ``sys.modules``."""

    sys.modules[__name__].__class__ = _Package
