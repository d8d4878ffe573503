"""The settings of a task's YAML under ``metadata: gapft:``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError

from gapft_harness.core.errors import UserError, did_you_mean, refuse_unknown
from gapft_harness.core.records import Decoding, Gold
from gapft_harness.lm_eval_bridge.task_file.templates import (
    list_fields,
    refuse_nulls,
    require_fields,
    resolve_spec,
)
from gapft_harness.recipe.messages import build_recipe_error
from gapft_harness.recipe.sections import Odd, RecipeSection, Search


def describe_task(config: Any) -> str:
    """Return a task's name and file for messages; a key may be in a file that it includes."""
    settings = config if type(config) is dict else vars(config)
    source = (settings.get("metadata") or {}).get("config_source")
    place = f" ({source})" if source and source != "inline" else ""
    return f"task {settings.get('task')}{place}"


class Episode(RecipeSection):
    """The attempts and executions of one decode of a task.

    Attributes:
        attempts: maximum number of attempts, with the verifier's feedback between them. 1: one
            response.
        executions: how often a greedy episode's programs are run; the majority is its label.
    """

    attempts: int = Field(1, ge=1, strict=True)
    executions: Odd = Field(1, strict=True)


class GapSettings(RecipeSection):
    """The harness's settings of a task.

    Attributes:
        verifier: name of the verifier that judges responses.
        params: its parameters, e.g. ``{"rule": "first_explicit"}``.
        keep: the response rule that picks the verified sample to train on.
        id: template of the benchmark's own id, which may repeat. None: the id depends only on the
            content.
        content: fields whose values make two records the same problem; empty: all fields.
        gold: the gold for the verifier: a field's name, a template, or an object of these.
            None: ``doc_to_target``.
        gold_only: fields used only for the gold, such as hidden tests; they are left out of the
            records in run directories and reports.
        episode: the attempts of one decode in ``gapft run``. The stock ``lm_eval`` scores one.
        summary: a line for ``gapft list tasks``.
    """

    verifier: str
    params: Mapping[str, Any] = {}
    keep: str = "shortest"
    id: str | None = None
    content: tuple[str, ...] = ()
    gold: str | Mapping[str, str] | None = None
    gold_only: tuple[str, ...] = ()
    episode: Episode = Episode()
    summary: str = ""

    def build_gold(self, document: Mapping[str, Any], target: Gold) -> Gold:
        """Build the gold answer of one record.

        Args:
            document: the record.
            target: the value of ``doc_to_target``, which is the gold unless ``gold`` is set.

        Raises:
            UserError: a field is missing, or the gold answer is null or empty.
        """
        if self.gold is None:
            return refuse_empty(target)
        for spec in (self.gold,) if isinstance(self.gold, str) else self.gold.values():
            if spec not in document:
                require_fields(spec, document)
                refuse_nulls(spec, document)
        if isinstance(self.gold, str):
            return refuse_empty(resolve_spec(self.gold, document))
        gold = {name: resolve_spec(spec, document) for name, spec in self.gold.items()}
        if "answer" in gold:
            refuse_empty(gold["answer"])
        return gold


def refuse_empty(gold: Gold) -> Gold:
    """Return the gold answer unchanged if it is not empty.

    Raises:
        UserError: it is null, or text without a visible character.
    """
    if gold is None or (isinstance(gold, str) and not gold.strip()):
        description = "null" if gold is None else f"empty text ({gold!r:.40})"
        raise UserError(f"the gold answer is {description}; expected an answer")
    return gold


