# ruff: noqa: NPY002  (the global generators are what is watched here)
import random

import numpy as np
import pytest
import torch
from torch import nn

from motley.data.shards import Samples
from motley.models.registry import find_architecture
from motley.models.spec import InputSpec
from motley.training.evaluation import Score, evaluate, score_snapshot
from motley.training.modes import evaluation_mode, freeze_batch_norm, training_mode


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 3)
    )


def samples(n: int = 37) -> Samples:
    generator = torch.Generator().manual_seed(1)
    return Samples(torch.randn(n, 1, 4, 4, generator=generator), torch.randint(0, 3, (n,), generator=generator))


@pytest.fixture
def score(tiny):
    rule = tiny.client(torch.zeros(2, 1, 4, 4), [0, 1], network(), num_classes=3).shard.normalization

    def run(model: nn.Module, held: Samples, size: int = 512, predict=None) -> Score:
        return evaluate(model, predict or model, held, rule, num_classes=3, batch_size=size)

    return run


def test_a_score_equals_the_plain_loop(score):
    model, held = network(), samples()
    made = score(model, held)
    model.eval()
    correct, count, loss = [0, 0, 0], [0, 0, 0], 0.0
    for x, y in zip(held.x, held.y.tolist(), strict=True):
        logits = model(x[None])[0].detach().double()
        count[y] += 1
        correct[y] += int(logits.argmax()) == y
        loss += float(logits.logsumexp(0) - logits[y])
    assert (list(made.correct), list(made.count)) == (correct, count)
    assert made.loss == pytest.approx(loss / len(held), abs=1e-5)
    assert made.accuracy == sum(correct) / len(held)


def test_b5_evaluation_changes_neither_state_nor_modes_nor_generators(score):
    model = network()
    model.train()
    model[2].eval()  # a part that somebody froze stays frozen
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    flags = [part.training for part in model.modules()]
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state()
    score(model, samples())
    assert [part.training for part in model.modules()] == flags
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[:2]
    assert torch.equal(torch.random.get_rng_state(), states[2])
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("size", [1, 7, 36, 37])
def test_b5_a_score_does_not_depend_on_the_batch_size(score, size):
    model, held = network(), samples()
    whole, cut = score(model, held), score(model, held, size)
    assert (whole.correct, whole.count) == (cut.correct, cut.count)
    assert whole.loss == pytest.approx(cut.loss, abs=1e-5)


def test_b5_a_model_with_dropout_scores_the_same_twice(score):
    model, held = network(), samples()
    assert score(model, held) == score(model, held)


def test_a_set_without_samples_has_no_accuracy_and_no_loss(score):
    empty = score(network(), samples(0))
    assert (empty.count, empty.accuracy, empty.loss) == ((0, 0, 0), None, None)


def test_at_a_tie_the_lower_class_is_the_answer(score):
    held = Samples(torch.zeros(3, 1, 4, 4), torch.tensor([0, 1, 2]))
    assert score(nn.Identity(), held, predict=lambda x: torch.zeros(len(x), 3)).correct == (1, 0, 0)


def test_b4_a_snapshot_scores_bit_for_bit_as_its_sender_and_leaves_the_template_alone():
    sender, template, x = network(), network(), samples().x
    with torch.no_grad():
        for p in sender.parameters():
            p.add_(0.1)
    sender[2].running_mean.fill_(0.3)
    template.train()
    before = {name: tensor.clone() for name, tensor in template.state_dict().items()}
    logits = score_snapshot(template, sender.state_dict(), x)
    assert torch.equal(logits, sender.eval()(x))
    assert not logits.requires_grad
    assert all(part.training for part in template.modules())
    for name, tensor in template.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_b4_a_snapshot_that_was_sent_scores_bit_for_bit_whatever_the_memory_layout():
    # Without its layout the score of this network differs by 2e-8.
    def convolutions(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        model = find_architecture("small-bn").build(InputSpec((3, 32, 32), 10))
        return model.to(memory_format=torch.channels_last)

    sender, template = convolutions(0), convolutions(1)
    x = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    sent = {name: tensor.contiguous() for name, tensor in sender.state_dict().items()}
    with torch.no_grad():
        assert torch.equal(score_snapshot(template, sent, x), sender.eval()(x))


@pytest.mark.parametrize("mode", [training_mode, evaluation_mode])
def test_modes_are_restored_after_an_error_too(mode):
    model = network()
    model.train()
    model[4].eval()

    def fail() -> None:
        with mode(model):
            assert all(part.training is (mode is training_mode) for part in model.modules())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [part.training for part in model] == [True, True, True, True, False, True]


def test_batch_norm_is_frozen_on_request_only():
    model = network().train()
    with training_mode(model), freeze_batch_norm(model, when=False):
        assert model[2].training
    with training_mode(model), freeze_batch_norm(model, when=True):
        assert [part.training for part in model] == [True, True, False, True, True, True]
    assert model[2].training
