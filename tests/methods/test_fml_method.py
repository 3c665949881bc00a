"""FML: the worked numbers of its sheet (section 7) and the identities of section 16 that hold for it."""

import pytest
import torch
from methods.auxiliaries import OPTIONS, answers, gradient, maker
from methods.small_federation import clients_for, made, play, play_round, states
from methods.table_students import FLOAT32, float64

from motley.errors import InvalidModel
from motley.functional.distillation import kl
from motley.methods.averaging import Common, Trained
from motley.methods.contracts import Upload

# Section 7 of the sheet.
LOCAL = [[1.0, 0.2, -0.5], [0.1, 0.4, 0.0]]
AUX = [[0.3, 0.8, -0.2], [-0.4, 1.0, 0.5]]
Y = [0, 2]
CE = [0.897197009331, 1.148572244822]
KL_AUX_TO_LOCAL = 0.13144494941
KL_LOCAL_TO_AUX = 0.142923731972
LOSS_05_05 = [0.51432097937, 0.645747988397]
GRAD_LOCAL = [[-0.027838002671, 0.00771172464, 0.020126278031], [0.120356496601, 0.072463876071, -0.192820372672]]
GRAD_AUX = [[-0.24588254152, 0.186074284326, 0.059808257194], [-0.010276741088, 0.16612865236, -0.155851911272]]
LOSS_03_08 = [0.361170567386, 0.947442542252]
KL_ELEMENTWISE = 0.043814983137


def test_the_divergences_of_the_sheet():
    local, aux = float64(LOCAL).requires_grad_(), float64(AUX).requires_grad_()
    assert kl(aux, local).item() == pytest.approx(KL_AUX_TO_LOCAL, abs=1e-11)
    assert kl(local, aux).item() == pytest.approx(KL_LOCAL_TO_AUX, abs=1e-11)
    assert kl(aux, local).item() == pytest.approx(3 * KL_ELEMENTWISE, abs=1e-11)  # not the element-wise mean
    kl(aux, local).backward()
    assert aux.grad is None  # a teacher is not dragged along
    torch.testing.assert_close(
        local.grad, (torch.softmax(local, dim=1) - torch.softmax(aux, dim=1)).detach() / 2, rtol=0, atol=1e-12
    )


def test_a_divergence_at_a_temperature_is_multiplied_by_its_square():
    local, aux = float64(LOCAL), float64(AUX)
    q, p = torch.softmax(aux / 2, dim=1), torch.softmax(local / 2, dim=1)
    assert kl(aux, local, 2.0).item() == pytest.approx((4 * (q * (q / p).log()).sum() / 2).item(), abs=1e-12)


def step_once(tiny, **options):
    client = tiny.client(
        torch.arange(2.0).view(2, 1, 1),
        Y,
        answers(LOCAL),
        num_classes=3,
        auxiliary=lambda name, width: answers(AUX),
        lr=1.0,
    )
    method = made("fml", **OPTIONS, **options)
    sent = method.client_round(client, method.start(client.task, tiny.draws), 1, tiny.draws)
    return client, sent


def test_both_models_step_as_the_sheet_says(tiny):
    client, sent = step_once(tiny)
    found = gradient(LOCAL, client.model.backbone.rows)
    torch.testing.assert_close(found, float64(GRAD_LOCAL), rtol=0, atol=FLOAT32)
    torch.testing.assert_close(gradient(AUX, sent.weights["backbone.rows"]), float64(GRAD_AUX), rtol=0, atol=FLOAT32)


@pytest.mark.parametrize(
    ("alpha", "beta", "expected"), [(0.5, 0.5, LOSS_05_05), (0.3, 0.8, LOSS_03_08), (1.0, 1.0, CE)]
)
def test_alpha_and_beta_weigh_the_labels(tiny, alpha, beta, expected):
    terms = step_once(tiny, alpha=alpha, beta=beta)[0].journal["train"]["terms"]
    assert terms["cross_entropy"] == pytest.approx(alpha * CE[0], abs=1e-6)
    assert terms["auxiliary"] == pytest.approx(beta * CE[1], abs=1e-6)
    assert terms["cross_entropy"] + terms.get("distillation", 0) == pytest.approx(expected[0], abs=1e-6)
    assert terms["auxiliary"] + terms.get("auxiliary_distillation", 0) == pytest.approx(expected[1], abs=1e-6)


@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_identity_5_with_alpha_1_the_clients_models_are_those_of_local(tiny, beta):
    ours = clients_for(tiny, "fml", auxiliary=maker(tiny))
    theirs = clients_for(tiny, "local")
    play(made("fml", **OPTIONS, alpha=1.0, beta=beta), ours, 3, tiny)
    play(made("local"), theirs, 3, tiny)
    tiny.assert_same_tensors(states(ours), states(theirs))


