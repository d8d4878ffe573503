"""Write the inputs of the oracle's runs: the files in ``files/``, and what is generated."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

LETTERS = "ABCD"
#: Forms of the answers that the letters model learns, so that the rules of letters differ.
FORMS = ("{}", "({})", "{}", "{}. {}", "{}", "It is {}", "{}", "{} or A")
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def write_inputs(folder: Path) -> None:
    """Write tasks' data, benchmark files, sample logs and the letters model into a folder."""
    shutil.copytree(Path(__file__).parent / "files", folder)
    for part, numbers in {"train": range(650), "test": range(600, 1300)}.items():
        write_lines(folder / f"data/MATH/{part}.jsonl", (math_record(i, part) for i in numbers))
    for shift, name in enumerate(("before", "after-1", "after-2")):
        write_sample_log(folder / "logs" / name, shift)
    write_letters_model(folder / "model", folder / "tasks")


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


def math_record(number: int, part: str) -> dict[str, Any]:
    """Build a record in MATH's format."""
    return {
        "problem": f"What is ${number} \\cdot 3$?",
        "level": f"Level {1 + number % 5}",
        "subject": ["Algebra", "Number Theory"][number % 2],
        "solution": f"Three times {number} is $\\boxed{{{3 * number}}}$.",
        "answer": str(3 * number),
        "unique_id": f"{part}/algebra/{number}.json",
    }


def write_sample_log(folder: Path, shift: int, count: int = 80) -> None:
    """Write a log like ``lm_eval --log_samples``, with two metrics, passages and subjects."""
    date = "2026-01-01T00-00-00.000001"
    rows = []
    for i in range(count):
        right = (i * 7 + i // 5 + 3 * shift * i * i) % 10 < 4 + 2 * bool(shift)
        row = {
            "doc_id": i,
            "doc": {"question": f"q{i}", "passage": f"p{i // 4}", "subject": "abc"[i % 3]},
            "target": "42",
            "arguments": {"gen_args_0": {"arg_0": f"Question q{i}", "arg_1": {"until": []}}},
            "resps": [[f"answer {i if right else shift}"]],
            "filtered_resps": [str(right)],
            "filter": "none",
            "metrics": ["exact_match", "f1"],
            "exact_match": float(right),
            "f1": 1.0 if right else i % 7 / 9,
        }
        rows.append(row | dict.fromkeys(("doc_hash", "prompt_hash", "target_hash"), f"{i}"))
    write_lines(folder / f"samples_toy_{date}.jsonl", rows)
    higher = {"exact_match": True, "f1": True}
    results = {"results": {"toy": {}}, "versions": {"toy": 1}, "higher_is_better": {"toy": higher}}
    (folder / f"results_{date}.json").write_text(json.dumps(results), "utf-8")


def write_letters_model(folder: Path, tasks: Path) -> None:
    """Train a byte-level Llama that half knows the letters task and the form of its answers."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.08,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    lines = [(tasks / f"{split}.jsonl").read_text("utf-8") for split in ("pool", "audit")]
    problems = [json.loads(line) for text in lines for line in text.splitlines()]
    for step in range(120):
        texts = [draw_chat(problems, FORMS[step % len(FORMS)]) for _ in range(8)]
        rows = [fast(text, add_special_tokens=False)["input_ids"] for text in texts]
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        logits = model(ids, attention_mask=(ids != 0).long()).logits[:, -9:-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, -8:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)


def draw_chat(problems: list[dict[str, Any]], form: str) -> str:
    """Draw a problem with an answer that is right in about five of eight cases."""
    import torch

    problem = problems[int(torch.randint(len(problems), ()))]
    number = int(torch.randint(8, ()))
    label = number if number < 4 else problem["label"]
    options = "".join(f"{LETTERS[i]}. {text}\n" for i, text in enumerate(problem["options"]))
    answer = form.format(LETTERS[label], problem["options"][label])
    return f"<s><user>{problem['question']}\n{options}Answer:\n<assistant>{answer}</s>"
