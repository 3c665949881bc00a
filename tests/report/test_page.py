import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import motley
import motley.report.page
from motley.errors import InvalidConfig, InvalidRunFolder, MotleyWarning
from motley.report.page import build_report, write_report

LIMIT = 2_000_000
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Outline(HTMLParser):
    """Collects headings and texts, and fails on a tag that is not closed where it should be."""

    def __init__(self):
        super().__init__()
        self.open, self.headings, self.text, self.scripts = [], [], [], 0

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and re.fullmatch("h[1-6]", self.open[-1]):
            self.headings.append((self.open[-1], data.strip()))


def read(page):
    outline = Outline()
    outline.feed(page)
    assert not outline.open
    assert not outline.scripts
    return outline


def titles(page):
    return [text for tag, text in read(page).headings if tag == "h2"]


def words(page):
    return re.sub(r"\s+", " ", " ".join(read(page).text))


def test_the_page_of_a_run_holds_all_sections_and_escapes_what_users_wrote(pages):
    page = pages["fedtopo"]
    assert titles(page) == [
        "Results",
        "What ran",
        "Notes and warnings",
        "Accuracy over rounds",
        "Per client",
        "Per class",
        "Who holds what",
        "Topology of fedtopo",
        "Missing clients",
        "Communication and time",
    ]
    assert "Müllers Daten (v1.2) d&#39;été" in page
    assert "<script" not in page
    assert "effective classes" in page
    assert "日本" in page


def test_the_page_of_crad_tells_of_its_teachers_and_of_the_common_test_set(pages):
    page = pages["crad"]
    assert "Teachers of crad" in titles(page)
    assert page.count("<figure>") == 11
    assert "What the teachers know: accuracy on the common test set by class" in words(page)
    assert "Global accuracy over rounds" in page
    assert "Selected: at the first round" in page


def test_the_pages_of_noised_counts_say_what_is_protected_and_what_was_spent(tmp_path):
    motley.compare(
        ["local", "crad"],
        method_options={"crad": {"count_epsilon": 0.5}},
        rounds=1,
        clients=3,
        data_limit=300,
        validation_fraction=0.2,
        models="small3",
        out=tmp_path / "noised",
    )
    told = (
        "epsilon spent: 0.5; adjacency: one validation sample of the peer more or less; l1 sensitivity: 1; "
        "accuracies: not covered"
    )
    both = words(build_report(tmp_path / "noised"))
    assert "privacy of local" not in both
    assert "privacy of crad" in both
    assert told in both
    assert told in words(build_report(tmp_path / "noised" / "runs" / "crad" / "seed-0"))
    assert "privacy" not in words(build_report(tmp_path / "noised" / "runs" / "local" / "seed-0"))


def test_a_run_without_common_test_set_shows_no_global_figure(pages):
    text = words(pages["fedtopo"])
    assert "Global accuracy" not in text
    assert "No data" not in text


@pytest.mark.parametrize("name", ["fedtopo", "crad", "comparison"])
def test_the_page_is_small_and_stands_alone(name, pages):
    page = pages[name]
    assert len(page.encode()) < LIMIT
    assert "//" not in re.sub(r"data:image/png;base64,[A-Za-z0-9+/=\s]+", "", page)
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "@import" not in page
    assert not re.search(r"\bnan\b", words(page), re.IGNORECASE)
    assert all(label.strip() for label in re.findall(r'role="img" aria-label="([^"]*)"', page))
    assert page.count('role="img"') == page.count("<figure>")
    identities = re.findall(r' id="([^"]*)"', page)
    assert len(identities) == len(set(identities))


def test_the_page_is_the_same_each_time(pages, teacher_path):
    assert build_report(teacher_path) == pages["crad"]


def test_the_page_of_a_comparison_repeats_its_table(pages):
    page = pages["comparison"]
    text = words(page)
    assert "A comparison of 2 methods on 3 seeds." in text
    assert "6 of 6 runs finished" in text
    assert re.search(r"\[[+-]\d+\.\d\d, [+-]\d+\.\d\d\]", text)
    assert "band: one sd over seeds" in text
    assert "motley compare --config" in text


