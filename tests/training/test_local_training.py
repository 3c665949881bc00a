import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from motley.data.shards import Normalization
from motley.errors import MotleyWarning, NonFiniteLoss
from motley.models.split import SplitModel
from motley.training.local import Step, train_local
from motley.training.optimizers import learning_rate, make_optimizer, recall_optimizer, remember_optimizer


def pixels(n: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (n, 1, 4, 4), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def labels(n: int) -> list[int]:
    return [position % 3 for position in range(n)]


def plain(step: Step) -> dict[str, Tensor]:
    return {"cross_entropy": cross_entropy(step.logits, step.y)}


@pytest.fixture
def make(tiny):
    def client(n: int = 20, kind: int = 1, **options: object):
        torch.manual_seed(5)
        model = tiny.model(kind, (1, 4, 4), 3)
        rule = Normalization(1 / 255, (0.5,), (0.5,))
        return tiny.client(pixels(n), labels(n), model, num_classes=3, normalization=rule, **options)

    return client


def state(client) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in client.model.state_dict().items()}


def test_local_training_is_plain_sgd_on_the_drawn_batches(make, tiny):
    client = make(9, kind=0, batch_size=4, lr=0.1, local_epochs=2)
    twin = make(9, kind=0).model.train()
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    shuffle = tiny.draws.generator("shuffle", round=3, client=0)
    x = pixels(9).float() / 255 * 2 - 1
    for _ in range(2):
        order = torch.randperm(9, generator=shuffle)
        for index in (order[:4], order[4:]):  # 9 samples in batches of 4: the last one joins the second batch
            optimizer.zero_grad()
            cross_entropy(twin(x[index]), torch.tensor(labels(9))[index]).backward()
            optimizer.step()
    train_local(client, plain, tiny.draws, round=3)
    for name, tensor in twin.state_dict().items():
        torch.testing.assert_close(client.model.state_dict()[name], tensor, rtol=1e-5, atol=1e-6)


def test_a3_every_sample_is_seen_once_per_epoch_and_the_steps_are_recorded(make, tiny):
    client, seen = make(17, batch_size=8, local_epochs=3), []

    def loss(step: Step) -> dict[str, Tensor]:
        seen.extend(step.index.tolist())
        return plain(step)

    train_local(client, loss, tiny.draws, round=1)
    assert sorted(seen) == sorted(3 * list(range(17)))
    assert client.journal["train"]["steps"] == 3 * 2
    assert client.journal["train"]["samples"] == 3 * 17
    assert seen[:17] != seen[17:34]  # shuffled anew in every epoch


def test_a3_a_client_with_one_sample_trains_with_batch_norm_in_evaluation_mode_and_a_warning(make, tiny):
    client, before = make(1), make(1).model.state_dict()
    with pytest.warns(MotleyWarning, match="client 0 has a single training sample.*BatchNorm"):
        train_local(client, plain, tiny.draws, round=1)
    after = state(client)
    assert client.journal["train"]["steps"] == 1
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert any(name.endswith("weight") for name in changed)
    assert not {name for name in changed if "running" in name or "num_batches" in name}


def test_a_client_with_one_sample_and_no_batch_norm_trains_without_a_warning(make, tiny):
    train_local(make(1, kind=0), plain, tiny.draws, round=1)


def test_a_client_without_samples_warns_and_stays_as_it_is(make, tiny):
    client = make(0)
    before = state(client)
    with pytest.warns(MotleyWarning, match="client 0 has no training samples"):
        train_local(client, plain, tiny.draws, round=1)
    tiny.assert_same_tensors(state(client), before)


def test_c7_the_rate_of_round_10_is_a_function_of_the_round_alone(make, tiny):
    client = make(lr=0.05, lr_decay=0.9)
    train_local(client, plain, tiny.draws, round=10)  # its first round ever
    assert client.journal["train"]["lr"] == pytest.approx(0.019371, abs=5e-7)
    assert learning_rate(client.training, 1) == 0.05
    assert make_optimizer(client.model.parameters(), client.training, 10).param_groups[0]["lr"] == pytest.approx(
        0.05 * 0.9**9, abs=1e-12
    )


