import pytest

from motley.engine.metrics import round_metrics
from motley.training.evaluation import Score


def score(correct: int, count: int) -> Score:
    return Score((correct, 0), (count, 0), 0.5 if count else None)


def test_d5_mean_pooled_and_deviation_over_clients():
    # 10 and 90 test samples with accuracies 0.9 and 0.5: mean 0.70, pooled 54/100, deviation (divisor n) 0.20.
    made = round_metrics({0: {"test_local": score(9, 10)}, 1: {"test_local": score(45, 90)}})
    assert made["local_accuracy"] == pytest.approx(0.70, abs=1e-12)
    assert made["local_accuracy_pooled"] == pytest.approx(0.54, abs=1e-12)
    assert made["local_accuracy_sd_clients"] == pytest.approx(0.20, abs=1e-12)
    assert made["local_accuracy_worst"] == 0.5
    assert made["local_accuracy_clients_without_data"] == 0


def test_a2_a_client_without_test_data_is_left_out_and_counted():
    made = round_metrics({0: {"test_local": score(3, 4)}, 1: {}, 2: {"test_global": score(1, 2)}})
    assert made["local_accuracy"] == 0.75
    assert made["local_accuracy_clients_without_data"] == 2
    assert made["global_accuracy"] == 0.5
    assert "validation_accuracy" not in made


def test_nobody_has_data():
    assert round_metrics({0: {}, 1: {}}) == {}
