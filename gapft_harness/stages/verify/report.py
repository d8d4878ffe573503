"""Verification of the report: it is made again and compared."""

from __future__ import annotations

from collections.abc import Iterator

from gapft_harness.core.files import sha256
from gapft_harness.engine.run import RECORDS
from gapft_harness.hooks.manager import Plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.report import hash_report_inputs, read_report_inputs, restrict_run
from gapft_harness.stages.verify.differences import Differences, compare_files

#: Files that also depend on the version of matplotlib.
_DRAWN = (".svg", "index.html")


def check_report(run: RunDirectory, plugins: Plugins, findings: Differences) -> None:
    """Compare a run's report with its recorded hash, and with one that is made again."""
    facts = run.facts()["report"]
    folder = run.path / layout.REPORT
    if not facts and not folder.is_dir():
        return
    if not facts or not folder.is_dir():
        findings.missing.append("the report is not complete")
    elif sha256(folder) != facts["digest"]:
        findings.differences.append(
            f"{layout.REPORT}: was changed after it was written (its hash differs from {RECORDS})"
        )
    elif hash_report_inputs(run) != facts["inputs_hash"]:
        findings.missing.append("the report is not made from what the run has now")
    elif not findings.differences:
        findings.collect(f"{RECORDS}, report", lambda: _compare_files(run, plugins))
        if not findings.differences:
            findings.checked.append("the numbers and tables of the report were computed again")


def _compare_files(run: RunDirectory, plugins: Plugins) -> Iterator[str]:
    from gapft_harness.report import build_report

    facts = run.facts()["report"]
    folder = run.path / layout.REPORT
    shown = restrict_run(run, plugins, facts["conditions"], facts["seeds"])
    page = build_report(read_report_inputs(shown, plugins))
    expected = page.build_files()
    yield from compare_files(folder, expected, ignored=_DRAWN)
