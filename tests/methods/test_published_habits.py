"""What methods do under the habits of public code: divergences averaged over elements, clients that never train."""

import warnings

import pytest
import torch
from methods.auxiliaries import OPTIONS, maker
from methods.small_federation import C, clients_for, made, play, play_round, states
from methods.table_students import float64
from methods.test_fml_method import AUX, CE, KL_AUX_TO_LOCAL, KL_ELEMENTWISE, KL_LOCAL_TO_AUX, LOCAL, step_once

from motley.errors import MotleyWarning
from motley.functional.adaptive_distillation import adaptive_losses
from motley.functional.distillation import kl
from motley.methods.contracts import Upload

DROPPED = {"last_batch": "drop", "class_means": "batches", "batch_size": 8}  # of 9, 6 and 4 samples: one client trains
STATISTICS = ("fedproto", "fedtgp", "fedgh", "fd")
ELEMENTS = "element-mean"


def test_the_element_mean_of_the_sheet():
    assert kl(float64(AUX), float64(LOCAL), mean=ELEMENTS).item() == pytest.approx(KL_ELEMENTWISE, abs=1e-11)


def test_the_element_mean_scales_the_gradient_too_and_keeps_the_teacher_out_of_it():
    grads = []
    for mean in ("batchmean", ELEMENTS):
        local, aux = float64(LOCAL).requires_grad_(), float64(AUX).requires_grad_()
        kl(aux, local, 2.0, mean).backward()
        assert aux.grad is None
        grads.append(local.grad)
    torch.testing.assert_close(grads[0], 3 * grads[1], rtol=1e-12, atol=0)


def test_fml_takes_the_mean_that_is_asked_for(tiny):
    usual, elements = (step_once(tiny, **options)[0].journal["train"]["terms"] for options in ({}, {"kl": ELEMENTS}))
    assert usual["distillation"] == pytest.approx(0.5 * KL_AUX_TO_LOCAL, abs=1e-6)
    assert elements["distillation"] == pytest.approx(0.5 * KL_ELEMENTWISE, abs=1e-6)
    assert elements["auxiliary_distillation"] == pytest.approx(0.5 * KL_LOCAL_TO_AUX / 3, abs=1e-6)
    assert elements["cross_entropy"] == usual["cross_entropy"] == pytest.approx(0.5 * CE[0], abs=1e-6)


def test_fedkd_divides_its_divergence_and_not_its_matching_of_features():
    features, mapped, y = float64([[1.0, 0.5], [0.0, 2.0]]), float64([[0.0, 0.5], [1.0, 1.0]]), torch.tensor([0, 2])
    usual, elements = (
        adaptive_losses(float64(LOCAL), float64(AUX), features, mapped, y, mean=mean)
        for mean in ("batchmean", ELEMENTS)
    )
    matching = ((features - mapped) ** 2).mean().item()
    for found, factor in ((usual, 1), (elements, 1 / 3)):
        assert found.mentor_learns.item() * sum(CE) == pytest.approx(factor * KL_AUX_TO_LOCAL + matching, abs=1e-9)
        assert found.mentee_learns.item() * sum(CE) == pytest.approx(factor * KL_LOCAL_TO_AUX + matching, abs=1e-9)


@pytest.mark.parametrize("name", ["fml", "fedkd", "fedsce"])
def test_the_option_changes_what_is_learned_and_its_default_is_ours(tiny, name):
    runs = {}
    for kind in (None, "batchmean", ELEMENTS):
        clients = clients_for(tiny, name, auxiliary=maker(tiny))
        play(made(name, **OPTIONS, **({"kl": kind} if kind else {})), clients, 1, tiny)
        runs[kind] = states(clients)
    tiny.assert_same_tensors(runs[None], runs["batchmean"])
    assert any(not torch.equal(runs[None][key], runs[ELEMENTS][key]) for key in runs[None])


@pytest.fixture
def untrained():
    """Silence the warning that a client never trains; it has tests of its own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "client . never trains", MotleyWarning)
        yield


def sent_by(method, clients, tiny):
    state = method.start(clients[0].task, tiny.draws)
    return state, [method.client_round(one, method.broadcast(state, one.id), 1, tiny.draws) for one in clients]


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("name", STATISTICS)
def test_a_client_that_never_trains_sends_no_statistics(tiny, name):
    method, clients = made(name), clients_for(tiny, name, **DROPPED)
    _, sent = sent_by(method, clients, tiny)
    assert [len(one.rows) for one in sent] == [2, 0, 0]  # classes 0 and 1 are among the first eight of client 0
    for one in sent:
        one.check("client", C=C, d=clients[0].model.feature_width)


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("name", STATISTICS)
def test_by_default_it_sends_those_of_its_untrained_model(tiny, name):
    _, sent = sent_by(made(name), clients_for(tiny, name, last_batch="drop", batch_size=8), tiny)
    assert [len(one.rows) for one in sent] == [2, 2, 2]


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("name", [*STATISTICS, "fedre", "fedtopo"])
def test_a_round_in_which_nobody_trains_leaves_the_server_as_it_was(tiny, name):
    method, clients = made(name), clients_for(tiny, name, **(DROPPED | {"batch_size": 16}))
    state = method.start(clients[0].task, tiny.draws)
    before = {key: tensor.clone() for key, tensor in state.tensors().items() if key != "times"}
    after = play_round(method, state, clients, 1, tiny).tensors()
    if name == "fd":
        assert not method.broadcast(play_round(method, state, clients, 2, tiny), 0).rows.numel()
        return
    for key in before.keys() - {"present", "reported", "counts"}:
        torch.testing.assert_close(after[key], before[key], rtol=0, atol=0, equal_nan=True, msg=key)


@pytest.mark.usefixtures("untrained")
def test_fedproto_counts_the_samples_behind_its_prototypes(tiny):
    _, (first, *_) = sent_by(made("fedproto", weighting="samples"), clients_for(tiny, "fedproto", **DROPPED), tiny)
    assert first.counts.tolist() == [3, 5]  # its ninth sample, the fourth of class 0, is in no batch


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("prototypes", ["exact", "running"])
def test_fedtopo_uploads_counts_of_the_samples_behind_its_relations(tiny, prototypes):
    clients = clients_for(tiny, "fedtopo", **DROPPED, shuffle=False)
    _, sent = sent_by(made("fedtopo", prototypes=prototypes), clients, tiny)
    assert [one.counts.tolist() for one in sent] == [[3, 5, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.usefixtures("untrained")
def test_a_mixture_of_nothing_is_zeros_and_moves_no_head(tiny):
    method, clients = made("fedre"), clients_for(tiny, "fedre", **DROPPED)
    state, sent = sent_by(method, clients, tiny)
    assert not sent[1].vector.any()
    assert not sent[1].label.any()
    all_of_them = method.server_round(state, (Upload(k, one) for k, one in enumerate(sent)), 1, tiny.draws)
    alone = method.server_round(state, iter([Upload(0, sent[0])]), 1, tiny.draws)
    for key, tensor in alone.weights.items():
        torch.testing.assert_close(all_of_them.weights[key], tensor)
