"""FedGD: who trains the generator, what travels when, and what the pictures are made for (distillation sheet, 2)."""

import copy
import warnings
from dataclasses import replace

import pytest
import torch
from small_federation import C, clients_for, made, states
from torch import nn

from motley.data.shards import Normalization
from motley.errors import MotleyWarning
from motley.functional.synthesis import statistics_distance
from motley.methods import fedgd, fedgd_generator
from motley.methods.fedgd_generator import new_generator, synthesise
from motley.methods.fedgd_options import FedGDOptions
from motley.methods.proxy import train_on_labels
from motley.models.registry import architectures
from motley.models.spec import InputSpec
from motley.models.split import SplitModel
from motley.training.digest import outputs_of

SERIES = ("signal-cnn", "signal-residual", "signal-gru")
SMALL = {"synthetic": 6, "gen_steps": 4, "gen_batch": 4, "refresh": 4}
LABELS = ([0, 0, 0, 1, 1, 1], [1, 2, 2, 2, 1, 2], [2, 0, 0, 0, 1], [0, 1, 2, 2])


def federation(tiny, number=4):
    """Return clients whose task says that there are 4; two of four have batch norm."""
    return clients_for(
        tiny, "fedgd", LABELS[:number], as_bytes=True, normalization=Normalization(1 / 255, (0.5,), (0.5,))
    )


def play(tiny, method, clients, rounds, active=None, start=1):
    """Play rounds among peers; return what was sent, by round and peer."""
    sent = {}
    for round in range(start, rounds + 1):
        here = [one for one in clients if one.id in (active(round) if active else range(len(clients)))]
        sent[round] = {one.id: method.snapshot(one, round) for one in here}
        for client in here:
            client.journal.clear()
            for peer, message in sent[round].items():
                message.check(f"peer {peer}", C=C)
            inbox = {peer: message for peer, message in sent[round].items() if peer != client.id}
            method.peer_round(client, inbox, round, tiny.draws)
    return sent


def test_the_generator_of_the_sheet_has_2_328_899_parameters():
    made_of = new_generator((3, 32, 32))
    assert sum(parameter.numel() for parameter in made_of.parameters()) == 2_328_899
    assert made_of(torch.zeros(2, 256)).shape == (2, 3, 32, 32)


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 8, 8), (3, 28, 28), (2, 5, 9)])
def test_pictures_have_the_shape_of_the_inputs(shape):
    found = fedgd_generator._make(new_generator(shape), torch.randn(3, 256), shape)
    assert found.shape == (3, *shape)
    assert 0 <= found.min() <= found.max() <= 1


def parts(message) -> set[str]:
    """Return what of a message is not empty."""
    return {name.split("/")[0] for name, tensor in message.tensors().items() if tensor.numel() and name != "made"}


def test_what_travels_and_when(tiny):
    clients = federation(tiny)
    sent = play(tiny, made("fedgd", **SMALL), clients, 8)
    found = {round: [parts(messages[peer]) for peer in range(4)] for round, messages in sent.items()}
    nothing, logits, model = set(), {"logits"}, {"model"}
    assert found[1] == [nothing] * 4
    assert found[2] == [model] * 4  # the trainer is client 2 mod 4
    assert found[3] == [nothing, nothing, {"samples", "logits"}, nothing]
    assert found[4] == found[5] == [logits] * 4
    assert found[6] == [model, model, {"model", "generator"}, model]  # and again client 6 mod 4
    assert found[7] == [logits, logits, {"samples", "logits"}, logits]
    assert found[8] == [logits] * 4
    made_by = {round: [int(messages[peer].made) for peer in range(4)] for round, messages in sent.items()}
    first, second = 2 * 4 + 2, 6 * 4 + 2
    assert made_by[3] == [0, 0, first, 0]
    assert made_by[4] == made_by[6] == [first] * 4
    assert made_by[7] == [first, first, second, first]
    assert made_by[8] == [second] * 4
    samples = sent[3][2].samples
    assert samples.shape == (6, 1, 4, 4)
    assert sent[3][2].num_bytes == 6 * 16 + 4 * 6 * C
    assert sent[4][0].num_scalars == 6 * C
    number = sum(parameter.numel() for parameter in new_generator((1, 4, 4)).parameters())
    statistics = 2 * (128 + 128 + 64)
    assert sent[6][2].num_scalars - sent[2][2].num_scalars == number + statistics


