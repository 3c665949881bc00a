"""FedAvg: the worked numbers of rule R6 and the identities of section 16 that hold for it."""

import pytest
import torch
from methods.small_federation import C, clients_for, made, play, play_round, states

import motley
from motley.engine.runs import Watch
from motley.errors import InvalidConfig
from motley.methods.averaging import Common, Trained
from motley.methods.contracts import Upload


def test_r6_statistics_are_averaged_and_counters_take_the_maximum(tiny):
    sent = [
        Trained({"mean": torch.tensor(mean), "var": torch.tensor(var), "batches": torch.tensor(b)}, torch.tensor(n))
        for mean, var, b, n in [([0.0, 2.0], [1.0, 4.0], 12, 30), ([4.0, -2.0], [2.0, 0.5], 7, 10)]
    ]
    uploads = [Upload(k, one) for k, one in enumerate(sent)]
    found = made("fedavg").server_round(Common({}), iter(uploads), 1, tiny.draws).weights
    assert found["mean"].tolist() == [1.0, 1.0]
    assert found["var"].tolist() == [1.25, 3.125]
    assert found["batches"].item() == 12
    uniform = made("fedavg", weighting="uniform").server_round(Common({}), iter(uploads), 1, tiny.draws).weights
    assert uniform["mean"].tolist() == [2.0, 0.0]


def test_identity_3_a_single_client_is_local_if_both_start_alike(tiny):
    labels = [[0, 1, 2, 1, 1, 0, 2]]
    (one,), (other,) = clients_for(tiny, "fedavg", labels), clients_for(tiny, "fedavg", labels)
    method, local = made("fedavg"), made("local")
    state = Common({name: value.clone() for name, value in one.model.state_dict().items()})
    for round in range(1, 5):
        state = play_round(method, state, [one], round, tiny)
        local.client_round(other, local.start(other.task, tiny.draws), round, tiny.draws)
        tiny.assert_same_tensors(states([one]), states([other]))
        tiny.assert_same_tensors(dict(state.weights), dict(one.model.state_dict()))


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_the_new_state_is_the_mean_of_what_was_trained_from_the_old_one(tiny, weighting):
    clients, method = clients_for(tiny, "fedavg"), made("fedavg", weighting=weighting)
    old = play(method, clients, 1, tiny)
    new = play_round(method, old, clients, 2, tiny)
    share = [9 / 19, 6 / 19, 4 / 19] if weighting == "samples" else [1 / 3] * 3
    for name, value in new.weights.items():
        held = [client.model.state_dict()[name] for client in clients]
        if value.is_floating_point():
            expected = sum(w * one.double() for w, one in zip(share, held, strict=True))
            torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
    assert new.weights["backbone.module.2.num_batches_tracked"].item() == 2 + 2  # batches of client 0 in two rounds


def test_only_the_drawn_clients_count(tiny):
    clients, method = clients_for(tiny, "fedavg"), made("fedavg")
    state = method.start(clients[0].task, tiny.draws)
    before = states(clients[:2])
    new = play_round(method, state, clients[2:], 1, tiny)
    tiny.assert_same_tensors(dict(new.weights), dict(clients[2].model.state_dict()))
    tiny.assert_same_tensors(states(clients[:2]), before)


def test_r8_inference_uses_the_servers_model_and_changes_neither_client_nor_template(tiny):
    clients, method = clients_for(tiny, "fedavg"), made("fedavg")
    state = play(method, clients, 2, tiny)
    client = clients[0]
    x = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    before, template = states([client]), client.task.template(0)
    held = {name: value.clone() for name, value in template.state_dict().items()}
    said = method.predict(client, state, x)
    tiny.assert_same_tensors(states([client]), before)
    tiny.assert_same_tensors(dict(template.state_dict()), held)
    client.model.eval()
    with torch.no_grad():
        assert torch.equal(method.predict(client, None, x), client.model(x))
        assert not torch.equal(said, client.model(x))
        client.model.load_state_dict(state.weights)
        assert torch.equal(said, client.model(x))  # in evaluation mode, with the averaged statistics
    assert said.shape == (5, C)


def test_r7_a_run_with_a_pool_starts_from_the_servers_address(tiny, tmp_path):
    held = {}

    def began(config, federation, path) -> None:
        held["task"] = federation.task

    usual = {"models": "small-bn", "rounds": 1, "watch": Watch(began=began)}
    tiny.play("fedavg", tmp_path / "run", **usual)
    task = held["task"]
    start = made("fedavg").start(task, tiny.draws).weights
    tiny.assert_same_tensors(dict(start), dict(task.auxiliary("small-bn", None).state_dict()))
    assert not torch.equal(start["head.weight"], task.template(0).state_dict()["head.weight"])
    loose = {name: value.data_ptr() for name, value in task.template(0).state_dict().items()}
    assert not set(loose.values()) & {value.data_ptr() for value in start.values()}


def test_two_architectures_are_refused(tiny, tmp_path):
    with pytest.raises(InvalidConfig, match=r"fedavg needs one architecture at all clients.*take one --models NAME"):
        tiny.play("fedavg", tmp_path / "run", models="small-bn,small-cnn")


def test_models_without_features_are_averaged_too(tmp_path, tiny):
    record = tiny.play("fedavg", tmp_path / "run", models=tailed, rounds=2)
    assert record.summary["status"] == "finished"


def tailed(client_id, shape, num_classes):
    """Return a network with a layer after its last linear one that hides it."""
    inputs = shape[0] * shape[1] * shape[2]
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Unflatten(1, (1, inputs)), Scores(inputs, num_classes))


class Scores(torch.nn.Module):
    def __init__(self, inputs, num_classes):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(inputs, num_classes))

    def forward(self, x):
        return x.flatten(1) @ self.table


def test_with_eval_state_local_the_clients_own_models_are_tested(tiny, tmp_path):
    found = {}
    for where in ("server", "local"):
        record = tiny.play("fedavg", tmp_path / where, eval_state=where, rounds=2, test_fraction=0.4)
        found[where] = [row["scores"]["test_local"] for row in record.rows if row["kind"] == "client" and row["round"]]
    assert found["server"] != found["local"]
    assert motley.load_run(tmp_path / "local").summary["status"] == "finished"
