"""stream_documents: the same records and errors as read_documents, one line at a time."""

import bz2
import codecs
import gzip
import json
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.text import read_lines, read_text
from gapft_harness.lm_eval_bridge.task_file.documents import read_documents, stream_documents

RECORDS = [{"text": "a"}, {"text": "\u2028 \x85 é"}, {"text": "c", "n": 3}]


def test_streams_same_records_as_read(tmp_path):
    path = tmp_path / "records.jsonl"
    lines = [json.dumps(record, ensure_ascii=False) for record in RECORDS]
    for text in ("\n".join(lines), "\ufeff" + "\r\n".join(lines) + "\r\n\r\n"):
        path.write_bytes(text.encode())
        whole = read_documents(path)
        streamed = list(stream_documents(path))
        assert [record for record, _ in streamed] == list(whole) == RECORDS
        assert [place for _, place in streamed] == [
            whole.describe_place(row) for row in range(len(whole))
        ]


def test_streams_one_line_at_a_time(tmp_path):
    path = tmp_path / "large.jsonl"
    with path.open("w") as file:
        for _ in range(40):
            file.write(json.dumps({"text": "x" * (1 << 20)}) + "\n")
    tracemalloc.start()
    try:
        assert sum(len(record["text"]) for record, _ in stream_documents(path)) == 40 << 20
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "empty file"),
        (b'{"a": 1}\n{"a": ', "line 2: malformed JSON"),
        (b'{"a": 1}\n[3]\n', "line 2: found list, expected a JSON object"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "expected UTF-8 text"),
        (
            b'{"a": "\\ud83d\\ude00"}\n{"a": ["x \\uD83d"]}\n',
            "surrogate",
        ),
    ],
)
def test_names_bad_file(content, expected, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        list(stream_documents(path))
    assert str(path) in str(caught.value)
    assert expected in str(caught.value)


def test_names_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.jsonl: cannot be read: No such file"):
        list(stream_documents(tmp_path / "nowhere.jsonl"))


@pytest.mark.parametrize("read", [read_documents, lambda path: list(stream_documents(path))])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"a": "x"}\n{"a": "café au lait"}\n'.encode("latin-1"), "line 2: expected UTF-8 text, f"),
        ('{"a": "x"}\n{"a": "café au lait"}\n'.encode("latin-1"), "0xe9 at column 11, which in La"),
        ('{"a": "x"}\n{"a": "café au lait"}\n'.encode("latin-1"), 'reads \'{"a": "café au lait'),
        ('{"a": "x"}\n{"a": "café au lait"}\n'.encode("latin-1"), "iconv -f LATIN1 -t UTF-8"),
        ('{"a": "x"}'.encode("utf-16"), "expected UTF-8 text, found text in UTF-16; convert it"),
        (
            bz2.compress(b'{"a": 1}\n'),
            "expected UTF-8 text, found bzip2 data; decompress it",
        ),
    ],
)
def test_names_line_that_is_not_utf8(read, content, expected, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}")
    assert expected in str(caught.value)


@pytest.mark.parametrize("read", [read_documents, lambda path: list(stream_documents(path))])
def test_reads_gzip(read, tmp_path):
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_bytes(b'{"a": 1}\n{"a": 2}\n')
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert str([*read(packed)]).replace(".jsonl.gz", ".jsonl") == str([*read(plain)])


@given(
    st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=9)),
    st.booleans(),
)
def test_read_lines_matches_read_text(lines, mark):
    with TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_bytes((codecs.BOM_UTF8 if mark else b"") + "\n".join(lines).encode())
        assert "".join(line for _, line in read_lines(path)) == read_text(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name,answer\na,1\n", "line 1: malformed JSON at column 1 (Expecting value); is it CSV"),
        (
            '{"a": 1},\n{"a": 2}\n',
            "line 1: malformed JSON at column 9 (Extra data); remove the comma",
        ),
        ("{'a': 1}\n", "is it Python? expected JSON, with double quotes"),
        ('{\n "a": 1\n}\n', "is one record spread over several lines?"),
        ('{"a": 1}\n{"a"', "line 2: malformed JSON at column 5"),
        ("[" * 100_000, "malformed JSON: nested too deeply"),
        ('{"a": 1' + 5000 * "0" + "}", "line 1: malformed JSON: Exceeds the limit"),
        ('{"a": {"b": 1, "b": 2}}', "line 1: the key 'b' occurs twice; expected each key once"),
    ],
)
def test_explains_malformed_json(text, expected, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_documents(path)
    assert expected in str(caught.value)