def build_own_ids(spec: str | None, documents: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Return the benchmark's own ids of a split's records; None without ``metadata.gapft.id``.

    Ids may repeat: a field that is the same in all records gives all the same id.

    Raises:
        UserError: ``spec`` names no field, or gives one id although its fields differ.
    """
    if spec is None:
        return None
    for document in documents:
        require_fields(spec, document)
    ids = [str(resolve_spec(spec, document)) for document in documents]
    if len(set(ids)) > 1 or not documents:
        return ids
    names = list_fields(spec, documents[0])
    if not names or any(d.get(n) != documents[0].get(n) for d in documents for n in names):
        raise UserError(
            f"template {spec!r:.80}: every id is {ids[0]!r:.40}; expected different ids for "
            f"different problems; fields of the record: {', '.join(sorted(documents[0]))}"
        )
    return ids


def check_named_fields(
    settings: GapSettings, documents: Sequence[Mapping[str, Any]], where: str
) -> None:
    """Check that records have the fields named in ``content`` and ``gold_only``.

    Raises:
        UserError: a record lacks a field of ``content``, or all lack a field of ``gold_only``.
    """
    for key, names in (("content", settings.content), ("gold_only", settings.gold_only)):
        for name in names:
            incomplete = [document for document in documents if name not in document]
            if incomplete and (key == "content" or len(incomplete) == len(documents)):
                raise UserError(
                    f"{where}: metadata.gapft.{key}: unknown field {name!r}; "
                    f"{did_you_mean(str(name), incomplete[0])}"
                )


def parse_settings(task: str, metadata: Any) -> GapSettings:
    """Read ``metadata: gapft:`` of a task.

    Raises:
        UserError: missing section, unknown key, wrong type, or no verifier.
    """
    metadata = metadata or {}
    if "gapft" not in metadata:
        raise UserError(
            f"{task}: the key metadata.gapft is missing, which names the verifier; found keys: "
            f"{', '.join(map(str, metadata)) or '(none)'}"
        )
    section: Any = metadata["gapft"]
    try:
        return GapSettings.model_validate(section)
    except ValidationError as error:
        prefix = ("metadata", "gapft")
        raise build_recipe_error(error, section, GapSettings, task, {}, prefix) from error


# The meaning of a task's ``generation_kwargs`` in ``gapft run``: each key is used or refused.
#
# lm_eval passes them to its model unchanged. ``gapft run`` makes one greedy decode and K samples in
# the same way on every backend, so it must know each key.


#: lm-eval's default for ``max_gen_toks``.
DEFAULT_MAX_GEN_TOKS = 256

#: lm-eval's names for the maximum number of new tokens; the first one set is used.
_LENGTH_OPTIONS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

#: Sampling options, which the recipe sets: key -> values that have no effect.
_SAMPLING_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "temperature": (0,),
    "top_p": (1,),
    "top_k": (0, -1),
}

#: Options that a run does not support: key -> values that have no effect.
_NEUTRAL_OPTIONS: Mapping[str, tuple[Any, ...]] = {
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

_KNOWN_OPTIONS = ("until", "do_sample", *_LENGTH_OPTIONS, *_SAMPLING_OPTIONS, *_NEUTRAL_OPTIONS)


def build_greedy_decoding(options: Mapping[str, Any], search: Search, where: str) -> Decoding:
    """Build the greedy deployment decode: the task's length and stop strings, no sampling.

    Args:
        options: the task's ``generation_kwargs``, as completed by lm-eval.
        search: the recipe's section; sampling options of the task must agree with it.
        where: the task, for messages.

    Raises:
        UserError: unknown or unsupported key, or invalid value.
    """
    where = f"{where}: generation_kwargs"
    refuse_unknown(options, _KNOWN_OPTIONS, where)
    for key, value in options.items():
        if key in _SAMPLING_OPTIONS and value not in (
            None,
            *_SAMPLING_OPTIONS[key],
            getattr(search, key),
        ):
            raise UserError(
                f"{where}.{key}: found {value!r}, expected {getattr(search, key)} (search.{key} "
                f"of the recipe, used for all samples); set search.{key} to {value!r} in the "
                "recipe, or remove the key from the task"
            )
        if key in _NEUTRAL_OPTIONS and value not in (None, *_NEUTRAL_OPTIONS[key]):
            raise UserError(
                f"{where}.{key}: found {value!r}, which gapft run does not support: it decodes "
                "greedily, and draws samples with the recipe's temperature, top_p and top_k only; "
                "remove the key, or choose a task without it"
            )
    _check_sampling(options, where)
    return Decoding(False, _parse_length(options, where), _parse_stops(options.get("until"), where))


def _check_sampling(options: Mapping[str, Any], where: str) -> None:
    if options.get("do_sample") and not options.get("temperature"):
        raise UserError(
            f"{where}.do_sample: found true without a temperature; set it to false: gapft run "
            "decodes greedily, and draws K samples as set in the recipe's section search"
        )


def _parse_length(options: Mapping[str, Any], where: str) -> int:
    keys = [key for key in _LENGTH_OPTIONS if options.get(key) is not None]
    if not keys:
        return DEFAULT_MAX_GEN_TOKS
    length = options[keys[0]]
    if isinstance(length, bool) or not str(length).isdecimal() or int(length) < 1:
        raise UserError(f"{where}.{keys[0]}: found {length!r}, expected a whole number from 1")
    return int(length)


def _parse_stops(until: Any, where: str) -> tuple[str, ...]:
    stops = [until] if isinstance(until, str) else until or []
    if not isinstance(stops, list | tuple) or not all(isinstance(s, str) and s for s in stops):
        raise UserError(
            f'{where}.until: found {until!r:.60}, expected a list of stop strings, e.g. ["\\n\\n"]'
        )
    return tuple(stops)
