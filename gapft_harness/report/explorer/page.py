"""explorer.html as one file: its data, its style and its script, which alone may run."""

from __future__ import annotations

from importlib.resources import files

from gapft_harness.core.text import whole_text
from gapft_harness.report.explorer.explored import Explored
from gapft_harness.report.explorer.packing import pack
from gapft_harness.report.rendering import page

#: The scripts in the order in which they build on each other.
_SCRIPTS = ("data", "differences", "view", "dom", "list", "detail", "filters", "main")


def render(of: Explored) -> str:
    """The whole page. Texts are in its data alone, and the script shows them as text."""
    return whole_text(
        page.filled(
            "explorer/explorer.html.j2",
            style=page.style("style.css", "explorer/explorer.css"),
            script="\n".join(_read(f"{name}.js") for name in _SCRIPTS),
            of=of,
            packed=pack(of),
        )
    )


def _read(name: str) -> str:
    templates = files("gapft_harness.report.rendering").joinpath("templates", "explorer")
    return templates.joinpath(name).read_text("utf-8")