def test_the_next_trainer_goes_on_with_the_generator_that_arrived(tiny, monkeypatch):
    starts = {}
    plain = fedgd.synthesise

    def noted(client, teachers, start, options, draws, round):
        starts[round] = (client.id, sorted(teachers), start)
        return plain(client, teachers, start, options, draws, round)

    monkeypatch.setattr(fedgd, "synthesise", noted)
    clients = federation(tiny)
    sent = play(tiny, made("fedgd", **SMALL | {"refresh": 3}), clients, 5)
    assert starts[2] == (2, [0, 1, 3], None)
    trainer, teachers, start = starts[5]  # client 5 mod 4; the generator is that of client 2
    assert (trainer, teachers) == (1, [0, 2, 3])
    tiny.assert_same_tensors(dict(start), dict(sent[5][2].generator))


def test_the_consensus_is_digested_before_the_private_epoch(tiny, monkeypatch):
    clients = federation(tiny)
    method = made("fedgd", **SMALL)
    play(tiny, method, clients, 3)
    seen = {}
    monkeypatch.setattr(fedgd, "digest", lambda client, x, targets, *_, **__: seen.update({client.id: targets}))
    inputs = fedgd._inputs(clients[0])
    stored = clients[0].memory["samples"]
    torch.testing.assert_close(inputs, (stored.float() / 255 - 0.5) / 0.5)
    expected = torch.stack([outputs_of(one, inputs) for one in clients]).double().mean(dim=0).float()
    play(tiny, method, clients, 4, start=4)
    assert len(seen) == 4
    for targets in seen.values():
        assert torch.equal(targets, seen[0])
        torch.testing.assert_close(targets, expected)
    assert clients[1].journal["consensus_of"] == 4


def test_rounds_without_digest_are_local(tiny):
    clients, twins = federation(tiny), federation(tiny)
    play(tiny, made("fedgd", **SMALL), clients, 3)  # models and pictures travel: nothing is learned of them yet
    for round in (1, 2, 3):
        for client in twins:
            train_on_labels(client, tiny.draws, round=round)
    tiny.assert_same_tensors(states(clients), states(twins))
    play(tiny, made("fedgd", **SMALL), clients, 4, start=4)
    for client in twins:
        train_on_labels(client, tiny.draws, round=4)
    assert any(not torch.equal(one, states(twins)[name]) for name, one in states(clients).items())


def test_no_model_is_changed_by_the_generator(tiny):
    clients = federation(tiny)
    method = made("fedgd", **SMALL)
    teachers = {one.id: method.snapshot(one, 2).model for one in clients[1:]}
    before = states(clients)
    templates = {peer: copy.deepcopy(clients[0].task.template(peer).state_dict()) for peer in teachers}
    found = synthesise(clients[0], teachers, None, FedGDOptions(**SMALL), tiny.draws, 2)
    tiny.assert_same_tensors(states(clients), before)
    assert all(parameter.grad is None for one in clients for parameter in one.model.parameters())
    for peer, state in templates.items():
        tiny.assert_same_tensors(dict(clients[0].task.template(peer).state_dict()), dict(state))
    assert found is not None
    again = synthesise(clients[0], teachers, None, FedGDOptions(**SMALL), tiny.draws, 2)
    assert torch.equal(found.samples, again.samples)
    assert set(found.terms) == {"labels", "statistics", "disagreement"}


def test_the_statistics_are_those_of_the_received_batch_norms(tiny):
    # One teacher with one batch norm: the term in the first step, by hand.
    clients = federation(tiny)
    train_on_labels(clients[1], tiny.draws, round=1)
    weights = {name: tensor.clone() for name, tensor in clients[1].model.state_dict().items()}
    options = FedGDOptions(**SMALL | {"gen_steps": 1, "gen_batch": 6})
    found = synthesise(clients[0], {1: weights}, None, options, tiny.draws, 2)
    with tiny.draws.scope("generator initial"):
        generator = new_generator((1, 4, 4)).train()
    noise = torch.randn(6, 256, generator=tiny.draws.generator("synthetic", round=2, client=0))
    x = (generator(noise) - 0.5) / 0.5
    layers = clients[1].model.backbone.module
    norm = next(part for part in layers if isinstance(part, nn.BatchNorm1d))
    entering = layers[1](layers[0](x))
    expected = 10 * statistics_distance(entering, norm.running_mean, norm.running_var)
    assert found.terms["statistics"] == pytest.approx(expected.item(), rel=1e-5)


