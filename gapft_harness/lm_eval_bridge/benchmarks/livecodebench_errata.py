"""LiveCodeBench problems that a comparison of outputs cannot judge, after its own ERRATA.

Source: ERRATA.md of github.com/LiveCodeBench/LiveCodeBench as of commit
``b0fc86b1e20daa66d255574bc2bece8ff19de90d`` (2025-07-08). It names AtCoder problems by id and
LeetCode problems by the slug of their title.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from gapft_harness.core.errors import UserError, did_you_mean

#: Flag -> names. ``several_answers``: more than one output is right, the tests accept one.
#: ``interactive``: needs a judge that talks back. ``bad_tests``: a test is wrong or breaks the
#: problem's own constraints.
ERRATA: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "several_answers": (
            "abc311_c",
            "abc326_d",
            "abc327_b",
            "abc333_e",
            "abc343_a",
            "abc343_e",
            "abc362_c",
            "arc185_c",
            "find-the-peaks",
            "find-words-containing-character",
            "generate-binary-strings-without-adjacent-zeros",
        ),
        "interactive": ("abc337_e", "abc355_e"),
        "bad_tests": (
            "abc350_c",
            "apply-operations-to-make-string-empty",
            "arc189_a",
            "most-frequent-ids",
        ),
    }
)

_FLAG_OF = {name: flag for flag, names in ERRATA.items() for name in names}


def flag_of(question_id: str, title: str) -> str | None:
    """The problem's flag, found by its id or by the slug of its title; None for a sound one."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return _FLAG_OF.get(question_id) or _FLAG_OF.get(slug)


def check_flags(flags: Iterable[str] | str, key: str) -> Collection[str]:
    """The flags as a set.

    Raises:
        UserError: one is unknown.
    """
    chosen = frozenset([flags] if isinstance(flags, str) else flags)
    for flag in chosen:
        if flag not in ERRATA:
            raise UserError(f"{key}: unknown flag {flag!r}; {did_you_mean(str(flag), ERRATA)}")
    return chosen