@pytest.mark.parametrize(
    "options",
    [{"momentum": 0.9}, {"optimizer": "adam", "lr": 0.01}, {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1}],
    ids=lambda options: options.get("optimizer", "sgd"),
)
def test_c7_a_kept_optimizer_goes_on_where_it_was_and_survives_a_checkpoint(make, tiny, options):
    # Without batch norm: a bias before it has no gradient but rounding, which Adam would blow up.
    client = make(kind=0, batch_size=7, keep_optimizer=True, **options)
    twin = make(kind=0).model.train()
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.get(options.get("optimizer"), torch.optim.SGD)
    known = {name: value for name, value in options.items() if name != "optimizer"}
    optimizer = kind(twin.parameters(), **({"lr": 0.05} | known))
    x, y = pixels(20).float() / 255 * 2 - 1, torch.tensor(labels(20))
    for round in (1, 2, 3):
        # As a checkpoint does: everything that the client remembers becomes plain tensors and comes back as such.
        memory = {name: tensor.clone() for name, tensor in client.memory.items()}
        client.memory.clear()
        client.memory.update(memory)
        train_local(client, plain, tiny.draws, round=round)
        order = torch.randperm(20, generator=tiny.draws.generator("shuffle", round=round, client=0))
        with tiny.draws.scope("dropout", round=round, client=0):
            for start in (0, 7, 14):
                index = order[start : start + 7]
                optimizer.zero_grad()
                cross_entropy(twin(x[index]), y[index]).backward()
                optimizer.step()
    assert client.memory
    for name, tensor in twin.state_dict().items():
        torch.testing.assert_close(client.model.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)


def test_c7_the_optimizer_is_new_each_round_unless_it_is_kept(make, tiny):
    fresh, kept = make(momentum=0.9), make(momentum=0.9, keep_optimizer=True)
    for round in (1, 2):
        train_local(fresh, plain, tiny.draws, round=round)
        train_local(kept, plain, tiny.draws, round=round)
    assert not fresh.memory
    assert any(
        not torch.equal(one, other) for one, other in zip(state(fresh).values(), state(kept).values(), strict=True)
    )


def test_what_an_optimizer_remembers_is_not_changed_by_the_next_round_until_it_ends(make, tiny):
    client = make(momentum=0.9, keep_optimizer=True)
    train_local(client, plain, tiny.draws, round=1)
    before = {name: tensor.clone() for name, tensor in client.memory.items()}
    held = dict(client.memory)

    def broken(step: Step) -> dict[str, Tensor]:
        return {"cross_entropy": plain(step)["cross_entropy"] * math.nan}

    with pytest.raises(NonFiniteLoss):
        train_local(client, broken, tiny.draws, round=2)
    for name, tensor in before.items():
        assert torch.equal(held[name], tensor), name


def test_other_entries_of_the_memory_are_left_to_their_owner():
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    memory = {"relations": torch.eye(2)}
    remember_optimizer(optimizer, memory)
    assert set(memory) == {"relations", "optimizer.0.momentum_buffer", "optimizer.1.momentum_buffer"}
    other = torch.optim.SGD(layer.parameters(), lr=0.3, momentum=0.9)
    recall_optimizer(other, memory)
    assert other.param_groups[0]["lr"] == 0.3
    assert torch.equal(other.state[layer.weight]["momentum_buffer"], memory["optimizer.0.momentum_buffer"])


def test_a_gradient_is_clipped_to_its_global_norm(make, tiny):
    client = make(kind=0, batch_size=64, lr=1.0, clip_norm=0.25)
    before = state(client)
    train_local(client, lambda step: {"loss": 1000 * step.logits.square().mean()}, tiny.draws, round=1)
    moved = torch.cat([(tensor - before[name]).flatten() for name, tensor in state(client).items()])
    assert moved.norm().item() == pytest.approx(0.25, rel=1e-4)


