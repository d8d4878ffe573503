"""Find the token that ends a response: generation stops at it, and training appends it.

It can differ from the tokenizer's ``eos_token``: a chat template may end an assistant's turn with
a token of its own (``<end_of_turn>``, ``<|eot_id|>``, ``<|im_end|>``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.core.chat_template import render_template
from gapft_harness.core.errors import UserError

#: The assistant's turn in the chat that is rendered to find the text after it.
_ANSWER = "An answer of the assistant."


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The text that a chat template appends to an assistant's answer.

    Attributes:
        token: the id of the first token of the text that is special, or was added to the
            vocabulary and is not white space; None if there is none.
        text: the text; None if the template omits the answer.
    """

    token: int | None
    text: str | None


def find_turn_end(tokenizer: Any, template_args: Mapping[str, Any] | None = None) -> TurnEnd:
    """Render an assistant's turn, and find the text after the answer and the token in it.

    Args:
        tokenizer: a tokenizer with a chat template.
        template_args: additional arguments of the template.

    Raises:
        UserError: the template fails to render.
    """
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _ANSWER}]
    try:
        rendered = render_template(tokenizer, template_args, chat)
    except UserError:
        raise
    except Exception as error:  # a template may raise anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"model.chat_template: the template of {tokenizer.name_or_path!r} cannot render a "
            f"user's and an assistant's turn ({reason}); repair it, or set "
            "model.chat_template: false"
        ) from error
    _, answer, text = rendered.rpartition(_ANSWER)
    if not answer:
        return TurnEnd(None, None)
    ends = set(tokenizer.all_special_ids)
    ends |= {id for id, token in tokenizer.added_tokens_decoder.items() if token.content.strip()}
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return TurnEnd(next((id for id in ids if id in ends), None), text)


def find_end_token(
    tokenizer: Any,
    generation_end_ids: Sequence[int],
    uses_chat_template: bool,
    template_args: Mapping[str, Any] | None = None,
) -> int:
    """Find the id of the token that ends a response.

    With a chat template it is the token at the end of the template's assistant turn. Without a
    template, or if the template ends turns with white space or nothing, it is the tokenizer's
    end-of-sequence token if the model's generation_config lists that token or lists none, else the
    first listed token.

    Args:
        tokenizer: the model's tokenizer.
        generation_end_ids: the end ids of the model's generation_config.
        uses_chat_template: whether prompts are rendered through the template.
        template_args: additional arguments of the template.

    Raises:
        UserError: there is no such token, the template ends turns with text that is not a single
            token, or the template fails to render.
    """
    alternative = "or train without an end: training.supervise_eos: false"
    if uses_chat_template and tokenizer.chat_template is not None:
        end = find_turn_end(tokenizer, template_args)
        if end.token is not None:
            return end.token
        where = f"model.chat_template: the template of {tokenizer.name_or_path!r}"
        if end.text is None:
            raise UserError(
                f"{where} omits the assistant's answer, so the end of a response is unknown; "
                f"repair it, {alternative}"
            )
        if end.text.strip():
            raise UserError(
                f"{where} ends an assistant's turn with {end.text!r}, which contains no special "
                "token; expected one token that ends a response. Add it to the tokenizer, "
                f"{alternative}"
            )
    eos = tokenizer.eos_token_id
    if eos is not None and (eos in generation_end_ids or not generation_end_ids):
        return int(eos)
    if not generation_end_ids:
        raise UserError(
            f"model {tokenizer.name_or_path}: no end-of-sequence token to train on: neither the "
            "tokenizer (eos_token) nor the generation_config (eos_token_id) names one; add it, "
            f"{alternative}"
        )
    return int(generation_end_ids[0])


def check_vocabulary(tokenizer: Any, size: int, used: Sequence[int] = ()) -> None:
    """Check that a model has an embedding for every token that the tokenizer can produce.

    More embeddings than tokens are usual. A special token without an embedding is allowed unless it
    is used: some multimodal tokenizers have such tokens although the model handles only text.

    Args:
        tokenizer: the model's tokenizer.
        size: the number of entries of the model's vocabulary.
        used: additional ids that occur in prompts or responses.

    Raises:
        UserError: an id is ``size`` or more.
    """
    special_ids = {id for id, token in tokenizer.added_tokens_decoder.items() if token.special}
    ids = [id for id in tokenizer.get_vocab().values() if id not in special_ids]
    largest_id = max([*ids, *used, *filter(None, (tokenizer.bos_token_id, tokenizer.eos_token_id))])
    if largest_id >= size:
        raise UserError(
            f"model.args: the tokenizer {tokenizer.name_or_path!r} has the token "
            f"{tokenizer.convert_ids_to_tokens(largest_id)!r} with id {largest_id}, but the "
            f"model's vocabulary has {size} entries (vocab_size); expected ids below {size}. Give "
            "the model's own tokenizer (model.args.tokenizer)"
        )
