r"""Read an answer: LaTeX or plain text to a value, exactly.

Decimals are rationals, ``i`` is imaginary, ``e`` is Euler's number, letters are real variables, and
units and counted things are symbols in brackets. A text that is not understood completely is
``Unreadable``: nothing is dropped to make it readable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sympy
from sympy import E, I, Integer, Rational, S, oo, pi

from gapft_harness.verification.mathematics.calendars import read_special
from gapft_harness.verification.mathematics.tokens import (
    MAX_BITS,
    Context,
    Token,
    find_currency,
    is_filler,
    is_refused,
    join_tokens,
    tokenize,
)
from gapft_harness.verification.mathematics.values import (
    Collection,
    Domain,
    Malformed,
    Named,
    Relation,
    Scalar,
    SetExpression,
    Ratio,
    Tuple,
    Unreadable,
    Value,
    Words,
    convert_units,
    is_unit,
    make_unit,
)
from gapft_harness.verification.mathematics.vocabulary import (
    SYNONYMS,
    TEMPERATURES,
    find_unit,
    to_singular,
)

_MAX_DEPTH = 60
_MAX_ITEMS = 200
_MAX_FACTORIAL = 20_000
_MAX_ROOT_BITS = 1_000

_RELATIONS = {
    **{"=": "=", "<": "<", ">": ">", r"\le": "<=", r"\leq": "<=", r"\leqslant": "<="},
    **{r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\ne": "!=", r"\neq": "!="},
    **{r"\lt": "<", r"\gt": ">", r"\in": "in", r"\approx": "~", r"\simeq": "~", r"\colon": ":"},
}
_SET_NAMES = {
    "R": S.Reals,
    "Z": S.Integers,
    "N": S.Naturals,
    "Q": S.Rationals,
    "C": S.Complexes,
}
_SET_OPERATIONS = {r"\cup": "union", r"\cap": "intersection", r"\setminus": "complement", r"\backslash": "complement"}  # fmt: skip
_GREEK = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho sigma tau"
    " upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell hbar"
    " Alpha Beta Epsilon Zeta Eta Iota Kappa Mu Nu Omicron Pi Rho Tau Chi".split()
)
_ACCENTS = ("vec", "hat", "bar", "tilde", "overline", "overrightarrow", "dot", "widehat", "overleftrightarrow")  # fmt: skip


def _log10(x: Any) -> Any:
    return sympy.log(x) / sympy.log(10)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(sympy, name) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{name: getattr(sympy, name) for name in ("sinh", "cosh", "tanh", "exp")},
    **{f"arc{name}": getattr(sympy, f"a{name}") for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{f"a{name}": getattr(sympy, f"a{name}") for name in ("sin", "cos", "tan")},
    **{"ln": sympy.log, "log": _log10, "lg": _log10},
}  # fmt: skip
_SEVERAL = {"max": sympy.Max, "min": sympy.Min, "gcd": sympy.gcd, "lcm": sympy.lcm}
_INVERSE = {name: f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc")}


@lru_cache(maxsize=4096)
def read_answer(latex: str, context: Context = Context()) -> Value:
    """Return the value of an answer without its box.

    Raises:
        Malformed: the text is no answer (braces do not match, a division by zero, …).
        Unreadable: the text is not understood.
    """
    tokens = strip_frame(tokenize(latex, context))
    if not tokens:
        raise Malformed("the answer is empty")
    try:
        return read_special(tokens) or _read_list(tokens, 0)
    except Malformed:
        raise
    except (Unreadable, RecursionError) as error:
        if any(token.kind == "word" for token in tokens):
            return Words(write_words(tokens))
        raise Unreadable(str(error)) from error


def make_symbol(name: str) -> Any:
    """Return a real variable."""
    return sympy.Symbol(name, real=True)


def write_words(tokens: Sequence[Token]) -> str:
    """Return words in lower case without articles; single letters keep their case."""
    texts: list[str] = []
    for token, before in zip(tokens, (None, *tokens[:-1]), strict=True):
        is_letter = before is not None and token.kind == before.kind == "letter"
        if is_letter and not token.is_spaced:
            texts[-1] += token.text
        else:
            texts.append(token.text.rstrip(".") if token.kind == "word" else token.text)
    words = [text.lower() if len(text) > 1 else text for text in texts if text not in ".,;:!'\"{}"]
    if words and words[0] in ("the", "a", "an") and len(words) > 1:
        words = words[1:]
    text = " ".join(words)
    return SYNONYMS.get(text, text)


def strip_frame(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """Remove "The answer is" before an answer and a reason in parentheses after it."""
    words = [
        token.text.lower().rstrip(".") if token.kind == "word" else token.text for token in tokens
    ]
    start = 0
    while start < len(words) and words[start] in ("so", "the", "my", "our", "final", "correct"):
        start += 1
    if words[start : start + 1] in (["option"], ["choice"]) and len(words) == start + 2:
        return tokens[start + 1 :]
    if words[start : start + 1] == ["answer"] and len(words) > start + 2:
        if words[start + 1] in ("is", "equals", ":", "="):
            tokens = tokens[start + 2 + (words[start + 2] == ":") :]
    for position in range(len(tokens) - 1):
        opens = tokens[position].text == "(" and tokens[-1].text == ")" and position
        if opens and tokens[position + 1].text.lower() in ("since", "because", "as", "by", "i.e."):
            return tokens[:position]
    return tokens


# Lists and relations


def split_tokens(
    tokens: Sequence[Token], is_separator: Callable[[Token], bool]
) -> tuple[list[tuple[Token, ...]], list[str]]:
    """Split tokens at separators outside brackets; return the parts and the separators."""
    parts: list[list[Token]] = [[]]
    separators: list[str] = []
    depth = 0
    for token in tokens:
        if token.text in ("(", "[", "{", r"\{", r"\langle", r"\begin"):
            depth += 1
        elif token.text in (")", "]", "}", r"\}", r"\rangle", r"\end"):
            depth -= 1
        if depth == 0 and is_separator(token):
            separators.append(token.text)
            parts.append([])
        else:
            parts[-1].append(token)
    return [tuple(part) for part in parts], separators


def _is_list_separator(token: Token) -> bool:
    if token.kind == "word":
        return token.text.lower() in ("or", "and")
    return token.text in (",", ";", "\\\\", r"\lor", r"\land", r"\vee", r"\wedge")


def _read_list(tokens: Sequence[Token], depth: int) -> Value:
    """Read values between commas, "or" and "and"; one value alone is itself."""
    if not any(token.text == r"\begin" for token in tokens):
        tokens = [token for token in tokens if token.text != "&"]  # aligned equations
    parts, separators = split_tokens(tokens, _is_list_separator)
    if len(parts) == 1:
        return expand_signs(_read_item(parts[0], depth))
    parts = [part for number, part in enumerate(parts) if part or number in (0, len(parts) - 1)]
    if not parts[-1] and separators[-1] == "\\\\":
        parts.pop()
    if not all(parts) or len(parts) > _MAX_ITEMS:
        raise Unreadable("a part of the list is empty, or it is too long")
    items = [expand_signs(_read_item(part, depth)) for part in parts]
    names = {r"\lor": "or", r"\vee": "or", r"\land": "and", r"\wedge": "and"}
    words = {names.get(text, text.lower()) for text in separators} & {"or", "and"}
    return join_values(items, words.pop() if len(words) == 1 else ",")


def join_values(items: Sequence[Value], joiner: str) -> Value:
    """Make a list of values; conditions on one variable become one set, quantities a sum."""
    flat: list[Value] = []
    for item in items:
        inner = item.items if isinstance(item, Collection) and item.kind == "list" else (item,)
        flat.extend(inner)
    if len(flat) == 1:
        return flat[0]
    first = flat[0]
    if isinstance(first, Named):
        names = {item.name for item in flat if isinstance(item, Named)}
        values = [item.value if isinstance(item, Named) else item for item in flat]
        if len(names) == 1:
            return Named(first.name, _join_conditions(values, joiner))
    if joiner == "or":
        flat = drop_repeated(flat)
    if joiner == "and" and (total := _add_quantities(flat)) is not None:
        return total
    return Collection(tuple(flat), "list") if len(flat) > 1 else flat[0]


def drop_repeated(items: Sequence[Value]) -> list[Value]:
    """Return the items without those that equal an earlier one."""
    from gapft_harness.verification.mathematics.equality import are_equal

    kept: list[Value] = []
    for item in items:
        if not any(are_equal(item, other) for other in kept):
            kept.append(item)
    return kept


def _join_conditions(values: Sequence[Value], joiner: str) -> Value:
    domains = [value.elements for value in values if isinstance(value, Domain)]
    if len(domains) == len(values):
        return Domain((sympy.Union if joiner == "or" else sympy.Intersection)(*domains))
    return join_values(values, joiner)


def _add_quantities(items: Sequence[Value]) -> Value | None:
    """Add "2 hours" and "30 minutes"; None if the items are not parts of one quantity."""
    if not all(isinstance(item, Scalar) and isinstance(item.value, sympy.Expr) for item in items):
        return None
    values = [item.value for item in items if isinstance(item, Scalar)]
    units = [frozenset(filter(is_unit, value.free_symbols)) for value in values]
    bases = {frozenset(filter(is_unit, convert_units(value).free_symbols)) for value in values}
    if len(set(units)) < len(units) or len(bases) > 1 or not all(units):
        return None
    return Scalar(sympy.Add(*values))


def expand_signs(value: Value) -> Value:
    r"""Return a value with ``\pm`` as the list of its values.

    The signs of one value are independent, unless one of them is ``\mp``.
    """
    signs = sorted(_find_signs(value), key=str)
    if not signs:
        return value
    if len(signs) > 4:
        raise Unreadable("too many signs")
    values = [value]
    for sign in signs:
        values = [_replace_sign(v, sign, n) for v in values for n in (1, -1)]
    if isinstance(value, Named):
        return Named(
            value.name, join_values([v.value for v in values if isinstance(v, Named)], ",")
        )
    return join_values(values, ",")


def _find_signs(value: Value) -> set[Any]:
    if isinstance(value, Scalar):
        return {symbol for symbol in value.value.free_symbols if symbol.name.startswith("±")}
    if isinstance(value, Tuple | Collection):
        return set().union(*map(_find_signs, value.items)) if value.items else set()
    return _find_signs(value.value) if isinstance(value, Named) else set()


def _replace_sign(value: Value, sign: Any, number: int) -> Value:
    if isinstance(value, Scalar):
        return Scalar(value.value.subs(sign, number), value.is_fraction)
    if isinstance(value, Tuple):
        items = tuple(_replace_sign(item, sign, number) for item in value.items)
        return Tuple(items, value.opening, value.closing)
    if isinstance(value, Collection):
        items = tuple(_replace_sign(item, sign, number) for item in value.items)
        return Collection(items, value.kind)
    return (
        Named(value.name, _replace_sign(value.value, sign, number))
        if isinstance(value, Named)
        else value
    )


_LETTER = r"(?:[A-Za-z]|\\[A-Za-z]+)(?:_(?:\w|\{[^{}]*\}))?'*"
_NAME = re.compile(
    rf"(?:{_LETTER}(?:\([A-Za-z0-9,]+\))?|[A-Z]{{1,4}}'*|m?\\angle.*|\\triangle.*|\({_LETTER}(?:,{_LETTER})+\)"
    rf"|\|[A-Z]+\||\\(?:overline|vec)\{{?[A-Za-z]+\}}?|P\(.*\))"
)


def _read_item(tokens: tuple[Token, ...], depth: int) -> Value:
    """Read one value, or an equation, an inequality or a membership."""
    if special := read_special(tokens):
        return special
    sides, signs = split_tokens(tokens, lambda token: token.text in _RELATIONS)
    if not signs:
        return _read_value(tokens, depth)
    operators = [_RELATIONS[sign] for sign in signs]
    if "~" in operators:
        exact = operators.index("~")
        kept = sides[: exact + 1] if sides[0] else sides[1:]
        return _read_sides(kept, operators[:exact] if sides[0] else operators[1:], depth)
    return _read_sides(sides, operators, depth)


def _read_sides(sides: Sequence[tuple[Token, ...]], operators: Sequence[str], depth: int) -> Value:
    if not all(sides):
        raise Unreadable("a side of a relation is empty")
    if not operators:
        return _read_value(sides[0], depth)
    if operators == ["in"]:
        return Named(write_name(sides[0]), to_domain_or_value(_read_value(sides[1], depth)))
    if set(operators) == {"="}:
        return _read_equation(sides, depth)
    values = [_read_value(side, depth) for side in sides]
    if not all(isinstance(v, Scalar) and isinstance(v.value, sympy.Expr) for v in values):
        raise Unreadable("a relation of values that are not expressions")
    terms = [v.value for v in values if isinstance(v, Scalar)]
    return _read_inequalities(terms, operators)


def write_name(tokens: Sequence[Token]) -> str:
    """Return the name on the left of an equation, or "" if it is not only a name."""
    text = join_tokens(tuple(tokens))
    if tokens and tokens[0].kind == "word" and not any(is_refused(t.text) for t in tokens):
        return write_words(tokens)
    return text if _NAME.fullmatch(text) and not _is_constant(text) else ""


def _is_constant(text: str) -> bool:
    return text in ("e", "i", r"\pi", r"\infty")


def _read_equation(sides: Sequence[tuple[Token, ...]], depth: int) -> Value:
    if not write_name(sides[0]) and write_name(sides[-1]) and len(sides) == 2:
        sides = sides[::-1]  # 2 = x
    name = write_name(sides[0])
    values = [_read_value(side, depth) for side in sides[1 if name else 0 :]]
    scalars = [v.value for v in values if isinstance(v, Scalar)]
    if len(values) > 1 and (len(scalars) < len(values) or not _are_all_equal(scalars, bool(name))):
        if name or len(values) != 2 or len(scalars) < len(values):
            raise Unreadable("a chain of equations")
        return Relation("=", scalars[0] - scalars[1])
    if name and len(values) == 1 and len(scalars) == 1:
        return Named(name, values[0], _subtract_name(sides[0], scalars[0], depth))
    return Named(name, values[-1]) if name else values[-1]


def _subtract_name(side: tuple[Token, ...], value: Any, depth: int) -> Any:
    try:
        left = _read_value(side, depth)
    except Unreadable:
        return None
    return (
        left.value - value if isinstance(left, Scalar) and isinstance(value, sympy.Expr) else None
    )


def _are_all_equal(values: Sequence[Any], has_name: bool) -> bool:
    """Check that a chain such as 3 + 4 = 7 holds; an equation in variables is not a chain."""
    from gapft_harness.verification.mathematics.equality import are_equal_expressions

    variables = {s for value in values for s in value.free_symbols if not is_unit(s)}
    if variables and not has_name:
        return False
    return all(are_equal_expressions(values[0], value) for value in values[1:])


def _read_inequalities(terms: Sequence[Any], operators: Sequence[str]) -> Value:
    """Read ``x < 3``, ``1 < x < 4`` or ``a ≤ b``: as a set of numbers if one variable is alone."""
    conditions = list(zip(terms[:-1], operators, terms[1:], strict=True))
    variables = [term for term in terms if term.is_Symbol and not is_unit(term)]
    others = [term for term in terms if not term.is_Symbol]
    if len(variables) == 1 and all(term.is_number for term in others):
        domains = [_make_domain(*condition) for condition in conditions]
        return Named(variables[0].name, Domain(sympy.Intersection(*domains)))
    relations = [_make_relation(*condition) for condition in conditions]
    return relations[0] if len(relations) == 1 else Collection(tuple(relations), "list")


def _make_domain(left: Any, operator: str, right: Any) -> Any:
    """Return the numbers that satisfy a condition on one variable."""
    if right.is_Symbol:
        flipped = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
        left, operator, right = right, flipped.get(operator, operator), left
    if not right.is_extended_real:
        raise Unreadable("a bound is not real")
    interval = {
        "<": lambda: sympy.Interval.open(-oo, right),
        "<=": lambda: sympy.Interval(-oo, right),
        ">": lambda: sympy.Interval.open(right, oo),
        ">=": lambda: sympy.Interval(right, oo),
        "!=": lambda: sympy.Complement(S.Reals, sympy.FiniteSet(right)),
        "=": lambda: sympy.FiniteSet(right),
    }
    return interval[operator]()


def _make_relation(left: Any, operator: str, right: Any) -> Relation:
    if operator in ("<", "<="):
        return Relation(">" if operator == "<" else ">=", right - left)
    if operator not in ("=", "!=", ">", ">="):
        raise Unreadable("a relation that is not understood")
    return Relation(operator, left - right)  # type: ignore[arg-type]


def to_domain_or_value(value: Value) -> Value:
    """Return an interval in brackets as a set of numbers."""
    domain = find_domain(value) if isinstance(value, Tuple) else None
    return value if domain is None else Domain(domain)


def find_domain(value: Value) -> Any:
    """Return a value as a set of numbers; None if it is not one."""
    if isinstance(value, Domain):
        return value.elements
    items = value.items if isinstance(value, Tuple | Collection) else ()
    scalars = [item.value for item in items if isinstance(item, Scalar)]
    if len(scalars) < len(items) or not all(
        isinstance(s, sympy.Expr) and s.is_number and s.is_extended_real for s in scalars
    ):
        return None
    if isinstance(value, Collection) and value.kind == "set":
        return sympy.FiniteSet(*scalars)
    if isinstance(value, Tuple) and len(scalars) == 2 and value.opening in "([":
        low, high = scalars
        if not (low - high).is_negative and not (high is oo or low is -oo):
            return None
        return sympy.Interval(low, high, value.opening == "(", value.closing == ")")
    return None


# Values without relations


def _read_value(tokens: tuple[Token, ...], depth: int) -> Value:
    """Read tokens without separators and relations completely."""
    if depth > _MAX_DEPTH:
        raise Unreadable("brackets are nested too deeply")
    if not tokens:
        raise Unreadable("an empty part")
    first = tokens[0]
    starts_with_currency = bool(find_currency(first)) and len(tokens) > 1
    if first.kind == "word" and not starts_with_currency:
        return Words(write_words(tokens))
    parser = _Parser(tokens, depth)
    value = parser.read_sets()
    if parser.look().text:
        raise Unreadable(f"{parser.look().text!r} is not understood")
    if isinstance(value, Tuple | Collection | Domain | SetExpression | Ratio):
        return value
    is_fraction = any(token.text in (r"\frac", "/") for token in tokens)
    return Scalar(value, is_fraction)


@dataclass
class _Parser:
    """A recursive descent over tokens; methods return expressions, or values that are not scalar."""

    tokens: tuple[Token, ...]
    depth: int
    position: int = 0
    signs: int = 0

    def look(self, offset: int = 0) -> Token:
        """Return a coming token; at the end an empty sign."""
        position = self.position + offset
        return self.tokens[position] if position < len(self.tokens) else Token("sign", "")

    def take(self) -> Token:
        """Return the next token and move on."""
        token = self.look()
        self.position += 1
        return token

    def expect(self, text: str) -> None:
        """Take a token that must be this one."""
        if self.take().text != text:
            raise Malformed(f"expected {text!r}")

    # From the weakest to the strongest connection

    def read_sets(self) -> Any:
        """Read a ratio or operations on sets."""
        value = self.read_ratio()
        while self.look().text in _SET_OPERATIONS:
            operation = _SET_OPERATIONS[self.take().text]
            value = operate_on_sets(operation, _to_value(value), _to_value(self.read_ratio()))
        return value

    def read_ratio(self) -> Any:
        """Read a sum, or sums between colons."""
        terms = [self.read_sum()]
        while self.look().text == ":":
            self.take()
            terms.append(self.read_sum())
        if len(terms) == 1:
            return terms[0]
        if not all(isinstance(term, sympy.Expr) for term in terms):
            raise Unreadable("a ratio of values that are not numbers")
        return Ratio(tuple(terms))

    def read_sum(self) -> Any:
        """Read terms with signs; quantities next to each other are added: ``3 h 20 min``."""
        value = self.read_term()
        while True:
            text = self.look().text
            if text in ("+", "-"):
                self.take()
                value = _add(value, self.read_term(), text)
            elif text in (r"\pm", r"\mp"):
                self.take()
                value = _add(value, _multiply(self.make_sign(text), self.read_term()), "+")
            elif self.look().kind == "number" and _has_units(value):
                term = self.read_term()
                if self.tokens[self.position - 1].kind == "number":
                    raise Unreadable("a number after a quantity")
                value = _add(value, term, "+")
            else:
                return value

    def make_sign(self, text: str) -> Any:
        """Return a symbol for plus and minus."""
        if any(token.text == r"\mp" for token in self.tokens):
            sign = make_symbol("±")
            return -sign if text == r"\mp" else sign
        self.signs += 1
        return make_symbol(f"±{self.position}.{self.depth}")

    def read_term(self) -> Any:
        """Read a product; factors may stand next to each other."""
        if self.look().text in ("+", "-", r"\pm", r"\mp"):
            sign = self.take().text
            term = self.read_term()
            if sign in ("+", "-"):
                return _multiply(Integer(-1), term) if sign == "-" else term
            return _multiply(self.make_sign(sign), term)
        value = self.read_factor()
        while True:
            token = self.look()
            if token.text in ("*", r"\cdot", r"\times"):
                self.take()
                value = self.read_product(value)
            elif token.text in ("/", r"\div"):
                self.take()
                value = divide(value, self.read_signed_factor())
            elif self.starts_factor(token) and not (token.kind == "number" and _has_units(value)):
                value = _multiply(value, self.read_factor())
            else:
                return value

    def read_product(self, value: Any) -> Any:
        """Read the factor after a multiplication sign; between sets it is their product."""
        factor = self.read_signed_factor()
        if isinstance(value, Collection) and isinstance(factor, Collection):
            pairs = [Tuple((a, b)) for a in value.items for b in factor.items]
            return Collection(tuple(pairs), "set")
        return _multiply(value, factor)

    def read_signed_factor(self) -> Any:
        """Read a factor that may have a sign: ``2 · -3``."""
        if self.look().text in ("+", "-"):
            sign = self.take().text
            factor = self.read_signed_factor()
            return _multiply(Integer(-1), factor) if sign == "-" else factor
        return self.read_factor()

    def starts_factor(self, token: Token) -> bool:
        """Check whether a token is a factor of the product before it."""
        if token.kind == "number":
            return self.tokens[self.position - 1].text == "!"
        if token.kind in ("letter", "word"):
            return True
        if token.kind == "command":
            known = token.text[1:] in _COMMANDS or token.text[1:] in _GREEK
            return known and token.text != r"\}" or bool(find_currency(token))
        return token.text in ("(", "{", "[", "%") or bool(token.text) and bool(find_currency(token))

    def read_factor(self) -> Any:
        """Read a value with what is written behind it: powers, factorials, degrees, primes."""
        value = self.read_primary()
        while True:
            text = self.look().text
            if text == "^":
                self.take()
                value = self.read_power(value)
            elif text == "!":
                self.take()
                value = self.read_factorial(value)
            elif text == r"\degree":
                self.take()
                value = _multiply(value, self.read_degree())
            elif text == "'":
                value = self.read_prime(value)
            elif text in (r"\%", "%"):
                self.take()
                value = _multiply(value, make_unit("%"))
            else:
                return value

    def read_power(self, base: Any) -> Any:
        """Read an exponent: a group, or one number, letter or command."""
        if self.look().text == "-":
            self.take()
            return raise_to(base, -self.read_exponent())
        if self.look().text in ("T", r"\top") and isinstance(base, sympy.MatrixBase):
            self.take()
            return base.T
        if self.look().text == "{" and self.look(1).text in ("T", r"\top") and isinstance(base, sympy.MatrixBase):  # fmt: skip
            self.position += 3
            return base.T
        return raise_to(base, self.read_exponent())

    def read_exponent(self) -> Any:
        token = self.look()
        if token.kind == "number":
            exponent = _to_rational(self.take().value)
        else:
            exponent = self.read_primary()
        if self.look().text == "^":  # 2^3^2
            self.take()
            exponent = raise_to(exponent, self.read_exponent())
        if not isinstance(exponent, sympy.Expr):
            raise Unreadable("an exponent that is not an expression")
        return exponent

    def read_factorial(self, value: Any) -> Any:
        double = self.look().text == "!"
        if double:
            self.take()
        if self.look().text == "!":
            raise Unreadable("a factorial of a factorial without brackets")
        if not isinstance(value, sympy.Expr):
            raise Unreadable("a factorial of something that is not a number")
        if value.is_number:
            if not (value.is_Integer and 0 <= value <= _MAX_FACTORIAL):
                raise Unreadable("a factorial that is not computed")
        return sympy.factorial2(value) if double else sympy.factorial(value)

    def read_degree(self) -> Any:
        """Read what follows a degree sign: nothing, or the letter of a temperature scale."""
        token = self.look()
        if token.kind in ("letter", "word") and token.text in TEMPERATURES and (token.kind == "word" or token.is_spaced):  # fmt: skip
            self.take()
            return make_unit(TEMPERATURES[token.text])
        return make_unit("deg")

    def read_prime(self, value: Any) -> Any:
        """Read primes: of a variable, or minutes, seconds, feet or inches of a number."""
        count = 0
        while self.look().text == "'":
            self.take()
            count += 1
        if isinstance(value, sympy.Symbol) and not is_unit(value):
            return make_symbol(value.name + "'" * count)
        after_degrees = any(token.text == r"\degree" for token in self.tokens[: self.position])
        units = ("arcmin", "arcsec") if after_degrees else ("′", "″")
        if count > 2 or not isinstance(value, sympy.Expr) or not value.is_number:
            raise Unreadable("primes after an expression")
        return value * make_unit(units[count - 1])

    # The smallest parts

    def read_primary(self) -> Any:
        """Read a number, a variable, a group, a function or a word."""
        token = self.take()
        if token.kind == "number":
            return self.read_number(token)
        if (currency := find_currency(token)) and not (
            token.kind == "word" and self.follows_number()
        ):
            return self.read_amount(currency)
        if token.kind == "letter":
            return self.read_letter(token.text)
        if token.kind == "word":
            return self.read_word(token)
        if token.text == "{":
            return self.read_group("}")
        if token.text in ("(", "[", r"\{", r"\langle"):
            return self.read_brackets(token.text)
        if token.text == "|":
            return self.read_bars()
        if token.kind == "command":
            return self.read_command(token.text[1:])
        raise Unreadable(f"{token.text!r} is not understood")

    def follows_number(self) -> bool:
        """Check whether a number is before the token that was taken last."""
        return self.position > 1 and self.tokens[self.position - 2].kind in ("number", "command")

    def read_number(self, token: Token) -> Any:
        """Read a number with a fraction behind it that makes it a mixed number."""
        number = _to_rational(token.value)
        start = self.position
        if token.text.isdigit():
            if self.look().text == r"\frac":
                parts = (
                    self.look(1),
                    self.look(2),
                    self.look(3),
                    self.look(4),
                    self.look(5),
                    self.look(6),
                )
                self.take()
                numerator, denominator = self.read_argument(), self.read_argument()
                simple = _is_proper(numerator, denominator) and all(
                    part.kind == "number" or part.text in "{}"
                    for part in parts[: self.position - start - 1]
                )
                if simple:
                    return number + numerator / denominator
                self.position = start
            elif (
                self.look().kind == "number" and self.look().is_spaced and self.look(1).text == "/"
            ):
                fraction = self.take().value, self.look(1).value
                if self.look(1).kind == "number" and 0 < fraction[0] < fraction[1]:
                    self.position += 2
                    return number + _to_rational(fraction[0] / fraction[1])
                self.position = start
        return number

    def read_amount(self, currency: str) -> Any:
        """Read the number after a currency sign; after a number the sign is a unit."""
        unit = make_unit(currency)
        if self.follows_number() or not self.look().text:
            return unit
        sign = 1
        if self.look().text in ("-", "+"):
            sign = -1 if self.take().text == "-" else 1
        return sign * unit * self.read_factor()

    def read_letter(self, letter: str) -> Any:
        """Read a variable with its index, or a function of it."""
        primes = 0
        while self.look(primes).text == "'":
            primes += 1
        if self.look(primes).text == "_":
            self.position += primes
            return make_symbol(f"{letter}_{self.read_index()}" + "'" * primes)
        if letter in ("e", "i"):
            return E if letter == "e" else I
        if letter in "fg" and self.look().text == "(":
            self.take()
            argument = self.read_brackets("(")
            arguments = argument.items if isinstance(argument, Tuple) else (Scalar(argument),)
            if all(isinstance(a, Scalar) for a in arguments):
                return sympy.Function(letter, real=True)(*[a.value for a in arguments])
            raise Unreadable("a function of values that are not expressions")
        return make_symbol(letter)

    def read_index(self) -> str:
        """Return the text of an index."""
        self.expect("_")
        if self.look().text != "{":
            return self.take().text
        tokens = self.take_group("{", "}")
        return join_tokens(tokens)

    def read_word(self, token: Token) -> Any:
        """Read a unit or a counted thing."""
        following = self.look()
        word = token.text.lower().rstrip(".")
        if word in ("square", "sq", "cubic", "cu") and following.kind == "word":
            base = self.read_word(self.take())
            return base ** (2 if word in ("square", "sq") else 3)
        is_last = following.kind != "word"
        unit = find_unit(token.text) or find_unit(token.text.rstrip("."))
        if unit == "deg" and not is_last and find_unit(following.text) in TEMPERATURES.values():
            return make_unit(find_unit(self.take().text))
        if unit and not (is_filler(word) and not (is_last and self.follows_number())):
            return make_unit(unit)
        if is_filler(word) or is_filler(to_singular(word)):
            return Integer(1)
        if is_refused(word):
            raise Unreadable(f"{token.text!r} says more about a number")
        return make_unit(to_singular(token.text))

    def take_group(self, opening: str, closing: str) -> tuple[Token, ...]:
        """Take tokens from an opening bracket, which comes next, to its closing one."""
        start = self.position + 1
        depth = 0
        while self.position < len(self.tokens):
            text = self.take().text
            depth += (text == opening) - (text == closing)
            if depth == 0:
                return self.tokens[start : self.position - 1]
        raise Malformed(f"{opening!r} is not closed")

    def read_group(self, closing: str) -> Any:
        """Read an expression up to its closing brace."""
        self.position -= 1
        tokens = self.take_group("{", closing)
        if any(token.text in (r"\choose", r"\over") for token in tokens):
            return self.read_infix(tokens)
        return _to_expression(_read_value(tokens, self.depth + 1))

    def read_infix(self, tokens: tuple[Token, ...]) -> Any:
        sides, operators = split_tokens(tokens, lambda token: token.text in (r"\choose", r"\over"))
        if len(sides) != 2:
            raise Unreadable("a group with several fractions")
        left, right = (_to_expression(_read_value(side, self.depth + 1)) for side in sides)
        return choose(left, right) if operators == [r"\choose"] else divide(left, right)

    def read_argument(self) -> Any:
        """Read the argument of a command: a group, or one digit, letter or command."""
        token = self.look()
        if token.kind == "number" and token.text.isdigit() and len(token.text) > 1:
            self.tokens = (  # \frac12: one digit at a time
                *self.tokens[: self.position],
                Token("number", token.text[0], token.value // 10 ** (len(token.text) - 1)),
                Token("number", token.text[1:], token.value % 10 ** (len(token.text) - 1)),
                *self.tokens[self.position + 1 :],
            )
            self.take()
            return Integer(int(token.text[0]))
        value = self.read_primary()
        if not isinstance(value, sympy.Expr | sympy.MatrixBase):
            raise Unreadable("an argument that is not an expression")
        return value

    def read_brackets(self, opening: str) -> Any:
        """Read round, square, curly or pointed brackets: a group, a tuple, an interval or a set."""
        self.position -= 1
        closings = {"(": (")", "]"), "[": ("]", ")"), r"\{": (r"\}",), r"\langle": (r"\rangle",)}
        tokens, closing = self.take_brackets(closings[opening])
        if opening == r"\{":
            return read_set(tokens, self.depth + 1)
        if not tokens:
            raise Unreadable("empty brackets")
        parts, _ = split_tokens(tokens, lambda token: token.text in (",", ";"))
        if len(parts) == 1 and (opening, closing) in (("(", ")"), ("[", "]")):
            return _to_expression(_read_value(parts[0], self.depth + 1))
        items = tuple(_read_value(part, self.depth + 1) for part in parts)
        return Tuple(items, "(" if opening == r"\langle" else opening, ")" if opening == r"\langle" else closing)  # fmt: skip

    def take_brackets(self, closings: Sequence[str]) -> tuple[tuple[Token, ...], str]:
        """Take tokens from an opening bracket to the bracket that closes it, which may differ."""
        start = self.position + 1
        depth = 0
        while self.position < len(self.tokens):
            text = self.take().text
            depth += text in ("(", "[", r"\{", r"\langle")
            depth -= text in (")", "]", r"\}", r"\rangle")
            if depth == 0:
                if text not in closings:
                    raise Unreadable("brackets that do not match")
                return self.tokens[start : self.position - 1], text
        raise Unreadable("a bracket is not closed")

    def read_bars(self) -> Any:
        """Read an absolute value up to the next bar."""
        start = self.position
        depth = 0
        while self.position < len(self.tokens):
            text = self.take().text
            depth += text in ("(", "[", "{", r"\{")
            depth -= text in (")", "]", "}", r"\}")
            if text == "|" and depth == 0 and self.position - 1 > start:
                inside = _read_value(self.tokens[start : self.position - 1], self.depth + 1)
                value = _to_expression(inside)
                if isinstance(value, sympy.MatrixBase):
                    return find_determinant(value)
                return sympy.Abs(value)
        raise Unreadable("a bar is not closed")

    def read_command(self, name: str) -> Any:
        """Read a command with its arguments."""
        if name in _COMMANDS:
            return _COMMANDS[name](self)
        if name in _GREEK:
            letter = f"\\{name}"
            return make_symbol(
                f"{letter}_{self.read_index()}" if self.look().text == "_" else letter
            )
        raise Unreadable(f"\\{name} is not understood")

    # Functions

    def read_function(self, name: str) -> Any:
        r"""Read ``\sin^2 x``, ``\log_2 10``, ``\max(a, b)``."""
        base = power = None
        if self.look().text == "_" and name == "log":
            self.take()
            base = self.read_argument()
        if self.look().text == "^":
            self.take()
            if self.look().text == "-":
                self.take()
                power = -self.read_exponent()
            else:
                power = self.read_exponent()
        if power == -1 and name in _INVERSE:
            name, power = _INVERSE[name], None
        arguments = self.read_function_argument()
        if name in _SEVERAL:
            value = _SEVERAL[name](*arguments)
        elif len(arguments) != 1:
            raise Unreadable("a function of several values")
        else:
            value = self.apply(name, base, arguments[0])
        return value if power is None else raise_to(value, power)

    def apply(self, name: str, base: Any, argument: Any) -> Any:
        """Apply a function; angles in degrees become numbers."""
        degrees = argument.free_symbols & {make_unit("deg"), make_unit("arcmin")}
        if degrees:
            argument = convert_units(argument).subs(make_unit("deg"), pi / 180)
        if any(map(is_unit, argument.free_symbols)):
            raise Unreadable("a function of a quantity")
        if base is not None:
            return divide(sympy.log(argument), sympy.log(base))
        if name == "exp":
            return raise_to(E, argument)
        if argument == 0 and name in ("ln", "log", "lg"):
            raise Unreadable("the logarithm of zero")
        return _FUNCTIONS[name](argument)

    def read_function_argument(self) -> list[Any]:
        """Read an argument: brackets alone, or factors up to the next sign or function."""
        if self.look().text in ("(", "["):
            opening = self.take().text
            inside = self.read_brackets(opening)
            items = [i.value for i in inside.items if isinstance(i, Scalar)] if isinstance(inside, Tuple) else [inside]  # fmt: skip
            if not all(isinstance(item, sympy.Expr) for item in items):
                raise Unreadable("a function of something that is not an expression")
            value = items[0]
            while len(items) == 1 and self.look().text in ("!", r"\degree"):
                self.position -= 1
                break
            return items if len(items) > 1 else [value]
        value = self.read_factor()
        while self.starts_factor(self.look()) and self.look().text[1:] not in _FUNCTIONS and self.look().kind != "word":  # fmt: skip
            if self.look().text in ("(", "["):
                break
            value = _multiply(value, self.read_factor())
        if self.look().text == "/" and self.look(1).kind == "number":  # \sin \pi/6
            self.take()
            value = divide(value, self.read_factor())
        if not isinstance(value, sympy.Expr):
            raise Unreadable("a function of something that is not an expression")
        return [value]

    def read_root(self) -> Any:
        r"""Read ``\sqrt{x}`` or ``\sqrt[3]{x}``."""
        degree: Any = Integer(2)
        if self.look().text == "[":
            self.take()
            degree = self.read_brackets("[")
        if self.look().text == "(":
            self.take()
            radicand = self.read_brackets("(")
        else:
            radicand = self.read_root_argument()
        if not isinstance(radicand, sympy.Expr) or not degree.is_Integer or not 2 <= degree <= 100:
            raise Unreadable("a root that is not computed")
        if radicand.is_number and radicand.is_negative and degree % 2:
            return -raise_to(-radicand, 1 / degree)
        return raise_to(radicand, 1 / degree)

    def read_root_argument(self) -> Any:
        """Read what is under a root without braces: a complete number after a root character."""
        if self.look().kind == "number" and self.look().is_spaced:
            return self.read_primary()
        return self.read_argument()

    def read_accent(self, name: str) -> Any:
        """Read a bar over a complex number as its conjugate, other marks as a part of the name."""
        if self.look().text == "{":
            tokens = self.take_group("{", "}")
        else:
            tokens = (self.take(),)
        if name in ("overline", "bar"):
            value = _to_expression(_read_value(tokens, self.depth + 1))
            if isinstance(value, sympy.Expr) and value.is_number:
                return sympy.conjugate(value)
        mark = {"overline": "bar", "widehat": "hat", "overrightarrow": "vec"}.get(name, name)
        return make_symbol(f"{mark}({join_tokens(tokens)})")

    def read_figure(self, name: str) -> Any:
        """Read an angle or a triangle with its points as one variable."""
        points = []
        while self.look().kind == "letter":
            points.append(self.take().text)
        if not points:
            raise Unreadable(f"\\{name} without points")
        return make_symbol(f"{name}({''.join(points)})")

    def read_environment(self) -> Any:
        """Read a matrix; its rows end with two backslashes."""
        start = self.position
        self.position = start - 1
        depth = 0
        while self.position < len(self.tokens):
            text = self.take().text
            depth += (text == r"\begin") - (text == r"\end")
            if depth == 0:
                break
        else:
            raise Malformed(r"\begin without \end")
        tokens = self.tokens[start : self.position - 1]
        parser = _Parser(tokens, self.depth)
        name = join_tokens(parser.take_group("{", "}")).replace(" ", "")
        self.take_group("{", "}")
        inside = tokens[parser.position :]
        if name == "array" and inside[:1] and inside[0].text == "{":
            columns = _Parser(inside, self.depth)
            columns.take_group("{", "}")
            inside = inside[columns.position :]
        if name not in (
            "pmatrix",
            "bmatrix",
            "Bmatrix",
            "matrix",
            "smallmatrix",
            "vmatrix",
            "array",
        ):
            raise Unreadable(f"the environment {name} is not understood")
        matrix = read_matrix(inside, self.depth + 1)
        return find_determinant(matrix) if name == "vmatrix" else matrix

    def read_blackboard(self) -> Any:
        r"""Read ``\mathbb{R}``."""
        name = (
            join_tokens(self.take_group("{", "}")) if self.look().text == "{" else self.take().text
        )
        if name not in _SET_NAMES:
            raise Unreadable("an unknown set")
        domain: Any = _SET_NAMES[name]
        if self.look().text == "^" and self.look(1).text in ("+", "{"):
            raise Unreadable("a part of a set")
        return Domain(domain)

    def read_floor(self, name: str) -> Any:
        closing = r"\rfloor" if name == "lfloor" else r"\rceil"
        self.position -= 1
        tokens = self.take_group(f"\\{name}", closing)
        value = _to_expression(_read_value(tokens, self.depth + 1))
        return (sympy.floor if name == "lfloor" else sympy.ceiling)(value)


_COMMANDS: dict[str, Callable[[_Parser], Any]] = {
    "frac": lambda parser: divide(parser.read_argument(), parser.read_argument()),
    "binom": lambda parser: choose(parser.read_argument(), parser.read_argument()),
    "sqrt": _Parser.read_root,
    "pi": lambda _: pi,
    "infty": lambda _: oo,
    "mathbb": _Parser.read_blackboard,
    "begin": _Parser.read_environment,
    "emptyset": lambda _: Collection((), "set"),
    "varnothing": lambda _: Collection((), "set"),
    **{
        name: (lambda parser, name=name: parser.read_function(name))  # type: ignore[misc]
        for name in (*_FUNCTIONS, *_SEVERAL)
    },
    **{name: (lambda parser, name=name: parser.read_accent(name)) for name in _ACCENTS},  # type: ignore[misc]
    **{
        name: (lambda parser, name=name: parser.read_figure(name)) for name in ("angle", "triangle")
    },  # type: ignore[misc]
    **{name: (lambda parser, name=name: parser.read_floor(name)) for name in ("lfloor", "lceil")},  # type: ignore[misc]
    **{
        f"var{name}": (lambda parser, name=name: parser.read_command(name))  # type: ignore[misc]
        for name in ("epsilon", "theta", "phi", "rho", "sigma", "kappa")
    },
    "langle": lambda parser: parser.read_brackets(r"\langle"),
    "{": lambda parser: parser.read_brackets(r"\{"),
}


def read_set(tokens: tuple[Token, ...], depth: int) -> Value:
    """Read what is between curly brackets: elements, or an expression with a condition."""
    if not tokens:
        return Collection((), "set")
    for bars in ((r"\mid", ":"), ("|",)):
        head, found = split_tokens(tokens, lambda token, bars=bars: token.text in bars)
        if found:
            return _read_builder(head[0], tuple(tokens)[len(head[0]) + 1 :], depth)
    parts, _ = split_tokens(tokens, lambda token: token.text in (",", ";"))
    if not all(parts) or len(parts) > _MAX_ITEMS:
        raise Unreadable("an element is empty, or there are too many")
    items: list[Value] = []
    for part in parts:
        value = expand_signs(_read_value(part, depth))
        items += value.items if isinstance(value, Collection) and value.kind == "list" else [value]
    return Collection(tuple(items), "set")


def _read_builder(head: tuple[Token, ...], condition: tuple[Token, ...], depth: int) -> Value:
    """Read ``{x | 2 ≤ x ≤ 5}`` and ``{n² : n ∈ {1, 2, 3}}``."""
    sides, members = split_tokens(head, lambda token: token.text == r"\in")
    conditions = solve_relation(_read_list(condition, depth))
    domain = find_domain(_read_value(sides[1], depth)) if members else S.Reals
    expression = _to_expression(_read_value(sides[0], depth))
    if (
        not isinstance(conditions, Named)
        or domain is None
        or not isinstance(expression, sympy.Expr)
    ):
        raise Unreadable("a condition that is not understood")
    variable = make_symbol(conditions.name)
    values = conditions.value
    if isinstance(values, Collection):
        if not all(isinstance(item, Scalar) for item in values.items):
            raise Unreadable("a condition on values that are not numbers")
        numbers = [item.value for item in values.items if isinstance(item, Scalar)]
        return Collection(tuple(Scalar(expression.subs(variable, n)) for n in numbers), "set")
    elements = find_domain(values)
    if elements is None and isinstance(values, Scalar):
        elements = sympy.FiniteSet(values.value)
    if elements is None:
        raise Unreadable("a condition that is not a set of numbers")
    if isinstance(elements, sympy.FiniteSet):
        return Collection(tuple(Scalar(expression.subs(variable, n)) for n in elements), "set")
    if expression != variable:
        raise Unreadable("an image of an infinite set")
    return Domain(sympy.Intersection(domain, elements))


def solve_relation(value: Value) -> Value:
    """Return a relation in one variable as the set of its real solutions; else the value itself."""
    if not isinstance(value, Relation) or len(value.difference.free_symbols) != 1:
        return value
    variable = next(iter(value.difference.free_symbols))
    kinds = {"=": sympy.Eq, "!=": sympy.Ne, ">": sympy.Gt, ">=": sympy.Ge}
    try:
        solutions = sympy.solveset(kinds[value.operator](value.difference, 0), variable, S.Reals)
    except (NotImplementedError, ValueError):
        return value
    if not isinstance(solutions, sympy.FiniteSet | sympy.Interval | sympy.Union) or is_unit(
        variable
    ):
        return value
    return Named(variable.name, Domain(solutions))


def operate_on_sets(operation: str, left: Value, right: Value) -> Value:
    """Return a union, an intersection or a difference; of named sets an expression."""
    domains = find_domain(left), find_domain(right)
    if None not in domains:
        result = {
            "union": sympy.Union,
            "intersection": sympy.Intersection,
            "complement": sympy.Complement,
        }[operation](*domains)
        if isinstance(result, sympy.FiniteSet):
            return Collection(tuple(map(Scalar, result)), "set")
        return Collection((), "set") if result is S.EmptySet else Domain(result)
    if isinstance(left, Collection) and isinstance(right, Collection):
        from gapft_harness.verification.mathematics.equality import are_equal

        def has(items: Sequence[Value], value: Value) -> bool:
            return any(are_equal(item, value) for item in items)

        if operation == "union":
            return Collection((*left.items, *right.items), "set")
        keep = operation == "intersection"
        kept = tuple(item for item in left.items if has(right.items, item) == keep)
        return Collection(kept, "set")
    return SetExpression(operation, (left, right))


def read_matrix(tokens: tuple[Token, ...], depth: int) -> Any:
    r"""Read entries between ``&`` and two backslashes."""
    rows, _ = split_tokens(tokens, lambda token: token.text == "\\\\")
    rows = [row for row in rows if row and {token.text for token in row} != {r"\hline"}]
    entries = [split_tokens(row, lambda token: token.text == "&")[0] for row in rows]
    if not entries or len({len(row) for row in entries}) != 1:
        raise Unreadable("rows of different length")
    cells = [[_to_expression(_read_value(cell, depth)) for cell in row] for row in entries]
    if not all(isinstance(cell, sympy.Expr) for row in cells for cell in row):
        raise Unreadable("an entry that is not an expression")
    return sympy.ImmutableMatrix(cells)


def find_determinant(matrix: Any) -> Any:
    """Return the determinant of a small square matrix."""
    if matrix.rows != matrix.cols or matrix.rows > 10:
        raise Unreadable("a determinant that is not computed")
    return matrix.det()


# Arithmetic that refuses what is too large


def _to_rational(value: Any) -> Any:
    return Rational(value.numerator, value.denominator)


def _to_value(value: Any) -> Value:
    return Scalar(value) if isinstance(value, sympy.Expr | sympy.MatrixBase) else value


def _to_expression(value: Value) -> Any:
    """Return the expression of a scalar; other values as they are, words are refused."""
    if isinstance(value, Scalar):
        return value.value
    if isinstance(value, Words):
        raise Unreadable("words in an expression")
    return value


def _has_units(value: Any) -> bool:
    return isinstance(value, sympy.Expr) and any(map(is_unit, value.free_symbols))


def _is_proper(numerator: Any, denominator: Any) -> bool:
    return bool(numerator.is_Integer and denominator.is_Integer and 0 < numerator < denominator)


def _require_expressions(*values: Any) -> None:
    if not all(isinstance(value, sympy.Expr | sympy.MatrixBase) for value in values):
        raise Unreadable("arithmetic with values that are not expressions")


def _add(left: Any, right: Any, sign: str) -> Any:
    if (
        sign == "-"
        and isinstance(right, Collection | Domain)
        and isinstance(left, Domain | Collection)
    ):
        return operate_on_sets("complement", left, right)
    _require_expressions(left, right)
    try:
        return left + right if sign == "+" else left - right
    except (TypeError, sympy.ShapeError) as error:
        raise Unreadable("a sum of different shapes") from error


def _multiply(left: Any, right: Any) -> Any:
    _require_expressions(left, right)
    try:
        product = left * right
    except (TypeError, sympy.ShapeError) as error:
        raise Unreadable("a product of different shapes") from error
    _require_size(product)
    return product


def _require_size(value: Any) -> None:
    if isinstance(value, sympy.Rational) and value.p.bit_length() + value.q.bit_length() > MAX_BITS:
        raise Unreadable("a number is too large")


def divide(left: Any, right: Any) -> Any:
    """Divide, not by zero."""
    _require_expressions(left, right)
    if isinstance(right, sympy.MatrixBase):
        raise Unreadable("a division by a matrix")
    if right == 0:
        raise Malformed("a division by zero")
    return left / right


def raise_to(base: Any, exponent: Any) -> Any:
    """Return a power; one that is too large to compute is refused before it is computed."""
    _require_expressions(base, exponent)
    if isinstance(base, sympy.MatrixBase):
        is_square = base.rows == base.cols
        computed = exponent.is_Integer and abs(exponent) <= 100 and base.rows <= 10
        if not (is_square and computed) or (exponent < 0 and base.det() == 0):
            raise Unreadable("a power of a matrix that is not computed")
        return base**exponent
    if base == 0 and exponent.is_number and exponent.is_negative:
        raise Malformed("a division by zero")
    if exponent.is_number and exponent.is_extended_real and exponent.is_finite:
        size = abs(exponent)
        if size > 1_000_000 or (not base.is_number and size > 10_000):
            raise Unreadable("a power is too large")
        if base.is_Rational:
            bits = max(base.p.bit_length(), base.q.bit_length())
            is_root = not exponent.is_Integer
            if bits > 1 and (bits * float(size) > MAX_BITS or (is_root and bits > _MAX_ROOT_BITS)):
                raise Unreadable("a power is too large")
    return base**exponent


def choose(n: Any, k: Any) -> Any:
    """Return a binomial coefficient."""
    _require_expressions(n, k)
    if n.is_number and not (n.is_Integer and k.is_Integer and abs(n) <= _MAX_FACTORIAL):
        raise Unreadable("a binomial coefficient that is not computed")
    return sympy.binomial(n, k)
