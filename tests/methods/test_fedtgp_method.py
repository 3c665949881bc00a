"""FedTGP through its own verbs: its sheet (section 11), its pitfalls, and its identities (section 16)."""

import pytest
import torch
from functional import server_numbers as sheet
from prototype_clients import C, fixed_client, models_of, pulled_client, same_models
from table_students import FLOAT32, float64
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.methods.contracts import Upload
from motley.methods.fedtgp import FedTGP, FedTGPOptions
from motley.methods.prototype_sharing import Prototypes


def method(**options: object) -> FedTGP:
    return FedTGP(FedTGPOptions(**options))


def sent(*rows: dict[int, list[float]]) -> list[Upload]:
    """Return uploads of clients 0, 1, ... with these prototypes by class."""
    return [
        Upload(k, Prototypes(torch.tensor([one[c] for c in sorted(one)]), torch.tensor([c in one for c in range(C)])))
        for k, one in enumerate(rows)
    ]


SHEET = sent({0: [0.0, 0.0], 1: [4.0, 0.0]}, {0: [0.0, 2.0], 1: [4.0, 4.0], 2: [0.0, 8.0]})


def start(tiny, made: FedTGP):
    return made.start(fixed_client(tiny, [[0.0, 0.0]], [0]).task, tiny.draws)


def loops(state, uploads, *, delta: float, lr: float, epochs: int, batch: int, draws: Draws, round: int):
    """The server step as plain loops over the parameters, in float64."""
    held = {name: tensor.double().requires_grad_() for name, tensor in state.network.items()}
    rows = [
        (row.double(), label)
        for upload in uploads
        for row, label in zip(upload.message.rows, upload.message.present.nonzero().flatten().tolist(), strict=True)
    ]
    seen = sorted({label for _, label in rows} | set(state.present.nonzero().flatten().tolist()))

    def centre(label: int):
        hidden = torch.relu(held["1.weight"] @ held["0.weight"][label] + held["1.bias"])
        return held["3.weight"] @ hidden + held["3.bias"]

    generator = draws.generator("server-shuffle", round=round)
    for _ in range(epochs):
        order = torch.randperm(len(rows), generator=generator).tolist()
        for begin in range(0, len(rows), batch):
            losses = []
            for i in order[begin : begin + batch]:
                row, label = rows[i]
                scores = [-((row - centre(c)).square().sum().sqrt() + (delta if c == label else 0.0)) for c in seen]
                losses.append(cross_entropy(torch.stack(scores)[None], torch.tensor([seen.index(label)])))
            gradients = torch.autograd.grad(sum(losses) / len(losses), list(held.values()))
            held = {
                name: (tensor - lr * gradient).detach().requires_grad_()
                for (name, tensor), gradient in zip(held.items(), gradients, strict=True)
            }
    return held, {label: centre(label).detach() for label in seen}


@pytest.mark.parametrize(
    ("options", "delta"), [({}, 7.0), ({"tau": 1.0}, 1.0), ({"margin": "pair"}, sheet.tgp_max_pair)]
)
def test_the_server_trains_as_plain_loops_do(tiny, options, delta):
    made = method(server_epochs=3, server_batch=2, server_lr=0.1, **options)
    state = start(tiny, made)
    new = made.server_round(state, iter(SHEET), 4, tiny.draws)
    held, centres = loops(state, SHEET, delta=delta, lr=0.1, epochs=3, batch=2, draws=tiny.draws, round=4)
    for name, tensor in held.items():
        torch.testing.assert_close(new.network[name].double(), tensor.detach(), rtol=0, atol=FLOAT32)
    assert new.present.tolist() == [True] * 3
    torch.testing.assert_close(new.rows.double(), torch.stack(list(centres.values())), rtol=0, atol=FLOAT32)
    assert not torch.equal(new.network["0.weight"], state.network["0.weight"])
    new.check("the server", C=C)


def test_classes_not_seen_are_left_out_of_the_softmax_and_not_sent(tiny):
    made = method(server_epochs=2, server_lr=0.1)
    uploads = sent({0: [0.0, 0.0], 2: [0.0, 8.0]})
    state = start(tiny, made)
    new = made.server_round(state, iter(uploads), 1, tiny.draws)
    held, centres = loops(state, uploads, delta=8.0, lr=0.1, epochs=2, batch=10, draws=tiny.draws, round=1)
    assert list(centres) == [0, 2]
    torch.testing.assert_close(new.network["3.weight"].double(), held["3.weight"].detach(), rtol=0, atol=FLOAT32)
    assert torch.equal(new.network["0.weight"][1], state.network["0.weight"][1])  # its embedding is not touched
    down = made.broadcast(new, 0)
    assert down.present.tolist() == [True, False, True]
    assert down.num_scalars == 2 * 2


