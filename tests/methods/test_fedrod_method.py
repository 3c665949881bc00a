"""FedRoD: which term trains what, what is private, and what is averaged."""

from dataclasses import replace

import pytest
import torch
from methods.small_federation import C, clients_for, made, play, play_round, states
from torch import nn
from torch.nn.functional import cross_entropy

from motley.functional.balanced import balanced_cross_entropy
from motley.models.split import SplitModel
from motley.training.memory import recall_state


def personal(client) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in recall_state(client, "personal-head").items()}


def test_each_term_trains_its_own_part(tiny):
    # One step of plain descent over all samples: backbone and common head see the balanced term alone.
    labels = [[0, 0, 0, 2, 2, 0]]
    (client,) = clients_for(tiny, "fedrod", labels, batch_size=6)
    (twin,) = clients_for(tiny, "fedrod", labels, batch_size=6)
    method = made("fedrod")
    state = method.start(client.task, tiny.draws)
    method.client_round(client, state, 1, tiny.draws)

    with tiny.draws.scope("personal-head", client=0):
        own = nn.Linear(10, C)
    twin.model.head.load_state_dict(state.weights)
    features = twin.model.features(twin.shard.train.x)
    y, counts = twin.shard.train.y, torch.tensor([4, 0, 2])
    generic = twin.model.head(features)
    balanced = balanced_cross_entropy(generic, y, counts)
    both = cross_entropy(generic.detach() + own(features.detach()), y)
    (balanced + both).backward()
    for name, p in twin.model.named_parameters():
        torch.testing.assert_close(client.model.get_parameter(name), p - 0.1 * p.grad, rtol=1e-5, atol=1e-6)
    for name, value in personal(client).items():
        p = own.get_parameter(name)
        torch.testing.assert_close(value, (p - 0.1 * p.grad).detach(), rtol=1e-5, atol=1e-6)
    terms = client.journal["train"]["terms"]
    assert terms["balanced"] == pytest.approx(balanced.item(), abs=1e-6)
    assert terms["cross_entropy"] == pytest.approx(both.item(), abs=1e-6)
    # Nobody pushes the common row of a class that is not held.
    assert torch.equal(client.model.head.weight[1], state.weights["weight"][1])


def test_a_prediction_is_the_sum_of_both_heads(tiny):
    clients, method = clients_for(tiny, "fedrod"), made("fedrod")
    state = play(method, clients[:2], 2, tiny)
    x = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    before = states(clients)
    for client in clients:
        client.model.eval()
        with torch.no_grad():
            z = client.model.features(x)
            own = personal(client)
            extra = z @ own["weight"].T + own["bias"] if own else torch.zeros(5, C)
            common = z @ state.weights["weight"].T + state.weights["bias"]
            torch.testing.assert_close(method.predict(client, state, x), common + extra)
            torch.testing.assert_close(method.predict(client, None, x), client.model(x) + extra)
    assert not personal(clients[2])  # it never took part, and is tested with the common head alone
    tiny.assert_same_tensors(states(clients), before)


def test_the_personal_head_stays_and_the_common_one_is_averaged(tiny):
    clients, method = clients_for(tiny, "fedrod"), made("fedrod")
    state = method.start(clients[0].task, tiny.draws)
    first = play_round(method, state, clients, 1, tiny)
    held = [personal(client) for client in clients]
    for name in ("weight", "bias"):
        expected = sum(n / 19 * one.model.head.state_dict()[name] for n, one in zip([9, 6, 4], clients, strict=True))
        torch.testing.assert_close(first.weights[name], expected)
    assert not torch.equal(held[0]["weight"], held[1]["weight"])
    play_round(method, first, clients[:1], 2, tiny)
    assert not torch.equal(personal(clients[0])["weight"], held[0]["weight"])
    tiny.assert_same_tensors(personal(clients[1]), held[1])


def test_the_personal_head_goes_on_from_the_round_before(tiny):
    client, method = clients_for(tiny, "fedrod")[0], made("fedrod")
    state = method.start(client.task, tiny.draws)
    method.client_round(client, state, 1, tiny.draws)
    held = personal(client)
    client.training = replace(client.training, lr=1e-12)
    method.client_round(client, state, 2, tiny.draws)
    torch.testing.assert_close(personal(client)["weight"], held["weight"])


def test_r13_a_late_client_starts_a_fresh_personal_head_of_its_own_address(tiny):
    late, early = clients_for(tiny, "fedrod", lr=1e-12)[2], clients_for(tiny, "fedrod", lr=1e-12)[2]
    method = made("fedrod")
    state = method.start(late.task, tiny.draws)
    method.client_round(early, state, 1, tiny.draws)
    method.client_round(late, state, 9, tiny.draws)
    torch.testing.assert_close(personal(late)["weight"], personal(early)["weight"])
    with tiny.draws.scope("personal-head", client=2):
        torch.testing.assert_close(personal(late)["weight"], nn.Linear(10, C).weight.detach())


def test_as_many_numbers_travel_as_with_lg_fedavg(tiny):
    model = SplitModel(nn.Flatten(), nn.Linear(512, 10))
    client = tiny.client(torch.randn(4, 2, 16, 16), [0, 1, 2, 3], model, num_classes=10)
    method = made("fedrod")
    state = method.start(client.task, tiny.draws)
    assert (state.num_scalars, method.client_round(client, state, 1, tiny.draws).num_scalars) == (5130, 5130)
