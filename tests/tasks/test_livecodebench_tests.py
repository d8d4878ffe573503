"""Decoding of LiveCodeBench's packed tests: exact for their format; all other input is rejected.

Every hostile string here would do harm with ``pickle.loads``, which is shown for those that
write a file; none is executed, and none decodes.
"""

import base64
import json
import os
import pickle
import pickletools
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.verification import packed_tests as livecodebench_tests
from gapft_harness.verification.packed_tests import CodedTest, decode_tests
from tests.tasks.benchmark_files import build_test, pack_tests

ONE = [build_test("1\n", "2\n")]
texts = st.text(st.characters(exclude_categories=["Cs"]))


def wrap_pickle(pickled: bytes) -> str:
    return base64.b64encode(zlib.compress(pickled)).decode()


def read_decode_error(text: str, **limits: int) -> str:
    """Return the error message for a text that must not decode."""
    with pytest.raises(UserError) as caught:
        decode_tests(text, "test.jsonl, line 3, problem 7_A", **limits)
    message = str(caught.value)
    assert message.startswith("test.jsonl, line 3, problem 7_A: ")
    assert "\n" not in message
    return message


@given(
    st.lists(st.tuples(texts, texts, st.sampled_from(["stdin", "functional"]))),
    st.booleans(),
)
def test_decodes_what_was_packed(tests, escaped):
    records = [build_test(*test) for test in tests]
    text = json.dumps(records, ensure_ascii=escaped)
    expected = tuple(CodedTest(*test) for test in tests)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert decode_tests(wrap_pickle(pickle.dumps(text, protocol)), "p") == expected
    assert decode_tests(text, "p") == expected


def test_ignores_whitespace_and_field_order():
    text = ' [ {"testtype" : "stdin",\n"output":"b" , "input":"a"}\t]\r\n'
    assert decode_tests(text, "p") == (CodedTest("a", "b", "stdin"),)
    assert decode_tests(" [ ] ", "p") == ()


def test_decodes_large_tests():
    # Above 64 KiB, pickle writes a string outside its frames.
    (test,) = decode_tests(pack_tests([build_test("1 " * 100_000, "é" * 100_000)]), "p")
    assert (len(test.input), test.output) == (200_000, "é" * 100_000)


# Code that must not be executed


class CallOnLoad:
    """Call a function when the pickled object is loaded."""

    def __init__(self, function, *arguments):
        self.parts = (function, arguments)

    def __reduce__(self):
        return self.parts


def build_hostile_pickles(canary: Path) -> dict[str, bytes]:
    """Build pickles that create the canary file when ``pickle.loads`` reads them."""
    command = f"touch {canary}"
    return {
        "os.system": pickle.dumps(CallOnLoad(os.system, command)),
        "after the string": pickle.dumps(json.dumps(ONE))[:-1]
        + b"0cposix\nsystem\n(V"
        + command.encode()
        + b"\ntR.",
    }


@pytest.mark.parametrize("name", build_hostile_pickles(Path("x")))
def test_rejects_calling_pickle_without_executing(name, tmp_path):
    canary = tmp_path / "executed"
    pickled = build_hostile_pickles(canary)[name]
    read_decode_error(wrap_pickle(pickled))
    assert not canary.exists()
    # The canary works: ``pickle.loads`` does execute the call.
    pickle.loads(pickled)
    assert canary.exists()


#: By refused instruction: a pickle with it. A pickled string has none, or fewer.
INSTRUCTIONS = {
    "BINPERSID": b"\x80\x04\x8c\x08executedQ.",
    "GLOBAL": b"cos\nsystem\n.",
    "SHORT_BINUNICODE": b"\x80\x04\x8c\x02[]\x8c\x02[].",
    "MEMOIZE": b"\x80\x04\x8c\x02[]" + b"\x94" * 5_000_000 + b".",
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_names_refused_instruction(name):
    message = read_decode_error(wrap_pickle(INSTRUCTIONS[name]))
    assert f"instruction {name} at byte" in message


BROKEN_PICKLES = {
    "no string": b"\x80\x04.",
    "more bytes": pickle.dumps("[]") + b"x",
    "a length beyond memory": b"\x80\x04\x8d" + b"\xff" * 8 + b"[].",
    "no UTF-8": b"\x80\x04\x8c\x01\xff.",
}
BROKEN_LISTS = {
    "deep in a field": '[{"input": ' + "[" * 100_000,
    "long": "[" + "[]," * 1_000_000 + "[]]",
    "a field twice": '[{"input": "1", "input": "1"}]',
    "an unknown field": '[{"input": "1", "weight": "1"}]',
    "an unknown type": json.dumps([{**ONE[0], "testtype": "interactive"}]),
    "truncated": json.dumps(ONE)[:-4],
    "two lists": json.dumps(ONE) + "[]",
    "a control character": json.dumps(ONE).replace("1", "\x01"),
    "half a surrogate": json.dumps([build_test("\ud800", "")]),
}
#: Texts with a fault in a layer: base64, zlib, what follows it.
BROKEN_LAYERS = {
    "empty": "",
    "no ASCII": "ÄÖÜ",
    "a line break": pack_tests(ONE).replace("e", "\n", 1),
    "no zlib": base64.b64encode(pickle.dumps("[]")).decode(),
    "zlib truncated": base64.b64encode(zlib.compress(b"[]")[:-1]).decode(),
    "more bytes": base64.b64encode(zlib.compress(b"[]") + b"xy").decode(),
}


BROKEN = {
    **{fault: [wrap_pickle(pickled)] for fault, pickled in BROKEN_PICKLES.items()},
    **{fault: [text, wrap_pickle(pickle.dumps(text))] for fault, text in BROKEN_LISTS.items()},
    **{fault: [text] for fault, text in BROKEN_LAYERS.items()},
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_text_is_refused(fault):
    for text in BROKEN[fault]:
        read_decode_error(text)


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_decode_only_as_string(data):
    try:
        decode_tests(wrap_pickle(data), "p")
    except UserError:
        return
    assert {op.name for op, _, _ in pickletools.genops(data)} <= (
        livecodebench_tests._STRINGS | livecodebench_tests._NEUTRAL
    )


# Limits of memory and time


def test_zip_bomb_stops_at_limit():
    bomb = base64.b64encode(zlib.compress(bytes(64 << 20), 9)).decode()
    tracemalloc.start()
    try:
        message = read_decode_error(bomb, max_bytes=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert f"{1 << 20} bytes" in message
    read_decode_error(" [" + " " * (1 << 20), max_bytes=1 << 20)


def test_rejects_too_many_tests(monkeypatch):
    monkeypatch.setattr(livecodebench_tests, "MAX_TESTS", 3)
    assert len(decode_tests(json.dumps(ONE * 3), "p")) == 3
    read_decode_error(pack_tests(ONE * 4))
