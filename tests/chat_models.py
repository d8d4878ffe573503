"""Tokenizers whose chat templates end turns in the ways that published models do."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kit.tiny_models import write_byte_llama

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}"
    "<|end_header_id|>\n\n{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "<start_of_turn>{{ role }}\n{{ message['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
QWEN = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are helpful.<|im_end|>\n"
    "{% endif %}{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ENDS_WITH_EOS = (
    "{% for message in messages %}{% if message['role'] == 'user' %}[INST] {{ message['content'] }}"
    " [/INST]{% else %} {{ message['content'] }} {{ eos_token }}{% endif %}{% endfor %}"
)

#: By kind: template, special tokens, the tokenizer's eos_token, the generation_config's ends, and
#: the token that the model writes at the end of a turn.
KINDS: dict[str, tuple[str, list[str], str, list[str], str]] = {
    "ChatML on a base tokenizer": (
        CHATML, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], "<|endoftext|>",
        ["<|endoftext|>"], "<|im_end|>",
    ),
    "Llama-3": (
        LLAMA3,
        ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
         "<|eom_id|>", "<|eot_id|>"],
        "<|end_of_text|>", ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"], "<|eot_id|>",
    ),
    "Gemma": (
        GEMMA, ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], "<eos>", ["<eos>"],
        "<end_of_turn>",
    ),
    "Qwen": (
        QWEN, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], "<|im_end|>",
        ["<|im_end|>", "<|endoftext|>"], "<|im_end|>",
    ),
    "Llama-2": (ENDS_WITH_EOS, ["</s>"], "</s>", ["</s>"], "</s>"),
}  # fmt: skip


def write_chat_model(folder: Path, kind: str, template: str | None = None) -> Path:
    """Write a small random model with the tokenizer of a kind, and return its folder.

    Args:
        template: a template to use instead of the kind's.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    write_byte_llama(folder)
    own, special, eos, ends, _ = KINDS[kind]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.eos_token = eos
    tokenizer.chat_template = own if template is None else template
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    # with mean_resizing new tokens may all get the same embedding
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    ids = tokenizer.convert_tokens_to_ids(ends)
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=ids, pad_token_id=0)
    model.config.eos_token_id = ids[0]
    model.save_pretrained(folder)
    return folder


def set_generation_ends(folder: Path, ends: list[int] | None) -> None:
    """Change the end ids in a model folder's generation_config and config."""
    for name in ("generation_config.json", "config.json"):
        content = json.loads((folder / name).read_text())
        content["eos_token_id"] = ends
        (folder / name).write_text(json.dumps(content))
