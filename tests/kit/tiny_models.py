"""Model folders for tests: a random byte-level Llama that a test can build."""

from __future__ import annotations

from pathlib import Path

PAD, BOS, EOS = "<pad>", "<s>", "</s>"

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def write_byte_llama(
    folder: Path,
    seed: int = 0,
    hidden: int = 32,
    layers: int = 2,
    *,
    context: int = 4096,
    chat_template: str | None = None,
    add_bos: bool = False,
) -> Path:
    """Write a random Llama with a byte-level tokenizer, and return its folder.

    Ids 0, 1, 2 are padding, start and end; each byte is one token, 259 in all. Weights vary enough
    that greedy decodes of different prompts differ. With ``add_bos`` the tokenizer puts the start
    token before every text, as Llama's do.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = [PAD, BOS, EOS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    if add_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, 1)]
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = chat_template
    fast.save_pretrained(folder)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(words),
                hidden_size=hidden,
                intermediate_size=2 * hidden,
                num_hidden_layers=layers,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=context,
                initializer_range=0.25,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
            )
        )
    model.save_pretrained(folder)
    return folder


def write_byte_adapter(model: Path, folder: Path, rank: int = 8) -> Path:
    """Write a LoRA adapter of a model with weights far from zero, and return its folder."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        modules = ["q_proj", "v_proj", "down_proj"]
        config = LoraConfig(r=rank, target_modules=modules, init_lora_weights=False)
        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        get_peft_model(base, config).save_pretrained(folder)
    return folder
