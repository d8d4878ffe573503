"""Which packages are here, and those that an extra brings: a reader of logs needs none of them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from gapft_harness.core.errors import UserError

#: By the package's name, the extra of gapft-harness that brings it.
_EXTRAS = {
    **dict.fromkeys(("torch", "transformers", "peft", "accelerate", "safetensors"), "hf"),
    "vllm": "vllm",
    "trl": "online",
    "reasoning_gym": "reasoning-gym",
}


def lacking(error: ModuleNotFoundError) -> UserError | None:
    """What to install where a package of an extra is not there; None: it is of no extra."""
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        return None
    return UserError(
        f"this needs {package}, which is not installed: {install(package)} (in a clone: pip "
        f"install -c constraints.txt '.[{_EXTRAS[package]}]')"
    )


def installed(package: str) -> str | None:
    """The version of a package, as pip names it; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def has(package: str) -> bool:
    """Whether a package of an extra is there; it is not imported."""
    return find_spec(package) is not None


def install(package: str) -> str:
    """The command that brings a package of an extra."""
    extra = _EXTRAS.get(package)
    return f"pip install {package}" if extra is None else f"pip install 'gapft-harness[{extra}]'"
