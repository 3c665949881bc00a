import pytest
import torch

from motley.training.local import Step, train_local
from motley.training.statistics import RunningPrototypes, local_prototypes, validation_score


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