def test_a_step_holds_what_the_model_saw(make, tiny):
    client, steps = make(6, kind=0, batch_size=4), []
    train_local(client, lambda step: steps.append(step) or plain(step), tiny.draws, round=1)
    for step in steps:
        assert torch.equal(step.y, client.shard.train.y[step.index])
        assert step.x.shape == (len(step.index), 1, 4, 4)
        torch.testing.assert_close(step.x, pixels(6)[step.index].float() / 255 * 2 - 1, rtol=0, atol=1e-6)
        assert step.features.shape == (len(step.index), 8)
        assert step.logits.shape == (len(step.index), 3)
        assert step.targets is None
    assert [len(step.index) for step in steps] == [4, 2]


def test_a_module_of_which_only_scores_are_known_trains_without_features(tiny):
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.zeros(16, 3))

        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1) @ self.table

    model = SplitModel.from_module(Scores(), num_classes=3, scores_only=True)
    client, steps = tiny.client(torch.rand(6, 1, 4, 4), labels(6), model, num_classes=3), []
    train_local(client, lambda step: steps.append(step) or plain(step), tiny.draws, round=1)
    assert steps[0].features is None
    assert bool(client.model.backbone.module.table.any())


@pytest.mark.parametrize("augment", ["none", "crop-flip"])
@pytest.mark.parametrize("chunk", [3, 512])
def test_teach_sees_the_very_inputs_of_the_epoch(make, tiny, augment, chunk, monkeypatch):
    client = make(11, kind=0, batch_size=4, local_epochs=2, augment=augment)
    monkeypatch.setattr("motley.training.local.TAUGHT_AT_ONCE", chunk * client.shard.train.x[0].numel())
    calls, steps = [], []

    def teach(x: Tensor) -> Tensor:
        assert torch.is_inference_mode_enabled()
        calls.append(x.clone())
        return x.flatten(1)[:, :5] + 1

    def loss(step: Step) -> dict[str, Tensor]:
        steps.append(step)
        assert not step.targets.requires_grad
        return {"loss": (step.logits.sum(dim=1) * step.targets.sum(dim=1)).mean()}

    train_local(client, loss, tiny.draws, round=1, teach=teach)
    assert len(calls) == 2 * math.ceil(11 / chunk)
    for step in steps:
        assert torch.equal(step.targets, step.x.flatten(1)[:, :5] + 1)
    taught = {tuple(one.flatten().tolist()) for call in calls for one in call}
    assert {tuple(one.flatten().tolist()) for step in steps for one in step.x} == taught
    first, second = (torch.cat([s.x[s.index.argsort()] for s in steps[i : i + 3]]) for i in (0, 3))
    assert (augment == "none") is (sorted(first.flatten().tolist()) == sorted(second.flatten().tolist()))


def test_modules_that_are_handed_in_are_trained_in_the_same_pass(make, tiny):
    client, extra = make(8, kind=0), nn.Linear(8, 1)
    before = extra.weight.clone()
    extra.eval()
    modes = []

    def loss(step: Step) -> dict[str, Tensor]:
        modes.append(extra.training)
        return {**plain(step), "extra": extra(step.features).square().mean()}

    train_local(client, loss, tiny.draws, round=1, modules=(extra,))
    assert modes == [True]
    assert not extra.training
    assert not torch.equal(extra.weight, before)


@pytest.mark.parametrize("clip_norm", [None, 0.25])
def test_gradients_may_be_adjusted_between_backward_and_step_before_the_clipping(make, tiny, clip_norm):
    client = make(8, kind=0, lr=1.0, clip_norm=clip_norm)
    before = state(client)

    def adjust() -> None:
        for parameter in client.model.parameters():
            parameter.grad.fill_(2.0)

    train_local(client, plain, tiny.draws, round=1, adjust=adjust)
    numbers = sum(parameter.numel() for parameter in client.model.parameters())
    expected = 2.0 if clip_norm is None else clip_norm / math.sqrt(numbers)
    for name, tensor in state(client).items():
        torch.testing.assert_close(before[name] - tensor, torch.full_like(tensor, expected), rtol=1e-4, atol=1e-6)


