"""The token that a model writes at the end of a response: generation stops there, training adds it.

A tokenizer's ``eos_token`` need not be that token: a chat template may end an assistant's turn with
another one (``<end_of_turn>``, ``<|eot_id|>``, ``<|im_end|>``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.core.errors import UserError

#: What the assistant says in the chat that is rendered to see what follows it.
_ANSWER = "An answer of the assistant."


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """What a chat template writes behind an assistant's answer.

    Attributes:
        token: the id of the first token there that is special or was added to the vocabulary; None
            if there is none.
        text: all of it; None if the template leaves the answer out.
    """

    token: int | None
    text: str | None


def find_turn_end(tokenizer: Any, template_args: Mapping[str, Any] | None = None) -> TurnEnd:
    """Render an assistant's turn and find the token that ends it.

    Args:
        tokenizer: one that has a chat template.
        template_args: further arguments of the template.

    Raises:
        UserError: the template raises.
    """
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _ANSWER}]
    try:
        rendered = tokenizer.apply_chat_template(chat, tokenize=False, **(template_args or {}))
    except Exception as error:  # a template may raise anything
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"model.chat_template: the template of {tokenizer.name_or_path!r} cannot render a "
            f"user's and an assistant's turn ({why}); repair it, or set model.chat_template: false"
        ) from error
    _, answer, text = str(rendered).rpartition(_ANSWER)
    if not answer:
        return TurnEnd(None, None)
    ends = set(tokenizer.all_special_ids)
    ends |= {id for id, token in tokenizer.added_tokens_decoder.items() if token.content.strip()}
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return TurnEnd(next((id for id in ids if id in ends), None), text)


def find_end_token(
    tokenizer: Any,
    own_ends: Sequence[int],
    chat_template: bool,
    template_args: Mapping[str, Any] | None = None,
) -> int:
    """Find the id of the token that a model writes at the end of a response.

    With a chat template it is the token that the template ends an assistant's turn with. Without
    one, or where the template ends turns with white space or nothing, it is the tokenizer's end of
    sequence if the model's generation_config lists it or lists none, else the first one listed.

    Args:
        tokenizer: the model's.
        own_ends: the end ids of the model's generation_config.
        chat_template: whether prompts are rendered through the template.
        template_args: further arguments of the template.

    Raises:
        UserError: there is no such token, the template ends turns with text that is no single
            token, or it raises.
    """
    without = "or train without an end: training.supervise_eos: false"
    if chat_template and tokenizer.chat_template is not None:
        end = find_turn_end(tokenizer, template_args)
        if end.token is not None:
            return end.token
        where = f"model.chat_template: the template of {tokenizer.name_or_path!r}"
        if end.text is None:
            raise UserError(
                f"{where} leaves out what the assistant says, so it does not tell how a response "
                f"ends; repair it, {without}"
            )
        if end.text.strip():
            raise UserError(
                f"{where} ends an assistant's turn with {end.text!r}, which has no special token; "
                f"expected one token that ends a response. Add it to the tokenizer, {without}"
            )
    eos = tokenizer.eos_token_id
    if eos is not None and (eos in own_ends or not own_ends):
        return int(eos)
    if not own_ends:
        raise UserError(
            f"model {tokenizer.name_or_path}: neither its tokenizer (eos_token) nor its "
            "generation_config (eos_token_id) names an end-of-sequence token to train on; add it, "
            f"{without}"
        )
    return int(own_ends[0])


def check_vocabulary(tokenizer: Any, size: int, used: Sequence[int] = ()) -> None:
    """Check that a model has an embedding for every token that a text can become.

    More embeddings than tokens are usual. A special token without one is no error unless it is
    used: some multimodal tokenizers have such tokens beside a model of texts alone.

    Args:
        tokenizer: the model's.
        size: the entries of the model's vocabulary.
        used: further ids that prompts or responses hold.

    Raises:
        UserError: an id is not below ``size``.
    """
    unused = {id for id, token in tokenizer.added_tokens_decoder.items() if token.special}
    ids = [id for id in tokenizer.get_vocab().values() if id not in unused]
    largest = max([*ids, *used, *filter(None, (tokenizer.bos_token_id, tokenizer.eos_token_id))])
    if largest >= size:
        raise UserError(
            f"model.args: the tokenizer {tokenizer.name_or_path!r} has the token "
            f"{tokenizer.convert_ids_to_tokens(largest)!r} with id {largest}, and the model's "
            f"vocabulary has {size} entries (vocab_size); expected ids below that. Give the "
            "tokenizer that the model was trained with (model.args.tokenizer)"
        )
