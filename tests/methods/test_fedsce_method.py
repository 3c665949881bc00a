"""FedSCE through its own verbs; all of it is our reading, so these tests hold it to its sheet (section 6)."""

import pytest
import torch
from methods.auxiliaries import OPTIONS, maker
from methods.small_federation import clients_for, made, play, play_round, states
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.functional.distillation import kl
from motley.methods.contracts import Upload
from motley.methods.fedsce import Moved, Shared
from motley.methods.registry import find_method

ONE_BATCH = [[0, 1, 2, 1]]


def head(client) -> Tensor:
    """Return weight and bias of the head as one vector."""
    return torch.cat([one.detach().flatten() for one in client.model.head.parameters()]).clone()


def raw_gradient(client, auxiliary) -> Tensor:
    """Return the gradient of the head's vector on the whole training part, by FML's loss of the client's model."""
    x, y = client.shard.train.x, client.shard.train.y
    model = client.model.train()
    o = model(x)
    loss = 0.5 * cross_entropy(o, y) + 0.5 * kl(auxiliary.train()(x), o)
    found = torch.autograd.grad(loss, list(model.head.parameters()))
    return torch.cat([one.flatten() for one in found])


def test_identity_6_with_uniform_weights_and_a_warmup_beyond_the_run_it_is_fml(tiny):
    ours, theirs = (clients_for(tiny, name, auxiliary=maker(tiny)) for name in ("fedsce", "fml"))
    found = play(made("fedsce", **OPTIONS, weighting="uniform", warmup=9), ours, 4, tiny)
    expected = play(made("fml", **OPTIONS), theirs, 4, tiny)
    tiny.assert_same_tensors(states(ours), states(theirs))
    tiny.assert_same_tensors({**found.parameters, **found.buffers}, dict(expected.weights))


def test_the_head_moves_within_the_span_of_its_latest_raw_updates_and_the_backbone_freely(tiny):
    (client,) = clients_for(tiny, "fedsce", ONE_BATCH, auxiliary=maker(tiny))
    method = made("fedsce", **OPTIONS, warmup=2, directions=2)
    state = method.start(client.task, tiny.draws)
    start = head(client)
    for round in (1, 2):
        state = play_round(method, state, [client], round, tiny)
    columns = client.memory["head_updates"].double()
    assert columns.shape == (2, 8 * 3 + 3)
    torch.testing.assert_close((head(client) - start).double(), columns.sum(dim=0), rtol=0, atol=1e-6)  # unconfined
    auxiliary = maker(tiny)("")
    auxiliary.load_state_dict({**state.parameters, **state.buffers})
    raw = raw_gradient(client, auxiliary).double()
    before, backbone = head(client), client.model.backbone.module[1].weight.detach().clone()
    play_round(method, state, [client], 3, tiny)
    moved = (before - head(client)).double() / 0.1
    basis = torch.linalg.qr(columns.T)[0]
    torch.testing.assert_close(moved, basis @ (basis.T @ raw), rtol=0, atol=1e-5)
    assert not torch.allclose(moved, raw, atol=1e-3)
    # What is remembered is the raw update: projected ones would never leave the span.
    torch.testing.assert_close(client.memory["head_updates"][2].double(), -0.1 * raw, rtol=0, atol=1e-6)
    assert not torch.equal(client.model.backbone.module[1].weight, backbone)
    assert client.journal["subspace"] == {"updates": 2, "directions": 2}


def test_a_raw_update_sums_the_steps_of_a_round_at_its_rate(tiny):
    (client,) = clients_for(
        tiny, "fedsce", [[0, 1, 2, 1, 0, 2, 1, 0]], auxiliary=maker(tiny), local_epochs=2, lr_decay=0.5
    )
    method = made("fedsce", **OPTIONS, warmup=99)
    state = method.start(client.task, tiny.draws)
    for round in (1, 2, 3):
        before = head(client)
        state = play_round(method, state, [client], round, tiny)
        torch.testing.assert_close(client.memory["head_updates"][-1], head(client) - before, rtol=0, atol=1e-6)
    assert client.journal["train"]["steps"] == 4
    assert client.journal["subspace"] == {"updates": 2, "directions": None}


