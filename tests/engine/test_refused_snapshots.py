"""Case G7 among peers: what cannot be used is refused once, names its sender, and costs nobody else anything."""

import re
from dataclasses import replace

import pytest
import torch

from motley.engine.executor import LocalExecutor
from motley.methods.dfml import DFML

SPLIT = {"test_fraction": 0.4, "validation_fraction": 0.3, "rounds": 4}
FORGER = 0


def first(weights):
    return next(iter(weights))


def without_one(sent):
    return replace(sent, weights={name: one for name, one in sent.weights.items() if name != first(sent.weights)})


def with_one_more(sent):
    return replace(sent, weights={**sent.weights, "more": torch.zeros(2)})


def of_another_shape(sent):
    return replace(sent, weights={**sent.weights, first(sent.weights): torch.zeros(1, 3)})


def of_another_kind(sent):
    return replace(
        sent, weights={**sent.weights, first(sent.weights): sent.weights[first(sent.weights)].to(torch.complex64)}
    )


def not_finite(sent):
    floats = {name: torch.full_like(one, torch.nan) for name, one in sent.weights.items() if one.is_floating_point()}
    return replace(sent, weights={**sent.weights, **floats})


@pytest.fixture
def forged_run(tiny, tmp_path, monkeypatch):
    def play(method: str, forge, **options):
        snapshots, models = LocalExecutor.snapshots, DFML.snapshot

        def on_the_wire(self, *given):
            return {peer: forge(sent) if peer == FORGER else sent for peer, sent in snapshots(self, *given).items()}

        def to_an_aggregator(self, client, *given):
            sent = models(self, client, *given)
            return forge(sent) if client.id == FORGER else sent

        with monkeypatch.context() as patch:
            patch.setattr(LocalExecutor, "snapshots", on_the_wire)
            patch.setattr(DFML, "snapshot", to_an_aggregator)
            return tiny.play(method, tmp_path / f"run-{len(list(tmp_path.iterdir()))}", **(SPLIT | options))

    return play


@pytest.mark.parametrize("method", ["crad", "uniform-kd", "feddf", "dfml"])
@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (without_one, "lacks the entry"),
        (with_one_more, "has the entry 'more', which its architecture does not have"),
        (of_another_shape, r"of shape \(1, 3\), expected"),
        (of_another_kind, "as torch.complex64, expected torch.float32"),
    ],
)
def test_g7_weights_of_another_architecture_are_refused_as_if_they_had_not_come(tiny, forged_run, method, forge, words):
    more = {"aggregators": 1} if method == "dfml" else {}
    refused, silent = forged_run(method, forge, **more), forged_run(method, not_finite, **more)
    assert refused.summary["status"] == "finished"
    tiny.assert_same_tensors(tiny.weights(refused), tiny.weights(silent))
    reasons = [row["missing"] for row in refused.rows if row["kind"] == "client" and row["missing"]]
    assert reasons
    for row in refused.rows:
        if row["kind"] == "client" and row["missing"]:
            assert row["client"] == FORGER
            assert row["missing"].startswith(f"peer {FORGER} sent what cannot be used: a snapshot of ")
            assert re.search(words, row["missing"])


@pytest.mark.parametrize(
    ("options", "forge", "words"),
    [
        ({}, lambda sent: replace(sent, counts=sent.counts + 0.5), "counts that are not whole"),
        ({"count_epsilon": 1.0}, lambda sent: replace(sent, counts=sent.counts + 3e38), "is above 1e+09"),
        ({"weighting": "support"}, lambda sent: replace(sent, counts=sent.counts + 2_000_000_000), "is above 1e+09"),
        (
            {"weighting": "cross-entropy"},
            lambda sent: replace(sent, cross_entropies=torch.zeros(0)),
            "no cross-entropies",
        ),
        (
            {"snapshot": "int8"},
            lambda sent: replace(sent, scales={name: torch.ones(7) for name in sent.scales}),
            "is not one number",
        ),
        (
            {"snapshot": "int8"},
            lambda sent: replace(sent, scales={name: one.to(torch.int32) for name, one in sent.scales.items()}),
            "is not one number",
        ),
    ],
)
def test_g7_statistics_that_are_not_those_of_the_options_are_refused(tiny, forged_run, options, forge, words):
    refused, silent = forged_run("crad", forge, **options), forged_run("crad", not_finite, **options)
    assert refused.summary["status"] == "finished"
    tiny.assert_same_tensors(tiny.weights(refused), tiny.weights(silent))
    missing = [row for row in refused.rows if row["kind"] == "client" and row["missing"]]
    assert {row["round"] for row in missing} == {
        1,
        2,
        3,
        4,
    }  # four rounds in a row end no run: the sender itself learns
    assert all(row["client"] == FORGER and words in row["missing"] for row in missing)
    assert all(row["train"]["steps"] > 0 for row in missing)
