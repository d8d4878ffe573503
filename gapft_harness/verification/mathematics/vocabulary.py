"""Words of mathematical answers: units, number words, months, synonyms, and words to refuse."""

from __future__ import annotations

from functools import lru_cache

#: Unit -> (factor, units that it consists of, spellings). A factor is an exact fraction; ``pi`` is
#: allowed. A unit without parts is a base unit. Conversions are exact by definition.
UNITS: dict[str, tuple[str, str, str]] = {
    "m": ("1", "", "m meter metre"),
    "km": ("1000", "m", "km kilometer kilometre"),
    "dm": ("1/10", "m", "dm decimeter decimetre"),
    "cm": ("1/100", "m", "cm centimeter centimetre"),
    "mm": ("1/1000", "m", "mm millimeter millimetre"),
    "nm": ("1/1000000000", "m", "nm nanometer nanometre"),
    "in": ("254/10000", "m", "in inch"),
    "ft": ("12", "in", "ft foot feet"),
    "yd": ("36", "in", "yd yard"),
    "mi": ("63360", "in", "mi mile"),
    "acre": ("6272640", "in^2", "acre"),
    "ha": ("10000", "m^2", "ha hectare"),
    "L": ("1/1000", "m^3", "l L liter litre"),
    "mL": ("1/1000000", "m^3", "ml mL milliliter millilitre cc"),
    "cL": ("1/100000", "m^3", "cl cL centiliter centilitre"),
    "gal": ("231", "in^3", "gal gallon"),
    "qt": ("231/4", "in^3", "qt quart"),
    "pt": ("231/8", "in^3", "pt pint"),
    "cup": ("231/16", "in^3", "cup"),
    "s": ("1", "", "s sec second"),
    "ms": ("1/1000", "s", "ms millisecond"),
    "min": ("60", "s", "min minute"),
    "h": ("3600", "s", "h hr hour"),
    "day": ("86400", "s", "day"),
    "week": ("604800", "s", "wk week"),
    "month": ("1", "", "month"),
    "year": ("12", "month", "yr year"),
    "decade": ("120", "month", "decade"),
    "century": ("1200", "month", "century centuries"),
    "kg": ("1", "", "kg kilogram kilo"),
    "g": ("1/1000", "kg", "g gram gramme"),
    "mg": ("1/1000000", "kg", "mg milligram"),
    "t": ("1000", "kg", "t tonne"),
    "lb": ("45359237/100000000", "kg", "lb"),
    "pound": ("1", "lb", "pound"),
    "oz": ("45359237/1600000000", "kg", "oz ounce"),
    "ton": ("2000", "lb", "ton"),
    "deg": ("1", "", "deg degree"),
    "′": ("1", "ft", "′"),
    "″": ("1", "in", "″"),
    "arcmin": ("1/60", "deg", "arcmin arcminute"),
    "arcsec": ("1/3600", "deg", "arcsec arcsecond"),
    "rad": ("180/pi", "deg", "rad radian"),
    "rev": ("360", "deg", "rev revolution"),
    "N": ("1", "kg*m/s^2", "N newton"),
    "kN": ("1000", "N", "kN kilonewton"),
    "J": ("1", "N*m", "J joule"),
    "kJ": ("1000", "J", "kJ kilojoule"),
    "kWh": ("3600000", "J", "kWh kilowatt-hour"),
    "W": ("1", "J/s", "W watt"),
    "kW": ("1000", "W", "kW kilowatt"),
    "MW": ("1000000", "W", "MW megawatt"),
    "Pa": ("1", "N/m^2", "Pa pascal"),
    "kPa": ("1000", "Pa", "kPa kilopascal"),
    "Hz": ("1", "1/s", "Hz hertz"),
    "kHz": ("1000", "1/s", "kHz kilohertz"),
    "A": ("1", "", "A amp ampere"),
    "V": ("1", "W/A", "V volt"),
    "ohm": ("1", "V/A", "ohm Ω"),
    "coulomb": ("1", "A*s", "coulomb"),
    "mol": ("1", "", "mol mole"),
    "K": ("1", "", "K kelvin"),
    "°C": ("1", "", "celsius centigrade °C"),
    "°F": ("1", "", "fahrenheit °F"),
    "mph": ("1", "mi/h", "mph"),
    "kph": ("1", "km/h", "kph kmh"),
    "knot": ("1852", "m/h", "kn knot"),
    "bit": ("1", "", "bit"),
    "byte": ("8", "bit", "byte"),
    "unit": ("1", "", "unit"),
    "$": ("1", "", "$ dollar usd buck"),
    "cent": ("1/100", "$", "cent ¢"),
    "€": ("1", "", "€ euro eur"),
    "£": ("1", "", "£ gbp sterling"),
    "¥": ("1", "", "¥ yen jpy"),
    "₹": ("1", "", "₹ rupee inr"),
    "₽": ("1", "", "₽ ruble rouble rub"),
    "%": ("1/100", "", "% percent per-cent pct percentage"),
}  # fmt: skip
CURRENCIES = frozenset("$€£¥₹₽¢")
#: The unit of each scale's letter.
TEMPERATURES = {"C": "°C", "F": "°F"}

