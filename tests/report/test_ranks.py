"""Rows ranked over several comparisons: which seeds and settings count, and what is said with how many of them."""

from io import StringIO

import pandas as pd
import pytest
from test_tables import cells, hand_made, hand_made_run

from motley.errors import InvalidConfig
from motley.record.ranking import rank_settings
from motley.report.ranks import rank_table
from motley.report.render import to_csv, to_markdown

ROWS = ("local", "fedtopo", "fedproto", "fd")


def setting(*accuracies, rows=ROWS, seeds=2, reference="local"):
    """Return a comparison whose rows have these accuracies, a little different on every seed."""
    runs = {
        name: {seed: hand_made_run(name, seed, accuracy + 0.001 * seed) for seed in range(seeds)}
        for name, accuracy in zip(rows, accuracies, strict=True)
    }
    return hand_made(runs, reference, range(seeds))


def settings(count):
    """Return settings in all of which fedtopo is best and local third."""
    return [(f"s{number}", setting(0.5, 0.7 + 0.01 * number, 0.6, 0.3)) for number in range(count)]


def test_mean_ranks_of_equal_and_unequal_rows():
    ranking = rank_settings([("a", setting(0.5, 0.7, 0.5, 0.3)), ("b", setting(0.9, 0.7, 0.6, 0.3))])
    assert ranking.ranks == [[2.5, 1.0, 2.5, 4.0], [1.0, 2.0, 3.0, 4.0]]
    found = cells(rank_table(ranking))
    assert found["mean rank"] == ("1.75", "1.50", "2.75", "4.00")
    assert found["best in"] == ("1 of 2", "1 of 2", "0 of 2", "0 of 2")


def test_few_settings_give_ranks_and_no_test():
    table = rank_table(rank_settings(settings(4)))
    assert "p (Holm)" not in cells(table)
    assert "Friedman" not in " ".join(table.rules)
    assert "4 settings and 4 rows: ranks only" in " ".join(table.remarks)
    two_rows = [(name, setting(0.5, 0.7, rows=ROWS[:2])) for name in "abcdefg"]
    assert "7 settings and 2 rows: ranks only" in " ".join(rank_table(rank_settings(two_rows)).remarks)


def test_enough_settings_are_tested_and_the_sentences_say_how():
    # 8 settings agree: chi^2 = N (k - 1) = 24; each of 3 pairs has the smallest p, 2^-7, and 3 of them by Holm 3 * 2^-7.
    table = rank_table(rank_settings(settings(8)))
    rules = " ".join(table.rules)
    assert "chi-square 24.00, p < 0.001" in rules
    assert "F(3, 21) inf, p < 0.001" in rules
    assert "against local, two-sided, with Holm's correction over 3: at 5 % fedtopo, fedproto, fd differ." in rules
    assert "independent" in rules
    assert cells(table)["p"] == ("reference", "0.008", "0.008", "0.008")
    assert cells(table)["p (Holm)"] == ("reference", "0.023", "0.023", "0.023")
    assert table.remarks == ()


def test_five_settings_cannot_show_a_single_difference_and_the_sentence_says_so():
    rules = " ".join(rank_table(rank_settings(settings(5))).rules)
    assert "none differs" in rules
    assert "the smallest p that they can give is 0.188" in rules  # 3 * 2^-4


def test_only_seeds_count_that_all_rows_finished():
    comparison = setting(0.5, 0.7, 0.6, 0.3, seeds=3)
    comparison.runs["fd"][0] = hand_made_run("fd", 0, 0.99, status="interrupted")
    del comparison.runs["local"][2]
    ranking = rank_settings([("a", comparison), ("b", setting(0.5, 0.7, 0.6, 0.3))])
    assert ranking.values[0] == (0.501, 0.701, 0.601, 0.301)


def test_settings_and_rows_that_are_missing_somewhere_are_left_out_and_named():
    open_one = setting(0.5, 0.7, 0.6, 0.3)
    open_one.runs["fd"].clear()
    fewer = setting(0.5, 0.7, 0.6, rows=ROWS[:3])
    ranking = rank_settings([("a", setting(0.5, 0.7, 0.6, 0.3)), ("fewer", fewer), ("b", setting(0.5, 0.4, 0.3, 0.2))])
    assert ranking.names == ROWS[:3]
    assert "Not in all settings, and left out: fd." in rank_table(ranking).remarks
    ranking = rank_settings([("a", setting(0.5, 0.7, 0.6, 0.3)), ("open", open_one)])
    assert ranking.settings == ("a",)
    assert "Not finished by all rows, and left out: open." in rank_table(ranking).remarks


def test_the_reference_is_that_of_the_first_or_the_one_that_is_asked_for():
    first, second = setting(0.5, 0.7, 0.6, 0.3, reference="fd"), setting(0.5, 0.7, 0.6, 0.3)
    assert rank_settings([("a", first), ("b", second)]).reference == "fd"
    assert rank_settings([("a", first), ("b", second)], "fedproto").reference == "fedproto"
    with pytest.raises(InvalidConfig, match="'nobody' is not a row of all settings"):
        rank_settings([("a", first), ("b", second)], "nobody")
    with pytest.raises(InvalidConfig, match="two rows"):
        rank_settings([("a", setting(0.5, rows=("local",))), ("b", setting(0.5, 0.6, rows=("local", "fd")))])


def test_programs_get_ranks_and_accuracies_of_every_setting():
    table = rank_table(rank_settings(settings(5)))
    frame = pd.read_csv(StringIO(to_csv(table)))
    assert frame["rank[s4]"].tolist() == [3, 1, 2, 4]
    assert frame["local_accuracy[s4]"].tolist() == pytest.approx([0.5005, 0.7405, 0.6005, 0.3005])
    assert frame["p_holm"][1:].tolist() == [0.1875] * 3
    assert "s4" not in to_markdown(table).partition("\n\n")[0]
    told = rank_settings(settings(5)).to_dict()
    assert told["table"][1] == {
        "method": "fedtopo", "mean_rank": 1.0, "ranks": [1.0] * 5,
        "local_accuracy": pytest.approx([0.7005 + 0.01 * number for number in range(5)]), "p": 0.0625, "p_holm": 0.1875,
    }  # fmt: skip
    assert "p" not in told["table"][0]
    assert told["friedman"]["chi_square"] == pytest.approx(15)
    assert told["friedman"]["f"] is None  # infinite is no number of JSON
    assert rank_settings(settings(3)).to_dict()["friedman"] is None
