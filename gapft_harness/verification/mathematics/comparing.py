"""Compare answers with gold answers; in worker processes (see ``pool.py``), for sympy may hang."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gapft_harness.verification.mathematics.answers import (
    read_answer,
    read_tokens,
    tokenize_answer,
    write_words,
)
from gapft_harness.verification.mathematics.equality import are_equal
from gapft_harness.verification.mathematics.tokens import Context, Token, is_refused, join_tokens
from gapft_harness.verification.mathematics.values import (
    Collection,
    Malformed,
    Named,
    Scalar,
    SetExpression,
    Tuple,
    Unreadable,
    Value,
    Words,
    is_unit,
)


def prepare_math() -> None:
    """Build sympy's caches before the time limit of the first pair starts."""
    for answer in ("x+0.5", r"\sin^2 x", r"\sqrt{2}"):
        check_answer(r"\frac{1}{2}+x", answer)


def compare_answers(pair: Sequence[str]) -> bool:
    """Check whether two answers are equal in value.

    Args:
        pair: the gold answer and the answer, both LaTeX without a box.
    """
    gold, answer = pair
    return check_answer(gold, answer)


def find_gold_fault(gold: str) -> str:
    """Describe why a gold answer cannot be read; return "" for one that can.

    Args:
        gold: LaTeX without a box. One that is only not understood is valid: it equals its text.
    """
    try:
        read_answer(gold)
    except Malformed as error:
        return str(error)
    except Unreadable:
        pass
    return ""


def check_answer(gold: str, answer: str) -> bool:
    """Compare an answer with a gold answer, both LaTeX without a box.

    Raises:
        Malformed: the gold answer is no answer.
    """
    try:
        gold_tokens = tokenize_answer(gold)
        expected: Value | None = read_answer(gold)
    except Malformed:
        raise
    except Unreadable:
        expected = None
    try:
        context = find_context(gold, expected)
        tokens = tokenize_answer(answer, context)
        if not tokens:
            return False
        if join_tokens(gold_tokens) == join_tokens(tokens):
            return True
        if (same_option := compare_options(gold_tokens, tokens)) is not None:
            return same_option
        if isinstance(expected, Words) and write_words(tokens) == expected.text:
            return True
        return expected is not None and are_equal(expected, read_answer(answer, context))
    except MemoryError:
        raise
    except Exception:  # sympy fails on expressions that it does not know in many ways
        return False


def find_context(gold: str, value: Value | None) -> Context:
    """Return what a gold answer tells about the letters of an answer."""
    if value is None:
        return Context()
    units = {symbol.name[1:-1] for symbol in _find_symbols(value) if is_unit(symbol)}
    letters = {token.text for token in tokenize_answer(gold) if token.kind == "letter"}
    return Context(frozenset(units), "e" in letters)


def _find_symbols(value: Value) -> set[Any]:
    if isinstance(value, Scalar):
        return set(value.value.free_symbols)
    if isinstance(value, Tuple | Collection | SetExpression):
        return set().union(*map(_find_symbols, value.items))
    return _find_symbols(value.value) if isinstance(value, Named) else set()


# Options of a question


def compare_options(gold: Sequence[Token], answer: Sequence[Token]) -> bool | None:
    """Compare option letters, such as ``B`` and ``(B) 12``; None if one side names no option.

    The text behind the letter must be one value, and only one side may have it.
    """
    letter, has_text = find_option(gold)
    other, other_has_text = find_option(answer)
    if not letter or not other or (has_text and other_has_text):
        return None
    return letter == other


def find_option(tokens: Sequence[Token]) -> tuple[str, bool]:
    """Return the letter of an option, and whether its text follows; "" if it is none."""
    texts = [token.text.rstrip(".") for token in tokens]
    start, end = (1, 3) if texts[:1] == ["("] and texts[2:3] == [")"] else (0, 1)
    letter = texts[start] if len(texts) > start else ""
    if not (len(letter) == 1 and letter.isascii() and letter.isupper()):
        return "", False
    is_label = start == 1 or tokens[0].text.endswith(".")
    if start == 0 and [token.text for token in tokens[1:2]] in ([")"], [":"], ["."]):
        is_label, end = True, 2
    rest = tokens[end:]
    if not rest:
        return letter, False
    if not is_label or rest[0].text in ("(", "^", "_", "'", "!", "/", "*", "+", "-", "=", "<", ">"):
        return "", False
    try:
        read_tokens(rest)
    except (Malformed, Unreadable):
        return "", False
    is_refusal = any(is_refused(token.text) for token in rest if token.kind == "word")
    following = [*(token.text for token in rest[1:]), ")" if len(rest) == 1 else ""]
    has_label = any(
        len(token.text) == 1 and token.text.isupper() and after in (")", ".", ":")
        for token, after in zip(rest, following, strict=True)
    )
    return ("", False) if is_refusal or has_label else (letter, True)