def test_a_class_seen_before_stays_in_the_softmax_and_is_sent(tiny):
    made = method(server_epochs=2, server_lr=0.1)
    state = made.server_round(start(tiny, made), iter(SHEET), 1, tiny.draws)
    uploads = sent({0: [1.0, 0.0], 1: [4.0, 1.0]})
    new = made.server_round(state, iter(uploads), 2, tiny.draws)
    delta = torch.tensor([3.0, 1.0]).norm().item()
    held, _ = loops(state, uploads, delta=delta, lr=0.1, epochs=2, batch=10, draws=tiny.draws, round=2)
    torch.testing.assert_close(new.network["0.weight"].double(), held["0.weight"].detach(), rtol=0, atol=FLOAT32)
    assert new.present.tolist() == [True] * 3
    assert not torch.equal(new.rows[2], state.rows[2])  # pushed, though nobody held it


@pytest.mark.parametrize("uploads", [[], sent({1: [1.0, 1.0]}), sent({1: [1.0, 1.0]}, {1: [2.0, 1.0]})])
def test_with_fewer_than_two_classes_nothing_is_trained(tiny, uploads):
    made = method()
    state = start(tiny, made)
    assert made.server_round(state, iter(uploads), 1, tiny.draws) is state


def test_prototypes_are_those_of_the_trained_model_not_one_round_old(tiny):
    # The pitfall of the authors' code: it collects from the model on disk, before the trained one is saved.
    rows = [[1.0, 2.0], [3.0, 4.0], [0.0, -1.0]]
    client = pulled_client(tiny, rows, [0, 0, 2])
    known = Prototypes(torch.tensor([[9.0, 9.0]]), torch.tensor([True, False, False]))
    upload = method().client_round(client, known, 2, tiny.draws)
    now = client.model.backbone.rows.detach()
    assert not torch.equal(now, torch.tensor(rows))
    torch.testing.assert_close(upload.rows, torch.stack([now[:2].mean(dim=0), now[2]]), rtol=0, atol=1e-6)


def test_a_client_is_pulled_as_by_fedproto(tiny):
    client = pulled_client(tiny, sheet.pr_z, sheet.pr_y)
    present = torch.tensor([True, True, False])
    method().client_round(client, Prototypes(torch.tensor(sheet.pr_uniform)[present], present), 2, tiny.draws)
    moved = float64(sheet.pr_z) - client.model.backbone.rows.detach().double()
    torch.testing.assert_close(moved, float64(sheet.pr_grad_z), rtol=0, atol=FLOAT32)


def test_the_network_is_the_servers_own_draw_and_leaves_the_global_generator_alone(tiny):
    task = fixed_client(tiny, [[0.0, 0.0]], [0]).task
    before = torch.get_rng_state()
    one, other = (method().start(task, tiny.draws).network for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    assert all(bool(tensor.any()) for tensor in one.values())


def test_training_brings_prototypes_nearer_to_their_own_class(tiny):
    made = method(server_lr=0.05)
    state = start(tiny, made)
    for round in (1, 2):
        state = made.server_round(state, iter(SHEET), round, tiny.draws)
    away = torch.cdist(torch.tensor(sheet.tgp_protos), state.rows)
    assert away.argmin(dim=1).tolist() == sheet.tgp_labels


def test_identity_1_without_the_pull_it_is_local(tiny, tmp_path):
    one = tiny.play("fedtgp", tmp_path / "one", loss_weight=0.0, inference="head", server_epochs=2)
    other = tiny.play("local", tmp_path / "other", models=tiny.models_for("fedtgp"))
    same_models(tiny.weights(one), tiny.weights(other))


def test_identity_2_round_1_is_that_of_local(tiny, tmp_path):
    one = tiny.play("fedtgp", tmp_path / "one", rounds=1)
    other = tiny.play("local", tmp_path / "other", rounds=1, models=tiny.models_for("fedtgp"))
    same_models(tiny.weights(one), tiny.weights(other))


def test_after_round_1_prototypes_of_its_own_network_pull(tiny, tmp_path):
    one = tiny.play("fedtgp", tmp_path / "one", rounds=2, server_epochs=5)
    other = tiny.play("fedproto", tmp_path / "other", rounds=2)
    ours, theirs = models_of(tiny.weights(one)), models_of(tiny.weights(other))
    assert any(not torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
