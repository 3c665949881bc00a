import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from motley.errors import InvalidInput
from motley.report.drawing import legend_name, save_figure, to_svg
from motley.report.figures import accuracy_figure, bubble_figure, class_figure, client_figure
from motley.report.material import Curve, thin
from motley.report.method_figures import pair_figure, teacher_figure

COUNTS = np.array([[10, 0, 5], [0, 40, 1]])


def parsed(svg):
    return ET.fromstring(svg.replace("<svg ", '<svg xmlns:xlink="x" ', 1))


def test_svg_is_the_same_each_time_and_keeps_its_text():
    first, second = (to_svg(bubble_figure(COUNTS, ["cat", "dog", "elk"]), "f") for _ in range(2))
    assert first == second
    assert {"cat", "dog", "elk", "largest bubble: 40 samples"} <= set(parsed(first).itertext())


def test_the_area_of_a_bubble_is_the_count():
    figure = bubble_figure(COUNTS, ["a", "b", "c"])
    sizes = {round(line.get_markersize() ** 2, 3) for line in figure.axes[0].lines}
    assert len(sizes) == 4  # 1, 5, 10, 40
    assert max(sizes) / sorted(sizes)[-2] == pytest.approx(4, rel=0.1)


def test_ids_of_two_figures_do_not_meet():
    figures = [to_svg(bubble_figure(COUNTS, ["a", "b", "c"]), name) for name in ("one", 'tw"o')]
    ids = [{node.get("id") for node in parsed(text).iter() if node.get("id")} for text in figures]
    assert ids[0]
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("classes", [1, 13, 200])
def test_any_number_of_classes_can_be_drawn(classes):
    generator = np.random.default_rng(0)
    names = [f"a rather long name of class {label}" for label in range(classes)]
    counts = generator.integers(0, 50, (100, classes))
    drawn = [
        bubble_figure(counts, names),
        pair_figure(generator.random((classes, classes)), names, label="R"),
        teacher_figure(generator.random((40, classes)), range(40), names, label="w"),
        class_figure({"m": generator.random(classes)}, counts.sum(axis=0).tolist(), names, label="accuracy"),
    ]
    for figure in drawn:
        assert len(to_svg(figure, "f")) < 700_000


def test_rows_whose_names_begin_alike_are_told_apart_in_a_legend():
    names = [f"fedtopo-with-another-option-{number}" for number in range(12)]
    shown = [legend_name(name) for name in names]
    assert len(set(shown)) == 12
    assert max(map(len, shown)) == 24
    assert legend_name("_own") == "\u200b_own"


def test_names_are_text_and_nothing_else():
    names = ["<b>", "$x^2$", "_a", "日本", "x\ny"]
    texts = set(parsed(to_svg(pair_figure(np.eye(5), names, label="R"), "f")).itertext())
    assert {"<b>", "$x^2$", "_a", "日本", "x?y"} <= texts


def test_nothing_known_is_drawn_without_a_number():
    empty = np.full((3, 3), np.nan)
    texts = " ".join(parsed(to_svg(pair_figure(empty, ["a", "b", "c"], label="R"), "f")).itertext())
    assert "nan" not in texts
    to_svg(bubble_figure(np.zeros((2, 3)), ["a", "b", "c"]), "f")
    to_svg(class_figure({"m": np.full(3, np.nan)}, None, ["a", "b", "c"], label="accuracy"), "f")


def test_long_curves_are_thinned_to_two_hundred_points_with_both_ends():
    kept = thin(range(5001))
    assert len(kept) <= 200
    assert (kept[0], kept[-1]) == (0, 5000)
    rounds = np.arange(5001.0)
    curves = {f"_m{i}": Curve(rounds, rounds / 5001, np.full(5001, 0.01), 3) for i in range(12)}
    figure = accuracy_figure(curves, chance=0.1)
    assert max(len(line.get_xdata()) for line in figure.axes[0].lines) <= 200
    assert "_m11" in " ".join(parsed(to_svg(figure, "f")).itertext())


def test_lines_of_methods_differ_without_their_colour():
    figure = client_figure({f"m{i}": [0.1 * i, 0.5] for i in range(8)})
    styles = {(line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines}
    assert len(styles) == 8


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_figure_is_saved_by_its_ending(tmp_path, ending):
    path = tmp_path / f"Verteilung ä.{ending}"
    save_figure(bubble_figure(COUNTS, ["a", "b", "c"]), path)
    if ending == "png":
        with Image.open(path) as image:
            assert image.width > 600
    assert path.stat().st_size > 1000


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"\.png, \.svg or \.pdf"):
        save_figure(bubble_figure(COUNTS, ["a", "b", "c"]), tmp_path / "plot.docx")
