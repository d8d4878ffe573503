"""Errors for users: each message names the value found, the value expected and the remedy."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable
from typing import Self

#: Exceptions that faulty plugin code may raise. KeyboardInterrupt is left out: Ctrl-C must pass.
FAULTS = (Exception, SystemExit)


class GapftError(Exception):
    """A failure whose message tells the user how to react.

    The command line prints the message and exits with 1.
    """

    exit_status = 1

    def with_place(self, where: str) -> Self:
        """Return a copy of this error whose message begins with the place where it occurred.

        Args:
            where: the place, such as a file and a line.
        """
        error = copy.copy(self)
        error.args = (f"{where}: {self}",)
        return error


class UserError(GapftError):
    """A mistake in the user's input: a file, a key, an option.

    The message names the place, the value found, the value expected and the remedy. The command
    line prints it without a traceback and exits with 2.
    """

    exit_status = 2


class PluginError(UserError):
    """A plugin failed to load or broke its contract. The message names the plugin and the hook."""


class UnknownPluginError(UserError):
    """No loaded plugin registered this name.

    Attributes:
        kind: the kind of component, e.g. ``verifier``.
        name: the unknown name.
    """

    kind = name = ""

    @classmethod
    def for_name(cls, kind: str, name: str, known_names: Iterable[str]) -> Self:
        """Create the error with a message that lists the known names."""
        error = cls(
            f"unknown {kind} {name!r}; {did_you_mean(name, known_names)}; a plugin of yours: give "
            "gapft --plugin FILE, or install it as a package, which lm_eval finds too"
        )
        error.kind = kind
        error.name = name
        return error


class PoolTooSmallError(UserError):
    """A selector requested more examples than the pool has candidates."""


#: Errors that are sent between processes with their class, the most derived class first.
ERRORS: tuple[type[GapftError], ...] = (PluginError, UserError, GapftError)


def did_you_mean(name: str, known_names: Iterable[str]) -> str:
    """Suggest the nearest known name and list all known names, for the end of an error message.

    Args:
        name: the unknown name.
        known_names: the valid names.

    Returns:
        Text such as ``did you mean 'gapft'? known: gapft, replay``, without a leading space.
    """
    names = sorted(known_names)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(map(quote_unprintable, names)) if names else '(none)'}"


def unknown_value_error(place: str, value: str, kind: str, known_names: Iterable[str]) -> UserError:
    """Build the error for an unknown name: ``--only serach: unknown stage; did you mean …``.

    Args:
        place: the option or key.
        value: the unknown name.
        kind: the kind of name.
        known_names: the valid names.
    """
    return UserError(f"{place} {value}: unknown {kind}; {did_you_mean(value, known_names)}")


def quote_unprintable(name: str) -> str:
    """Return a printable name unchanged, and any other name as a Python string literal."""
    return name if name.isprintable() else repr(name)


def refuse_unknown(keys: Iterable[object], known_keys: Iterable[str], where: str) -> None:
    """Check that all keys are known.

    Args:
        keys: the keys found.
        known_keys: the valid keys.
        where: the place of the keys, for the start of the message.

    Raises:
        UserError: a key is unknown.
    """
    names = list(known_keys)
    for key in keys:
        if key not in names:
            raise UserError(f"{where}: unknown key {key!r}; {did_you_mean(str(key), names)}")


def describe_error(error: BaseException) -> str:
    """Describe an exception in one line of type and message; if ``str`` fails, the type alone."""
    try:
        text = " ".join(str(error).split())[:300]
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def summarize_error(error: BaseException) -> str:
    """Return the shortened first line of another library's error, for use in a message.

    If the line ends with a colon, the next line is added, since it has the details.
    """
    first, *more = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join([first, *(line.strip() for line in more[:1] if first.endswith(":"))])[:200]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on a GPU or on the CPU."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    import torch
    from accelerate.utils.memory import should_reduce_batch_size

    return isinstance(error, torch.OutOfMemoryError) or bool(should_reduce_batch_size(error))
