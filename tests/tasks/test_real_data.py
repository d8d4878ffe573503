"""The real files of benchmarks; tests are skipped if GAPFT_DATA_DIR does not have them."""

import shutil

import pytest

from gapft_harness.core.identities import is_repeat
from gapft_harness.lm_eval_bridge.benchmarks import logiqa
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.lm_eval_bridge.task_file.documents import read_documents
from gapft_harness.verification.boxes import last_box
from tests.real_data import find_real_file


def test_logiqa_matches_paper_counts():
    for name in ("train", "test"):
        find_real_file(f"logiqa2/{name}.txt")
    splits = logiqa.load(revision="the local files")
    assert [splits[name].unpublished for name in ("pool", "audit", "test")] == [""] * 3


def test_real_validation_file_has_unique_ids(tmp_path, monkeypatch):
    dev = find_real_file("logiqa2/dev.txt")
    folder = tmp_path / "logiqa2"
    folder.mkdir()
    shutil.copy(dev, folder / "test.txt")
    record = '{"id": 0, "answer": 0, "text": "t", "question": "q", "options": ["a", "b"]}'
    (folder / "train.txt").write_text(record, encoding="utf-8")
    monkeypatch.setenv("GAPFT_DATA_DIR", str(tmp_path))
    ids = [problem.id for problem in load_task("gapft_logiqa").read("audit")]
    assert (len(ids), len(set(ids))) == (1_569, 1_569)
    assert sum(not is_repeat(name) for name in ids) == 1_555


def test_splits_real_math_training_file():
    train = find_real_file("MATH/train.jsonl")
    if (train.parent / "test.jsonl").is_file():
        pytest.skip("GAPFT_DATA_DIR has MATH's test split")
    task = load_task("gapft_math")
    assert (len(task.read("pool")), len(task.read("audit"))) == (6_898, 600)
    assert "MATH train: 2 of 7500 problems dropped (empty gold answer); 7498 kept" in task.dropped


def test_last_box_equals_answer_in_real_math():
    train = find_real_file("MATH/train.jsonl")
    documents = read_documents(train)
    assert len(documents) == 7_500
    wrong = [d for d in documents if (last_box(d["solution"]) or "") != d["answer"]]
    assert not wrong
