"""Start tokens of prompts: as many as the recipe says, whatever the tokenizer writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.protocols import SamplerSettings


def start_ids(tokenizer: Any, settings: SamplerSettings) -> list[int] | None:
    """The ids that every prompt begins with.

    The paper's main protocol has two start tokens, its older one has one (Appendix A, "Logic run
    families").

    Args:
        tokenizer: the model's.
        settings: ``start_tokens`` says how many; None leaves prompts as lm-eval encodes them.

    Returns:
        The start token's id, so many times; None with None.

    Raises:
        UserError: the tokenizer has no start token.
    """
    if settings.start_tokens is None:
        return None
    start = tokenizer.bos_token_id
    if start is None:
        raise UserError(
            f"model.start_tokens is {settings.start_tokens}, but the tokenizer "
            f"{tokenizer.name_or_path!r} has no start token (bos_token); leave the key out"
        )
    return [int(start)] * settings.start_tokens


def started(ids: Sequence[int], start: Sequence[int] | None) -> list[int]:
    """A prompt's ids with these start tokens in place of its own; as they are with None."""
    if start is None:
        return list(ids)
    return [*start, *dropwhile(start[0].__eq__, ids)]
