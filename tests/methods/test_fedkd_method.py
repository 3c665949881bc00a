"""FedKD through its own verbs; its losses and its compression have tests of their own."""

import pytest
import torch
from methods.auxiliaries import OPTIONS, maker
from methods.small_federation import clients_for, made, play, play_round, states
from torch import nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss

from motley.errors import InvalidMessage
from motley.methods.contracts import Upload

PLAIN = {"loss_weight": 0.0, "clip": None, "energy_start": 1.0, "energy_end": 1.0}  # as identity 7 wants it


def divergence(teacher, student):
    return kl_div(log_softmax(student, 1), log_softmax(teacher.detach(), 1), log_target=True, reduction="batchmean")


@pytest.mark.parametrize("clip", [None, 0.05])
def test_a_step_is_three_optimizers_each_with_its_own_loss_and_clipping(tiny, clip):
    (client,) = clients_for(tiny, "fedkd", [[0, 1, 2, 1]], auxiliary=maker(tiny))
    (twin,) = clients_for(tiny, "fedkd", [[0, 1, 2, 1]], auxiliary=maker(tiny))
    mentor, mentee = twin.model.train(), maker(tiny)("").train()
    with tiny.draws.scope("mapping", client=0):
        mapping = nn.Linear(6, 8, bias=False)
    x, y = twin.shard.train.x, twin.shard.train.y
    z, za = mentor.features(x), mentee.features(x)
    o, oa = mentor.classify(z), mentee.classify(za)
    scale = (cross_entropy(o, y) + cross_entropy(oa, y)).item()
    first = cross_entropy(o, y) + (divergence(oa, o) + mse_loss(z, mapping(za).detach())) / scale
    second = cross_entropy(oa, y) + (divergence(o, oa) + mse_loss(mapping(za), z.detach())) / scale
    for loss, owners in ((first, (mentor,)), (second, (mentee, mapping))):
        parameters = [list(owner.parameters()) for owner in owners]
        gradients = torch.autograd.grad(loss, [one for owner in parameters for one in owner], retain_graph=True)
        for owner in parameters:
            own, gradients = gradients[: len(owner)], gradients[len(owner) :]
            norm = torch.stack([one.norm() for one in own]).norm().item()
            factor = 1.0 if clip is None else min(1.0, clip / norm)
            assert clip is None or factor < 1
            with torch.no_grad():
                for parameter, gradient in zip(owner, own, strict=True):
                    parameter.sub_(0.1 * factor * gradient)
    method = made("fedkd", **OPTIONS, clip=clip, energy_start=1.0, energy_end=1.0)
    state = play_round(method, method.start(client.task, tiny.draws), [client], 1, tiny)
    for found, expected in (
        (dict(client.model.state_dict()), mentor.state_dict()),
        (state.mentee, mentee.state_dict()),
        ({"weight": client.memory["mapping/weight"]}, mapping.state_dict()),
    ):
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6)
    terms = client.journal["train"]["terms"]
    assert terms["cross_entropy"] + terms["distillation"] == pytest.approx(first.item(), rel=1e-5)
    assert terms["auxiliary"] + terms["auxiliary_distillation"] == pytest.approx(second.item(), rel=1e-5)


def test_identity_7_without_distillation_the_mentor_is_local_and_the_mentee_that_of_fml(tiny):
    kinds = {name: clients_for(tiny, name, auxiliary=maker(tiny)) for name in ("fedkd", "fml", "local")}
    found = play(made("fedkd", **OPTIONS, **PLAIN), kinds["fedkd"], 4, tiny)
    expected = play(made("fml", **OPTIONS, alpha=0.5, beta=1.0), kinds["fml"], 4, tiny)
    play(made("local"), kinds["local"], 4, tiny)
    tiny.assert_same_tensors(states(kinds["fedkd"]), states(kinds["local"]))
    for name, tensor in expected.weights.items():
        torch.testing.assert_close(found.mentee[name], tensor, rtol=0, atol=1e-5)


