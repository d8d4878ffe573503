"""What a task's ``generation_kwargs`` mean under ``gapft run``: honoured, or refused by name.

lm_eval hands them to its model as they are. ``gapft run`` makes one greedy decode and K samples
instead, the same way on every backend, so that a key has a meaning here or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapft_harness.core.errors import UserError, refuse_unknown
from gapft_harness.core.records import Decoding
from gapft_harness.recipe.sections import Search

#: lm-eval's own default for generation without ``max_gen_toks``.
DEFAULT_MAX_GEN_TOKS = 256

#: lm-eval's names of the most new tokens, the first that is given wins.
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

#: Settings of sampling, which are the recipe's: key -> values that change nothing.
_SAMPLING: Mapping[str, tuple[Any, ...]] = {
    "temperature": (0,),
    "top_p": (1,),
    "top_k": (0, -1),
}

#: Settings of models that have no place in a run: key -> values that change nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "n": (1,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "no_repeat_ngram_size": (0,),
    "min_p": (0,),
    "use_cache": (True,),
}

_KNOWN = ("until", "do_sample", *_LENGTHS, *_SAMPLING, *_NEUTRAL)


def greedy_decoding(options: Mapping[str, Any], search: Search, where: str) -> Decoding:
    """The greedy deployment decode: the task's length and stop strings, no sampling.

    Args:
        options: the task's ``generation_kwargs``, as lm-eval completed them.
        search: the recipe's section, whose sampling a task's own has to agree with.
        where: the task in messages.

    Raises:
        UserError: a key is unknown or not honoured, or a value is none.
    """
    where = f"{where}: generation_kwargs"
    refuse_unknown(options, _KNOWN, where)
    for key, value in options.items():
        if key in _SAMPLING and value not in (None, *_SAMPLING[key], getattr(search, key)):
            raise UserError(
                f"{where}.{key}: found {value!r}, but gapft run draws its samples with "
                f"search.{key} {getattr(search, key)}; set search.{key} to {value!r} in the "
                "recipe, or take the key out of the task"
            )
        if key in _NEUTRAL and value not in (None, *_NEUTRAL[key]):
            raise UserError(
                f"{where}.{key}: found {value!r}, which gapft run does not honour: it decodes "
                "greedily, and draws samples by the recipe's temperature, top_p and top_k alone; "
                "take it out, or name a task without it"
            )
    _check_sampling(options, where)
    return Decoding(False, _length(options, where), _stops(options.get("until"), where))


def _check_sampling(options: Mapping[str, Any], where: str) -> None:
    sampled = options.get("do_sample")
    if sampled is not None and not isinstance(sampled, bool):
        raise UserError(f"{where}.do_sample: found {sampled!r}, expected true or false")
    if sampled and not options.get("temperature"):
        raise UserError(
            f"{where}.do_sample: found true without a temperature; gapft run decodes greedily and "
            "draws K samples besides, by the recipe's section search; set it to false"
        )


def _length(options: Mapping[str, Any], where: str) -> int:
    given = [key for key in _LENGTHS if options.get(key) is not None]
    if not given:
        return DEFAULT_MAX_GEN_TOKS
    found = options[given[0]]
    if isinstance(found, bool) or not str(found).isdecimal() or int(found) < 1:
        raise UserError(f"{where}.{given[0]}: found {found!r}, expected a whole number from 1")
    return int(found)


def _stops(until: Any, where: str) -> tuple[str, ...]:
    stops = [until] if isinstance(until, str) else until or []
    if not isinstance(stops, list | tuple) or not all(isinstance(s, str) and s for s in stops):
        raise UserError(
            f'{where}.until: found {until!r:.60}, expected a list of stop strings, e.g. ["\\n\\n"]'
        )
    return tuple(stops)
