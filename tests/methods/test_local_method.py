import pytest
import torch
from torch.nn.functional import cross_entropy

from motley.errors import InvalidConfig
from motley.methods.contracts import Nothing
from motley.methods.local import Local, LocalOptions, LocalScaledOptions
from motley.methods.registry import find_method, method_names, needs_text


@pytest.fixture
def client(tiny):
    def build():
        torch.manual_seed(1)
        x = torch.rand(8, 1, 4, 4, generator=torch.Generator().manual_seed(0))
        return tiny.client(x, [0, 1] * 4, tiny.model(0, (1, 4, 4), 3), num_classes=3, lr=0.1)

    return build


@pytest.mark.parametrize(
    ("options", "round", "scale"),
    [
        (LocalOptions(), 1, 1.0),
        (LocalOptions(), 50, 1.0),
        (LocalScaledOptions(), 3, 1.0),
        (LocalScaledOptions(), 4, 2.0),
        (LocalScaledOptions(loss_weight=0.5, warmup_rounds=0), 1, 1.5),
    ],
)
def test_the_loss_is_scaled_from_the_round_after_the_warm_up(client, tiny, options, round, scale):
    one, other = client(), client()
    logits = other.model(other.shard.train.x)
    (scale * cross_entropy(logits, other.shard.train.y)).backward()
    Local(options).client_round(one, Nothing(), round, tiny.draws)
    for name, p in other.model.named_parameters():
        torch.testing.assert_close(one.model.get_parameter(name), p - 0.1 * p.grad, rtol=1e-5, atol=1e-6)


def test_local_sends_nothing_and_keeps_its_state(client, tiny):
    made = Local(LocalOptions())
    state = made.start(client().task, tiny.draws)
    sent = made.client_round(client(), made.broadcast(state, 0), 1, tiny.draws)
    assert (sent.num_scalars, sent.num_bytes) == (0, 0)
    assert Nothing.from_bytes(sent.to_bytes()) == sent
    assert made.server_round(state, iter(()), 1, tiny.draws) is state


def test_methods_are_found_by_name_however_it_is_written():
    assert find_method("Uniform_KD").name == "uniform-kd"
    assert find_method("LOCAL SCALED").name == "local-scaled"
    with pytest.raises(InvalidConfig, match="'fedtoppo' is not a known method; did you mean 'fedtopo'"):
        find_method("fedtoppo")


@pytest.mark.parametrize("name", method_names())
def test_every_method_says_what_it_is_and_what_it_sends(name):
    entry = find_method(name)
    assert entry.name == name
    assert entry.summary.endswith(".")
    assert entry.sends
    assert needs_text(entry.needs)
    for kind in entry.sends.values():
        assert all(rule.about for rule in kind.schema().values()), kind
