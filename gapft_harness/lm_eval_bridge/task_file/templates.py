"""Render Jinja templates as lm-eval does, but compile each only once, not for every document."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Template, meta
from lm_eval import utils

from gapft_harness.core.errors import UserError, did_you_mean

_MARKS = ("{{", "{%", "{#")


@lru_cache(maxsize=1024)
def _compile_template(template: str, *, nulls: bool = True) -> Template:
    """Compile a template; with ``nulls=False`` it refuses to print a null."""
    environment = utils.env if nulls else utils.env.overlay(finalize=_refuse_null)
    compiled: Template = environment.from_string(template)
    return compiled


def render(template: str, document: Mapping[str, Any]) -> str:
    """Render a template with a document's fields, like lm-eval but about ten times faster.

    Raises:
        TemplateError: the template is malformed, or names a field that the document lacks.
    """
    return _compile_template(template).render(**document)


utils.apply_template = render  # lm-eval's own tasks use it too


def refuse_nulls(template: str, document: Mapping[str, Any]) -> None:
    """Refuse a template that prints a null, which would become the text ``None``.

    Raises:
        UserError: the template prints a null.
        TemplateError: the template is malformed, or names a field that the document lacks.
    """
    _compile_template(template, nulls=False).render(**document)


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise UserError("found null, expected a value")
    return value


def resolve_spec(spec: str, document: Mapping[str, Any]) -> Any:
    """Return the value of the field ``spec``, or else ``spec`` rendered as a template."""
    return document[spec] if spec in document else render(spec, document)


def require_fields(spec: str, document: Mapping[str, Any]) -> None:
    """Refuse a spec that gives the same text for every record, usually a misspelt field name.

    Raises:
        UserError: it is neither a field of the record nor a template.
    """
    if spec not in document and not any(mark in spec for mark in _MARKS):
        raise UserError(
            f"unknown field {spec!r}, and as a template it gives the same text for every record; "
            f"{did_you_mean(spec, document)}; for the text itself, write {{{{{spec!r}}}}} in "
            "quotes",
        )


def list_fields(spec: str, document: Mapping[str, Any]) -> list[str]:
    """List the fields of a record that a field's name or a template depends on."""
    if spec in document:
        return [spec]
    used = meta.find_undeclared_variables(_compile_template(spec).environment.parse(spec))
    return sorted(used & document.keys())