def test_teachers_without_batch_norm_skip_that_term(tiny):
    clients = federation(tiny)
    teachers = {2: dict(clients[2].model.state_dict())}  # clients 0 and 2 have none
    found = synthesise(clients[0], teachers, None, FedGDOptions(**SMALL), tiny.draws, 2)
    assert found.terms["statistics"] == 0.0


def test_the_pictures_become_what_the_ensemble_knows_by_label(tiny):
    clients = federation(tiny)
    for round in range(1, 31):
        for client in clients:
            train_on_labels(client, tiny.draws, round=round)
    teachers = {one.id: dict(one.model.state_dict()) for one in clients[1:]}
    only = {"statistics_weight": 0.0, "disagreement_weight": 0.0, "synthetic": 12, "gen_batch": 12}
    short, long = (
        synthesise(clients[0], teachers, None, FedGDOptions(**only, gen_steps=steps), tiny.draws, 2).terms["labels"]
        for steps in (1, 60)
    )
    assert long < 0.5 * short


def test_noise_and_generator_are_both_optimised(tiny):
    clients = federation(tiny)
    teachers = {2: dict(clients[2].model.state_dict())}

    def pictures(**rates):
        options = FedGDOptions(**SMALL | {"gen_steps": 6, "gen_batch": 6} | rates)
        return synthesise(clients[0], teachers, None, options, tiny.draws, 2).samples

    still = pictures(gen_lr=1e-12, noise_lr=1e-12)
    assert not torch.equal(pictures(gen_lr=1e-12, noise_lr=0.5), still)
    assert not torch.equal(pictures(gen_lr=0.01, noise_lr=1e-12), still)


def test_who_missed_the_pictures_trains_alone_until_the_next(tiny):
    clients = federation(tiny)
    active = {1: {0, 1, 2, 3}, 2: {0, 1, 2, 3}, 3: {0, 2, 3}, 4: {0, 1, 2, 3}}
    sent = play(tiny, made("fedgd", **SMALL), clients, 4, active=active.__getitem__)
    assert parts(sent[4][1]) == set()
    assert "digest" not in clients[1].journal
    assert clients[0].journal["consensus_of"] == 3


def test_a_trainer_that_is_away_sends_its_pictures_when_it_is_back(tiny):
    clients = federation(tiny)
    active = {1: {0, 1, 2, 3}, 2: {0, 1, 2, 3}, 3: {0, 1, 3}, 4: {0, 1, 2, 3}, 5: {0, 1, 2, 3}}
    sent = play(tiny, made("fedgd", **SMALL), clients, 5, active=active.__getitem__)
    assert parts(sent[4][2]) == {"samples", "logits"}
    assert [int(sent[5][peer].made) for peer in range(4)] == [10] * 4
    assert parts(sent[5][2]) == {"logits"}


def test_the_trainer_is_drawn_of_those_who_are_there(tiny):
    clients = federation(tiny)
    active = {1: {0, 1, 2, 3}, 2: {0, 1, 3}, 3: {0, 1, 3}}
    sent = play(tiny, made("fedgd", **SMALL), clients, 3, active=active.__getitem__)
    assert parts(sent[3][3]) == {"samples", "logits"}  # place 2 mod 3 of 0, 1, 3


def test_alone_it_is_local(tiny):
    clients, twins = federation(tiny, 1), federation(tiny, 1)
    play(tiny, made("fedgd", **SMALL), clients, 5)
    for round in range(1, 6):
        train_on_labels(twins[0], tiny.draws, round=round)
    tiny.assert_same_tensors(states(clients), states(twins))
    assert clients[0].memory == {}


def test_constant_pictures_end_with_a_warning_in_the_record(tiny, monkeypatch):
    clients = federation(tiny)
    flat = torch.full((6, 1, 4, 4), 9, dtype=torch.uint8)
    plain = fedgd.synthesise
    monkeypatch.setattr(fedgd, "synthesise", lambda *given: replace(plain(*given), samples=flat))
    with pytest.warns(MotleyWarning, match="6 of 6 samples of the generator of client 2 are constant"):
        play(tiny, made("fedgd", **SMALL), clients, 2)
    assert clients[2].journal["synthetic"]["constant"] == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(tiny, made("fedgd", **SMALL), clients, 4, start=3)


