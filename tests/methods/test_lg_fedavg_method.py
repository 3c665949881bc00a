"""LG-FedAvg: the worked numbers of its sheet and the identities of section 16 that hold for it."""

import pytest
import torch
from methods.small_federation import C, clients_for, made, play, play_round, states
from torch import nn

from motley.errors import InvalidConfig
from motley.methods.averaging import Common, Trained
from motley.methods.contracts import Upload
from motley.models.split import SplitModel

# Section 3 of the sheet.
N = [50, 30, 20]
W = [[[1.0, 2.0], [3.0, 4.0]], [[-1.0, 0.0], [1.0, 2.0]], [[0.5, 0.5], [0.0, -2.0]]]
B = [[0.1, 0.2], [0.3, -0.4], [0.0, 1.0]]
OUT_W = [[0.3, 1.1], [1.8, 2.2]]
OUT_B = [0.14, 0.18]


def head(weight, bias) -> dict[str, torch.Tensor]:
    return {
        "weight": torch.tensor(weight, dtype=torch.float64),
        "bias": torch.tensor(bias, dtype=torch.float64),
    }


def uploads(numbers):
    for client, (weight, bias, number) in enumerate(zip(W, B, numbers, strict=True)):
        yield Upload(client, Trained(head(weight, bias), torch.tensor(number)))


def averaged(numbers, tiny, **options) -> dict[str, torch.Tensor]:
    return made("lg-fedavg", **options).server_round(Common({}), uploads(numbers), 1, tiny.draws).weights