def test_clients_have_the_servers_mentee_bit_for_bit_and_get_updates_alone(tiny):
    clients = clients_for(tiny, "fedkd", auxiliary=maker(tiny))
    method = made("fedkd", **OPTIONS, energy_start=0.5)
    state = method.start(clients[0].task, tiny.draws)
    for round in range(1, 5):
        news = [method.broadcast(state, one.id) for one in clients]
        assert all(bool(one.mentee) is (round == 1) and bool(one.update) is (round > 1) for one in news)
        before = {name: tensor.clone() for name, tensor in state.mentee.items()}
        state = play_round(method, state, clients, round, tiny)
        for client in clients:
            held = {name[7:]: tensor for name, tensor in client.memory.items() if name.startswith("mentee/")}
            tiny.assert_same_tensors(held, before)


def test_a_client_that_missed_a_broadcast_gets_the_whole_mentee(tiny):
    clients = clients_for(tiny, "fedkd", auxiliary=maker(tiny))
    method = made("fedkd", **OPTIONS)
    state = method.start(clients[0].task, tiny.draws)
    for round, present in ((1, clients), (2, clients[:1]), (3, clients[:2]), (4, clients[:2])):
        whole = [bool(method.broadcast(state, one.id).mentee) for one in present]
        assert whole == {1: [True] * 3, 2: [False], 3: [False, True], 4: [False, False]}[round]
        state = play_round(method, state, present, round, tiny)
    assert state.version.item() == 4
    assert state.known.tolist()[:3] == [3, 3, 0]
    with pytest.raises(InvalidMessage, match="client 2 has version 0 of the mentee and got the update to 4"):
        method.client_round(clients[2], method.broadcast(state, 0), 5, tiny.draws)


def test_a_round_without_uploads_changes_nothing(tiny):
    method = made("fedkd", **OPTIONS)
    state = method.start(clients_for(tiny, "fedkd", auxiliary=maker(tiny))[0].task, tiny.draws)
    assert method.server_round(state, iter(()), 1, tiny.draws) is state


def test_the_server_applies_the_compressed_mean_of_the_updates(tiny):
    clients = clients_for(tiny, "fedkd", auxiliary=maker(tiny))
    method = made("fedkd", **OPTIONS, energy_start=1.0, energy_end=1.0)
    state = method.start(clients[0].task, tiny.draws)
    sent = [method.client_round(one, method.broadcast(state, one.id), 1, tiny.draws) for one in clients]
    new = method.server_round(state, (Upload(k, one) for k, one in enumerate(sent)), 1, tiny.draws)
    mean = torch.stack([one.update["head.bias"] for one in sent]).mean(dim=0)
    torch.testing.assert_close(new.mentee["head.bias"], state.mentee["head.bias"] + mean)
    counter = "backbone.2.num_batches_tracked"
    assert new.mentee[counter] == max(one.update[counter] for one in sent) > 0
    moved = new.mentee["backbone.2.running_mean"] - state.mentee["backbone.2.running_mean"]
    torch.testing.assert_close(moved, torch.stack([one.update["backbone.2.running_mean"] for one in sent]).mean(dim=0))


def test_the_mapping_is_kept_and_differs_between_clients(tiny):
    clients = clients_for(tiny, "fedkd", [[0, 1, 2, 1]] * 3, auxiliary=maker(tiny))
    method = made("fedkd", **OPTIONS)
    state = play_round(method, method.start(clients[0].task, tiny.draws), clients, 1, tiny)
    first = [client.memory["mapping/weight"].clone() for client in clients]
    assert [one.shape for one in first] == [(8, 6), (12, 6), (8, 6)]
    assert not torch.equal(first[0], first[2])
    play_round(method, state, clients[:1], 2, tiny)
    drift = (clients[0].memory["mapping/weight"] - first[0]).abs().max()
    assert 0 < drift < 0.2  # went on from where it was


def test_what_travels_shrinks_after_the_first_contact(tiny, tmp_path):
    data = tiny.dataset([[9, 9, 2, 2, 2, 2, 2, 2, 2, 2]], channels=3)
    record = tiny.play("fedkd", tmp_path / "run", data=data, rounds=2)
    rows = [row["traffic"] for row in record.rows if row["kind"] == "client" and row["round"]]
    assert rows[0]["down_scalars"] == 878_538
    assert rows[1]["down_scalars"] < 200_000
    assert all(0 < row["up_scalars"] < 200_000 for row in rows)
