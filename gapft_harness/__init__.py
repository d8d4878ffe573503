"""GapFT Harness: learn from the gap between Pass@K and Pass@1, on top of lm-evaluation-harness.

Importing this package imports neither torch nor lm_eval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapft_harness.hooks import old_names
from gapft_harness.hooks.specs import hookimpl
from gapft_harness.version import __version__

if TYPE_CHECKING:
    from gapft_harness.hooks.protocols import Verifier

__all__ = ["__version__", "hookimpl", "load_verifier"]

old_names.install()


def load_verifier(name: str, **params: Any) -> Verifier:
    """Loads a verifier by its registered name.

    Args:
        name: a bundled verifier (``option_letter``, ``boxed_math``, ``task_metric``) or one of an
            installed plugin.
        **params: the verifier's own parameters, e.g. ``rule="first_explicit"``.

    Returns:
        An object with ``verify(responses, golds) -> list[Verdict]``.

    Raises:
        UserError: the name or a parameter is unknown.
    """
    from gapft_harness.hooks.manager import load_plugins

    return load_plugins().bare_verifier(name, params)
