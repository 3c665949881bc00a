"""Figures for one question, on records made by hand."""

import math
from types import SimpleNamespace

import pytest

from motley.record.studies import by_held_classes, by_support, convergence


def run_of(rows, **summary):
    return SimpleNamespace(rows=rows, summary=summary)


def client_row(client, **scores):
    return {"kind": "client", "round": 3, "client": client, "scores": scores}


def test_classes_are_cut_into_thirds_by_what_the_client_has():
    # client 0 holds classes 2 (9), 0 (5), 3 (5), 1 (1): two, one, one; it lacks class 4
    first = client_row(0, test_global={"correct": [1, 0, 4, 2, 3], "count": [4, 4, 4, 4, 4]})
    # client 1 holds class 4 alone; nothing is tested of class 0
    second = client_row(1, test_global={"correct": [0, 1, 0, 0, 4], "count": [0, 4, 4, 4, 4]})
    found = by_support(run_of([first, second], counts=[[5, 1, 9, 5, 0], [0, 0, 0, 0, 7]]))
    assert found == {
        "most common": pytest.approx((4 / 4 + 1 / 4 + 4 / 4) / 3),
        "middle": pytest.approx(2 / 4),
        "rarest": pytest.approx(0 / 4),
        "absent": pytest.approx((3 / 4 + 1 / 4 + 0 + 0) / 4),
    }


def test_without_a_common_test_set_the_own_one_counts_and_absent_classes_are_unknown():
    row = client_row(0, test_local={"correct": [1, 2, 0], "count": [2, 2, 0]})
    assert by_support(run_of([row], counts=[[3, 9, 0]])) == {
        "most common": 1.0, "middle": 0.5, "rarest": None, "absent": None
    }  # fmt: skip


def test_clients_of_few_classes_and_of_many_stand_apart():
    rows = [
        client_row(0, test_local={"correct": [1, 0, 0, 0, 0], "count": [1, 1, 0, 0, 0]}),
        client_row(1, test_local={"correct": [1, 1, 1, 0, 0], "count": [1, 1, 1, 1, 0]}),
        client_row(2, test_local={"correct": [2, 1, 1, 1, 1], "count": [2, 2, 2, 2, 2]}),
        client_row(3, test_local={"correct": [0, 0, 0, 0, 0], "count": [0, 0, 0, 0, 0]}),  # nothing was tested
    ]
    counts = [[9, 9, 0, 0, 0], [9, 9, 9, 1, 0], [9, 9, 9, 9, 1], [3, 0, 0, 0, 0]]
    assert by_held_classes(run_of(rows, counts=counts)) == {
        "clients of 4 classes or fewer": pytest.approx((1 / 2 + 3 / 4) / 2),
        "clients of more than 4 classes": pytest.approx(6 / 10),
    }


def round_row(number, local, common=None):
    return {"kind": "round", "round": number, "metrics": {"local_accuracy": local, "global_accuracy": common}}


def test_convergence_is_the_first_round_near_the_last_one_and_the_unrest_at_the_end():
    rows = [round_row(number, value) for number, value in ((0, 0.1), (10, 0.77), (20, 0.78), (30, 0.9), (40, 0.8))]
    found = convergence(run_of(rows))
    assert found["rounds to 95 %"] == 10.0
    assert found["sd of the last rounds"] == pytest.approx(math.sqrt(0.005), rel=1e-9)  # of 0.9 and 0.8
    assert "global sd of the last rounds" not in found
    rows = [round_row(number, 0.5, common) for number, common in ((39, 0.2), (40, 0.4))]
    assert convergence(run_of(rows))["global sd of the last rounds"] == pytest.approx(math.sqrt(0.02))
    assert convergence(run_of([])) == {}
