"""What ``compare``, ``pass_at_k`` and ``decompose`` give: frozen, and shown as tables."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from rich.console import Console

from gapft_harness.analysis.decomposition import Decomposition, unstable_states
from gapft_harness.compare import files, page
from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.findings import ByState, Paired
from gapft_harness.compare.terminal import show
from gapft_harness.report.rendering import markdown
from gapft_harness.report.rendering.blocks import Section, Table
from gapft_harness.report.rendering.wording import percent, points, whole

#: Characters of a line of a table as text.
_WIDTH = 100


class _Shown(ABC):
    """Shown as text by ``print``, and as Markdown in a notebook."""

    __slots__ = ()

    @abstractmethod
    def _sections(self) -> Sequence[Section]:
        """What is shown."""

    def __repr__(self) -> str:
        text = io.StringIO()
        show(self._sections(), Console(file=text, width=_WIDTH, highlight=False, color_system=None))
        return text.getvalue().strip("\n")

    def _repr_markdown_(self) -> str:
        return "\n\n".join(markdown.render("", "", self._sections()).split("\n\n")[1:])


@dataclass(frozen=True, slots=True, repr=False)
class Compared(_Shown):
    """Sample logs before and after, compared document by document.

    Attributes:
        comparison: all of it, items and rows too.
    """

    comparison: Comparison

    @property
    def models(self) -> Mapping[str, Paired]:
        """Over all documents, by the model's name; empty where tasks' metrics have no mean."""
        return self.comparison.found.models

    @property
    def groups(self) -> Mapping[str, Mapping[str, Paired]]:
        """By group, then by the model's name; empty without ``by`` or several tasks."""
        return self.comparison.found.groups

    @property
    def aggregates(self) -> Mapping[str, Mapping[str, Paired]]:
        """By lm_eval's group of tasks, then by the model's name; empty without such groups."""
        return self.comparison.found.aggregates

    @property
    def by_state(self) -> Mapping[str, ByState]:
        """By the model's name, where the difference comes from; empty without source samples."""
        return self.comparison.found.by_state

    def write(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Writes what ``gapft compare --out`` writes.

        Args:
            folder: where; it is made.
            overwrite: replace what an earlier comparison wrote there.

        Raises:
            UserError: the folder holds a comparison already.
        """
        files.write(self.comparison, Path(folder), overwrite=overwrite)

    def _sections(self) -> Sequence[Section]:
        return page.sections(self.comparison)


@dataclass(frozen=True, slots=True, repr=False)
class PassAtK(_Shown):
    """The unbiased Pass@k of several samples a problem (Chen et al. 2021, Equation 1).

    Attributes:
        problems: how many.
        samples: n, of each.
        by_k: the mean over problems, exact, for every k from 1 to n that was asked for.
    """

    problems: int
    samples: int
    by_k: Mapping[int, Fraction]

    def __getitem__(self, k: int) -> float:
        """The mean Pass@k.

        Raises:
            KeyError: this k was not computed.
        """
        return float(self.by_k[k])

    def _sections(self) -> Sequence[Section]:
        rows = [[str(k), percent(float(value))] for k, value in self.by_k.items()]
        note = f"{whole(self.problems)} problems, {whole(self.samples)} samples of each."
        return [Section("", [Table(["k", "Pass@k"], rows, note=note)])]


@dataclass(frozen=True, slots=True, repr=False)
class Decomposed(_Shown):
    """Where each model's Pass@1 change comes from (Equation 9).

    Attributes:
        models: counts by the model's name; over several seeds they are added up, so that rates
            and terms are means over seeds. Rates, terms and Pass@1 are exact fractions.
    """

    models: Mapping[str, Decomposition]

    def __getitem__(self, name: str) -> Decomposition:
        """The counts of one model."""
        return self.models[name]

    def _sections(self) -> Sequence[Section]:
        columns = [
            "model", "Pass@1", "change (points)", "p_S κ_S", "p_U κ_U", "−p_G ρ_G",
            "κ_S", "κ_U", "ρ_G",
        ]  # fmt: skip
        rows = [[name, *_cells(of)] for name, of in self.models.items()]
        sizes = {(of.n_g, of.n_s, of.n_u) for of in self.models.values()}
        few = sorted({state for size in sizes for state in unstable_states(*size)})
        note = f"Unstable rates, over few problems: {', '.join(few)}." if few else ""
        return [Section("", [Table(columns, rows, note=note)])]


def _cells(of: Decomposition) -> list[str]:
    terms = of.terms
    changes = [terms.total, terms.s, terms.u, terms.g]
    rates = [of.kappa_s, of.kappa_u, of.rho_g]
    return [
        percent(float(of.pass_at_1)),
        *(points(float(change)) for change in changes),
        *("–" if rate is None else percent(float(rate)) for rate in rates),
    ]