def test_the_recorded_terms_are_means_over_samples_and_their_sum_is_minimised(make, tiny):
    client = make(5, kind=0, batch_size=3, lr=1e-30)
    train_local(
        client,
        lambda step: {"index": step.index.float().mean() + 0 * step.logits.sum(), "two": torch.tensor(2.0)},
        tiny.draws,
        round=1,
    )
    assert client.journal["train"]["terms"] == {"index": pytest.approx(2.0), "two": pytest.approx(2.0)}


def test_a_loss_that_is_not_finite_is_named_by_its_term(make, tiny):
    client = make(8)
    with pytest.raises(NonFiniteLoss, match="the loss term 'topology' is not finite") as found:
        train_local(client, lambda step: {**plain(step), "topology": step.logits.sum() * math.inf}, tiny.draws, round=1)
    assert found.value.term == "topology"
    assert "train" not in client.journal


def test_e2_an_idle_client_holds_no_gradients(make, tiny):
    client = make()
    train_local(client, plain, tiny.draws, round=1)
    assert all(p.grad is None for p in client.model.parameters())


def test_observe_is_called_before_the_weights_change(make, tiny):
    client, seen = make(10, kind=0, batch_size=5, local_epochs=2), []
    before = state(client)

    def observe(epoch: int, step: Step) -> None:
        same = all(torch.equal(tensor, before[name]) for name, tensor in client.model.state_dict().items())
        seen.append((epoch, same))

    train_local(client, plain, tiny.draws, round=1, observe=observe)
    assert seen == [(0, True), (0, False), (1, False), (1, False)]


def test_d1_training_is_repeatable_and_leaves_the_global_generator_alone(make, tiny):
    one, other = make(), make()
    before = torch.random.get_rng_state()
    train_local(one, plain, tiny.draws, round=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)
    train_local(other, plain, tiny.draws, round=2)
    tiny.assert_same_tensors(state(one), state(other))
    assert one.journal == other.journal


def test_without_shuffling_every_epoch_has_the_order_of_the_training_part(make, tiny):
    client, seen = make(10, kind=0, batch_size=4, local_epochs=2, shuffle=False), []
    train_local(client, lambda step: seen.extend(step.index.tolist()) or plain(step), tiny.draws, round=1)
    assert seen == 2 * list(range(10))


def test_a_dropped_last_batch_is_neither_trained_on_nor_counted(make, tiny):
    client, seen = make(19, kind=0, batch_size=8, local_epochs=2, last_batch="drop", lr=1e-30), []

    def loss(step: Step) -> dict[str, Tensor]:
        seen.append(step.index.tolist())
        return {"loss": step.index.double().mean() + 0 * step.logits.sum()}

    train_local(client, loss, tiny.draws, round=1)
    assert [len(one) for one in seen] == [8, 8, 8, 8]
    told = client.journal["train"]
    assert (told["steps"], told["samples"]) == (4, 32)
    assert told["terms"]["loss"] == pytest.approx(sum(map(sum, seen)) / 32)
    first, second = ({*one, *other} for one, other in (seen[:2], seen[2:]))
    assert first != second  # shuffled, so that other samples are left out each time


def test_a_client_without_a_full_batch_never_trains_and_is_named(make, tiny):
    client = make(7, batch_size=8, last_batch="drop", momentum=0.9, keep_optimizer=True)
    before = state(client)
    with pytest.warns(
        MotleyWarning, match=r"client 0 never trains: its 7 samples fill no batch of 8 \(train.last_batch"
    ):
        train_local(client, plain, tiny.draws, round=1, teach=lambda x: x.flatten(1))
    tiny.assert_same_tensors(state(client), before)
    told = client.journal["train"]
    assert (told["steps"], told["samples"], told["terms"]) == (0, 0, {})


def test_teachers_are_asked_about_the_samples_of_full_batches_alone(make, tiny):
    client, asked = make(11, kind=0, batch_size=4, last_batch="drop", shuffle=False), []

    def loss(step: Step) -> dict[str, Tensor]:
        assert torch.equal(step.targets, step.x.flatten(1) + 1)
        return plain(step)

    def teach(x: Tensor) -> Tensor:
        asked.append(len(x))
        return x.flatten(1) + 1

    train_local(client, loss, tiny.draws, round=1, teach=teach)
    assert asked == [8]
