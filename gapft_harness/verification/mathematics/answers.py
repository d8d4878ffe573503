r"""Read answers: values, lists, relations, sets, times, dates and words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import sympy
from sympy import S, oo

from gapft_harness.verification.mathematics.arithmetic import is_expression
from gapft_harness.verification.mathematics.calendars import read_special
from gapft_harness.verification.mathematics.equality import (
    are_equal,
    drop_repeated,
    find_domain,
    solve_relation,
)
from gapft_harness.verification.mathematics.expressions import GREEK, ExpressionParser
from gapft_harness.verification.mathematics.tokens import (
    NO_CONTEXT,
    Context,
    Token,
    find_currency,
    is_refused,
    join_tokens,
    nest_tokens,
    split_tokens,
    tokenize,
)
from gapft_harness.verification.mathematics.values import (
    Collection,
    Domain,
    Malformed,
    Named,
    Ratio,
    Relation,
    Scalar,
    SetExpression,
    Tuple,
    Unreadable,
    Value,
    Words,
    convert_units,
    has_units,
    is_unit,
    make_symbol,
)
from gapft_harness.verification.mathematics.vocabulary import SYNONYMS

_MAX_ITEMS = 60
_RELATIONS = {
    "=": "=",
    "<": "<",
    ">": ">",
    r"\le": "<=",
    r"\leq": "<=",
    r"\leqslant": "<=",
    r"\ge": ">=",
    r"\geq": ">=",
    r"\geqslant": ">=",
    r"\ne": "!=",
    r"\neq": "!=",
    r"\lt": "<",
    r"\gt": ">",
    r"\in": "in",
    r"\approx": "~",
    r"\simeq": "~",
}
_OPPOSITE = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_JOINERS = {
    ",": ",",
    ";": ",",
    "\\\\": ",",
    "or": "or",
    "and": "and",
    r"\lor": "or",
    r"\vee": "or",
    r"\land": "and",
    r"\wedge": "and",
}
#: Joiners that bind less than commas and "and".
_WEAK_JOINERS = ("or", ";", "\\\\", r"\lor", r"\vee")
#: Commands whose braces say what they are of.
_ROOTS = (r"\sqrt", r"\frac")
_REASONS = ("since", "because", "by", "i.e")


@lru_cache(maxsize=4096)
def read_answer(latex: str, context: Context = NO_CONTEXT) -> Value:
    """Return the value of an answer without its box.

    Raises:
        Malformed: the text is no answer (braces do not match, a division by zero, …).
        Unreadable: the text is not understood.
    """
    return read_tokens(tokenize_answer(latex, context))


@lru_cache(maxsize=4096)
def tokenize_answer(latex: str, context: Context = NO_CONTEXT) -> tuple[Token, ...]:
    """Return the tokens of an answer without words around it."""
    return _strip_frame(tokenize(latex, context))


def read_tokens(tokens: Sequence[Token]) -> Value:
    """Return the value of tokens without groups; see ``read_answer``."""
    if not tokens:
        raise Malformed("the answer is empty")
    try:
        return _read_list(nest_tokens(tokens))
    except (Malformed, MemoryError):
        raise
    except Exception as error:  # sympy fails on expressions that it does not know in many ways
        if any(token.kind == "word" for token in tokens):
            return Words(write_words(tokens))
        raise Unreadable(str(error)) from error


def write_words(tokens: Sequence[Token]) -> str:
    """Return words in lower case without articles; single letters keep their case."""
    texts: list[str] = []
    tokens = _drop_braces(tokens)
    for token, before in zip(tokens, (None, *tokens), strict=False):
        is_letter = before is not None and token.kind == before.kind == "letter"
        if is_letter and not token.is_spaced:
            texts[-1] += token.text
        elif token.kind == "group":
            texts.append(f"{token.text}{write_words(token.inside)}{token.closing}")
        elif token.kind == "word":
            texts.append(token.text.rstrip("."))
        elif token.text not in ".,;:":
            texts.append(token.text)
    words = [text.lower() if len(text) > 1 and text.isalpha() else text for text in texts]
    if words and words[0] in ("the", "a", "an") and len(words) > 1:
        words = words[1:]
    text = " ".join(words)
    return SYNONYMS.get(text, text)


def _drop_braces(tokens: Sequence[Token]) -> Sequence[Token]:
    """Remove braces, but not around several tokens behind a power or a command."""
    kept: list[Token] = []
    open_braces: list[int] = []
    for token in tokens:
        if token.text == "}" and open_braces:
            start = open_braces.pop()
            before = kept[start - 1] if start else None
            is_needed = before is not None and before.text in ("^", "_", "]", "}", *_ROOTS)
            if is_needed and len(kept) - start > 2:
                kept.append(token)
            else:
                del kept[start]
            continue
        if token.text == "{" and token.kind != "group":
            open_braces.append(len(kept))
        kept.append(token)
    return kept


def _strip_frame(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """Remove "The answer is" or "Option" before an answer and a reason in brackets after it."""
    words = [t.text.lower().rstrip(".") if t.kind == "word" else t.text for t in tokens]
    start = 0
    while start < len(words) and words[start] in ("so", "the", "my", "our", "final", "correct"):
        start += 1
    if words[start : start + 1] in (["option"], ["choice"]) and len(words) == start + 2:
        return tokens[start + 1 :]
    is_framed = words[start : start + 1] == ["answer"] and len(words) > start + 2
    if is_framed and words[start + 1] in ("is", "equals", ":", "="):
        tokens = tokens[start + 2 + (words[start + 2] == ":") :]
    for position in range(1, len(tokens) - 1):
        opens = tokens[position].text == "(" and tokens[-1].text == ")"
        if opens and tokens[position + 1].text.lower().rstrip(".") in _REASONS:
            reason, following = tokens[position + 1 : position + 3]
            is_size = reason.text.lower() == "by" and following.kind == "number"  # (by 7)
            return tokens if is_size else tokens[:position]
    return tokens


# Lists


def _read_list(tokens: Sequence[Token]) -> Value:
    """Read values between commas, "or" and "and"; one value alone is itself."""
    if special := read_special(tokens):  # March 5, 2021
        return special
    tokens = [token for token in tokens if token.text != "&"]  # of aligned equations
    inside = tokens[0].inside if len(tokens) == 1 and tokens[0].text == "{" else ()
    if any(t.text in _JOINERS or t.text in _RELATIONS for t in inside):
        return _read_list(inside)
    if alternatives := _read_alternatives(tokens):
        return alternatives
    parts, separators = split_tokens(tokens, lambda t: t.text.lower() in _JOINERS)
    joiners = {_JOINERS[text.lower()] for text in separators}
    ends = (0, len(parts) - 1)
    parts = [part for number, part in enumerate(parts) if part or number in ends]  # ", and"
    if len(parts) > 1 and not parts[-1] and separators[-1] == "\\\\":
        parts.pop()
    if not all(parts) or len(parts) > _MAX_ITEMS:
        raise Unreadable("a part of a list is empty, or it is too long")
    items = [expand_signs(_read_item(part)) for part in parts]
    words = joiners - {","}
    return (
        items[0] if len(items) == 1 else join_values(items, words.pop() if len(words) == 1 else ",")
    )


def _read_alternatives(tokens: Sequence[Token]) -> Value | None:
    """Read values between "or" or semicolons that are lists themselves: ``x=1, y=2 or x=2, y=1``.

    None if they are no such lists, so that all their values are one list.
    """
    parts, separators = split_tokens(tokens, lambda t: t.text.lower() in _WEAK_JOINERS)
    parts = [part[:-1] if part and part[-1].text == "," else part for part in parts]  # 1, 2, or 3
    if not separators or not all(parts):
        return None
    items = [_read_list(part) for part in parts]
    names = {_list_names(item) for item in items}
    if len(names) == 1 and len(names.pop()) > 1:
        return Collection(tuple(items), "list", "or")
    has_bounds = any(isinstance(i, Named) and isinstance(i.value, Domain) for i in items)
    return join_values(items, "or") if has_bounds and {*separators} <= {"or", r"\lor"} else None


def _list_names(value: Value) -> frozenset[str]:
    items = value.items if isinstance(value, Collection) else ()
    return frozenset(item.name for item in items if isinstance(item, Named))


def join_values(items: Sequence[Value], joiner: str) -> Value:
    """Make a list of values; conditions on one variable become one set, quantities a sum."""
    flat: list[Value] = []
    for item in items:
        flat += item.items if isinstance(item, Collection) and item.kind == "list" else [item]
    names = {item.name for item in flat if isinstance(item, Named)}
    if isinstance(flat[0], Named) and len(names) == 1:  # x = 1, x = 2; or x = 1, 2
        values = [item.value if isinstance(item, Named) else item for item in flat]
        return Named(flat[0].name, _join_conditions(values, joiner))
    if joiner == "or":
        flat = drop_repeated(flat)
    if joiner == "and" and (total := _add_quantities(flat)) is not None:
        return total
    return Collection(tuple(flat), "list", joiner) if len(flat) > 1 else flat[0]


def _join_conditions(values: Sequence[Value], joiner: str) -> Value:
    """Make one set of conditions: a union if "or" joins them, or if nothing satisfies all."""
    domains = [value.elements for value in values if isinstance(value, Domain)]
    if not domains:
        return join_values(values, joiner)
    if len(domains) < len(values):
        raise Unreadable("conditions and bare values")
    common = sympy.Intersection(*domains)
    is_union = joiner == "or" or (joiner == "," and common is S.EmptySet)
    return Domain(sympy.Union(*domains) if is_union else common)


def _add_quantities(items: Sequence[Value]) -> Value | None:
    """Add "2 hours" and "30 minutes"; None if the items are not parts of one quantity."""
    values = [item.value for item in items if isinstance(item, Scalar)]
    if len(values) < len(items) or not all(is_expression(v) and has_units(v) for v in values):
        return None
    units = {frozenset(filter(is_unit, value.free_symbols)) for value in values}
    bases = {frozenset(filter(is_unit, convert_units(value).free_symbols)) for value in values}
    return Scalar(sympy.Add(*values)) if len(units) == len(values) and len(bases) == 1 else None


def expand_signs(value: Value) -> Value:
    r"""Return a value with ``\pm`` as the list of its values.

    The signs of one value are independent, unless one of them is ``\mp``.
    """
    signs = sorted(_find_signs(value), key=str)
    if len(signs) > 4:
        raise Unreadable("too many signs")
    values = [value]
    for sign in signs:
        values = [_replace_sign(v, sign, n) for v in values for n in (1, -1)]
    return join_values(values, ",") if signs else value


def _find_signs(value: Value) -> set[Any]:
    if isinstance(value, Scalar):
        return {symbol for symbol in value.value.free_symbols if symbol.name.startswith("±")}
    if isinstance(value, Tuple | Collection):
        return set().union(*map(_find_signs, value.items))
    return _find_signs(value.value) if isinstance(value, Named) else set()


def _replace_sign(value: Value, sign: Any, number: int) -> Value:
    if isinstance(value, Scalar):
        return Scalar(value.value.subs(sign, number), value.is_fraction)
    if isinstance(value, Tuple):
        items = tuple(_replace_sign(item, sign, number) for item in value.items)
        return Tuple(items, value.opening, value.closing)
    if isinstance(value, Collection):
        items = tuple(_replace_sign(item, sign, number) for item in value.items)
        return Collection(items, value.kind, value.joiner)
    if isinstance(value, Named):
        return Named(value.name, _replace_sign(value.value, sign, number))
    return value


# Relations


def _read_item(tokens: Sequence[Token]) -> Value:
    """Read one value, or an equation, an inequality or a membership."""
    sides, signs = split_tokens(tokens, lambda token: token.text in _RELATIONS)
    operators = [_RELATIONS[sign] for sign in signs]
    if "~" in operators:  # what is exact is before the sign
        number = operators.index("~")
        sides, operators = sides[: number + 1], operators[:number]
        if not operators and find_name(sides[0]):
            raise Unreadable("only a name is before a sign of approximation")
    if operators[:1] == ["="] and not sides[0]:  # = 12
        sides = sides[1:]
        operators = operators[1:]
    if not all(sides):
        raise Unreadable("a side of a relation is empty")
    if not operators:
        return read_value(sides[0])
    if operators == ["in"]:
        name = find_name(sides[0])
        if not name:
            raise Unreadable("more than a name is in a set")
        value = read_value(sides[1])
        domain = find_domain(value) if isinstance(value, Tuple) else None
        return Named(name, value if domain is None else Domain(domain))
    if set(operators) == {"="}:
        return _read_equation(sides)
    values = [read_value(side) for side in sides]
    terms = [value.value for value in values if isinstance(value, Scalar)]
    if len(terms) < len(values) or not all(map(is_expression, terms)):
        raise Unreadable("a relation of values that are not expressions")
    return _read_inequalities(terms, operators)


def _read_equation(sides: Sequence[Sequence[Token]]) -> Value:
    """Read ``x = 2``, an identity such as ``3 + 4 = 7``, or an equation in variables.

    The value of a sum may be computed: ``m + n = 3 + 4 = 7``.
    """
    if not find_name(sides[0]) and find_name(sides[-1]) and len(sides) == 2:
        sides = sides[::-1]  # 2 = x
    name = find_name(sides[0])
    values = [read_value(side) for side in sides[bool(name) :]]
    if all(are_equal(values[0], value) for value in values[1:]):
        difference = _subtract(sides[0], values) if name and len(values) == 1 else None
        return Named(name, values[-1], difference) if name else values[-1]
    scalars = [value.value for value in values if isinstance(value, Scalar)]
    if not name and len(scalars) == len(values) and _is_computed_sum(sides, scalars):
        return Named(join_tokens(sides[0]), values[-1])
    if name or len(values) != 2 or not (len(scalars) == 2 and all(map(is_expression, scalars))):
        raise Unreadable("a chain of equations")
    difference = scalars[0] - scalars[1]
    if difference.is_number:
        raise Unreadable("an equation that does not hold")
    return Relation("=", difference)


def _is_computed_sum(sides: Sequence[Sequence[Token]], terms: Sequence[Any]) -> bool:
    """Check whether a chain begins with equal sums of several letters, and ends with their value.

    The value is on two sides or more: an equation to solve has it on one.
    """
    if not all(map(is_expression, terms)):
        return False
    letters = [{s for s in term.free_symbols if not is_unit(s)} for term in terms]
    count = sum(map(bool, letters))
    results = [Scalar(term) for term in terms[count:]]
    return (
        len({join_tokens(side) for side in sides[count:]}) > 1
        and all(are_equal(results[0], result) for result in results[1:])
        and all(are_equal(Scalar(terms[0]), Scalar(term)) for term in terms[:count])
        and terms[0].is_Add
        and terms[0].as_coeff_Add()[0] == 0
        and len(letters[0]) > 1
        and not any(symbol.name.startswith("±") for symbol in letters[0])
    )


def _subtract(side: Sequence[Token], values: Sequence[Value]) -> Any:
    """Return the left side of ``y = 2x`` minus its right side; None if they are not expressions."""
    try:
        both = [value.value for value in (read_value(side), *values) if isinstance(value, Scalar)]
    except Unreadable:
        return None
    return both[0] - both[1] if len(both) == 2 and all(map(is_expression, both)) else None


_SYMBOLS = "triangle|square|star|nabla|[dD]iamond|Box|(?:club|diamond|heart|spade)suit"
_LETTER = rf"(?:[A-Za-z]|\\(?:var)?(?:{'|'.join(GREEK)})|\\(?:{_SYMBOLS}))"
#: Letters that name functions, polynomials and matrices: ``f(2) = 5`` is no product.
_FUNCTION = r"(?:[fghpqA-Z]|\\(?:Pr|phi|varphi|psi|sigma|tau|Phi|Psi|Gamma))"
_INDEX = r"(?: _ (?:\w+|\{[^{}]*\}))?(?: ')*"
_ARGUMENTS = r"(?: \((?:[^()]|\([^()]*\))*\))?"
#: A side of an equation that is only a name, with spaces between its tokens.
_NAME = re.compile(
    rf"{_LETTER}{_INDEX}|{_FUNCTION}{_INDEX}(?: \^ (?:\{{ - 1 \}}|- 1))?{_ARGUMENTS}"
    r"|[A-Z](?: [A-Z]){1,3}(?: ')*|(?:m )?\\(?:angle|triangle)(?: [A-Z])+"
    r"|\| (?:[a-zA-Z]|\\[a-z]+)(?: [A-Z])* \||\\(?:overline|vec|bar|hat|mathbf) \{[^{}]*\}"
    rf"|\( {_LETTER}(?: , {_LETTER})+ \)|\( {_FUNCTION}(?: \\circ {_FUNCTION})+ \){_ARGUMENTS}"
)
#: A letter times a sum with the same letter: ``N(N+1)``, but not ``f(f(2))``.
_PRODUCT = re.compile(rf"({_FUNCTION}) \( (?=[^()]*[-+])(?:.* )?\1 (?!\()")


def find_name(tokens: Sequence[Token]) -> str:
    """Return the name on the left of an equation, or "" if it is more than a name."""
    if len(tokens) == 1 and tokens[0].text == "{":
        tokens = tokens[0].inside
    words = [t for t in tokens if t.kind == "word"]
    if words:
        others = [t for t in tokens if t.kind != "word"]
        is_name = all(t.kind == "letter" and t.is_spaced for t in others)
        is_name = is_name and not any(is_refused(word.text) for word in words)
        return write_words(tokens) if is_name else ""
    text = _space_tokens(tokens)
    if not _NAME.fullmatch(text) or _PRODUCT.match(text) or text == "i":
        return ""
    return join_tokens(tokens)


def _space_tokens(tokens: Sequence[Token]) -> str:
    parts = [
        f"{t.text} {_space_tokens(t.inside)} {t.closing}" if t.kind == "group" else t.text
        for t in tokens
    ]
    return " ".join(parts)


def _read_inequalities(terms: Sequence[Any], operators: Sequence[str]) -> Value:
    """Read ``x < 3``, ``1 < x < 4`` or ``a ≤ b``: as a set of numbers if one variable is alone."""
    conditions = list(zip(terms[:-1], operators, terms[1:], strict=True))
    variables = [term for term in terms if term.is_Symbol and not is_unit(term)]
    others = [term for term in terms if not term.is_Symbol]
    if len(variables) == 1 and all(term.is_number for term in others):
        domains = [_make_domain(*condition) for condition in conditions]
        return Named(variables[0].name, Domain(sympy.Intersection(*domains)))
    relations = [_make_relation(*condition) for condition in conditions]
    return relations[0] if len(relations) == 1 else Collection(tuple(relations), "list", "and")


def _make_domain(left: Any, operator: str, right: Any) -> Any:
    """Return the numbers that satisfy a condition on one variable."""
    if right.is_Symbol:
        left, operator, right = right, _OPPOSITE.get(operator, operator), left
    if not right.is_extended_real:
        raise Unreadable("a bound is not real")
    if operator in ("<", "<="):
        return sympy.Interval(-oo, right, right_open=operator == "<")
    if operator in (">", ">="):
        return sympy.Interval(right, oo, left_open=operator == ">")
    if operator == "!=":
        return sympy.Complement(S.Reals, sympy.FiniteSet(right))
    raise Unreadable("a relation that is not understood")


def _make_relation(left: Any, operator: str, right: Any) -> Relation:
    if operator in ("<", "<="):
        left, operator, right = right, _OPPOSITE[operator], left
    if operator not in ("!=", ">", ">="):
        raise Unreadable("a relation that is not understood")
    return Relation(operator, left - right)  # type: ignore[arg-type]


# Values without relations


class _ValueParser(ExpressionParser):
    """Reads what is in brackets as values, and sets with conditions."""

    def read_value(self, tokens: Sequence[Token]) -> Value:
        """Read tokens in brackets as one value."""
        value = read_value(tokens)
        if isinstance(value, Words) and len(tokens) > 1:
            raise Unreadable("words in brackets")
        return value

    def read_set(self, tokens: Sequence[Token]) -> Value:
        """Read tokens in curly brackets: elements, or an expression with a condition."""
        texts = [token.text for token in tokens]
        bars = [texts.index(bar) for bar in (r"\mid", ":", "|") if bar in texts]
        if bars:
            return _read_builder(tokens[: bars[0]], tokens[bars[0] + 1 :])
        parts, _ = split_tokens(tokens, lambda t: t.text in (",", ";"))
        if (tokens and not all(parts)) or len(parts) > _MAX_ITEMS:
            raise Unreadable("an element is empty, or there are too many")
        items: list[Value] = []
        for part in filter(None, parts):
            value = expand_signs(read_value(part))
            is_list = isinstance(value, Collection) and value.kind == "list"
            items += value.items if is_list else [value]  # type: ignore[union-attr]
        return Collection(tuple(items), "set")


def read_value(tokens: Sequence[Token]) -> Value:
    """Read tokens without separators and relations completely."""
    if special := read_special(tokens):
        return special
    words = write_words(tokens)
    if tokens[:1] and tokens[0].kind == "word" and not find_currency(tokens[0]):
        if words == "no solution":
            return Collection((), "set")
        return Domain(S.Reals) if words == "all real numbers" else Words(words)
    value = _ValueParser(tokens).read_all()
    if isinstance(value, Tuple | Collection | Domain | SetExpression | Ratio | Words):
        return value
    is_fraction = any(token.text in (r"\frac", "/") for token in tokens)
    return Scalar(value, is_fraction, words=words)


def _read_builder(head: Sequence[Token], condition: Sequence[Token]) -> Value:
    """Read ``{x | 2 ≤ x ≤ 5}`` and ``{n² : n ∈ {1, 2, 3}}``."""
    sides, members = split_tokens(head, lambda t: t.text == r"\in")
    conditions = solve_relation(_read_list(condition))
    domain = find_domain(read_value(sides[1])) if members else S.Reals
    expression = read_value(sides[0])
    if not isinstance(conditions, Named) or domain is None or not isinstance(expression, Scalar):
        raise Unreadable("a condition that is not understood")
    variable = make_symbol(conditions.name)
    values = conditions.value
    numbers = find_domain(Collection((values,), "set") if isinstance(values, Scalar) else values)
    if numbers is None and isinstance(values, Collection):
        numbers = find_domain(Collection(values.items, "set"))
    if numbers is None:
        raise Unreadable("a condition that is not a set of numbers")
    numbers = sympy.Intersection(domain, numbers)
    if isinstance(numbers, sympy.FiniteSet) or numbers is S.EmptySet:
        images = [Scalar(expression.value.subs(variable, number)) for number in numbers]
        return Collection(tuple(images), "set")
    if expression.value != variable:
        raise Unreadable("an image of an infinite set")
    return Domain(numbers)
