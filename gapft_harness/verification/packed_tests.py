"""LiveCodeBench's test strings: base64, zlib, pickle of a JSON string; decoded without trust.

The usual way, ``json.loads(pickle.loads(zlib.decompress(...)))``, runs whatever a pickle says and
takes whatever memory it wants. Here each layer is bounded, and nothing in a string is executed:

- the decompressor stops at a limit of bytes;
- the pickle is never loaded: its instructions are read, and must be the few that a pickled string
  consists of (globals, calls, persistent ids, containers, references and numbers are none of them);
- the JSON must be a list of flat objects of strings, so that depth, numbers and the count of
  objects are bounded by the grammar.
"""

from __future__ import annotations

import base64
import io
import json
import pickletools
import re
import zlib
from dataclasses import dataclass

from gapft_harness.core.errors import UserError

#: Most bytes that one problem's tests may come to when decompressed. The benchmark's files hold
#: several MB a problem, packed; the largest was not measured, so this leaves room.
MAX_DECODED_BYTES = 512 << 20

#: Most tests of one problem.
MAX_TESTS = 10_000

_KINDS = ("stdin", "functional")
_FIELDS = ("input", "output", "testtype")

_STRINGS = frozenset({"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"})
#: What else stands in a pickled string: marks and notes that build nothing.
_HARMLESS = frozenset({"PROTO", "FRAME", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"})
#: PROTO, FRAME, the string, FRAME, MEMOIZE, STOP: more instructions than these are no string.
_MOST_INSTRUCTIONS = 6

_SPACE = re.compile(r"[ \t\n\r]*")
_JSON = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class CodedTest:
    """One test as the benchmark writes it; ``testtype`` is ``stdin`` or ``functional``."""

    input: str
    output: str
    testtype: str


def decode_tests(
    text: str, place: str, max_bytes: int = MAX_DECODED_BYTES
) -> tuple[CodedTest, ...]:
    """Decodes one problem's tests, plain JSON or packed.

    Args:
        text: the field ``public_test_cases`` or ``private_test_cases``.
        place: where it stands, for messages: file, line, problem and field.
        max_bytes: most bytes after decompression. Decoding takes up to about four times as many.

    Returns:
        The tests in their order; none for an empty list.

    Raises:
        UserError: the text is corrupted, cut short, too large, or holds anything but tests.
    """
    try:
        plain = text if text.lstrip()[:1] == "[" else _unpickled(_inflated(text, max_bytes))
        if len(plain) > max_bytes:
            raise ValueError(_too_large(max_bytes))
        return _parsed(plain)
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{place}: the tests cannot be read: {reason}; expected base64 of zlib of a pickled "
            "JSON string, or plain JSON, of tests with input, output and testtype. Fetch the file "
            "again from its source"
        ) from error


def _too_large(max_bytes: int) -> str:
    return f"they come to more than {max_bytes} bytes (max_decoded_bytes)"


def _inflated(text: str, max_bytes: int) -> bytes:
    try:
        packed = base64.b64decode(text.strip(), validate=True)
    except ValueError as error:
        raise ValueError(f"neither a JSON list nor base64 ({error})") from error
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(packed, max_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"the zlib stream is corrupted ({error})") from error
    if len(data) > max_bytes:
        raise ValueError(_too_large(max_bytes))
    if not inflater.eof:
        raise ValueError("the zlib stream is cut short")
    if inflater.unused_data:
        raise ValueError(f"{len(inflater.unused_data)} bytes follow the zlib stream")
    return data


def _unpickled(data: bytes) -> str:
    """The string that a pickle holds, read from its instructions and never by running them."""
    stream = io.BytesIO(data)
    strings: list[str] = []
    for number, (instruction, argument, position) in enumerate(pickletools.genops(stream), start=1):
        name = instruction.name
        if name in _STRINGS and not strings:
            strings.append(str(argument))
        elif name not in _HARMLESS or number > _MOST_INSTRUCTIONS:
            raise ValueError(
                f"the pickle holds {name} at byte {position}, which a pickled string has not; it "
                "was not executed"
            )
    if not strings:
        raise ValueError("the pickle holds no string")
    if stream.read(1):
        raise ValueError("bytes follow the pickle")
    return strings[0]


def _parsed(text: str) -> tuple[CodedTest, ...]:
    reader = _Reader(text)
    tests: list[CodedTest] = []
    reader.expect("[")
    if not reader.take("]"):
        while True:
            if len(tests) == MAX_TESTS:
                raise ValueError(f"there are more than {MAX_TESTS} tests")
            tests.append(_test(reader, len(tests) + 1))
            if not reader.take(","):
                break
        reader.expect("]")
    if reader.at < len(text):
        raise ValueError(f"text follows the list of tests at character {reader.at}")
    return tuple(tests)


def _test(reader: _Reader, number: int) -> CodedTest:
    """One flat object with exactly the three fields."""
    fields: dict[str, str] = {}
    reader.expect("{")
    for position in range(len(_FIELDS)):
        if position:
            reader.expect(",")
        name = reader.string()
        if name not in _FIELDS or name in fields:
            raise ValueError(f"test {number} has the field {name!r:.40} unasked or twice")
        reader.expect(":")
        fields[name] = reader.string()
    reader.expect("}")
    test = CodedTest(**fields)
    if test.testtype not in _KINDS:
        raise ValueError(f"test {number}: testtype is {test.testtype!r:.40}")
    for name in ("input", "output"):
        try:
            fields[name].encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"test {number}: {name} is no text ({error.reason})") from error
    return test


class _Reader:
    """Reads JSON strings and signs; anything else is an error with its position."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0
        self._skip()

    def take(self, sign: str) -> bool:
        """Steps over the sign if it comes next."""
        found = self._text.startswith(sign, self.at)
        if found:
            self.at += 1
            self._skip()
        return found

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise ValueError(f"{self._found()}, expected {sign}")

    def string(self) -> str:
        if not self._text.startswith('"', self.at):
            raise ValueError(f"{self._found()}, expected a string")
        value, self.at = _JSON.raw_decode(self._text, self.at)
        self._skip()
        return str(value)

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self.at)
        self.at = match.end() if match else self.at

    def _found(self) -> str:
        found = self._text[self.at : self.at + 1]
        return f"character {self.at}: found {found!r}" if found else "the JSON text is cut short"