_SPELLINGS = {word: unit for unit, (_, _, words) in UNITS.items() for word in words.split()}


@lru_cache(maxsize=4096)
def find_unit(word: str) -> str:
    """Return the unit that a word spells, or "". Abbreviations keep their case, words do not."""
    for form in (word, word.lower(), to_singular(word)):
        if (unit := _SPELLINGS.get(form)) and (len(word) > 1 or form == word):
            return unit
    return ""


def to_singular(word: str) -> str:
    """Return a word in lower case, without a final full stop and the plural ending s or es."""
    lowered = word.lower().rstrip(".")
    if len(lowered) > 4 and lowered.endswith(("ches", "shes", "sses", "xes")):
        return lowered[:-2]
    plural = len(lowered) > 2 and lowered.endswith("s") and not lowered.endswith(("ss", "us", "is"))
    return lowered[:-1] if plural else lowered


def is_plural_noun(word: str) -> bool:
    """Check whether a word is a plural noun; an answer may leave it out after a number."""
    if any(map(is_number_word, word.split("-"))):
        return False
    return to_singular(word) != word.lower().rstrip(".") or word.lower() in _PLURALS


def is_number_word(word: str) -> bool:
    """Check whether a word is a number or multiplies one: "twenty", "tens", "thirds"."""
    singular = to_singular(word)
    is_counted = word.lower() != singular == "zero"  # how many zeros a number has
    return not is_counted and (singular in NUMERALS or singular in MULTIPLIERS)


_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
#: Number words below a hundred.
NUMERALS = {word: n for n, word in enumerate(_ONES.split())} | {
    word: 10 * n for n, word in enumerate(_TENS.split(), 2)
}
#: Number words that multiply the words before them.
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_IRREGULAR = {
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


def _spell_ordinal(word: str) -> str:
    return _IRREGULAR.get(word) or (f"{word[:-1]}ieth" if word.endswith("y") else f"{word}th")


#: Words that multiply the number before them, as exact fractions.
MULTIPLIERS = {
    **{word: str(n) for word, n in SCALES.items()},
    "dozen": "12",
    "score": "20",
    "gross": "144",
    "lakh": "100000",
    "crore": "10000000",
    "quadrillion": str(10**15),
    "half": "1/2",
    "halve": "1/2",
    "quarter": "1/4",
    **{_spell_ordinal(word): f"1/{n}" for word, n in (NUMERALS | SCALES).items() if n > 2},
}
#: Words that are multipliers also without a number before them: "half", "a dozen".
STANDALONE_MULTIPLIERS = ("dozen", "hundred", "thousand", "million", "billion", "trillion", "half")

#: Words that are an operation, in LaTeX.
OPERATIONS = {
    "times": r"\times",
    "plus": "+",
    "minus": "-",
    "negative": "-",
    "squared": "^2",
    "cubed": "^3",
    "factorial": "!",
    "over": "/",
    "per": "/",
    "to": ":",
    "infinity": r"\infty",
    "divided by": "/",
    "per cent": r"\%",
    "below zero": r"\times(-1)",
}

_MONTH_NAMES = (
    "january february march april may june july august september october november december"
)
MONTHS = _MONTH_NAMES.split()

#: Words that do not change what an answer says.
_FILLER_WORDS = (
    "the a an different distinct possible total altogether overall whole such exactly left of "
    "in all own st nd rd th"
)
FILLERS = frozenset(_FILLER_WORDS.split())
#: Plural nouns without a final s.
_PLURAL_WORDS = "people men women children dice mice geese teeth sheep fish vertices"
_PLURALS = frozenset(_PLURAL_WORDS.split())
#: Words that qualify or contradict a number, or join two answers: a text with one has no value.
_REFUSED_WORDS = (
    "at least most more less fewer greater smaller larger than about approximately approx "
    "around roughly nearly almost circa between from up not no nor neither either both except "
    "without under above below after before until mod modulo choose if when unless but only "
    "double twice thrice triple some several many few any each every other another root "
    "square-root log power powers raised reciprocal inverse opposite cube square sum product "
    "difference quotient or and is are was remainder repeating recurring exceed exceeds close "
    "out equals means does has always its yes says wrong incorrect never excluded ones others "
    "onwards upwards downwards backwards inwards outwards afterwards multiple multiples divisor "
    "perhaps maybe possibly probably sometimes besides"
)
REFUSED = frozenset(_REFUSED_WORDS.split())
#: Different words for the same answer; the first one of a line stands for all.
SYNONYMS = {
    other: words[0]
    for words in (
        ("no solution", "no solutions", "no real solution", "no real solutions", "none",
         "no such number", "no such numbers", "∅"),
        ("does not exist", "doesn't exist", "dne"),
        ("all real numbers", "all reals", "any real number", "every real number", "ℝ"),
        ("infinitely many", "infinitely many solutions", "infinite"),
    )
    for other in words
}  # fmt: skip
