import warnings

import pytest
import torch

from motley.errors import MotleyWarning
from motley.training.local import Step, train_local
from motley.training.statistics import RunningPrototypes, class_means, counts_behind, local_prototypes, validation_score


def pixels(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(seed))


LABELS = [0, 2, 0, 2, 2, 0, 0, 0, 2, 2, 0]


@pytest.fixture
def make(tiny):
    def client(size: int = 512, kind: int = 1, **more: object):
        torch.manual_seed(5)
        model = tiny.model(kind, (1, 4, 4), 4)
        return tiny.client(pixels(11), LABELS, model, num_classes=4, eval_batch_size=size, **more)

    return client


def test_local_prototypes_are_the_mean_features_in_evaluation_mode(make):
    client = make()
    with torch.no_grad():
        client.model.eval()
        features = [client.model.features(x[None])[0].double() for x in client.shard.train.x]
        client.model.train()
    made = local_prototypes(client)
    assert made.dtype == torch.float64
    for label in range(4):
        own = [z for z, y in zip(features, LABELS, strict=True) if y == label]
        if own:
            torch.testing.assert_close(made[label], sum(own) / len(own), rtol=0, atol=1e-6)
        else:
            assert bool(made[label].isnan().all())


@pytest.mark.parametrize("size", [1, 7, 11])
def test_p3_prototypes_do_not_depend_on_batches_and_order(make, tiny, size):
    whole = local_prototypes(make())
    torch.testing.assert_close(local_prototypes(make(size)), whole, rtol=0, atol=1e-6, equal_nan=True)
    client = make(size)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(size))
    held = [LABELS[i] for i in order]
    other = tiny.client(client.shard.train.x[order], held, client.model, num_classes=4, eval_batch_size=size)
    torch.testing.assert_close(local_prototypes(other), whole, rtol=0, atol=1e-6, equal_nan=True)


def test_p3_and_b5_the_pass_changes_nothing(make):
    client = make()
    client.model.train()
    client.model.head.eval()
    before = {name: tensor.clone() for name, tensor in client.model.state_dict().items()}
    flags = [part.training for part in client.model.modules()]
    generator = torch.random.get_rng_state()
    local_prototypes(client)
    assert [part.training for part in client.model.modules()] == flags
    assert torch.equal(torch.random.get_rng_state(), generator)
    for name, tensor in client.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_running_prototypes_are_the_mean_features_of_the_last_epoch(make, tiny):
    client = make(kind=1, batch_size=4, local_epochs=2)
    running, seen = RunningPrototypes(client), []

    def observe(epoch: int, step: Step) -> None:
        running(epoch, step)
        if epoch == 1:
            seen.extend(zip(step.features.detach().double(), step.y.tolist(), strict=True))

    train_local(client, lambda step: {"loss": step.logits.square().mean()}, tiny.draws, round=1, observe=observe)
    made = running.result()
    for label in (0, 2):
        own = [z for z, y in seen if y == label]
        torch.testing.assert_close(made[label], sum(own) / len(own), rtol=0, atol=1e-12)
    assert bool(made[[1, 3]].isnan().all())
    assert not made.requires_grad


def test_the_validation_score_is_of_the_validation_part(tiny):
    model = tiny.model(0, (1, 4, 4), 3)
    with torch.no_grad():
        model[-1].weight.zero_()
        model[-1].bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    client = tiny.client(pixels(4), [0, 0, 2, 2], model, num_classes=3, validation=(pixels(5), [1, 1, 0, 1, 2]))
    score = validation_score(client)
    assert (score.correct, score.count) == ((0, 3, 0), (1, 3, 1))


def test_prototypes_may_be_of_the_samples_that_fill_whole_batches(make, tiny):
    client = make(batch_size=4, last_batch="drop", class_means="batches")  # 8 of 11 samples: 0 2 0 2 2 0 0 0
    front = tiny.client(pixels(11)[:8], LABELS[:8], client.model, num_classes=4)
    assert torch.equal(counts_behind(client), torch.tensor([5, 0, 3, 0]))
    torch.testing.assert_close(local_prototypes(client), local_prototypes(front), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 4},
        {"batch_size": 4, "last_batch": "drop"},
        {"batch_size": 4, "class_means": "batches"},
        {"batch_size": 11, "last_batch": "drop", "class_means": "batches"},
    ],
    ids=str,
)
def test_prototypes_are_of_all_samples_otherwise(make, options):
    client = make(**options)
    assert torch.equal(counts_behind(client), client.shard.counts)
    whole = class_means(client, lambda model, x: model.features(x))
    torch.testing.assert_close(local_prototypes(client), whole, rtol=0, atol=0, equal_nan=True)


def test_a_client_without_a_full_batch_has_no_prototypes(make):
    client = make(batch_size=12, last_batch="drop", class_means="batches")
    assert not bool(counts_behind(client).any())
    assert local_prototypes(client).shape == (4, client.model.feature_width)
    assert bool(local_prototypes(client).isnan().all())


@pytest.mark.parametrize("size", [4, 12])
def test_running_prototypes_are_means_over_the_samples_that_passed_by(make, tiny, size):
    client, seen = make(kind=0, batch_size=size, last_batch="drop"), []
    running = RunningPrototypes(client)

    def observe(epoch: int, step: Step) -> None:
        running(epoch, step)
        seen.extend(zip(step.features.detach().double(), step.y.tolist(), strict=True))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MotleyWarning)  # with 12 the client never trains
        train_local(client, lambda step: {"loss": step.logits.square().mean()}, tiny.draws, round=1, observe=observe)
    assert len(seen) == 11 // size * size == running.counts.sum()
    for label in range(4):
        own = [z for z, y in seen if y == label]
        if own:
            torch.testing.assert_close(running.result()[label], sum(own) / len(own), rtol=0, atol=1e-12)
        else:
            assert bool(running.result()[label].isnan().all())
