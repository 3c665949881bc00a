"""FedMD against the worked numbers and identities of the distillation sheet (sections 1, 7, 8)."""

import pytest
import torch
from functional import proxy_numbers as sheet
from functional.closeness import assert_near, float64
from hypothesis import given
from hypothesis import strategies as st
from proxy_students import proxy_student, rows_of
from torch.nn.functional import cross_entropy, softmax

from motley.methods.contracts import Upload
from motley.methods.fedmd import Consensus, FedMD, FedMDOptions, Scores

FLOAT32 = 2e-6


def started(client, tiny, **options):
    method = FedMD(FedMDOptions(**options))
    return method, method.start(client.task, tiny.draws)


def uploads(tiny, *, without: int | None = None):
    method = FedMD(FedMDOptions())
    for client_id, rows in enumerate(sheet.z):
        if client_id != without:
            client = proxy_student(tiny, rows, client_id=client_id)
            nothing = method.start(client.task, tiny.draws)
            yield Upload(client_id, method.client_round(client, nothing, 1, tiny.draws))


def test_the_consensus_is_the_mean_of_those_who_took_part(tiny):
    method, state = started(proxy_student(tiny, sheet.z[0]), tiny)
    assert state.logits.shape == (0, 3)
    assert_near(method.server_round(state, uploads(tiny), 1, tiny.draws).logits, sheet.fedmd_consensus, FLOAT32)
    two = method.server_round(state, uploads(tiny, without=1), 1, tiny.draws).logits
    assert_near(two, float64([sheet.z[0], sheet.z[2]]).mean(dim=0).tolist(), FLOAT32)
    assert method.server_round(state, iter(()), 1, tiny.draws) is state


@given(order=st.permutations(range(3)))
def test_identity_7_the_order_of_the_clients_changes_no_consensus(tiny, order):
    method, state = started(proxy_student(tiny, sheet.z[0]), tiny)
    moved = (Upload(position, Scores(torch.tensor(sheet.z[position]))) for position in order)
    assert_near(method.server_round(state, moved, 1, tiny.draws).logits, sheet.fedmd_consensus, FLOAT32)


def test_a_client_sends_its_logits_on_the_proxy_and_receives_as_many(tiny):
    sent = next(uploads(tiny)).message
    assert_near(sent.logits, sheet.z[0], FLOAT32)
    assert (sent.num_scalars, sent.num_bytes) == (6, 24)
    assert Consensus(sent.logits).num_scalars == 6


def test_the_digest_lowers_the_mean_absolute_error_before_the_private_training(tiny):
    client = proxy_student(tiny, sheet.z[0])
    method, _ = started(client, tiny)
    f = float64(sheet.fedmd_consensus)
    sent = method.client_round(client, Consensus(f.float()), 2, tiny.draws)
    assert client.journal["digest"]["terms"]["absolute_error"] == pytest.approx(
        sheet.fedmd_mae_of_client_0, abs=FLOAT32
    )
    expected = float64(sheet.z[0]) - torch.sign(float64(sheet.z[0]) - f) / 6  # d mean |z - f| / dz, one step at rate 1
    assert_near(rows_of(client), expected.tolist(), FLOAT32)
    assert_near(sent.logits, expected.tolist(), FLOAT32)  # predicted after the training
    own = cross_entropy(float64([[1.0, 2.0, 3.0]]), torch.tensor([0])).item()
    assert client.journal["train"]["terms"]["cross_entropy"] == pytest.approx(own, abs=FLOAT32)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_other_digest_follows_soft_targets(tiny, temperature):
    client = proxy_student(tiny, sheet.z[0])
    method, _ = started(client, tiny, digest_loss="kl", temperature=temperature)
    f, z = float64(sheet.fedmd_consensus), float64(sheet.z[0])
    method.client_round(client, Consensus(f.float()), 2, tiny.draws)
    gradient = temperature * (softmax(z / temperature, dim=1) - softmax(f / temperature, dim=1)) / 2
    assert_near(rows_of(client), (z - gradient).tolist(), FLOAT32)
    # The mean of the logits as target is FedDF's, so that its literals hold here, too.
    loss = client.journal["digest"]["terms"]["divergence"]
    assert loss == pytest.approx(sheet.feddf_loss_client_0[temperature], abs=FLOAT32)


def test_the_labels_of_the_proxy_are_used_by_the_pretraining_alone_and_once(tiny):
    client = proxy_student(tiny, sheet.z[0])
    method, nothing = started(client, tiny, pretrain_epochs=1)
    method.client_round(client, nothing, 1, tiny.draws)
    z, labels = float64(sheet.z[0]), torch.eye(3, dtype=torch.float64)[[1, 2]]
    assert_near(rows_of(client), (z - (softmax(z, dim=1) - labels) / 2).tolist(), FLOAT32)
    assert client.journal["proxy_labels"] == "used by the pretraining"
    client.journal.clear()
    before = rows_of(client)
    method.client_round(client, nothing, 2, tiny.draws)
    assert torch.equal(before, rows_of(client))
    assert "pretrain" not in client.journal
    plain = proxy_student(tiny, sheet.z[0])
    FedMD(FedMDOptions()).client_round(plain, nothing, 1, tiny.draws)
    assert_near(rows_of(plain), sheet.z[0], FLOAT32)


def test_identity_4_alone_the_consensus_is_the_own_prediction_and_moves_nothing(tiny, tmp_path):
    # Batches of all: a sum in another order would leave differences of 1e-8, whose sign the absolute error follows.
    usual = {"data": tiny.dataset(((20, 20, 20),)), "models": lambda k, shape, c: tiny.model(0, shape, c)}
    record = tiny.play("fedmd", tmp_path / "one", **usual, batch_size=64)
    digests = [row["method"]["digest"] for row in record.rows if row["kind"] == "client" and row["method"]]
    assert [one["terms"]["absolute_error"] for one in digests] == [0.0, 0.0, 0.0]
    alone = tiny.play("local", tmp_path / "alone", **usual, batch_size=64, proxy=6)
    own = {name: tensor for name, tensor in tiny.weights(record).items() if name.startswith("client/")}
    tiny.assert_same_tensors(own, tiny.weights(alone))


def test_identity_4_without_a_digest_it_is_local(tiny, tmp_path):
    one = tiny.play("fedmd", tmp_path / "fedmd", digest_epochs=0)
    other = tiny.play("local", tmp_path / "local", proxy=6)
    own = {name: tensor for name, tensor in tiny.weights(one).items() if name.startswith("client/")}
    tiny.assert_same_tensors(own, tiny.weights(other))
    with_digest = tiny.weights(tiny.play("fedmd", tmp_path / "digest"))
    assert not all(torch.equal(tensor, with_digest[name]) for name, tensor in own.items())


def test_a_message_of_the_wrong_width_is_refused():
    sent = Scores(torch.zeros(2, 4))
    with pytest.raises(Exception, match="has shape"):
        sent.check("client 0", C=3)
