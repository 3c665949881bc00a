"""FedGH and FedRE through their own verbs: their sheets (sections 5 and 12) and identities (section 16)."""

import pytest
import torch
from functional import server_numbers as sheet
from prototype_clients import C, fixed_client, models_of
from table_students import FLOAT32, float64

from motley.draws import Draws
from motley.functional.entanglement import entangle
from motley.methods.averaging import Common
from motley.methods.contracts import Upload
from motley.methods.fedgh import FedGH, FedGHOptions
from motley.methods.fedre import FedRE, FedREOptions, Mixture
from motley.methods.prototype_sharing import Prototypes
from motley.record.checkpoints import read_checkpoint

CLIENTS = ((sheet.pr_zA, sheet.pr_yA), (sheet.pr_zB, sheet.pr_yB))
HEAD = Common({"weight": torch.tensor(sheet.gh_W0), "bias": torch.tensor(sheet.gh_b0)})
BOTH = [FedGH(FedGHOptions()), FedRE(FedREOptions())]


def near(made, expected) -> None:
    torch.testing.assert_close(made.double(), float64(expected), rtol=0, atol=FLOAT32)


def test_fedgh_from_clients_to_the_head_of_the_sheet(tiny):
    made = FedGH(FedGHOptions(server_lr=sheet.gh_lr))
    uploads = []
    for number, data in enumerate(CLIENTS):
        client = fixed_client(tiny, *data, client_id=number)
        message = made.client_round(client, made.broadcast(HEAD, number), 1, tiny.draws)
        message.check("client", C=C, d=2)
        assert message.num_scalars == 2 * 2  # |C_k| d
        uploads.append(Upload(number, message))
    near(torch.cat([upload.message.rows for upload in uploads]), sheet.gh_X)
    new = made.server_round(HEAD, iter(uploads), 1, tiny.draws)
    near(new.weights["weight"], sheet.gh_W1)
    near(new.weights["bias"], sheet.gh_b1)
    assert made.broadcast(new, 0).num_scalars == C * 2 + C


def test_fedgh_shuffles_batches_with_the_servers_draws(tiny):
    made = FedGH(FedGHOptions(server_lr=0.1, server_batch=2, server_epochs=1))
    message = Prototypes(torch.tensor(sheet.gh_X)[[0, 3, 1]], torch.tensor([True] * 3))
    one, same, other = (
        made.server_round(HEAD, iter([Upload(0, message)]), 1, Draws(seed)).weights["weight"] for seed in (0, 0, 6)
    )
    orders = [torch.randperm(3, generator=Draws(s).generator("server-shuffle", round=1)).tolist() for s in (0, 6)]
    assert sorted(orders[0][:2]) != sorted(orders[1][:2])
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_fedre_from_mixtures_to_the_head_of_the_sheet(tiny):
    uploads = [
        Upload(k, Mixture(torch.tensor(z), torch.tensor(y)))
        for k, (z, y) in enumerate(zip(sheet.re_z, sheet.re_y, strict=True))
    ]
    state = Common({"weight": torch.tensor(sheet.re_W0), "bias": torch.tensor(sheet.re_b0)})
    new = FedRE(FedREOptions(server_lr=sheet.re_lr)).server_round(state, iter(uploads), 1, tiny.draws)
    near(new.weights["weight"], sheet.re_W1)
    near(new.weights["bias"], sheet.re_b1)


def test_fedre_mixes_the_prototypes_with_draws_of_round_and_client(tiny):
    made, seen = FedRE(FedREOptions()), []
    for client_id, round in ((0, 1), (0, 2), (1, 1)):
        client = fixed_client(tiny, *CLIENTS[0], client_id=client_id)
        message = made.client_round(client, HEAD, round, tiny.draws)
        message.check("client", C=C, d=2)
        assert message.num_scalars == 2 + C
        generator = tiny.draws.generator("mixture", round=round, client=client_id)
        drawn = 1 - torch.rand(C, dtype=torch.float64, generator=generator)
        held = torch.tensor([True, False, True])
        vector, label = entangle(float64(sheet.rows(sheet.re_protos[0])), held, drawn)
        near(message.vector, vector.tolist())
        near(message.label, label.tolist())
        assert message.label[1] == 0
        seen.append(tuple(message.label.tolist()))
    assert len(set(seen)) == 3


def test_a_client_of_one_class_sends_its_prototype_unmixed(tiny):
    client = fixed_client(tiny, [[1.0, 2.0], [3.0, 5.0]], [1, 1])
    message = FedRE(FedREOptions()).client_round(client, HEAD, 1, tiny.draws)
    near(message.vector, [2.0, 3.5])
    assert message.label.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("made", BOTH)
def test_a_client_trains_from_the_received_head(tiny, made):
    client = fixed_client(tiny, *CLIENTS[0], lr=1e-12)
    made.client_round(client, HEAD, 1, tiny.draws)
    near(client.model.head.weight.detach(), sheet.gh_W0)


@pytest.mark.parametrize("made", BOTH)
def test_r8_the_servers_head_classifies_and_with_local_state_the_clients_own(tiny, made):
    client = fixed_client(tiny, *CLIENTS[0])
    x = torch.tensor(sheet.pr_query)[:, None]
    logits = torch.tensor(sheet.pr_query) @ HEAD.weights["weight"].T + HEAD.weights["bias"]
    torch.testing.assert_close(made.predict(client, HEAD, x), logits)
    assert torch.equal(made.predict(client, None, x), client.model(x))


@pytest.mark.parametrize("made", BOTH)
def test_without_uploads_the_head_stays(tiny, made):
    assert made.server_round(HEAD, iter(()), 1, tiny.draws) is HEAD


@pytest.mark.parametrize("method", ["fedgh", "fedre"])
def test_identity_10_without_a_rate_the_head_never_changes(tiny, tmp_path, method):
    def heads(**options):
        path = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        tiny.play(method, path, **options)
        tensors = read_checkpoint(path / "checkpoints").tensors
        return {name: tensor for name, tensor in tensors.items() if name.startswith("state/")}

    first, later = heads(rounds=1, server_lr=0.0), heads(rounds=4, server_lr=0.0)
    assert len(first) == 2
    tiny.assert_same_tensors(first, later)
    assert any(not torch.equal(tensor, first[name]) for name, tensor in heads(rounds=1).items())


def test_identity_9_with_one_class_a_client_fedre_is_fedgh_at_the_rate_times_m(tiny, tmp_path):
    usual = {"data": tiny.dataset(((12, 0, 0), (0, 10, 0), (0, 0, 9), (8, 0, 0))), "server_batch": 4}
    one = tiny.play("fedre", tmp_path / "re", server_lr=0.01, **usual)
    other = tiny.play("fedgh", tmp_path / "gh", server_lr=0.04, **usual)
    ours, theirs = tiny.weights(one), tiny.weights(other)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-6)
    assert models_of(ours)
