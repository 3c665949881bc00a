"""Training on the proxy set against given targets."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import l1_loss

from motley.draws import Draws
from motley.errors import NonFiniteLoss
from motley.federation import Proxy
from motley.training.digest import digest, outputs_of, proxy_of


def absolute(logits, targets):
    return {"error": l1_loss(logits, targets)}


@pytest.fixture
def client(tiny):
    def build(number: int = 10, kind: int = 1, **training):
        torch.manual_seed(1)
        draw = torch.Generator().manual_seed(0)
        x, proxy = torch.rand(4, 1, 4, 4, generator=draw), torch.rand(number, 1, 4, 4, generator=draw)
        held = Proxy(proxy, torch.zeros(number, dtype=torch.int64))
        return tiny.client(x, [0, 1, 2, 0], tiny.model(kind, (1, 4, 4), 3), num_classes=3, proxy=held, **training)

    return build


def state(client):
    return {name: tensor.clone() for name, tensor in client.model.state_dict().items()}


def same(one, other):
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_every_sample_is_used_once_in_a_pass(client, tiny):
    one = client(batch_size=4, lr=0.1)
    seen = []

    def noted(logits, targets):
        seen.append(targets[:, 0].clone())
        return absolute(logits, targets)

    targets = torch.arange(10.0).repeat(3, 1).T
    digest(one, proxy_of(one).x, targets, noted, tiny.draws, round=1, epochs=2)
    assert [len(part) for part in seen] == [4, 4, 2, 4, 4, 2]
    passes = torch.cat(seen).view(2, 10)
    assert torch.equal(passes.sort(dim=1).values, torch.arange(10.0).repeat(2, 1))
    assert not torch.equal(passes[0], passes[1])


def test_a_target_stays_with_its_sample(client, tiny):
    one = client(lr=0.1, kind=0)  # without batch norm and dropout the model says the same in training
    targets = outputs_of(one, proxy_of(one).x)
    digest(one, proxy_of(one).x, targets, absolute, tiny.draws, round=1, epochs=1)
    assert one.journal["digest"]["terms"]["error"] == pytest.approx(0, abs=1e-6)


def test_steps_end_a_digest_in_the_middle_of_a_pass(client, tiny):
    one = client(batch_size=4)
    digest(one, proxy_of(one).x, torch.zeros(10, 3), absolute, tiny.draws, round=1, steps=5)
    assert (one.journal["digest"]["steps"], one.journal["digest"]["samples"]) == (5, 4 + 4 + 2 + 4 + 4)
    assert "train" not in one.journal


@pytest.mark.parametrize(
    ("number", "more"), [(0, {"epochs": 2}), (0, {"steps": 3}), (5, {"epochs": 0}), (5, {"steps": 0})]
)
def test_without_samples_or_steps_nothing_happens(client, tiny, number, more):
    one = client()
    before = state(one)
    digest(one, proxy_of(one).x[:number], torch.zeros(number, 3), absolute, tiny.draws, round=1, **more)
    assert same(before, state(one))
    assert one.journal == {}


def test_one_step_is_that_of_the_optimizer_of_the_run(client, tiny):
    one, other = client(lr=0.2, lr_decay=0.5, kind=0), client(kind=0)
    targets = torch.full((10, 3), 7.0)
    digest(one, proxy_of(one).x, targets, absolute, tiny.draws, round=2, epochs=1)
    l1_loss(other.model(proxy_of(other).x), targets).backward()
    for name, p in other.model.named_parameters():
        torch.testing.assert_close(one.model.get_parameter(name), p - 0.1 * p.grad, rtol=1e-5, atol=1e-6)
    assert one.journal["digest"]["lr"] == pytest.approx(0.1)


def test_other_options_and_clipping_are_followed(client, tiny):
    one = client(kind=0, lr=0.1)
    before = state(one)
    options = replace(one.training, optimizer="sgd", lr=1.0, batch_size=10, clip_norm=0.25)
    digest(one, proxy_of(one).x, torch.full((10, 3), 7.0), absolute, tiny.draws, round=1, epochs=1, training=options)
    moved = sum(((tensor - before[name]) ** 2).sum() for name, tensor in one.model.state_dict().items())
    assert math.sqrt(moved) == pytest.approx(0.25, rel=1e-4)


@pytest.mark.parametrize("kind", [0, 1], ids=["order alone", "order and dropout"])
def test_the_address_decides_and_the_modes_are_restored(client, kind):
    made = []
    for draws, round, purpose in ((Draws(3), 1, "digest"), (Draws(3), 1, "digest"), (Draws(3), 2, "digest"),
                                  (Draws(3), 1, "other"), (Draws(4), 1, "digest")):  # fmt: skip
        one = client(batch_size=3, kind=kind)
        one.model.eval()
        torch.manual_seed(len(made))
        digest(one, proxy_of(one).x, torch.zeros(10, 3), absolute, draws, round=round, epochs=1, purpose=purpose)
        assert not any(part.training for part in one.model.modules())
        assert all(p.grad is None for p in one.model.parameters())
        made.append(state(one))
    assert same(made[0], made[1])
    assert not any(same(made[0], other) for other in made[2:])


def test_one_sample_leaves_batch_norm_as_it_is(client, tiny):
    one = client(number=1)
    norm = next(part for part in one.model.modules() if isinstance(part, nn.BatchNorm1d))
    digest(one, proxy_of(one).x, torch.zeros(1, 3), absolute, tiny.draws, round=1, epochs=1)
    assert norm.num_batches_tracked.item() == 0


def test_a_term_that_is_not_finite_is_named(client, tiny):
    one = client()
    with pytest.raises(NonFiniteLoss, match="error"):
        digest(one, proxy_of(one).x, torch.full((10, 3), math.nan), absolute, tiny.draws, round=1, epochs=1)


def test_outputs_do_not_depend_on_the_mode_and_change_nothing(client):
    one = client()
    before = state(one)
    said = outputs_of(one, proxy_of(one).x)
    one.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(said, one.model(proxy_of(one).x), rtol=1e-5, atol=1e-6)
    assert same(before, state(one))
    assert not said.requires_grad
    assert not said.is_inference()
