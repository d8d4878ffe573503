r"""Read expressions: a recursive descent over tokens.

Decimals are rationals, ``i`` is imaginary, ``e`` is Euler's number, letters are real variables, and
units and counted things are symbols in brackets. A text that is not understood completely is
``Unreadable``: nothing is dropped to make it readable.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial, reduce
from typing import Any

import sympy
from sympy import E, I, Integer, Rational, S, oo, pi

from gapft_harness.verification.mathematics.arithmetic import (
    add,
    choose,
    divide,
    find_determinant,
    find_factorial,
    find_root,
    is_expression,
    is_matrix,
    multiply,
    raise_to,
)
from gapft_harness.verification.mathematics.equality import operate_on_sets
from gapft_harness.verification.mathematics.tokens import (
    Token,
    find_currency,
    is_filler,
    is_refused,
    join_tokens,
    split_tokens,
)
from gapft_harness.verification.mathematics.values import (
    QUALIFIER,
    Collection,
    Domain,
    Ratio,
    Scalar,
    Tuple,
    Unreadable,
    Value,
    convert_units,
    has_units,
    is_unit,
    make_symbol,
    make_unit,
)
from gapft_harness.verification.mathematics.vocabulary import (
    TEMPERATURES,
    find_unit,
    is_plural_noun,
    to_singular,
)

_END = Token("sign", "")
_SET_NAMES = {"R": S.Reals, "Z": S.Integers, "N": S.Naturals, "Q": S.Rationals, "C": S.Complexes}
_SET_OPERATIONS = {
    r"\cup": "union",
    r"\cap": "intersection",
    r"\setminus": "complement",
    r"\backslash": "complement",
}
_GREEK_WORDS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho sigma "
    "tau upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell "
    "hbar Alpha Beta Epsilon Zeta Eta Iota Kappa Mu Nu Omicron Pi Rho Tau Chi"
)
GREEK = frozenset(_GREEK_WORDS.split())
_TRIGONOMETRIC = ("sin", "cos", "tan", "cot", "sec", "csc")
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(sympy, name) for name in (*_TRIGONOMETRIC, "sinh", "cosh", "tanh")},
    **{f"arc{name}": getattr(sympy, f"a{name}") for name in _TRIGONOMETRIC},
    **{f"a{name}": getattr(sympy, f"a{name}") for name in _TRIGONOMETRIC},
    **{name: lambda x: divide(sympy.log(x), sympy.log(10)) for name in ("log", "lg")},
    "ln": sympy.log,
    "exp": lambda x: raise_to(E, x),
}
_OF_SEVERAL = {"max": sympy.Max, "min": sympy.Min, "gcd": sympy.igcd, "lcm": sympy.ilcm}
_MATRICES = frozenset(
    ["matrix", "pmatrix", "bmatrix", "Bmatrix", "vmatrix", "smallmatrix", "array"]
)


class ExpressionParser(ABC):
    """A reader of tokens; its methods return expressions, or values of other kinds.

    Args:
        tokens: the tokens of one value, with groups.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = list(tokens)
        self.position = 0
        self.open_bars = 0

    @abstractmethod
    def read_value(self, tokens: Sequence[Token]) -> Value:
        """Read tokens in brackets as one value."""

    @abstractmethod
    def read_set(self, tokens: Sequence[Token]) -> Value:
        """Read tokens in curly brackets."""

    def read_inside(self, tokens: Sequence[Token]) -> Any:
        """Read tokens in brackets that are one value; words are refused."""
        value = self.read_value(tokens)
        return value.value if isinstance(value, Scalar) else value

    def look(self, offset: int = 0) -> Token:
        """Return a coming token; at the end an empty sign."""
        position = self.position + offset
        return self.tokens[position] if position < len(self.tokens) else _END

    def take(self) -> Token:
        """Return the next token and move on."""
        token = self.look()
        self.position += 1
        return token

    def take_if(self, *texts: str) -> str:
        """Take the next token if it is one of these signs; return it, or ""."""
        return self.take().text if self.look().text in texts else ""

    # From the weakest to the strongest connection

    def read_all(self) -> Any:
        """Read all tokens: operations on sets, a ratio or an expression."""
        value = self.read_ratio()
        while operation := _SET_OPERATIONS.get(self.look().text):
            self.take()
            value = operate_on_sets(operation, _to_value(value), _to_value(self.read_ratio()))
        if self.look() is not _END:
            raise Unreadable(f"{self.look().text!r} is not understood")
        return value

    def read_ratio(self) -> Any:
        """Read a sum, or sums between colons."""
        terms = [self.read_sum()]
        while self.take_if(":"):
            terms.append(self.read_sum())
        if len(terms) == 1:
            return terms[0]
        if not all(map(is_expression, terms)):
            raise Unreadable("a ratio of values that are not numbers")
        return Ratio(tuple(terms))

    def read_sum(self) -> Any:
        r"""Read terms with signs; quantities next to each other are added: ``3 h 20 min``.

        A unit behind the last of several terms is the unit of all: ``2 + \sqrt{3} cm``.
        """
        terms = [self.read_term()]
        while True:
            if isinstance(terms[-1], Collection | Domain) and self.take_if("-"):
                other = _to_value(self.read_factor())
                terms[-1] = operate_on_sets("complement", terms[-1], other)
            elif self.look().text in ("+", "-", r"\pm", r"\mp"):
                terms.append(self.read_term())
            elif self.look().kind == "number" and _has_units(terms[-1]):
                is_negative = terms[-1].could_extract_minus_sign()
                part = self.read_term()
                terms.append(-part if is_negative else part)  # -2° 30'
                if self.tokens[self.position - 1].kind == "number":
                    raise Unreadable("a number after a quantity")
            else:
                break
        if len(terms) > 1 and all(map(is_expression, terms)):
            *others, last = terms
            powers = last.as_powers_dict().items()
            unit = sympy.Mul(*[base**power for base, power in powers if is_unit(base)])
            if unit not in (1, make_unit("%")) and not any(map(_has_units, others)):
                terms = [*[multiply(term, unit) for term in others], last]
        return reduce(add, terms)

    def read_term(self) -> Any:
        """Read a product with its sign; factors may stand next to each other."""
        sign = self.read_sign()
        value = multiply(sign, self.read_factor()) if sign is not S.One else self.read_factor()
        while True:
            token = self.look()
            if self.look().text == r"\times" and self.look(1).text == r"\vec" and _is_vector(value):
                self.take()
                value = sympy.Function("cross", real=True)(value, self.read_factor())
            elif self.take_if("*", r"\cdot", r"\times"):
                value = self.read_product(value)
            elif self.take_if("/", r"\div"):
                value = divide(value, self.read_signed_factor())
            elif self.starts_factor(token):
                value = multiply(value, self.read_next_factor(value))
            else:
                return value

    def read_sign(self) -> Any:
        """Read signs before a term as 1, -1 or a symbol for both."""
        sign: Any = S.One
        while self.look().text in ("+", "-", r"\pm", r"\mp"):
            token = self.take()
            if token.text == "-":
                sign = -sign
            elif token.text != "+":
                both = make_symbol(f"±{token.value}")
                sign = sign * (both if token.text == r"\pm" else -both)
            if self.look().kind == "word" and not find_currency(self.look()):
                raise Unreadable("a word after a sign has no number")
        return sign

    def read_signed_factor(self) -> Any:
        """Read a factor that may have a sign: ``2 · -3``."""
        return multiply(self.read_sign(), self.read_factor())

    def read_product(self, value: Any) -> Any:
        """Read the factor after a multiplication sign; between sets it is their product."""
        if not isinstance(value, Collection):
            return multiply(value, self.read_signed_factor())
        other = self.read_factor()
        if not isinstance(other, Collection):
            raise Unreadable("a product of a set and a number")
        pairs = [Tuple((a, b)) for a in value.items for b in other.items]
        return Collection(tuple(pairs), "set")

    def read_next_factor(self, value: Any) -> Any:
        """Read a factor next to a value; brackets that explain or repeat it are refused."""
        token = self.look()
        is_product = self.tokens[self.position - 1].closing == ")"
        is_apart = token.text == "(" and token.is_spaced and not is_product
        if is_apart and any(inner.kind == "word" for inner in token.inside):
            raise Unreadable("words in brackets after a value")
        factor = self.read_factor()
        is_sum = any(inner.text in ("+", "-") for inner in token.inside[1:])
        if is_apart and not is_sum and is_expression(value) and is_expression(factor):
            number = convert_units(value)
            if number.is_number and number == convert_units(factor):  # 5 (five)
                raise Unreadable("a number that is repeated in brackets")
        return factor

    def starts_factor(self, token: Token) -> bool:
        """Check whether a token is a factor of the product before it."""
        before = self.tokens[self.position - 1]
        if token.kind == "number":  # 2^n 3^n
            return before.text == "!" or (before.kind != "number" and self.look(1).text == "^")
        if token.kind in ("letter", "word", "group"):
            return token.text != r"\{"
        if token.kind == "command":
            return (
                token.text[1:] in _COMMANDS or token.text[1:] in GREEK or bool(find_currency(token))
            )
        return (token.text == "|" and not self.open_bars) or bool(find_currency(token))

    def read_factor(self) -> Any:
        """Read a value with what is written behind it: powers, factorials, degrees, primes."""
        value = self.read_primary()
        while True:
            if self.take_if("^"):
                value = self.read_power(value)
            elif self.take_if("!"):
                is_double = bool(self.take_if("!"))
                if self.look().text == "!":
                    raise Unreadable("a factorial of a factorial without brackets")
                value = find_factorial(value, is_double=is_double)
            elif self.take_if(r"\degree"):
                value = multiply(value, self.read_degree())
            elif self.look().text == "'":
                value = self.read_primes(value)
            elif self.take_if(r"\%", "%"):
                value = multiply(value, make_unit("%"))
            else:
                return value

    def read_power(self, base: Any) -> Any:
        """Read an exponent; ``T`` transposes a matrix."""
        token = self.look()
        if is_matrix(base) and join_tokens(token.inside or (token,)) in ("T", r"\top"):
            self.take()
            return base.T
        sign = self.read_sign()
        return raise_to(base, multiply(sign, self.read_exponent()))

    def read_exponent(self) -> Any:
        """Read a group, or one number, letter or command, with its own exponent."""
        token = self.look()
        exponent = _to_rational(self.take()) if token.kind == "number" else self.read_primary()
        return raise_to(exponent, self.read_exponent()) if self.take_if("^") else exponent

    def read_degree(self) -> Any:
        """Read what follows a degree sign: nothing, or the letter of a temperature scale."""
        token = self.look()
        is_scale = token.kind == "word" or (token.kind == "letter" and token.is_spaced)
        if is_scale and token.text in TEMPERATURES:
            self.take()
            return make_unit(TEMPERATURES[token.text])
        return make_unit("deg")

    def read_primes(self, value: Any) -> Any:
        """Read primes: of a variable, or minutes, seconds, feet or inches of a number."""
        count = 0
        while self.take_if("'"):
            count += 1
        if isinstance(value, sympy.Symbol) and not is_unit(value):
            return make_symbol(value.name + "'" * count)
        if count > 2 or not is_expression(value) or not value.is_number:
            raise Unreadable("primes after an expression")
        follows_degrees = any(token.text == r"\degree" for token in self.tokens[: self.position])
        units = ("arcmin", "arcsec") if follows_degrees else ("′", "″")
        return value * make_unit(units[count - 1])

    # The smallest parts

    def read_primary(self) -> Any:
        """Read a number, a variable, a group, a function or a word."""
        follows_number = self.follows_number()
        token = self.take()
        if token.kind == "number":
            return self.read_mixed_number(token)
        currency = find_currency(token)
        if currency and not follows_number:
            amount = multiply(make_unit(currency), self.read_signed_factor())
            if len(self.look().text) == 1 and find_unit(self.look().text):
                raise Unreadable("a letter after an amount of money")  # $5K
            return amount
        if currency:
            return make_unit(currency)
        if token.kind == "letter":
            return self.read_letter(token.text)
        if token.kind == "word":
            return self.read_word(token, follows_number)
        if token.kind == "group":
            return self.read_group(token)
        if token.text == "|":
            return self.read_bars()
        name = token.text[1:]
        if token.kind == "command" and name in _COMMANDS:
            return _COMMANDS[name](self)
        if token.kind == "command" and name in GREEK:
            return self.read_letter(token.text)
        raise Unreadable(f"{token.text!r} is not understood")

    def follows_number(self) -> bool:
        """Check whether a number or what ends one is before the next token."""
        before = self.tokens[self.position - 1] if self.position else _END
        return before.kind in ("number", "group", "word") or before.text in ("!", "'")

    def read_mixed_number(self, token: Token) -> Any:
        """Read a number; a whole one with a proper fraction behind it is their sum."""
        number = _to_rational(token)
        if not token.text.isdigit():
            return number
        numerator, denominator, count = self.find_fraction()
        if numerator and denominator and 0 < int(numerator) < int(denominator):
            self.position += count
            return number + Rational(int(numerator), int(denominator))
        return number

    def find_fraction(self) -> tuple[str, str, int]:
        """Return the digits of a fraction that comes next, and its number of tokens."""
        first, second, third = (self.look(n) for n in range(3))
        if first.text == r"\frac" and second.kind == "number" and len(second.text) == 2:
            return second.text[0], second.text[1], 2
        if first.text == r"\frac":
            return _find_digits(second), _find_digits(third), 3
        if first.is_spaced and second.text == "/":
            return _find_digits(first), _find_digits(third), 3
        return "", "", 0

    def read_letter(self, letter: str) -> Any:
        """Read a variable with its index and primes, or an unknown function of it."""
        primes = 0
        while self.look(primes).text == "'":
            primes += 1
        if self.look(primes).text == "_":
            self.position += primes + 1
            index = self.take()
            text = join_tokens(index.inside or (index,))
            if not text:
                raise Unreadable("an empty index")
            letter = f"{letter}_{text}" + "'" * primes
            primes = 0
        if letter in ("e", "i"):
            return E if letter == "e" else I
        argument = self.look(primes)
        is_function = primes or letter in ("f", "g", r"\Phi")
        is_function = is_function or (letter == "F" and len(argument.inside) == 1)  # F(b) - F(a)
        if is_function and argument.text == "(":
            self.position += primes
            arguments = self.read_arguments(self.take())
            return sympy.Function(letter + "'" * primes, real=True)(*arguments)
        return make_symbol(letter)

    def read_word(self, token: Token, follows_number: bool) -> Any:
        """Read a unit or a counted thing as a symbol."""
        following = self.look()
        word = token.text.lower().rstrip(".")
        is_last = following.kind != "word"
        power = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}.get(word)
        if power and not is_last:
            return self.read_word(self.take(), follows_number=False) ** power
        unit = find_unit(token.text) or find_unit(token.text.rstrip("."))
        if unit == "deg" and find_unit(following.text) in TEMPERATURES.values():
            return make_unit(find_unit(self.take().text))
        if unit and not (is_filler(word) and not (is_last and follows_number)):
            return make_unit(unit)
        if is_filler(word):
            return S.One
        if is_refused(word) or "n't" in word:
            raise Unreadable(f"{token.text!r} qualifies a number")
        return make_unit(to_singular(word) if is_plural_noun(word) else f"{QUALIFIER[1:]}{word}")

    def read_group(self, token: Token) -> Any:
        """Read brackets of any kind: a group, a tuple, an interval, a set or a matrix."""
        if token.text == "{":
            return self.read_braces(token.inside)
        if token.text == r"\{":
            return self.read_set(token.inside)
        if token.text == r"\begin":
            return self.read_environment(token.inside)
        if token.text in (r"\lfloor", r"\lceil"):
            function = sympy.floor if token.text == r"\lfloor" else sympy.ceiling
            return function(_require_expression(self.read_inside(token.inside)))
        parts, _ = split_tokens(token.inside, lambda t: t.text in (",", ";"))
        if not all(parts):
            raise Unreadable("empty brackets")
        if len(parts) == 1 and token.text + token.closing in ("()", "[]"):
            return self.read_inside(parts[0])
        items = tuple(map(self.read_value, parts))
        if token.text == r"\langle":
            return Tuple(items)
        return Tuple(items, token.text, token.closing)

    def read_braces(self, tokens: Sequence[Token]) -> Any:
        r"""Read a group in braces, also with ``\choose`` or ``\over`` in it, or only units."""
        sides, operators = split_tokens(tokens, lambda t: t.text in (r"\choose", r"\over"))
        if len(operators) == 1:
            left, right = map(self.read_inside, sides)
            return choose(left, right) if operators == [r"\choose"] else divide(left, right)
        if tokens and tokens[0].kind == "word" and find_unit(tokens[0].text):
            return type(self)(tokens).read_all()
        return self.read_inside(tokens)

    def read_bars(self) -> Any:
        """Read an absolute value, or a determinant, up to its closing bar."""
        self.open_bars += 1
        value = self.read_sum()
        self.open_bars -= 1
        if not self.take_if("|"):
            raise Unreadable("a bar is not closed")
        return (
            find_determinant(value) if is_matrix(value) else sympy.Abs(_require_expression(value))
        )

    def read_environment(self, tokens: Sequence[Token]) -> Any:
        """Read a matrix, from its name in braces on."""
        name = join_tokens(tokens[0].inside) if tokens and tokens[0].text == "{" else ""
        rows = tokens[2:] if name == "array" else tokens[1:]
        if name not in _MATRICES:
            raise Unreadable(f"the environment {name} is not understood")
        parts, _ = split_tokens(rows, lambda t: t.text == "\\\\")
        lines = [[t for t in part if t.text != r"\hline"] for part in parts]
        cells = [split_tokens(line, lambda t: t.text == "&")[0] for line in lines if line]
        if not cells or len({len(row) for row in cells}) != 1:
            raise Unreadable("rows of different length")
        entries = [[_require_expression(self.read_inside(cell)) for cell in row] for row in cells]
        matrix = sympy.ImmutableMatrix(entries)
        self.take()  # the name behind \end
        return find_determinant(matrix) if name == "vmatrix" else matrix

    # Commands

    def read_fraction(self) -> Any:
        """Read a fraction; a derivative such as ``dy/dx`` is one variable."""
        parts = [token.inside for token in (self.look(), self.look(1))]
        letters = ["".join(token.text for token in part) for part in parts]
        if all(re.fullmatch("d[a-zA-Z]", text) for text in letters):
            self.position += 2
            return make_symbol("/".join(letters))
        return divide(self.read_argument(), self.read_argument())

    def read_argument(self, *, takes_digit: bool = True) -> Any:
        """Read the argument of a command: a group, or one digit, letter or command."""
        token = self.look()
        if token.kind == "number":
            if takes_digit and token.text.isdigit() and len(token.text) > 1:  # \frac12 is a half
                parts = token.text[0], token.text[1:]
                digits = [Token("number", part, Fraction(int(part))) for part in parts]
                self.tokens[self.position : self.position + 1] = digits
            return _to_rational(self.take())
        if token.text in ("(", "["):
            raise Unreadable("an argument in brackets")
        value = self.read_primary()
        if not is_expression(value) and not is_matrix(value):
            raise Unreadable("an argument that is not an expression")
        return value

    def read_arguments(self, token: Token) -> list[Any]:
        """Read expressions between commas in round brackets."""
        parts, _ = split_tokens(token.inside, lambda t: t.text == ",")
        return [_require_expression(self.read_inside(part)) for part in parts]

    def read_root(self) -> Any:
        r"""Read ``\sqrt{x}``, ``\sqrt[3]{x}`` or ``sqrt(x)``."""
        degree: Any = Integer(2)
        if self.look().text == "[":
            degree = self.read_inside(self.take().inside)
        if self.look().text == "(":
            return find_root(self.read_inside(self.take().inside), degree)
        return find_root(self.read_argument(takes_digit=not self.look().is_spaced), degree)

    def read_function(self, name: str) -> Any:
        r"""Read ``\sin^2 x``, ``\log_2 10``, ``\max(a, b)``."""
        base = self.read_argument() if name == "log" and self.take_if("_") else None
        power = None
        if self.take_if("^"):
            power = multiply(self.read_sign(), self.read_exponent())
        if power == -1 and name in _TRIGONOMETRIC:
            name, power = f"arc{name}", None
        if name in _OF_SEVERAL:
            arguments = self.read_arguments(self.take()) if self.look().text == "(" else []
            are_integers = all(argument.is_Integer for argument in arguments)
            if len(arguments) < 2 or not (are_integers or name in ("max", "min")):
                raise Unreadable("a function of values that are not numbers")
            value = sympy.sympify(_OF_SEVERAL[name](*arguments))
        else:
            value = self.apply(name, base, self.read_function_argument())
        return value if power is None else raise_to(value, power)

    def read_function_argument(self) -> Any:
        """Read an argument: brackets alone, or factors up to the next sign or function."""
        if self.look().text in ("(", "["):
            return _require_expression(self.read_inside(self.take().inside))
        value = multiply(self.read_sign(), self.read_factor())
        while True:
            token = self.look()
            is_next = (
                token.kind == "word" or token.text in ("(", "[") or token.text[1:] in _FUNCTIONS
            )
            if is_next or not self.starts_factor(token):
                break
            value = multiply(value, self.read_factor())
        if value.has(pi) and self.look(1).kind == "number" and self.take_if("/"):  # \sin \pi/6
            value = divide(value, self.read_factor())
        return _require_expression(value)

    def apply(self, name: str, base: Any, argument: Any) -> Any:
        """Apply a function; angles in degrees become numbers."""
        if has_units(argument):
            argument = convert_units(argument).subs(make_unit("deg"), pi / 180)
        if has_units(argument):
            raise Unreadable("a function of a quantity")
        if argument == 0 and name in ("ln", "log", "lg"):
            raise Unreadable("the logarithm of zero")
        if base is not None:
            return divide(sympy.log(argument), sympy.log(base))
        return _FUNCTIONS[name](argument)

    def read_accent(self, name: str) -> Any:
        """Read a bar over a complex number as its conjugate, other marks as a part of the name."""
        token = self.take()
        tokens = token.inside if token.text == "{" else (token,)
        if name in ("overline", "bar"):
            value = self.read_inside(tokens)
            if is_expression(value) and value.has(I):
                return sympy.conjugate(value)
            if is_expression(value) and value.is_number:
                raise Unreadable("a bar over a number")
        mark = {"overline": "bar", "widehat": "hat", "overrightarrow": "vec"}.get(name, name)
        return make_symbol(f"{mark}({join_tokens(tokens)})")

    def read_figure(self, name: str) -> Any:
        """Read an angle or a triangle with its points as one variable."""
        points = ""
        while self.look().kind == "letter":
            points += self.take().text
        if not points:
            raise Unreadable(f"\\{name} without points")
        return make_symbol(f"{name}({points})")

    def read_number_set(self) -> Any:
        r"""Read ``\mathbb{R}``."""
        token = self.take()
        name = join_tokens(token.inside or (token,))
        if name not in _SET_NAMES or self.look().text in ("^", "_"):
            raise Unreadable("an unknown set")
        return Domain(_SET_NAMES[name])


