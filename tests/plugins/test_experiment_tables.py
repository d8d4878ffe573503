"""Faults of an experiment's tables are reported with its plugin."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.core.errors import PluginError
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.inputs import LoadedPart
from gapft_harness.stages.experiment.loading import list_report_parts, load_all_experiments
from tests.kit.plugins import write_plugin
from tests.report import planted

SOURCE = """
class Rates(Experiment):
    name = "rates"

    def part(self):
        return RatesPart()


class RatesPart(Part):
    name, title = "rates", "Rates"

    def tables(self, inputs, findings, part_findings):
        columns = [Column("name", "name"), Column("rate", "rate", "share")]
        return [Table("rates", columns, [{"name": "x", "rate": 0.5}])]
"""


def build_rows(folder: Path, source: str) -> list[list[dict[str, object]]]:
    """Return the rows of the tables of a plugin's experiment."""
    plugin = write_plugin(folder / "rates.py", source, experiments=['"rates", Rates'])
    experiments = load_all_experiments(load_plugins([plugin]))
    (part,) = list_report_parts(one for one in experiments if one.name == "rates")
    inputs = planted.build_inputs(sizes=(12, 9, 8), parts=(LoadedPart(part, {}),))
    findings = compute_findings(inputs)
    return [table.list_entries() for table in part.tables(inputs, findings, None)]


def test_tables_of_a_plugin(tmp_path: Path) -> None:
    assert build_rows(tmp_path, SOURCE) == [[{"name": "x", "rate": 0.5}]]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('Table("rates"', 'Table("contrasts"'),
        ('Table("rates"', 'Table("rates_../x"'),
        ('"rate": 0.5', '"rate": "half"'),
        ('"name": "x"', '"name": {1, 2}'),
        ("[Table(", "[str("),
        ('"rates", "Rates"', '"others", "Rates"'),
    ],
)
def test_faults_name_the_experiment(tmp_path: Path, right: str, wrong: str) -> None:
    assert right in SOURCE
    # the package's error, or the plugin's own with a note
    with pytest.raises((PluginError, TypeError, ValueError), match="experiment 'rates'"):
        build_rows(tmp_path, SOURCE.replace(right, wrong))
