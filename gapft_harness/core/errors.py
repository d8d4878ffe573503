"""Errors meant for people: what was found, what was expected, what to do."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable
from typing import Self

#: What a plugin's code may raise by mistake. Ctrl-C is none of it.
FAULTS = (Exception, SystemExit)


class GapftError(Exception):
    """A failure with a message a person can act on. The command line prints it and exits with 1."""

    exit_status = 1

    def at(self, where: str) -> Self:
        """The same failure, its message behind the place where it showed."""
        error = copy.copy(self)
        error.args = (f"{where}: {self}",)
        return error


class UserError(GapftError):
    """Report a mistake in what the user gave: a file, a key, an option.

    The message names the place, what was found, what was expected and the remedy. The command line
    prints it without a traceback and exits with 2.
    """

    exit_status = 2


class PluginError(UserError):
    """A plugin that failed to load, or broke its contract. The message names plugin and hook."""


class UnknownPluginError(UserError):
    """A name that no loaded plugin registered.

    Attributes:
        kind: of what it names, e.g. ``verifier``.
        name: the name.
    """

    kind = name = ""

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str]) -> Self:
        """The error, with the names that are known in its message."""
        error = cls(f"unknown {kind} {name!r}; {did_you_mean(name, known)}")
        error.kind, error.name = kind, name
        return error


class PoolTooSmallError(UserError):
    """More examples were asked for than there are candidates."""


#: Classes that keep their class on the way between processes, the most special first.
ERRORS: tuple[type[GapftError], ...] = (PluginError, UserError, GapftError)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known names, then all of them.

    Args:
        name: what was given.
        known: the names that are valid.

    Returns:
        A sentence such as ``did you mean 'gapft'? known: gapft, replay``; starts with no space.
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(map(plain, names)) if names else '(none)'}"


def plain(name: str) -> str:
    """A name as it is; one with line ends or control characters as Python spells it."""
    return name if name.isprintable() else repr(name)


def refuse_unknown(given: Iterable[object], known: Iterable[str], where: str) -> None:
    """Refuses keys that nobody knows.

    Raises:
        UserError: there is one; the message begins with ``where``.
    """
    names = list(known)
    for key in given:
        if key not in names:
            raise UserError(f"{where}: unknown key {key!r}; {did_you_mean(str(key), names)}")


def describe(error: BaseException) -> str:
    """An exception in one line; of one that cannot be printed, its type."""
    try:
        text = " ".join(str(error).split())[:300]
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
