"""Prompts equal those of the stock lm_eval, with and without a chat template."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoTokenizer

from gapft_harness.core.records import GREEDY
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.lm_eval_bridge.loaded_task import ChatLayout
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer
from tests.asking import make_request
from tests.gap.stock import STOCK, write_task
from tests.kit.command import succeed
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_llama

#: Trims every turn, as Llama's does.
TRIMMING = CHAT_TEMPLATE.replace("message['content']", "message['content'] | trim")
#: Both lm_eval and the package use the first records of the split as few-shot examples.
FIRST: dict[str, Any] = {"fewshot_config": {"sampler": "first_n"}}
Row = dict[str, Any]


def build_arc(i: int) -> Row:
    texts = [f"{i}", f"{i + 1}", f"{i + 2}", f"{i + 3}"]
    choices = {"text": texts, "label": ["A", "B", "C", "D"]}
    return {"question": f"What is {i} + 1?", "choices": choices, "answerKey": "B"}


def build_mbpp(i: int) -> Row:
    tests = [f"assert add({n}) == {n + i}" for n in range(3)]
    code = f"def add(n):\n    return n + {i}"
    return {"task_id": i, "text": f"Add {i} to a number.", "code": code, "test_list": tests}


def build_mmlu(i: int) -> Row:
    choices = [f"{i}", f"{i + 1}", "many", "none"]
    return {"question": f" How many is {i} + 1? ", "choices": choices, "answer": 1, "subject": "x"}


def build_mmlu_pro(i: int) -> Row:
    return {
        "question": f"How many is {i} + 1?", "options": [f"{i}", f"{i + 1}", "many"],
        "answer": "B", "answer_index": 1, "category": "math", "question_id": i,
        "cot_content": f"A: Let's think step by step. It is {i + 1}. The answer is (B).",
    }  # fmt: skip


def build_gpqa(i: int) -> Row:
    wrong = {f"Incorrect Answer {n}": f"{i + n}" for n in (1, 2, 3)}
    return {"Question": f"What is {i}?", "Correct Answer": f"{i}", **wrong}


def build_nq(i: int) -> Row:
    return {"question": f"which is number {i}", "answer": [f"T{i}", f"Town {i}"]}


pears, bbh = STOCK["gsm8k"].document, STOCK["bbh_cot_fewshot_boolean_expressions"].document
#: By name: the YAML, relative to lm-eval's tasks, the builder of a record by number, the split that
#: is evaluated, one with further records, and keys that override the YAML's.
TASKS: dict[str, tuple[str, Callable[[int], Row], str, str | None, Row]] = {
    "gsm8k": ("gsm8k/gsm8k.yaml", pears, "test", "train", FIRST),
    "gsm8k_cot_llama": ("gsm8k/gsm8k-cot-llama.yaml", pears, "test", None, {}),
    "mbpp_instruct": ("mbpp/mbpp_instruct.yaml", build_mbpp, "test", None, {"unsafe_code": False}),
    "arc_challenge_chat": (
        "arc/arc_challenge_chat.yaml", build_arc, "test", "train",
        {**FIRST, "num_fewshot": 2, "validation_split": None},
    ),
    "nq_open": (
        "nq_open/nq_open.yaml", build_nq, "validation", "train", {**FIRST, "num_fewshot": 3},
    ),
    "bbh_cot_fewshot_boolean_expressions": (
        "bbh/cot_fewshot/boolean_expressions.yaml", bbh, "test", None, {},
    ),
    "mmlu_generative": (
        "mmlu/generative/mmlu_anatomy.yaml", build_mmlu, "test", "dev", {"num_fewshot": 2},
    ),
    "mmlu_pro_math": ("mmlu_pro/mmlu_pro_math.yaml", build_mmlu_pro, "test", "validation", {}),
    "gpqa_diamond_generative_n_shot": (
        "gpqa/generative/gpqa_diamond_generative_n_shot.yaml", build_gpqa, "train", None,
        {"num_fewshot": 0},
    ),
}  # fmt: skip
#: Tasks with an answer prefix (gen_prefix).
BEGUN = {"mbpp_instruct", "arc_challenge_chat"}
LAYOUTS = [
    ChatLayout(),
    ChatLayout("Be brief."),
    ChatLayout(None, fewshot_as_multiturn=False),
    ChatLayout("Be brief.", fewshot_as_multiturn=False),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stock")
    for name, (file, build_record, test, train, changes) in TASKS.items():
        rows: dict[str, Iterator[Row]] = {test: map(build_record, range(4))}
        if train:
            rows[train] = map(build_record, range(100, 112))
        write_task(folder, name, file, rows, **changes)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    templates = {"plain": CHAT_TEMPLATE, "trimming": TRIMMING}
    return {
        name: write_byte_llama(root / name, context=16384, chat_template=template)
        for name, template in templates.items()
    }


def render_stock_prompts(
    folder: Path, name: str, model: Path, layout: ChatLayout | None
) -> list[str]:
    """Render the prompts that lm_eval gives its model."""
    manager = TaskManager(include_defaults=False, include_path=str(folder))
    task = manager.load([name])["tasks"][name]
    task.set_fewshot_seed(1234)
    lm = SimpleNamespace(tokenizer=AutoTokenizer.from_pretrained(model), chat_template_args={})
    chat: Row = {}
    if layout is not None:
        chat = {
            "system_instruction": layout.system_instruction,
            "apply_chat_template": True,
            "fewshot_as_multiturn": layout.fewshot_as_multiturn,
            "chat_template": partial(HFLM.apply_chat_template, lm),
        }
    task.build_all_requests(**chat)
    return [instance.args[0] for instance in task.instances]


def render_our_prompts(
    folder: Path, name: str, model: Path, layout: ChatLayout | None
) -> list[str]:
    """Render the prompts that the package's sampler gives its model."""
    settings = SamplerSettings(
        "hf", {"pretrained": str(model)}, layout is not None, layout and layout.system_instruction
    )
    retokenizer = Retokenizer(settings)
    return [
        retokenizer.render(make_request(p.id, p.prompt, (GREEDY,), turns=p.turns))
        for p in load_task(name, [folder], layout).read("audit")
    ]


@pytest.mark.parametrize("name", TASKS)
def test_prompts_match_lm_eval(folder: Path, models: dict[str, Path], name: str) -> None:
    plain = render_our_prompts(folder, name, models["plain"], None)
    assert plain == render_stock_prompts(folder, name, models["plain"], None)
    assert len(set(plain)) == 4
    for model in models.values():
        for layout in LAYOUTS:
            ours = render_our_prompts(folder, name, model, layout)
            assert ours == render_stock_prompts(folder, name, model, layout), layout
            assert all(text.endswith("<assistant>") != (name in BEGUN) for text in ours)


@pytest.mark.thorough
@pytest.mark.parametrize(("multiturn", "turns"), [("true", 4), ("false", 1)])
def test_gap_shows_examples_as_turns(
    folder: Path, models: dict[str, Path], tmp_path: Path, multiturn: str, turns: int
) -> None:
    succeed(
        "gap", "nq_open", "--model", "dummy", "--model-args", f"pretrained={models['plain']}",
        "--set", "model.chat_template=true", "--set", f"model.fewshot_as_multiturn={multiturn}",
        "--include-path", folder, "--k", "2", "--out", tmp_path / "gap",
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(models["plain"])
    for row in pq.read_table(tmp_path / "gap" / "audit" / "problems.parquet").to_pylist():
        assert tokenizer.decode(row["prompt_ids"]).count("<assistant>") == turns
