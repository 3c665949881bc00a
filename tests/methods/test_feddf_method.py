"""FedDF among peers against the worked numbers and identities of the distillation sheet (sections 6, 7, 8)."""

from dataclasses import replace

import pytest
import torch
from functional import proxy_numbers as sheet
from functional.closeness import assert_near, float64
from proxy_students import proxy_student, rows_of
from table_students import state

from motley.functional.averaging import average_states
from motley.functional.proxy_targets import consensus
from motley.methods import feddf
from motley.methods.feddf import FedDF, FedDFOptions, Trained

FLOAT32 = 2e-6
ALL = [0, 1, 2]


def inbox(of: list[int] = (1, 2), samples: tuple[int, ...] = (1, 1, 2)) -> dict[int, Trained]:
    models = {k: state([*sheet.z[k], [0.0] * 3]) for k in of}
    return {k: Trained(held, torch.tensor(samples[k], dtype=torch.int32)) for k, held in models.items()}


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_loss_of_the_sheet_is_that_of_the_first_step(tiny, temperature):
    client = proxy_student(tiny, sheet.z[0])
    FedDF(FedDFOptions(temperature=temperature, distill_steps=1)).peer_round(client, inbox(), 2, tiny.draws)
    found = client.journal["digest"]["terms"]["divergence"]
    assert found == pytest.approx(sheet.feddf_loss_client_0[temperature], abs=FLOAT32)
    assert client.journal["digest"]["steps"] == 1


def test_a_client_comes_near_the_ensemble(tiny):
    client = proxy_student(tiny, sheet.z[0])
    FedDF(FedDFOptions(distill_steps=2000, distill_lr=0.01)).peer_round(client, inbox(), 2, tiny.draws)
    assert_near(torch.softmax(rows_of(client), dim=1), sheet.feddf_p, 1e-3)


def test_the_steps_are_adams_at_their_own_rate(tiny):
    client = proxy_student(tiny, sheet.z[0], lr_decay=0.5)
    FedDF(FedDFOptions(distill_steps=1, distill_lr=0.01)).peer_round(client, inbox(), 9, tiny.draws)
    moved = (rows_of(client) - float64(sheet.z[0])).abs()
    assert_near(moved, [[0.01] * 3] * 2, 1e-5)  # the first step of Adam has the length of its rate
    assert client.journal["digest"]["lr"] == pytest.approx(0.01)


@pytest.mark.parametrize(("peers", "round", "steps"), [([], 2, 50), ([1, 2], 1, 50), ([1, 2], 2, 0)])
def test_without_peers_without_trained_models_or_without_steps_it_is_local(tiny, peers, round, steps):
    client = proxy_student(tiny, sheet.z[0])
    FedDF(FedDFOptions(distill_steps=steps, average_same=True)).peer_round(client, inbox(peers), round, tiny.draws)
    assert_near(rows_of(client), sheet.z[0], FLOAT32)
    assert "digest" not in client.journal


@pytest.mark.parametrize("me", ALL)
@pytest.mark.parametrize("backwards", [False, True])
def test_identity_7_all_peers_sum_in_the_order_of_ids_so_that_their_ensembles_have_the_same_bits(
    tiny, me, backwards, monkeypatch
):
    stacks = []
    monkeypatch.setattr(feddf, "consensus", lambda logits: stacks.append(logits) or consensus(logits))
    client = proxy_student(tiny, sheet.z[me], client_id=me)
    peers = sorted(set(ALL) - {me}, reverse=backwards)
    FedDF(FedDFOptions()).peer_round(client, inbox(peers), 2, tiny.draws)
    assert_near(stacks[0], sheet.z, FLOAT32)


@pytest.mark.parametrize("same", [[1], [1, 2]])
def test_clients_of_one_architecture_start_from_their_average_if_asked(tiny, same):
    client = proxy_student(tiny, sheet.z[0])
    client.task = replace(client.task, architecture=lambda k: "one" if k in [0, *same] else "other")
    before = inbox(ALL)[0]
    options = FedDFOptions(average_same=True, distill_steps=1, distill_lr=1e-12)
    FedDF(options).peer_round(client, inbox(), 2, tiny.draws)
    group = [before, *(inbox()[k] for k in same)]
    total = sum(int(one.num_samples) for one in group)
    weights = [int(one.num_samples) / total for one in group]
    expected = average_states([one.weights for one in group], weights)["backbone.module.rows"][:2]
    assert_near(rows_of(client), expected.double().tolist(), FLOAT32)


def test_a_snapshot_says_how_many_samples_trained_it(tiny):
    client = proxy_student(tiny, sheet.z[0])
    sent = FedDF(FedDFOptions()).snapshot(client, 1)
    assert sent.num_samples.item() == 1
    assert sent.num_scalars == 9
    client.model.backbone.module.rows.data.fill_(0.0)
    assert_near(sent.weights["backbone.module.rows"][:2], sheet.z[0], FLOAT32)


def test_identity_5_without_steps_it_is_local(tiny, tmp_path):
    one = tiny.weights(tiny.play("feddf", tmp_path / "feddf", distill_steps=0))
    tiny.assert_same_tensors(one, tiny.weights(tiny.play("local", tmp_path / "local", proxy=6)))
    other = tiny.weights(tiny.play("feddf", tmp_path / "distilled"))
    assert not all(torch.equal(tensor, other[name]) for name, tensor in one.items())
