"""FedGen: what the server learns and keeps, what clients are taught, and its identities of section 16."""

import pytest
import torch
from methods.small_federation import LABELS, C, clients_for, made, play, play_round, states
from torch import nn
from torch.nn.functional import cross_entropy

from motley.functional.distillation import kl
from motley.functional.generation import diversity_penalty, holder_shares, teaching_by_label, teaching_by_logit
from motley.methods import fedgen_generator
from motley.methods.contracts import Upload
from motley.methods.fedgen import HeadAndCounts, HeadAndGenerator
from motley.methods.fedgen_generator import Sampler, generate, new_generator, received_generator
from motley.methods.fedgen_options import FedGenOptions
from motley.models.split import SplitModel

SMALL = {"gen_steps": 3, "gen_batch": 8, "hidden_size": 6, "noise_size": 4}


def some_head(seed: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {"weight": torch.randn(C, 10, generator=draw), "bias": torch.randn(C, generator=draw)}


def uploads(counts) -> list[Upload[HeadAndCounts]]:
    return [Upload(k, HeadAndCounts(some_head(k), torch.tensor(row))) for k, row in counts.items()]


@pytest.fixture
def start(tiny):
    def build(**options):
        method = made("fedgen", **(SMALL | options))
        return method, method.start(clients_for(tiny, "fedgen")[0].task, tiny.draws)

    return build


@pytest.mark.parametrize("teacher", ["label", "logit"])
def test_one_step_of_the_generator_descends_the_loss_of_the_sheet(start, tiny, teacher):
    method, state = start(gen_steps=1, teacher=teacher, diversity_weight=0.7, gen_weight_decay=0.0, gen_lr=0.01)
    counts = torch.tensor([[4, 0, 2], [2, 3, 4]])
    sent = uploads(dict(enumerate(counts.tolist())))
    new = method.server_round(state, iter(sent), 1, tiny.draws)

    twin = new_generator(C, 10, method.options)
    twin.load_state_dict(state.generator)
    sampler = Sampler(tiny.draws, torch.tensor([6, 3, 6]) / 15.0, 4, round=1)
    y, noise = sampler.labels(8), sampler.noise(8)
    z = twin.train()(torch.cat([torch.eye(C)[y], noise], dim=1))
    logits = torch.stack([z @ one.message.head["weight"].T + one.message.head["bias"] for one in sent])
    if teacher == "label":
        taught = teaching_by_label(logits, y, holder_shares(counts))
    else:
        taught = teaching_by_logit(logits, y, torch.tensor([6 / 15, 9 / 15]))
    (taught + 0.7 * diversity_penalty(z, noise)).backward()
    moved = [(state.generator[name] - new.generator[name], p.grad) for name, p in twin.named_parameters()]
    for step, gradient in moved:
        clear = gradient.abs() > 1e-4  # Adam's first step has the length of the rate, against the gradient
        torch.testing.assert_close(step[clear], 0.01 * gradient[clear].sign(), rtol=0, atol=2e-5)
    assert any(bool((gradient.abs() > 1e-4).any()) for _, gradient in moved)
    torch.testing.assert_close(new.generator["1.running_mean"], twin[1].running_mean)
    assert new.generator["1.num_batches_tracked"].item() == 1


def test_the_generator_is_kept_and_sent_and_its_adam_goes_on(start, tiny):
    # Pitfall: HtFLlib trains a generator and sends its first weights for ever.
    method, state = start()
    sent = uploads({0: [4, 0, 2], 1: [2, 3, 4]})
    first = method.server_round(state, iter(sent), 1, tiny.draws)
    down = method.broadcast(first, 0)
    assert not torch.equal(down.generator["3.weight"], state.generator["3.weight"])
    tiny.assert_same_tensors(dict(down.generator), dict(first.generator))
    assert first.adam["optimizer.0.step"].item() == 3
    second = method.server_round(first, iter(sent), 2, tiny.draws)
    assert second.adam["optimizer.0.step"].item() == 6
    forgetful = method.server_round(type(first)(**{**vars(first), "adam": {}}), iter(sent), 2, tiny.draws)
    assert not torch.equal(second.generator["3.weight"], forgetful.generator["3.weight"])
    restored = type(first).from_bytes(first.to_bytes())
    again = method.server_round(restored, iter(sent), 2, tiny.draws)
    tiny.assert_same_tensors(again.tensors(), second.tensors())


def test_the_servers_work_changes_neither_the_old_state_nor_the_uploads(start, tiny):
    method, state = start()
    sent = uploads({0: [4, 0, 2], 1: [2, 3, 4]})
    state = method.server_round(state, iter(sent), 1, tiny.draws)
    before = {name: value.clone() for name, value in state.tensors().items()}
    heads = [{name: value.clone() for name, value in one.message.tensors().items()} for one in sent]
    method.server_round(state, iter(sent), 2, tiny.draws)
    tiny.assert_same_tensors(dict(state.tensors()), before)
    for one, held in zip(sent, heads, strict=True):
        tiny.assert_same_tensors(dict(one.message.tensors()), held)


def test_the_rate_of_the_generator_decays_by_rounds(start, tiny):
    method, state = start(gen_steps=1, gen_lr=0.01, gen_lr_decay=0.5, gen_weight_decay=0.0)
    sent = uploads({0: [4, 0, 2], 1: [2, 3, 4]})
    new = method.server_round(state, iter(sent), 3, tiny.draws)
    assert (new.generator["3.bias"] - state.generator["3.bias"]).abs().max() == pytest.approx(0.0025, rel=1e-3)


def drawn_labels(monkeypatch) -> list[torch.Tensor]:
    seen: list[torch.Tensor] = []
    plain = fedgen_generator.generate

    def noted(generator, labels, noise, num_classes):
        seen.append(labels)
        return plain(generator, labels, noise, num_classes)

    monkeypatch.setattr(fedgen_generator, "generate", noted)
    return seen


def test_a_label_that_no_client_of_the_round_holds_is_not_drawn(start, tiny, monkeypatch):
    seen = drawn_labels(monkeypatch)
    method, state = start(gen_batch=300)
    state = method.server_round(state, iter(uploads({1: [0, 3, 3]})), 1, tiny.draws)
    assert set(torch.cat(seen).tolist()) == {1, 2}
    seen.clear()
    state = method.server_round(state, iter(uploads({0: [4, 0, 2]})), 2, tiny.draws)
    drawn = torch.bincount(torch.cat(seen), minlength=C) / 900
    assert drawn[1] == 0  # only client 1 holds class 1
    assert drawn[2].item() == pytest.approx(5 / 9, abs=0.06)  # but its samples of class 2 count
    torch.testing.assert_close(method.broadcast(state, 0).labels, torch.tensor([4 / 12, 3 / 12, 5 / 12]))


def test_a_client_that_reports_again_counts_once_and_a_late_one_is_added(start, tiny):
    method, state = start()
    assert method.broadcast(state, 0).labels.tolist() == [0, 0, 0]
    for round, sent in enumerate(({2: [4, 0, 2]}, {2: [4, 0, 2]}, {0: [0, 2, 0], 2: [4, 0, 2]}), start=1):
        state = method.server_round(state, iter(uploads(sent)), round, tiny.draws)
    assert state.reported.tolist() == [4, 2, 2]
    assert {name: value.tolist() for name, value in state.counts.items()} == {"2": [4, 0, 2], "0": [0, 2, 0]}
    assert method.server_round(state, iter(()), 4, tiny.draws) is state


def test_identity_4_without_its_weights_it_is_lg_fedavg(tiny):
    one, other = clients_for(tiny, "fedgen"), clients_for(tiny, "lg-fedavg")
    gen, lg = made("fedgen", generated_weight=0.0, latent_weight=0.0, **SMALL), made("lg-fedavg")
    state, head = gen.start(one[0].task, tiny.draws), lg.start(other[0].task, tiny.draws)
    tiny.assert_same_tensors(dict(state.head), dict(head.weights))
    for round in range(1, 5):
        drawn = slice(0, 2) if round == 2 else slice(None)
        state = play_round(gen, state, one[drawn], round, tiny)
        head = play_round(lg, head, other[drawn], round, tiny)
        tiny.assert_same_tensors(states(one), states(other))
        tiny.assert_same_tensors(dict(state.head), dict(head.weights))


def test_round_1_is_that_of_lg_fedavg_and_the_next_is_not(tiny):
    one, other = clients_for(tiny, "fedgen"), clients_for(tiny, "lg-fedavg")
    state, head = play(made("fedgen", **SMALL), one, 1, tiny), play(made("lg-fedavg"), other, 1, tiny)
    tiny.assert_same_tensors(states(one), states(other))
    play_round(made("fedgen", **SMALL), state, one, 2, tiny)
    play_round(made("lg-fedavg"), head, other, 2, tiny)
    assert not torch.equal(one[0].model.head.weight, other[0].model.head.weight)


def test_identity_12_a_common_factor_of_the_counts_changes_nothing(start, tiny):
    method, state = start()
    rows = {0: [4, 0, 2], 1: [2, 3, 4]}
    one = method.server_round(state, iter(uploads(rows)), 1, tiny.draws)
    many = {client: [5 * count for count in row] for client, row in rows.items()}
    other = method.server_round(state, iter(uploads(many)), 1, tiny.draws)
    tiny.assert_same_tensors(dict(one.generator), dict(other.generator))
    tiny.assert_same_tensors(dict(one.head), dict(other.head))


def test_the_generated_term_trains_the_head_alone_and_the_latent_one_the_whole_model(start, tiny):
    labels = [LABELS[0][:6]]
    (client,) = clients_for(tiny, "fedgen", labels, batch_size=6)
    (twin,) = clients_for(tiny, "fedgen", labels, batch_size=6)
    method, state = start(generated_weight=0.6, latent_weight=0.4)
    state = method.server_round(state, iter(uploads({0: [4, 0, 2], 1: [2, 3, 4]})), 1, tiny.draws)
    received = method.broadcast(state, 0)
    before = {name: value.clone() for name, value in received.tensors().items()}
    method.client_round(client, received, 2, tiny.draws)
    tiny.assert_same_tensors(dict(received.tensors()), before)  # the generator's statistics did not move

    twin.model.head.load_state_dict(state.head)
    head, x, y = twin.model.head, twin.shard.train.x, twin.shard.train.y
    generator = received_generator(state.generator, C, method.options, torch.device("cpu"))
    sampler = Sampler(tiny.draws, received.labels, 4, round=2, client=0)
    order = torch.randperm(6, generator=tiny.draws.generator("shuffle", round=2, client=0))
    x, y = x[order], y[order]
    drawn = sampler.labels(6)
    with torch.no_grad():
        u = generate(generator, drawn, sampler.noise(6), C)
        v = generate(generator, y, sampler.noise(6), C)
    logits = twin.model(x)
    terms = {
        "cross_entropy": cross_entropy(logits, y),
        "generated": 0.6 * cross_entropy(head(u), drawn),
        "latent": 0.4 * kl(head(v), logits),
    }
    for name, value in terms.items():
        assert client.journal["train"]["terms"][name] == pytest.approx(value.item(), abs=1e-6), name
    sum(terms.values()).backward()
    for name, p in twin.model.named_parameters():
        torch.testing.assert_close(client.model.get_parameter(name), p - 0.1 * p.grad, rtol=1e-5, atol=1e-6)


def test_a_received_generator_draws_nothing_and_shares_nothing(start):
    _, state = start()
    before = torch.get_rng_state()
    generator = received_generator(state.generator, C, FedGenOptions(**SMALL), torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(part.training for part in generator.modules())
    places = {value.data_ptr() for value in state.generator.values()}
    assert not places & {value.data_ptr() for value in generator.state_dict().values()}


def test_noise_is_uniform_and_every_address_has_its_own(tiny):
    noise = Sampler(tiny.draws, torch.ones(C), 50, round=1).noise(40)
    assert 0 <= noise.min() < 0.01
    assert 0.99 < noise.max() < 1
    assert noise.mean().item() == pytest.approx(0.5, abs=0.03)
    for other in ({"round": 2}, {"round": 1, "client": 0}):
        assert not torch.equal(Sampler(tiny.draws, torch.ones(C), 50, **other).noise(40), noise)


def test_r8_the_servers_head_is_used_for_inference(start, tiny):
    client = clients_for(tiny, "fedgen")[1]
    method, state = start()
    x = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    client.model.eval()
    with torch.no_grad():
        said = client.model.features(x) @ state.head["weight"].T + state.head["bias"]
        torch.testing.assert_close(method.predict(client, method.broadcast(state, 1), x), said)
        assert torch.equal(method.predict(client, None, x), client.model(x))


def test_the_numbers_that_travel_are_those_of_the_sheet(tiny):
    model = SplitModel(nn.Flatten(), nn.Linear(512, 10))
    client = tiny.client(torch.randn(4, 2, 16, 16), [0, 1, 2, 3], model, num_classes=10)
    method = made("fedgen")
    state = method.start(client.task, tiny.draws)
    received = method.broadcast(state, 0)
    assert HeadAndGenerator(received.head, {}, received.labels).num_scalars == 5130
    assert received.num_scalars == 291850
    sent = method.client_round(client, received, 1, tiny.draws)
    assert sent.num_scalars == 5130
    assert sent.counts.tolist() == [1, 1, 1, 1] + [0] * 6
    received.check("the server", C=10)
    sent.check("client 0", C=10)
