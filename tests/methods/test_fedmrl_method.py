"""FedMRL: the worked numbers of its sheet (section 9) and the identities of section 16 that hold for it."""

import pytest
import torch
from methods.auxiliaries import OPTIONS, featured, gradient, maker
from methods.small_federation import C, clients_for, made, play, play_round, states
from methods.table_students import FLOAT32, float64
from torch import nn
from torch.nn.functional import linear

from motley.errors import InvalidConfig
from motley.methods import fedmrl
from motley.methods.averaging import Common

# Section 9 of the sheet: d1 = 2, d = 3, heads without bias.
Z_AUX = [[1.0, -1.0], [0.5, 0.2]]
Z_LOCAL = [[0.3, 0.7, -0.2], [1.0, 0.0, 0.4]]
P = [[0.1, 0.2, 0.3, -0.1, 0.0], [0.0, -0.3, 0.2, 0.1, 0.4], [0.5, 0.1, 0.0, 0.2, -0.2]]
BIAS = [0.0, 0.1, -0.1]
H_AUX = [[0.4, -0.2], [0.1, 0.3], [-0.5, 0.2]]
H_LOCAL = [[0.2, 0.1, 0.3], [-0.1, 0.4, 0.0], [0.3, -0.3, 0.2]]
Y = [0, 2]
FUSED = [[-0.08, 0.45, 0.48], [0.39, 0.4, 0.09]]
LOGITS_AUX = [[-0.122, 0.127, 0.13], [0.076, 0.159, -0.115]]
LOGITS_LOCAL = [[0.173, 0.188, -0.063], [0.145, 0.121, 0.015]]
LOSS_AUX, LOSS_LOCAL, LOSS = 1.266225929964, 1.105110355832, 2.371336285795
GRAD_P = [
    [-0.166077371936, 0.292417503424, 0.103589805226, -0.179424226099, 0.12345842545],
    [0.229790297146, -0.131954807974, 0.187737325995, 0.111935463416, 0.023924432837],
    [-0.07670786217, 0.065027572103, -0.037195568017, -0.047855358486, 0.006998508101],
]


def of_the_sheet(tiny, **options):
    client = tiny.client(
        torch.arange(2.0).view(2, 1, 1),
        Y,
        featured(Z_LOCAL, H_LOCAL),
        num_classes=3,
        auxiliary=lambda name, width: featured(Z_AUX, H_AUX),
        lr=1.0,
    )
    client.memory["projector/weight"], client.memory["projector/bias"] = torch.tensor(P), torch.tensor(BIAS)
    return client, made("fedmrl", **OPTIONS, auxiliary_width=2, **options), Common(featured(Z_AUX, H_AUX).state_dict())


def test_the_step_of_the_sheet(tiny):
    client, method, received = of_the_sheet(tiny)
    method.client_round(client, received, 1, tiny.draws)
    found = gradient(P, client.memory["projector/weight"])
    torch.testing.assert_close(found, float64(GRAD_P), rtol=0, atol=FLOAT32)
    terms = client.journal["train"]["terms"]
    assert terms["cross_entropy"] == pytest.approx(LOSS_LOCAL, abs=1e-6)
    assert terms["auxiliary"] == pytest.approx(LOSS_AUX, abs=1e-6)
    assert sum(terms.values()) == pytest.approx(LOSS, abs=1e-6)


def test_nothing_is_detached_both_losses_reach_both_backbones(tiny):
    # Slow twin in float64: every parameter has the gradient of the whole loss.
    client, method, received = of_the_sheet(tiny, local_weight=0.7, auxiliary_weight=1.9)
    leaf = {
        name: float64(value).requires_grad_()
        for name, value in {"za": Z_AUX, "z": Z_LOCAL, "p": P, "c": BIAS, "ha": H_AUX, "h": H_LOCAL}.items()
    }
    fused = torch.cat([leaf["za"], leaf["z"]], dim=1) @ leaf["p"].T + leaf["c"]
    first, whole = fused[:, :2] @ leaf["ha"].T, fused @ leaf["h"].T
    torch.testing.assert_close(fused.detach(), float64(FUSED), rtol=0, atol=1e-12)
    torch.testing.assert_close(first.detach(), float64(LOGITS_AUX), rtol=0, atol=1e-12)
    torch.testing.assert_close(whole.detach(), float64(LOGITS_LOCAL), rtol=0, atol=1e-12)
    y = torch.tensor(Y)
    (0.7 * nn.functional.cross_entropy(whole, y) + 1.9 * nn.functional.cross_entropy(first, y)).backward()
    sent = method.client_round(client, received, 1, tiny.draws)
    for before, after, name in (
        (Z_AUX, sent.weights["backbone.rows"], "za"),
        (H_AUX, sent.weights["head.weight"], "ha"),
        (Z_LOCAL, client.model.backbone.rows, "z"),
        (H_LOCAL, client.model.head.weight, "h"),
        (P, client.memory["projector/weight"], "p"),
        (BIAS, client.memory["projector/bias"], "c"),
    ):
        torch.testing.assert_close(gradient(before, after), leaf[name].grad, rtol=0, atol=FLOAT32, msg=name)


def test_inference_reads_the_fused_features_with_the_servers_auxiliary(tiny):
    client, method, received = of_the_sheet(tiny)
    x = client.shard.train.x
    with torch.inference_mode():
        scores = method.predict(client, received, x)
        torch.testing.assert_close(scores.double(), float64(LOGITS_LOCAL), rtol=0, atol=FLOAT32)
        zero = Common({name: torch.zeros_like(tensor) for name, tensor in received.weights.items()})
        assert not torch.allclose(method.predict(client, zero, x), scores)