def test_a_loss_that_is_not_finite_leaves_the_last_set(tiny):
    clients = federation(tiny)
    method = made("fedgd", **SMALL)
    play(tiny, method, clients, 5)
    before = {one.id: one.memory["samples"].clone() for one in clients}
    with torch.no_grad():
        clients[0].model.head.weight.fill_(3e38)  # finite, and its logits are not
    trainer = clients[2]
    inbox = {one.id: method.snapshot(one, 6) for one in clients if one is not trainer}
    with pytest.warns(MotleyWarning, match="the loss of the generator is not finite at client 2"):
        method.peer_round(trainer, inbox, 6, tiny.draws)
    assert torch.equal(trainer.memory["samples"], before[2])
    assert "unsent" not in trainer.memory


def test_g7_pictures_and_generators_that_do_not_fit_are_not_taken(tiny):
    clients = federation(tiny)
    method = made("fedgd", **SMALL)
    sent = play(tiny, method, clients, 3)
    good = sent[3][2]
    for wrong in (replace(good, samples=good.samples[:, :, :2]), replace(good, made=torch.tensor(2**40))):
        client = federation(tiny)[0]
        method.peer_round(client, {2: wrong}, 3, tiny.draws)
        assert "samples" not in client.memory
    odd = replace(method.snapshot(clients[0], 6), generator={"0.weight": torch.zeros(2)})
    others = {peer: method.snapshot(clients[peer], 6) for peer in (1, 3)}
    method.peer_round(clients[2], {0: odd, **others}, 6, tiny.draws)
    assert clients[2].journal["synthetic"]["samples"] == 6


def sensors(tiny):
    """Return clients with two channels of 18 numbers and a network each of the pool signal3; the GRU's is client 2."""

    def network(client_id: int) -> SplitModel:
        with tiny.draws.scope("init", client=client_id):
            return architectures()[SERIES[client_id % 3]].build(InputSpec((2, 18), C))

    templates = [network(number) for number in range(4)]
    return [
        tiny.client(
            torch.randn(len(own), 2, 18, generator=torch.Generator().manual_seed(number)),
            own,
            network(number),
            num_classes=C,
            client_id=number,
            template=templates.__getitem__,
            batch_size=4,
            lr=0.1,
            normalization=Normalization(1.0, (0.5, 1.0), (2.0, 3.0)),
        )
        for number, own in enumerate(LABELS)
    ]


@pytest.mark.parametrize("length", [4, 18, 128])
def test_signals_have_the_shape_of_the_inputs_and_no_bounds(length):
    found = fedgd_generator._make(new_generator((2, length), bounded=False), 3 * torch.randn(5, 256), (2, length))
    assert found.shape == (5, 2, length)
    assert found.min() < 0


def test_signals_are_made_and_learned_from_as_models_see_them(tiny):
    clients = sensors(tiny)
    method = made("fedgd", **SMALL)
    sent = play(tiny, method, clients, 4)
    found = sent[3][2].samples
    assert found.shape == (6, 2, 18)
    assert found.dtype == torch.float32
    assert sent[3][2].num_bytes == 4 * 6 * 2 * 18 + 4 * 6 * C
    assert torch.equal(fedgd._inputs(clients[0]), found)
    assert [one.journal["consensus_of"] for one in clients] == [4] * 4
    back = fedgd.Shared.from_bytes(sent[3][2].to_bytes())
    assert torch.equal(back.samples, found)


def test_recurrent_networks_are_asked_without_cudnn(tiny):
    # cuDNN's recurrent layers have no gradient in evaluation mode; all others are asked with it.
    clients = sensors(tiny)
    asked = {}
    for client in clients:
        gru = next((part for part in client.model.modules() if isinstance(part, nn.GRU)), client.model)
        gru.register_forward_hook(lambda *_, of=client.id: asked.update({of: torch.backends.cudnn.enabled}))
        x = torch.zeros(2, 2, 18, requires_grad=True)
        fedgd_generator._logits(client.model.eval(), client.model.state_dict(), x).sum().backward()
        assert x.grad is not None
    assert asked == {0: True, 1: True, 2: False, 3: True}


def test_g7_samples_of_another_kind_are_not_taken(tiny):
    bytes_for_numbers = torch.zeros(6, 2, 18, dtype=torch.uint8)
    method, client = made("fedgd", **SMALL), sensors(tiny)[0]
    good = play(tiny, method, sensors(tiny), 3)[3][2]
    method.peer_round(client, {2: replace(good, samples=bytes_for_numbers)}, 3, tiny.draws)
    assert "samples" not in client.memory
