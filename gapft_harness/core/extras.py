"""Find installed packages, and name the extra that installs a missing one.

Reading logs needs none of the extras, and none of the modules that only POSIX systems have.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from gapft_harness.core.errors import UserError

#: Package -> the extra of gapft-harness that installs it.
_EXTRAS = {
    **dict.fromkeys(("torch", "transformers", "peft", "accelerate", "safetensors"), "hf"),
    "vllm": "vllm",
    "ray": "ray",
    "trl": "online",
    "reasoning_gym": "reasoning-gym",
    **dict.fromkeys(("tensorboard", "wandb", "trackio"), "trackers"),
}
#: Modules of Python that only POSIX systems have.
_POSIX = ("fcntl", "resource")


def missing_package_error(error: ModuleNotFoundError) -> UserError | None:
    """Return the error for a missing module of an extra or of POSIX systems; None for others."""
    package = (error.name or "").partition(".")[0]
    if package in _POSIX:
        return UserError(
            f"Python's module {package} is required, but is not available on this "
            f"{platform.system()} system: search, training and programs need Linux; "
            "gapft compare works without it"
        )
    return _build_error(package) if package in _EXTRAS else None


def require_package(package: str) -> None:
    """Require a package of an extra, without importing it.

    Raises:
        UserError: it is not installed.
    """
    if not is_installed(package):
        raise _build_error(package)


def _build_error(package: str) -> UserError:
    return UserError(
        f"the package {package} is required, but is not installed: {install_command(package)} "
        f"(in a clone: pip install -c constraints.txt '.[{_EXTRAS[package]}]')"
    )


def find_version(package: str) -> str | None:
    """Find the version of a distribution (its name in pip); None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def is_installed(package: str) -> bool:
    """Check whether a package can be imported, without importing it."""
    return find_spec(package) is not None


def install_command(package: str) -> str:
    """Return the command that installs a package, through its extra if it has one."""
    extra = _EXTRAS.get(package)
    return f"pip install {package}" if extra is None else f"pip install 'gapft-harness[{extra}]'"