_ACCENTS_WORDS = "vec hat bar tilde overline overrightarrow overleftrightarrow dot widehat"
_ACCENTS = _ACCENTS_WORDS.split()
_VARIANTS = ["epsilon", "theta", "phi", "rho", "sigma", "kappa"]
#: Command -> what reads it and its arguments.
_COMMANDS: dict[str, Callable[[ExpressionParser], Any]] = {
    "frac": ExpressionParser.read_fraction,
    "binom": lambda parser: choose(parser.read_argument(), parser.read_argument()),
    "sqrt": ExpressionParser.read_root,
    "pi": lambda _: pi,
    "infty": lambda _: oo,
    "mathbb": ExpressionParser.read_number_set,
    "emptyset": lambda _: Collection((), "set"),
    "varnothing": lambda _: Collection((), "set"),
    **{
        name: partial(ExpressionParser.read_function, name=name)
        for name in (*_FUNCTIONS, *_OF_SEVERAL)
    },
    **{name: partial(ExpressionParser.read_accent, name=name) for name in _ACCENTS},
    **{name: partial(ExpressionParser.read_figure, name=name) for name in ("angle", "triangle")},
    **{
        f"var{name}": partial(ExpressionParser.read_letter, letter=f"\\{name}")
        for name in _VARIANTS
    },
}


def _find_digits(token: Token) -> str:
    """Return the digits of a number, alone or in braces; "" for anything else."""
    text = token.inside[0].text if token.text == "{" and len(token.inside) == 1 else token.text
    return text if text.isdigit() else ""


def _to_rational(token: Token) -> Any:
    return Rational(token.value.numerator, token.value.denominator)


def _to_value(value: Any) -> Value:
    return Scalar(value) if is_expression(value) or is_matrix(value) else value


def _require_expression(value: Any) -> Any:
    if not is_expression(value):
        raise Unreadable("a value that is not an expression")
    return value


def _is_vector(value: Any) -> bool:
    return is_expression(value) and any(s.name.startswith("vec(") for s in value.free_symbols)


def _has_units(value: Any) -> bool:
    return is_expression(value) and has_units(value)
