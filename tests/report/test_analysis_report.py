"""The files of an analysis, with names that must be handled with care, and the report's figure of changes."""

import csv
from dataclasses import replace

import numpy as np
import pytest

import motley
from motley.engine.analyse import analyse
from motley.record.load import load_run
from motley.report.analysis import write_analysis
from motley.report.analysis_figures import analysis_figures, architecture_agreement
from motley.report.analysis_tables import analysis_tables
from motley.report.drawing import to_svg
from motley.report.material import guidance
from motley.report.method_figures import change_figure
from motley.report.method_sections import method_sections


@pytest.fixture(scope="module")
def study(topology_path):
    return analyse(topology_path, draws=3)


def test_odd_names_are_shown_and_read_back(study, tmp_path):
    (tmp_path / "run").mkdir()
    target = write_analysis(replace(study, path=tmp_path / "run"))
    with (target / "relations.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    assert tuple(lines[0]) == study.class_names
    assert "_under" in lines[0]
    assert np.array_equal(np.array(lines[1:], dtype=np.float64), study.mechanism.relations.numpy())
    drawing = (target / "prototypes.svg").read_text(encoding="utf-8")
    assert "_under" in drawing
    assert "$x$" in drawing
    assert "<script>" not in drawing
    with (target / "classes.csv").open(encoding="utf-8", newline="") as file:
        assert [row["class"] for row in csv.DictReader(file)] == list(study.class_names)


def test_every_figure_has_a_caption_and_every_table_equal_columns(study):
    for name, (figure, caption) in analysis_figures(study).items():
        assert caption.endswith(".")
        assert "<svg" in to_svg(figure, name)
    for title, table in analysis_tables(study).values():
        assert title
        assert len({len(column.cells) for column in table.columns}) == 1
        assert table.rules


def test_the_agreement_of_architectures_is_the_mean_over_their_pairs(study):
    table = architecture_agreement(study)
    names = list(dict.fromkeys(study.architectures))
    assert table.shape == (len(names), len(names))
    for row, one in enumerate(names):
        for column, other in enumerate(names):
            own = [
                value
                for (a, b), value in study.consistency["pooled"].pairs.items()
                if {study.architectures[a], study.architectures[b]} == {one, other} and np.isfinite(value)
            ]
            expected = np.mean(own) if own else np.nan
            np.testing.assert_allclose(table[row, column], expected, equal_nan=True)


def test_changes_are_means_over_the_clients_of_a_round(tmp_path):
    path = tmp_path / "run"
    motley.run("fedtopo", rounds=3, clients=4, data_limit=300, local_mask=False, out=path)
    run = load_run(path)
    found = guidance(run)
    assert found.rounds == (1, 2, 3)
    assert np.isnan(found.relations_change[0])
    for place, number in enumerate(found.rounds):
        rows = [row["method"] for row in run.rows if row["kind"] == "client" and row["round"] == number]
        for name, values in (("guidance_change", found.guidance_change), ("guidance_absent", found.absent)):
            known = [row[name] for row in rows if row[name] is not None]
            np.testing.assert_allclose(values[place], np.mean(known) if known else np.nan, equal_nan=True)
    sections = {one.id: one for one in method_sections({"fedtopo": {0: run}})}
    captions = [plate.caption for plate in sections["topology-fedtopo"].plates]
    assert "on classes that a client lacks" in captions[-1]
    drawing = to_svg(change_figure(found), "changes")
    assert "mathdefault" not in drawing
    assert "mean absolute change" in drawing


def test_a_run_without_guidance_has_no_changes(teacher_path):
    assert guidance(load_run(teacher_path)) is None