def test_the_memory_holds_the_latest_updates_alone_and_those_of_rounds_that_the_client_trained(tiny):
    clients = clients_for(tiny, "fedsce", ONE_BATCH * 2, auxiliary=maker(tiny))
    method = made("fedsce", **OPTIONS, window=3, warmup=2)
    state, seen = method.start(clients[0].task, tiny.draws), []
    for round in range(1, 6):
        state = play_round(method, state, clients if round == 5 else clients[:1], round, tiny)
        seen.append(clients[0].memory["head_updates"][-1].clone())
    assert torch.equal(clients[0].memory["head_updates"], torch.stack(seen[-3:]))
    assert len(clients[1].memory["head_updates"]) == 1
    assert clients[1].journal["subspace"] == {"updates": 0, "directions": None}  # late, so unconfined


def test_the_distance_in_features_is_the_mean_over_the_training_samples(tiny):
    (client,) = clients_for(tiny, "fedsce", [[0, 0, 0, 0, 1, 2]], auxiliary=maker(tiny), eval_batch_size=4)
    method = made("fedsce", **OPTIONS)
    state = method.start(client.task, tiny.draws)
    sent = method.client_round(client, state, 1, tiny.draws)
    before, after = maker(tiny)("").eval(), maker(tiny)("").eval()
    after.load_state_dict({**sent.parameters, **sent.buffers})
    x = client.shard.train.x
    with torch.no_grad():
        expected = (after.features(x) - before.features(x)).norm(dim=1).mean()
    assert expected > 0
    torch.testing.assert_close(sent.feature_distance, expected)


def test_the_server_weighs_by_both_distances_of_which_that_of_parameters_leaves_buffers_out(tiny):
    # The sheet's distances: 2, 1, 1 in parameters and 0.5, 0.5, 1 in features make the weights 0.375, 0.25, 0.375.
    state = Shared({"w": torch.zeros(2)}, {"mean": torch.zeros(1)})
    moves = [([2.0, 0.0], 100.0, 0.5), ([0.0, 1.0], -50.0, 0.5), ([0.6, 0.8], 10.0, 1.0)]
    uploads = [
        Upload(k, Moved({"w": torch.tensor(w)}, {"mean": torch.tensor([mean])}, torch.tensor(distance)))
        for k, (w, mean, distance) in enumerate(moves)
    ]
    new = made("fedsce").server_round(state, iter(uploads), 1, tiny.draws)
    torch.testing.assert_close(new.parameters["w"], torch.tensor([0.975, 0.55]))
    torch.testing.assert_close(new.buffers["mean"], torch.tensor([0.375 * 100 - 0.25 * 50 + 0.375 * 10]))
    uniform = made("fedsce", weighting="uniform").server_round(state, iter(uploads), 1, tiny.draws)
    torch.testing.assert_close(uniform.parameters["w"], torch.tensor([2.6, 1.8]) / 3)
    assert made("fedsce").server_round(state, iter(()), 1, tiny.draws) is state


def test_a_client_without_samples_moved_nothing(tiny):
    clients = clients_for(tiny, "fedsce", ONE_BATCH, auxiliary=maker(tiny))
    shard = clients[0].shard
    clients[0].shard = type(shard)(**{**vars(shard), "train": shard.test, "counts": 0 * shard.counts})
    method = made("fedsce", **OPTIONS)
    with pytest.warns(match="no training samples"):
        sent = method.client_round(clients[0], method.start(clients[0].task, tiny.draws), 1, tiny.draws)
    assert sent.feature_distance == 0
    assert not clients[0].memory


def test_it_says_that_it_is_our_reading():
    assert "our reading" in find_method("fedsce").summary


def test_the_default_sends_the_sheets_number_of_scalars(tiny, tmp_path):
    data = tiny.dataset([[4, 2, 2, 2, 2, 2, 2, 2, 2, 2]], channels=3)
    record = tiny.play("fedsce", tmp_path / "run", data=data, rounds=1)
    (row,) = [row for row in record.rows if row["kind"] == "client" and row["round"] == 1]
    assert (row["traffic"]["up_scalars"], row["traffic"]["down_scalars"]) == (878_539, 878_538)
