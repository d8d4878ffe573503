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

_SPACE = " \t\n\r"
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_FIELD = rf"[{_SPACE}]*+{_STRING}[{_SPACE}]*+:[{_SPACE}]*+{_STRING}[{_SPACE}]*+"
#: A flat object of as many strings as a test has. The pattern never backtracks.
_OBJECT = re.compile(
    rf"[{_SPACE}]*+\{{{','.join([_FIELD] * len(_FIELDS))}\}}[{_SPACE}]*+", re.DOTALL
)


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
    return f"they decode to more than {max_bytes} bytes"


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
    text = text.strip(_SPACE)
    position = 1
    end = len(text) - 1
    if end < 1 or text[0] != "[" or text[end] != "]":
        raise ValueError("the JSON text is not a complete list")
    tests: list[CodedTest] = []
    if not text[1:end].strip(_SPACE):
        return ()
    while True:
        if len(tests) == MAX_TESTS:
            raise ValueError(f"there are more than {MAX_TESTS} tests")
        match = _OBJECT.match(text, position, end)
        if match is None:
            raise ValueError(
                f"character {position}: expected an object of {len(_FIELDS)} strings as test "
                f"{len(tests) + 1}"
            )
        tests.append(_parse_test(match[0], len(tests) + 1))
        if match.end() == end:
            return tuple(tests)
        if text[match.end()] != ",":
            raise ValueError(f"character {match.end()}: expected a comma or the end of the list")
        position = match.end() + 1


def _parse_test(text: str, number: int) -> CodedTest:
    """Parse one object of strings; it must have each field once."""
    fields = json.loads(text)
    if fields.keys() != set(_FIELDS):
        raise ValueError(
            f"test {number} has the fields {', '.join(map(repr, fields)):.80}; expected "
            f"{', '.join(_FIELDS)}, each once"
        )
    test = CodedTest(**fields)
    if test.testtype not in _KINDS:
        raise ValueError(f"test {number}: testtype is {test.testtype!r:.40}")
    for name in ("input", "output"):
        try:
            fields[name].encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"test {number}: {name} is not text ({error.reason})") from error
    return test