def test_before_its_first_round_a_client_answers_by_its_own_model(tiny):
    client, method, received = of_the_sheet(tiny)
    client.memory.clear()
    with torch.inference_mode():
        x = client.shard.train.x
        assert torch.equal(method.predict(client, received, x), client.model(x))


def test_identity_8_a_projector_that_passes_the_own_features_on_is_local(tiny, monkeypatch):
    def frozen(client, name, inputs, outputs, draws, *, bias):
        layer = nn.Linear(inputs, outputs)
        with torch.no_grad():
            layer.weight.copy_(torch.cat([torch.zeros(outputs, inputs - outputs), torch.eye(outputs)], dim=1))
            layer.bias.zero_()
        return layer.requires_grad_(False)

    monkeypatch.setattr(fedmrl, "private_layer", frozen)
    ours, theirs = clients_for(tiny, "fedmrl", auxiliary=maker(tiny)), clients_for(tiny, "local")
    play(made("fedmrl", **OPTIONS, auxiliary_weight=0.0), ours, 4, tiny)
    play(made("local"), theirs, 4, tiny)
    tiny.assert_same_tensors(states(ours), states(theirs))


def test_identity_3_a_single_client_gets_its_own_auxiliary_back(tiny):
    (client,) = clients_for(tiny, "fedmrl", [[0, 1, 2, 1, 0]], auxiliary=maker(tiny))
    method = made("fedmrl", **OPTIONS)
    state = method.start(client.task, tiny.draws)
    sent = method.client_round(client, state, 1, tiny.draws)
    again = clients_for(tiny, "fedmrl", [[0, 1, 2, 1, 0]], auxiliary=maker(tiny))
    tiny.assert_same_tensors(dict(play_round(method, state, again, 1, tiny).weights), dict(sent.weights))


def test_the_projector_is_private_kept_and_trained(tiny):
    clients = clients_for(tiny, "fedmrl", [[0, 1, 2, 1]] * 3, auxiliary=maker(tiny))
    method = made("fedmrl", **OPTIONS, auxiliary_width=5)
    state = play_round(method, method.start(clients[0].task, tiny.draws), clients, 1, tiny)
    first = [client.memory["projector/weight"].clone() for client in clients]
    assert [one.shape for one in first] == [(8, 13), (12, 17), (8, 13)]
    assert not torch.equal(first[0], first[2])
    with tiny.draws.scope("projector", client=0):
        initial = nn.Linear(13, 8).weight
    play_round(method, state, clients[:1], 2, tiny)
    drift = [(clients[0].memory["projector/weight"] - one).abs().max() for one in (first[0], initial)]
    assert 0 < drift[0] < 0.1
    assert 0 < drift[1] < 0.2


@pytest.mark.parametrize(("held", "width"), [("smallest", 8), (5, 5)])
def test_d1_is_the_smallest_width_of_the_clients_or_what_is_asked_for(tiny, held, width):
    clients = clients_for(tiny, "fedmrl", auxiliary=maker(tiny))
    state = made("fedmrl", **OPTIONS, auxiliary_width=held).start(clients[0].task, tiny.draws)
    assert state.weights["head.weight"].shape == (C, width)


def test_d1_above_the_width_of_a_client_is_refused_with_its_name(tiny, tmp_path):
    with pytest.raises(InvalidConfig, match=r"is 9, more than the features of clients \[0, 2\]; give 8 or"):
        tiny.play("fedmrl", tmp_path / "run", auxiliary="small-mlp", auxiliary_width=9)


def test_with_eval_state_local_a_client_is_tested_with_the_auxiliary_that_it_trained(tiny, tmp_path):
    runs = {
        state: tiny.play("fedmrl", tmp_path / state, auxiliary="small-mlp", eval_state=state, test_fraction=0.4)
        for state in ("server", "local")
    }
    losses = {
        name: [row["train"]["terms"] for row in record.rows if row["kind"] == "client" and row["round"]]
        for name, record in runs.items()
    }
    assert losses["server"] == losses["local"]  # evaluation changes nothing
    assert tiny.rows(runs["server"]) != tiny.rows(runs["local"])
    held = tiny.weights(runs["local"])
    assert any("auxiliary/head.weight" in name for name in held)
    assert not any("auxiliary/head.weight" in name for name in tiny.weights(runs["server"]))


def test_the_fused_prediction_of_a_real_run_is_what_the_twin_says(tiny):
    clients = clients_for(tiny, "fedmrl", auxiliary=maker(tiny))
    method = made("fedmrl", **OPTIONS)
    state = play(method, clients, 2, tiny)
    auxiliary = maker(tiny)("", 8)
    auxiliary.load_state_dict(state.weights)
    auxiliary.eval()
    for client in clients:
        client.model.eval()
        x = client.shard.train.x
        with torch.inference_mode():
            both = torch.cat([auxiliary.features(x), client.model.features(x)], dim=1)
            fused = linear(both, client.memory["projector/weight"], client.memory["projector/bias"])
            expected = client.model.head(fused)
            torch.testing.assert_close(method.predict(client, state, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("width", "scalars"), [(512, 878_538), (128, 874_698)])
def test_what_travels_is_the_auxiliary_of_this_width(tiny, tmp_path, width, scalars):
    def model(client_id, shape, num_classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(48, 512), nn.ReLU(), nn.Linear(512, num_classes))

    data = tiny.dataset([[4, 2, 2, 2, 2, 2, 2, 2, 2, 2]], channels=3)
    record = tiny.play("fedmrl", tmp_path / "run", data=data, models=model, rounds=1, auxiliary_width=width)
    (row,) = [row for row in record.rows if row["kind"] == "client" and row["round"] == 1]
    assert row["traffic"]["up_scalars"] == row["traffic"]["down_scalars"] == scalars