def test_identity_5_with_alpha_and_beta_1_the_auxiliary_is_fedavg_of_its_architecture(tiny):
    make = maker(tiny)
    ours = clients_for(tiny, "fml", auxiliary=make)
    theirs = clients_for(tiny, "local", auxiliary=make)
    for client in theirs:
        client.model = make("")
    found = play(made("fml", **OPTIONS, alpha=1.0, beta=1.0), ours, 3, tiny)
    expected = Common(make("").state_dict())
    for round in (1, 2, 3):
        expected = play_round(made("fedavg", weighting="uniform"), expected, theirs, round, tiny)
    tiny.assert_same_tensors(dict(found.weights), dict(expected.weights))


def test_without_identity_5_distillation_moves_both_models(tiny):
    runs = {}
    for alpha, beta in ((1.0, 1.0), (0.5, 1.0), (1.0, 0.5)):
        clients = clients_for(tiny, "fml", auxiliary=maker(tiny))
        state = play(made("fml", **OPTIONS, alpha=alpha, beta=beta), clients, 1, tiny)
        runs[alpha, beta] = torch.cat([one.model.head.weight.flatten() for one in clients]), state.weights["head.bias"]
    assert not torch.equal(runs[1.0, 1.0][0], runs[0.5, 1.0][0])
    assert torch.equal(runs[1.0, 1.0][1], runs[0.5, 1.0][1])
    assert torch.equal(runs[1.0, 1.0][0], runs[1.0, 0.5][0])
    assert not torch.equal(runs[1.0, 1.0][1], runs[1.0, 0.5][1])


def test_the_auxiliary_is_averaged_with_its_batch_norm_and_the_models_stay_private(tiny):
    clients = clients_for(tiny, "fml", auxiliary=maker(tiny))
    method = made("fml", **OPTIONS)
    state = method.start(clients[0].task, tiny.draws)
    sent = [method.client_round(one, state, 1, tiny.draws) for one in clients]
    before = states(clients)
    new = method.server_round(state, (Upload(k, one) for k, one in enumerate(sent)), 1, tiny.draws)
    name = "backbone.2.running_mean"
    torch.testing.assert_close(new.weights[name], torch.stack([one.weights[name] for one in sent]).mean(dim=0))
    assert new.weights["backbone.2.num_batches_tracked"] == max(
        one.weights["backbone.2.num_batches_tracked"] for one in sent
    )
    tiny.assert_same_tensors(states(clients), before)
    assert all(not client.memory for client in clients)


def test_clients_may_count_by_their_samples(tiny):
    sent = [Trained({"w": torch.tensor([value])}, torch.tensor(n)) for value, n in ((0.0, 3), (4.0, 1))]
    uploads = [Upload(client, one) for client, one in enumerate(sent)]
    for weighting, expected in (("uniform", 2.0), ("samples", 1.0)):
        method = made("fml", weighting=weighting)
        assert method.server_round(Common({}), iter(uploads), 1, tiny.draws).weights["w"].item() == expected


@pytest.mark.filterwarnings("ignore:client 0 has a single training sample")
def test_r4_a_single_sample_trains_an_auxiliary_with_batch_norm(tiny):
    (client,) = clients_for(tiny, "fml", [[1]], auxiliary=maker(tiny))
    method = made("fml", **OPTIONS)
    state = method.start(client.task, tiny.draws)
    sent = play_round(method, state, [client], 1, tiny)  # with one client the average is its own
    assert torch.equal(sent.weights["backbone.2.running_mean"], state.weights["backbone.2.running_mean"])
    assert not torch.equal(sent.weights["backbone.1.weight"], state.weights["backbone.1.weight"])


def test_the_default_auxiliary_has_the_sheets_number_of_scalars(tiny, tmp_path):
    data = tiny.dataset([[4, 2, 2, 2, 2, 2, 2, 2, 2, 2]], channels=3)
    record = tiny.play("fml", tmp_path / "run", data=data, rounds=1)
    (row,) = [row for row in record.rows if row["kind"] == "client" and row["round"] == 1]
    assert row["traffic"]["up_scalars"] == row["traffic"]["down_scalars"] == 878_538


def test_an_unknown_auxiliary_is_refused_before_round_1(tiny, tmp_path):
    with pytest.raises(InvalidModel, match="'cnm' is not a known model; did you mean 'cnn'"):
        tiny.play("fml", tmp_path / "run", auxiliary="cnm")
