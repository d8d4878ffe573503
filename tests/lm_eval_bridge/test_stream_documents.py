"""stream_documents: the records of read_documents and its errors, a line at a time."""

import json
import tracemalloc

import pytest

from gapft_harness.errors import UserError
from gapft_harness.lm_eval_bridge.documents import read_documents, stream_documents

RECORDS = [{"text": "a"}, {"text": "\u2028 \x85 é"}, {"text": "c", "n": 3}]


def test_it_gives_what_reading_the_whole_file_gives(tmp_path):
    path = tmp_path / "records.jsonl"
    lines = [json.dumps(record, ensure_ascii=False) for record in RECORDS]
    for text in ("\n".join(lines), "\ufeff" + "\r\n".join(lines) + "\r\n\r\n"):
        path.write_bytes(text.encode())
        whole = read_documents(path)
        streamed = list(stream_documents(path))
        assert [record for record, _ in streamed] == list(whole) == RECORDS
        assert [place for _, place in streamed] == [whole.place(row) for row in range(len(whole))]


def test_it_holds_one_line_at_a_time(tmp_path):
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
        (b"", "the file is empty"),
        (b'{"a": 1}\n{"a": ', "line 2: malformed JSON"),
        (b'{"a": 1}\n[3]\n', "line 2: found list, expected a JSON object"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "expected UTF-8 text"),
        (
            b'{"a": "\\ud83d\\ude00"}\n{"a": ["x \\uD83d"]}\n',
            "line 2: holds half of a surrogate pair",
        ),
    ],
)
def test_a_bad_file_is_named(content, expected, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        list(stream_documents(path))
    assert str(path) in str(caught.value)
    assert expected in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.jsonl: cannot be read: No such file"):
        list(stream_documents(tmp_path / "nowhere.jsonl"))
