from pathlib import Path

import numpy as np
import pytest

import motley
from motley.record.load import RunRecord
from motley.record.summary import TRAFFIC, summarise
from motley.report.material import (
    accuracies_by_class,
    class_accuracies,
    class_support,
    client_accuracies,
    curve,
    majority_accuracy,
    teachers,
    topology,
    with_summary,
)


def client_row(round, client, correct, count, method=None):
    scores = {"test_local": {"correct": correct, "count": count, "loss": 1.0}} if count else {}
    return {
        "kind": "client", "round": round, "client": client, "active": True, "missing": None, "train": None,
        "traffic": dict.fromkeys(TRAFFIC, 1), "seconds": None, "scores": scores, "method": method or {},
    }  # fmt: skip


def round_row(round, **metrics):
    return {"kind": "round", "round": round, "participants": [], "missing": {}, "metrics": metrics, "seconds": {}}


def made_run(rows, seed=0, **summary):
    return RunRecord(Path("none"), {"method": "m", "run": {"seed": seed, "rounds": 2}}, rows, summary)


def test_curves_join_seeds_round_by_round_and_pass_over_what_was_not_evaluated():
    first = made_run([round_row(0, local_accuracy=0.2), round_row(1), round_row(2, local_accuracy=0.6)])
    second = made_run([round_row(0, local_accuracy=0.4), round_row(2, local_accuracy=None)], seed=1)
    found = curve({0: first, 1: second}, "local_accuracy")
    assert found.rounds.tolist() == [0, 2]
    assert found.mean.tolist() == pytest.approx([0.3, 0.6])
    assert found.sd[0] == pytest.approx(0.2 / 2**0.5)  # divisor n - 1
    assert np.isnan(found.sd[1])
    assert curve({0: first}, "global_accuracy") is None


def test_clients_and_classes_without_samples_are_no_zeros():
    # Class 0: 3 of 4 over both clients; class 1: 0 of 2; class 2: nobody. Client 2 has no samples at all.
    rows = [
        client_row(0, 0, [0, 0, 0], [9, 9, 9]),
        client_row(2, 0, [2, 0, 0], [2, 2, 0]),
        client_row(2, 1, [1, 0, 0], [2, 0, 0]),
        client_row(2, 2, [0, 0, 0], [0, 0, 0]),
    ]
    runs = {0: made_run(rows)}
    assert client_accuracies(runs) == {0: 0.5, 1: 0.5}
    found = class_accuracies(runs)
    assert found[:2].tolist() == [0.75, 0.0]
    assert np.isnan(found[2])


def test_the_training_samples_of_a_class_are_those_of_all_clients_as_a_mean_over_runs():
    first, second = made_run([], counts=[[1, 0, 5], [1, 2, 0]]), made_run([], counts=[[3, 1, 5]])
    assert class_support([first, second, made_run([])]).tolist() == [2.5, 1.5, 5]
    assert class_support([made_run([])]) is None


def test_the_majority_answer_is_the_most_frequent_training_class():
    # Client 0 trains mostly on class 1: 3 of 4 test samples; client 1 on class 0: 1 of 4.
    rows = [client_row(1, 0, [0, 0], [1, 3]), client_row(1, 1, [0, 0], [1, 3])]
    assert majority_accuracy(made_run(rows, counts=[[2, 7], [5, 1]])) == 0.5
    assert majority_accuracy(made_run(rows)) is None


def test_teachers_are_means_over_students_and_know_what_is_missing():
    def journal(peers, kept, weight):
        return {"teachers": {"peers": peers, "support": [[4, 0]] * len(peers), "kept": kept, "weight": weight}}

    rows = [
        client_row(1, 0, [], [], journal([1, 2], [[1.0, None], [None, None]], [[1.0, 0.0], [0.0, 0.0]])),
        client_row(1, 1, [], [], journal([0, 2], [[0.5, None], [None, None]], [[0.6, 0.0], [0.4, 0.0]])),
        client_row(1, 2, [], [], {"teachers": {"peers": [0, 1]}}),  # a student without samples
    ]
    found = teachers(made_run(rows))
    assert found.teachers == (0, 1, 2)
    np.testing.assert_allclose(found.kept, [[0.5], [1.0], [np.nan]])
    np.testing.assert_allclose(found.weight, [[0.6, np.nan], [1.0, np.nan], [0.2, np.nan]])
    assert teachers(made_run([client_row(1, 0, [1], [1])])) is None


def test_what_teachers_know_is_their_last_accuracy_on_the_common_test_set():
    # Teacher 2 answers 3 of 4 and 0 of 2 right; teacher 5 was not evaluated; class 2 has no test samples.
    known = {"correct": [3, 0, 0], "count": [4, 2, 0], "loss": 1.0}
    row = client_row(2, 2, [], [])
    rows = [client_row(1, 2, [1], [1]), {**row, "scores": {"test_global": known}}]
    np.testing.assert_array_equal(accuracies_by_class(made_run(rows), (2, 5)), [[0.75, 0, np.nan], [np.nan] * 3])
    assert accuracies_by_class(made_run(rows[:1]), (2,)) is None


def test_the_topology_hides_the_diagonal_and_pairs_that_nobody_held(topology_path):
    found = topology(motley.load_run(topology_path))
    assert found.round == 2
    assert np.isnan(np.diag(found.relations)).all()
    known = found.relations[np.isfinite(found.relations)]
    assert known.min() > 0
    assert (found.relations == found.relations.T)[np.isfinite(found.relations)].all()


def test_a_run_without_summary_gets_one_from_its_rows():
    rows = [client_row(1, 0, [1, 0], [1, 1]), round_row(1, local_accuracy=0.5)]
    run = with_summary(made_run(rows, status="unfinished", **summarise(rows)))
    assert run.summary["status"] == "unfinished"
    assert run.final == {"round": 1, "local_accuracy": 0.5}
    assert run.summary["class_names"] == ["0", "1"]
    assert run.summary["chance"] == 0.5
