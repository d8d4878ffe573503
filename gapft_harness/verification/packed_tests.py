"""Decode LiveCodeBench's test strings (base64, zlib, pickle of a JSON string) safely.

The usual ``json.loads(pickle.loads(zlib.decompress(...)))`` executes the pickle and may use any
amount of memory. This decoder limits each layer and executes nothing:

- the decompressor stops at a limit of bytes;
- the pickle is never loaded: its instructions are parsed, and only those of a pickled string are
  accepted (no globals, calls, persistent ids, containers, references or numbers);
- the JSON must be a list of flat objects of strings, so that the grammar limits depth, numbers and
  the count of objects.
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

#: Maximum decompressed size of one problem's tests in bytes. The benchmark's files contain several
#: MB per problem, packed; the largest size was not measured, so the limit is generous.
MAX_DECODED_BYTES = 512 << 20

#: Maximum tests of one problem.
MAX_TESTS = 10_000

_KINDS = ("stdin", "functional")
_FIELDS = ("input", "output", "testtype")

_STRINGS = frozenset({"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"})
#: The other instructions of a pickled string, which create no objects.
_NEUTRAL = frozenset({"PROTO", "FRAME", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"})
#: A pickled string has at most PROTO, FRAME, the string, FRAME, MEMOIZE and STOP.
_MAX_INSTRUCTIONS = 6

_SPACE = re.compile(r"[ \t\n\r]*")
_JSON = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class CodedTest:
    """One test in the benchmark's form; ``testtype`` is ``stdin`` or ``functional``."""

    input: str
    output: str
    testtype: str


def decode_tests(
    text: str, place: str, max_bytes: int = MAX_DECODED_BYTES
) -> tuple[CodedTest, ...]:
    """Decode one problem's tests, plain JSON or packed.

    Args:
        text: the field ``public_test_cases`` or ``private_test_cases``.
        place: the place of the field for messages: file, line, problem and field.
        max_bytes: maximum bytes after decompression. Decoding needs up to about four times as much
            memory.

    Returns:
        The tests in their order; none for an empty list.

    Raises:
        UserError: the text is corrupted, truncated or too large, or contains other data than tests.
    """
    try:
        plain = (
            text if text.lstrip()[:1] == "[" else _read_pickled_string(_inflate(text, max_bytes))
        )
        if len(plain) > max_bytes:
            raise ValueError(_size_message(max_bytes))
        return _parse_tests(plain)
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{place}: the tests cannot be read: {reason}; expected tests with input, output and "
            "testtype, as plain JSON or as base64 of zlib of a pickled JSON string. Download the "
            "file again"
        ) from error


def _size_message(max_bytes: int) -> str:
    return f"they decode to more than {max_bytes} bytes (max_decoded_bytes)"


def _inflate(text: str, max_bytes: int) -> bytes:
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
        raise ValueError(_size_message(max_bytes))
    if not inflater.eof:
        raise ValueError("the zlib stream is truncated")
    if inflater.unused_data:
        raise ValueError(f"{len(inflater.unused_data)} bytes follow the zlib stream")
    return data


def _read_pickled_string(data: bytes) -> str:
    """Return the string in a pickle by parsing its instructions, without executing them."""
    stream = io.BytesIO(data)
    strings: list[str] = []
    for number, (instruction, argument, position) in enumerate(pickletools.genops(stream), start=1):
        name = instruction.name
        if name in _STRINGS and not strings:
            strings.append(str(argument))
        elif name not in _NEUTRAL or number > _MAX_INSTRUCTIONS:
            raise ValueError(
                f"the pickle contains the instruction {name} at byte {position}, which is not part "
                "of a pickled string; it was not executed"
            )
    if not strings:
        raise ValueError("the pickle contains no string")
    if stream.read(1):
        raise ValueError("bytes follow the pickle")
    return strings[0]


def _parse_tests(text: str) -> tuple[CodedTest, ...]:
    reader = _Reader(text)
    tests: list[CodedTest] = []
    reader.expect("[")
    if not reader.take("]"):
        while True:
            if len(tests) == MAX_TESTS:
                raise ValueError(f"there are more than {MAX_TESTS} tests")
            tests.append(_parse_test(reader, len(tests) + 1))
            if not reader.take(","):
                break
        reader.expect("]")
    if reader.position < len(text):
        raise ValueError(f"text follows the list of tests at character {reader.position}")
    return tuple(tests)


def _parse_test(reader: _Reader, number: int) -> CodedTest:
    """Parse one flat object with exactly the three fields."""
    fields: dict[str, str] = {}
    reader.expect("{")
    for position in range(len(_FIELDS)):
        if position:
            reader.expect(",")
        name = reader.read_string()
        if name not in _FIELDS or name in fields:
            raise ValueError(f"test {number} has an unknown or repeated field {name!r:.40}")
        reader.expect(":")
        fields[name] = reader.read_string()
    reader.expect("}")
    test = CodedTest(**fields)
    if test.testtype not in _KINDS:
        raise ValueError(f"test {number}: testtype is {test.testtype!r:.40}")
    for name in ("input", "output"):
        try:
            fields[name].encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"test {number}: {name} is not text ({error.reason})") from error
    return test


class _Reader:
    """A reader of JSON strings and punctuation; anything else is an error with its position."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.position = 0
        self._skip_space()

    def take(self, sign: str) -> bool:
        """Skip the sign if it is next; return whether it was."""
        is_next = self._text.startswith(sign, self.position)
        if is_next:
            self.position += 1
            self._skip_space()
        return is_next

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise ValueError(f"{self._describe_position()}, expected {sign}")

    def read_string(self) -> str:
        if not self._text.startswith('"', self.position):
            raise ValueError(f"{self._describe_position()}, expected a string")
        value, self.position = _JSON.raw_decode(self._text, self.position)
        self._skip_space()
        return str(value)

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self.position)
        self.position = match.end() if match else self.position

    def _describe_position(self) -> str:
        character = self._text[self.position : self.position + 1]
        return (
            f"character {self.position}: found {character!r}"
            if character
            else "the JSON text is truncated"
        )
