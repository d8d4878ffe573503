"""Fill the template of the page with every problem."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gapft_harness.presentation import palette
from gapft_harness.presentation.visible import make_visible

if TYPE_CHECKING:
    from jinja2 import Environment


def fill_template(template: str, *, style: str, script: str = "", **values: Any) -> str:
    """Fill a template with one style sheet and one script, and with the hashes that admit them."""
    from markupsafe import Markup

    hashes = {
        f"{name}_hash": _encode_base64(hashlib.sha256(text.encode()).digest())
        for name, text in (("css", style), ("script", script))
    }
    return (
        _create_environment()
        .get_template(template)
        .render(css=Markup(style), script=Markup(script), **hashes, **values)
    )


def build_style(*sheets: str) -> str:
    """Join style sheets of the templates, after the colours of light and dark pages."""
    templates = files("gapft_harness.report.rendering").joinpath("templates")
    light, dark = (palette.css_variables(dark=dark) for dark in (False, True))
    on_dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    read = (templates.joinpath(sheet).read_text("utf-8") for sheet in sheets)
    return "\n".join((f":root {{ {light} }}", on_dark, *read))


@lru_cache(maxsize=1)
def _create_environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("gapft_harness.report.rendering"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = make_visible
    return environment


def _encode_base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
