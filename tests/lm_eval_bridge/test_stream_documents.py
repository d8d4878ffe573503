"""stream_documents: the same records and errors as read_documents, one line at a time."""

import gzip
import json
import tracemalloc

import pytest

from gapft_harness.core.errors import UserError
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


LATIN = '{"a": "x"}\n{"a": "café au lait"}\n'.encode("latin-1")


@pytest.mark.parametrize("read", [read_documents, lambda path: list(stream_documents(path))])
@pytest.mark.parametrize(
    ("content", "culprits"),
    [
        (b"", []),
        (b'{"a": 1}\n{"a": ', ["line 2"]),
        (b'{"a": 1}\n[3]\n', ["line 2", "list"]),
        (b'{"a": "\\ud83d\\ude00"}\n{"a": ["x \\uD83d"]}\n', ["surrogate"]),
        (LATIN, ["line 2", "UTF-8", "0xe9"]),
        ('{"a": "x"}'.encode("utf-16"), ["line 1", "UTF-8"]),
        (b"name,answer\na,1\n", ["line 1"]),
        (b'{"a": 1},\n{"a": 2}\n', ["line 1", "column 9"]),
        (b'{\n "a": 1\n}\n', ["line 1"]),
        (b"[" * 100_000, ["nested"]),
        (b'{"a": 1' + 5000 * b"0" + b"}", ["line 1", "limit"]),
        (b'{"a": {"b": 1, "b": 2}}', ["line 1", "'b'"]),
    ],
)
def test_unreadable_file_is_named(read, content, culprits, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(path)
    for culprit in (str(path), *culprits):
        assert culprit in str(caught.value)
    with pytest.raises(UserError, match=r"nowhere\.jsonl"):
        read(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize("read", [read_documents, lambda path: list(stream_documents(path))])
def test_reads_gzip(read, tmp_path):
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_bytes(b'{"a": 1}\n{"a": 2}\n')
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert str([*read(packed)]).replace(".jsonl.gz", ".jsonl") == str([*read(plain)])
