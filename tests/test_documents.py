"""Documents stay true: every hook, option, recipe key, recipe and task stands in them."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import typer.main

from gapft_harness import api
from gapft_harness.cli.main import app
from gapft_harness.cli.options import GROUPS
from gapft_harness.cli.reference import PAGES as MADE
from gapft_harness.cli.reference import command_line, recipe_reference
from gapft_harness.hooks import specs as hookspecs
from gapft_harness.hooks.manager import KINDS, load_plugins
from gapft_harness.lm_eval_bridge.discovery import list_tasks
from gapft_harness.recipe.reading import recipe_keys
from gapft_harness.run_directory.manifest import FORMAT
from gapft_harness.study.recipe import CellChoice, StudyRecipe

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "gapft_harness"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted(PACKAGE.glob("demo/*/README.md")),
]


def hooks() -> list[str]:
    return [name for name in vars(hookspecs) if name.startswith("register_")]


def test_the_plugin_manager_knows_every_hook() -> None:
    assert hooks() == list(KINDS)


@pytest.mark.parametrize("hook", hooks())
def test_every_hook_is_documented_with_its_options(hook: str) -> None:
    text = (DOCS / "plugins.md").read_text()
    row = next(
        (line for line in text.splitlines() if line.startswith(f"| `{hook}(register)` |")), ""
    )
    assert row, f"docs/plugins.md has no row for {hook}"
    annotation = inspect.get_annotations(getattr(hookspecs, hook))["register"]
    call = inspect.signature(getattr(hookspecs, annotation).__call__)
    for name, parameter in call.parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            assert f"{name}=" in row, f"docs/plugins.md: {hook} lacks the option {name}"


def test_every_name_that_plugins_import_is_documented() -> None:
    text = (DOCS / "plugins.md").read_text().partition("## What a plugin imports")[2]
    rows = re.findall(r"^\| .*? \| (`.*) \|$", text.partition("\n## ")[0], flags=re.MULTILINE)
    assert [name.strip("`") for row in rows for name in row.split(", ")] == api.__all__


@pytest.mark.parametrize("page", MADE)
def test_the_pages_that_are_made_are_fresh(page: str) -> None:
    """``python -m gapft_harness.cli.reference`` writes them."""
    fresh = (DOCS / page).read_text() == MADE[page]()
    assert fresh, f"docs/{page}: run python -m gapft_harness.cli.reference"


def test_the_reference_of_recipes_says_defaults_and_parameters() -> None:
    text = recipe_reference()
    assert "| `search.k` | `8` | K, samples per problem |" in text
    assert "| `data.task` | required | lm-eval task" in text
    assert "| `seeds` | `[13, 21, 73]` |" in text
    assert "| `randomized_inclusion` | `share`, `within: 4` | " in text
    assert "\\|E_S,K\\|" in text
    rows = [*recipe_keys(), *StudyRecipe.model_fields, *CellChoice.model_fields]
    rows += [task.name for task in list_tasks()]
    assert [row for row in rows if f"\n| `{row}` | " not in text] == []


def test_everything_that_ships_is_documented() -> None:
    pages = {
        "verifier": "verifiers.md",
        "selector": "recipe-keys.md",
        "response rule": "recipe-keys.md",
        "sampler": "samplers.md",
        "trainer": "training.md",
        "tracker": "training.md",
        "executor": "plugins.md",
        "experiment": "recipe-keys.md",
        "log reader": "import-export.md",
    }
    assert {entry.kind for entry in load_plugins().all()} <= pages.keys()
    for entry in load_plugins().all():
        documented = f"`{entry.name}`" in (DOCS / pages[entry.kind]).read_text()
        assert documented, f"docs/{pages[entry.kind]} lacks the {entry.kind} {entry.name!r}"
    results = (DOCS / "report.md").read_text().partition("\n## results.json\n")[2]
    names = [entry.name for entry in load_plugins().all() if entry.kind == "experiment"]
    missing = [name for name in names if f"`{name}`" not in results]
    assert missing == [], "docs/report.md, 'results.json', lacks these experiments"


def test_the_page_of_the_command_line_has_every_option_and_an_example() -> None:
    missing = []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        shown = command_line().partition(f"\n### gapft {name}\n")[2].partition("\n### ")[0]
        options = [option for of in command.params for option in of.opts if option != "--help"]
        missing += [f"{name} {option}" for option in options if f"`{option}" not in shown.lower()]
        assert command.epilog.startswith(f"Example: gapft {name}")
        assert command.rich_help_panel in GROUPS, f"{name}: GROUP is none of cli/options.py's"
    assert [name for name in missing if " --" in name] == []


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_the_changes_name_the_format_of_a_run() -> None:
    first = re.findall(r"^## .*$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert first.endswith(f"run format {FORMAT}")


PRODUCT = ("gapft_harness", "plugins", "tasks", "demo_policies", "engines")


def test_files_that_docstrings_name_are_there() -> None:
    """By their path in the package or the repository, or by their name beside that file."""
    missing = []
    for file in (file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py")):
        for name in re.findall(r"``([\w/]+\.py)``", file.read_text()):
            if not any((place / name).is_file() for place in (file.parent, PACKAGE, ROOT)):
                missing.append(f"{file.relative_to(ROOT)}: {name}")
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_modules_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    paths = re.findall(rf"\b(?:{'|'.join(PRODUCT)}|tests|recipes)/[\w/.-]*\w", text)
    assert [name for name in paths if not (ROOT / name).exists()] == []
    modules = re.findall(r"\b(?:gapft_harness|demo_policies)(?:\.\w+)+", text)
    assert [name for name in modules if not is_module_or_name(name)] == []


def is_module_or_name(dotted: str) -> bool:
    """Whether a dotted name is a module or package here, or something in one."""
    module, _, attribute = dotted.rpartition(".")
    if importlib.util.find_spec(module) is None:
        return False
    try:
        if importlib.util.find_spec(dotted) is not None:
            return True
    except ImportError:  # ``module`` is no package, or has no module of that name
        pass
    return hasattr(importlib.import_module(module), attribute)