def test_the_page_of_a_comparison_tells_of_worst_clients_and_of_every_class(pages, comparison_path):
    page = pages["comparison"]
    text = words(page)
    for part in ("worst %", "rarest class %", "p (Holm)", "smallest visible", "3 seeds are few"):
        assert part in text
    table = re.search(r"<caption>Local accuracy by class, %.*?</table>", page, re.DOTALL).group()
    assert re.findall(r'<th scope="col"[^>]*>([^<]*)', table) == ["class", "training samples", "local", "fedtopo"]
    rows = [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[1:]]
    run = motley.load_run(comparison_path / "runs" / "local" / "seed-0")
    totals = np.sum(run.summary["counts"], axis=0)  # the partition is the same for all seeds
    assert sorted(row[0] for row in rows) == sorted(run.summary["class_names"])
    assert [int(row[1]) for row in rows] == sorted(totals)
    assert rows[0][0] == run.summary["class_names"][int(np.argmin(totals))]


def test_the_page_can_have_another_reference(comparison_path):
    text = words(build_report(comparison_path, reference="fedtopo"))
    assert re.search(r"fedtopo 3 \d+\.\d\d \d+\.\d\d reference", text)
    with pytest.raises(InvalidConfig, match="one run"):
        build_report(comparison_path / "runs" / "local" / "seed-0", reference="local")


def test_a_comparison_with_an_open_run_says_so(comparison_path, copied):
    path = copied(comparison_path)
    (path / "runs" / "fedtopo" / "seed-1" / "summary.json").unlink()
    text = words(build_report(path))
    assert "5 of 6 runs finished" in text
    assert "Not finished, and left out: fedtopo seed 1: unfinished." in text
    assert "motley resume" in text


def test_a_run_that_goes_on_has_a_page_of_what_there_is(teacher_path, copied):
    path = copied(teacher_path)
    (path / "summary.json").unlink()
    rows = (path / "rounds.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (path / "rounds.jsonl").write_text("".join(row for row in rows if json.loads(row)["round"] < 2), encoding="utf-8")
    page = build_report(path)
    text = words(page)
    assert "The run is unfinished: these are the figures after 1 of 3 rounds." in text
    assert "No data: the counts are written when a run ends." in text
    assert "Accuracy over rounds" in titles(page)
    assert page.count("<figure>") > 4


def test_a_run_without_any_row_has_a_page(teacher_path, copied):
    path = copied(teacher_path)
    (path / "summary.json").unlink()
    (path / "rounds.jsonl").write_bytes(b"")
    text = words(build_report(path))
    assert "No data: no round was evaluated yet." in text
    assert "0 of 3 rounds" in text


def test_a_damaged_last_line_is_a_warning_on_the_page(teacher_path, copied):
    path = copied(teacher_path)
    with (path / "rounds.jsonl").open("ab") as file:
        file.write(b'{"kind": "rou')
    with pytest.warns(MotleyWarning, match="is incomplete"):
        page = build_report(path)
    assert "is incomplete and was passed over" in words(page)


def test_options_and_commands_are_those_of_the_run(pages, teacher_path):
    text = words(pages["crad"])
    assert f"motley run --config {teacher_path / 'config.toml'} --out NEW_FOLDER" in text
    assert "min_support 2" in text


def test_a_damaged_checkpoint_only_costs_its_figures(topology_path, copied):
    path = copied(topology_path)
    for file in (path / "checkpoints").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    assert "Topology of fedtopo" not in titles(build_report(path))


def test_clients_that_were_left_out_are_listed_with_their_reasons(topology_path, copied):
    path = copied(topology_path)
    summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    summary["missing"] = [{"round": 2, "client": 4, "reason": "the loss <term> is not finite"}]
    (path / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    page = build_report(path)
    assert "1 upload left out." in words(page)
    assert "the loss &lt;term&gt; is not finite" in page


def test_a_report_is_replaced_only_on_request(tmp_path, monkeypatch, pages):
    monkeypatch.setattr(motley.report.page, "build_report", lambda path, reference: pages["fedtopo"])
    target = write_report(tmp_path)
    assert target == tmp_path / "report.html"
    assert target.read_bytes().decode("utf-8") == pages["fedtopo"]
    target.write_text("mine", encoding="utf-8")
    with pytest.raises(InvalidRunFolder, match="--replace"):
        write_report(tmp_path)
    assert target.read_text(encoding="utf-8") == "mine"
    write_report(tmp_path, replace=True)
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(InvalidRunFolder, match="no run folder"):
        build_report(tmp_path)