def test_the_heads_are_averaged_by_samples_as_the_sheet_says(tiny):
    found = averaged(N, tiny)
    torch.testing.assert_close(found["weight"], torch.tensor(OUT_W, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(found["bias"], torch.tensor(OUT_B, dtype=torch.float64), rtol=0, atol=1e-12)


def test_identity_11_equal_numbers_of_samples_are_the_uniform_weighting(tiny):
    uniform = averaged(N, tiny, weighting="uniform")
    tiny.assert_same_tensors(averaged([7, 7, 7], tiny), uniform)
    torch.testing.assert_close(uniform["bias"], torch.tensor([0.4 / 3, 0.8 / 3], dtype=torch.float64))


def test_identity_12_a_common_factor_of_the_samples_changes_nothing(tiny):
    tiny.assert_same_tensors(averaged(N, tiny), averaged([3 * one for one in N], tiny))


@pytest.mark.parametrize("kind", [0, 1])
def test_identity_3_a_single_client_is_local_if_both_start_from_the_same_head(tiny, kind):
    labels = [[0, 1, 2, 1, 1, 0, 2]] * 2
    one, other = clients_for(tiny, "lg-fedavg", labels)[kind], clients_for(tiny, "lg-fedavg", labels)[kind]
    method, local = made("lg-fedavg"), made("local")
    state = method.start(one.task, tiny.draws)
    other.model.head.load_state_dict(state.weights)
    for round in range(1, 5):
        state = play_round(method, state, [one], round, tiny)
        local.client_round(other, local.start(other.task, tiny.draws), round, tiny.draws)
        tiny.assert_same_tensors(states([one]), states([other]))
        tiny.assert_same_tensors(dict(one.model.head.state_dict()), dict(state.weights))


def test_r7_the_head_starts_from_the_servers_address_and_is_equal_for_all(tiny):
    clients = clients_for(tiny, "lg-fedavg")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    state = made("lg-fedavg").start(clients[0].task, tiny.draws)
    assert torch.equal(torch.get_rng_state(), before)
    with tiny.draws.scope("init"):
        expected = nn.Linear(10, C).state_dict()
    tiny.assert_same_tensors(dict(state.weights), dict(expected))
    method = made("lg-fedavg")
    for client in clients:
        client.shard = type(client.shard)(**{**vars(client.shard), "train": client.shard.test})
        with pytest.warns(match="no training samples"):
            sent = method.client_round(client, state, 1, tiny.draws)
        tiny.assert_same_tensors(dict(sent.weights), dict(state.weights))
        assert sent.num_samples.item() == 0


def test_clients_keep_their_backbones_and_share_the_head(tiny):
    clients = clients_for(tiny, "lg-fedavg")
    state = play(made("lg-fedavg"), clients, 2, tiny)
    held = {name: value.clone() for name, value in state.weights.items()}
    backbones = {name: value for name, value in states(clients).items() if "head" not in name}
    play_round(made("lg-fedavg"), state, clients[:1], 3, tiny)
    tiny.assert_same_tensors(dict(state.weights), held)  # training did not reach into the server's state
    after = {name: value for name, value in states(clients).items() if "head" not in name}
    assert not all(torch.equal(after[name], value) for name, value in backbones.items() if name.startswith("0/"))
    assert all(torch.equal(after[name], value) for name, value in backbones.items() if name[0] in "12")


def test_an_upload_does_not_change_while_its_sender_trains_on(tiny):
    method, client = made("lg-fedavg"), clients_for(tiny, "lg-fedavg")[0]
    state = method.start(client.task, tiny.draws)
    sent = method.client_round(client, state, 1, tiny.draws)
    copy = {name: value.clone() for name, value in sent.weights.items()}
    method.client_round(client, state, 2, tiny.draws)
    tiny.assert_same_tensors(dict(sent.weights), copy)


def test_rows_of_classes_that_a_client_lacks_count_with_full_weight(tiny):
    clients = clients_for(tiny, "lg-fedavg")
    method = made("lg-fedavg")
    state = method.start(clients[0].task, tiny.draws)
    sent = [method.client_round(one, state, 1, tiny.draws) for one in clients]
    new = method.server_round(state, (Upload(k, one) for k, one in enumerate(sent)), 1, tiny.draws)
    expected = sum(n / 19 * one.weights["weight"] for n, one in zip([9, 6, 4], sent, strict=True))
    torch.testing.assert_close(new.weights["weight"], expected)
    assert not torch.equal(sent[0].weights["weight"][2], state.weights["weight"][2])  # pushed down, and averaged


def test_r8_the_servers_head_is_used_for_inference_and_left_out_of_the_client(tiny):
    client = clients_for(tiny, "lg-fedavg")[1]
    method = made("lg-fedavg")
    other = Common({"weight": torch.ones(C, 10), "bias": torch.arange(3.0)})
    before = states([client])
    x = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    client.model.eval()
    with torch.no_grad():
        features = client.model.features(x)
        torch.testing.assert_close(
            method.predict(client, other, x), features.sum(dim=1, keepdim=True) + torch.arange(3.0)
        )
        assert torch.equal(method.predict(client, None, x), client.model(x))
    tiny.assert_same_tensors(states([client]), before)


def test_a_round_without_uploads_leaves_the_head_as_it_was(tiny):
    state = Common(head(W[0], B[0]))
    assert made("lg-fedavg").server_round(state, iter(()), 1, tiny.draws).weights is state.weights


def test_c_d_plus_c_numbers_travel_each_way(tiny):
    model = SplitModel(nn.Flatten(), nn.Linear(512, 10))
    client = tiny.client(torch.randn(4, 2, 16, 16), [0, 1, 2, 3], model, num_classes=10)
    method = made("lg-fedavg")
    state = method.start(client.task, tiny.draws)
    sent = method.client_round(client, method.broadcast(state, 0), 1, tiny.draws)
    assert (state.num_scalars, sent.num_scalars) == (5130, 5130)
    assert (state.num_bytes, sent.num_bytes) == (20520, 20520)


def test_r11_heads_that_are_no_linear_layers_are_refused(tiny):
    model = SplitModel(nn.Flatten(), nn.Sequential(nn.Linear(16, 3)), feature_width=16, num_classes=3)
    client = tiny.client(torch.randn(2, 1, 4, 4), [0, 1], model, num_classes=3)
    with pytest.raises(InvalidConfig, match="must be one linear layer, but that of client 0 is Sequential"):
        made("lg-fedavg").start(client.task, tiny.draws)


def test_r11_heads_of_other_widths_are_refused_with_the_clients_names(tiny, tmp_path):
    with pytest.raises(InvalidConfig, match=r"lg-fedavg needs heads of one shape.*different from client 0: 1, 3"):
        tiny.play("lg-fedavg", tmp_path / "run", models=tiny.model)


def test_a_head_without_bias_is_shared_too(tiny):
    model = SplitModel(nn.Flatten(), nn.Linear(16, 3, bias=False))
    client = tiny.client(torch.randn(4, 1, 4, 4), [0, 1, 2, 2], model, num_classes=3)
    method = made("lg-fedavg")
    state = method.start(client.task, tiny.draws)
    assert list(play_round(method, state, [client], 1, tiny).weights) == ["weight"]
    assert method.predict(client, state, client.shard.train.x).shape == (4, 3)
