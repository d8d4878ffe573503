"""The documents' site: every page stands in its navigation once, and its links lead into it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

FILE = Path(__file__).parents[1] / "docs" / "site" / "build.py"
SPEC = importlib.util.spec_from_file_location("site_build", FILE)
assert SPEC is not None
assert SPEC.loader is not None
site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site)


def test_the_navigation_has_every_page_once() -> None:
    assert sorted(site.navigation()) == sorted(site.pages())


def test_links_are_rewritten_to_where_pages_lie_in_the_site(tmp_path: Path) -> None:
    page = site.DOCS / "a.md"
    texts = {
        "[x](../README.md#install)": "[x](index.md#install)",
        "[x](tasks.md#math)": "[x](tasks.md#math)",
        "[x](#here) [y](https://a.org/b.md)": "[x](#here) [y](https://a.org/b.md)",
        "[`f`](../tests/example_plugin/f.py)": "`f`",
        "```python title=f.py\nx = 1\n```": '```python title="f.py"\nx = 1\n```',
    }
    assert {text: site.rewritten(text, page.parent) for text in texts} == texts
    readme = {
        "![p](docs/images/report.png)": "![p](images/report.png)",
        "[c](CONTRIBUTING.md)": "[c](contributing.md)",
        "[t](docs/tasks.md#math)": "[t](tasks.md#math)",
    }
    assert {text: site.rewritten(text, site.ROOT) for text in readme} == readme


def test_a_page_that_the_navigation_lacks_is_named(monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(site, "navigation", lambda: [p for p in site.pages() if p != "tasks.md"])
    assert site.main() == 1
    assert "nav must list each page once: see tasks.md" in capsys.readouterr().err
