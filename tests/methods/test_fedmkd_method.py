"""FedMKD through its own verbs: the worked numbers of its sheet (section 7), and its identities (section 8)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_students import FLOAT32, float64, state, student, told_target
from torch.nn.functional import cross_entropy

from motley.methods.distillation import Model
from motley.methods.fedmkd import FedMKD, FedMKDOptions
from motley.methods.uniform_kd import UniformKD, UniformKDOptions

Z = [[[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]], [[0.0, 3.0, 0.0], [1.0, 1.0, -2.0]], [[1.0, 0.0, 4.0], [2.0, -2.0, 0.0]]]
MU_HALF = [[0.375131703432, 0.320874639541, 0.303993657028], [0.393513963931, 0.348166288590, 0.258319747478]]
MU_THIRD = [[0.322992835849, 0.336864186059, 0.340142978092], [0.426519390079, 0.327220175112, 0.246260434809]]
LABELS = [0, 2]
SEEDS = st.integers(0, 2**31)


def learn(tiny, method=None, peers=(1, 2), **training):
    """Let client 0 learn from the peers; its memory is its own model, Z[0]."""
    client = student(tiny, Z[0], LABELS, **training)
    method = method or FedMKD(FedMKDOptions())
    method.peer_round(client, {peer: Model(state(Z[peer])) for peer in peers}, 1, tiny.draws)
    return client


def target(client):
    return told_target(client, Z[0], temperature=3.0, loss_weight=0.7)


def aggregated(tiny, share, z):
    """Return the method's own target, in float64, of logits (M + 1, B, C) of M peers and, last, the memory."""
    peers = {peer: state(Z[0]) for peer in range(1, len(z))}
    _, aggregate = FedMKD(FedMKDOptions(memory_weight=share)).lesson(student(tiny, Z[0], LABELS), peers)
    return aggregate(z)


def random_models(seed, number):
    return 3 * torch.randn(number, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("share", "expected"), [(0.5, MU_HALF), (1 / 3, MU_THIRD)])
def test_the_target_of_the_sheet(tiny, share, expected):
    found = aggregated(tiny, share, float64([Z[1], Z[2], Z[0]]))
    torch.testing.assert_close(found, float64(expected), rtol=0, atol=1e-9)


@given(seed=SEEDS, peers=st.integers(1, 6))
@settings(max_examples=40)
def test_identity_1_with_mu_1_by_m_plus_1_the_target_is_the_plain_mean_of_all(tiny, seed, peers):
    z = random_models(seed, peers + 1)
    mean = torch.softmax(z / 3.0, dim=2).mean(dim=0)
    torch.testing.assert_close(aggregated(tiny, 1 / (peers + 1), z), mean, rtol=0, atol=1e-12)


@given(seed=SEEDS, peers=st.integers(1, 6), share=st.floats(0, 1))
@settings(max_examples=40)
def test_equal_models_say_what_each_of_them_says(tiny, seed, peers, share):
    z = random_models(seed, 1).expand(peers + 1, -1, -1)
    torch.testing.assert_close(aggregated(tiny, share, z), torch.softmax(z[0] / 3.0, dim=1), rtol=0, atol=1e-12)


@given(seed=SEEDS, order=st.permutations(range(5)), share=st.floats(0, 1))
@settings(max_examples=40)
def test_identity_7_the_order_of_the_peers_is_irrelevant_and_the_memory_stays_last(tiny, seed, order, share):
    z = random_models(seed, 6)
    moved = aggregated(tiny, share, z[[*order, 5]])
    torch.testing.assert_close(moved, aggregated(tiny, share, z), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("share", "expected"), [(0.5, MU_HALF), (1 / 3, MU_THIRD)])
def test_a_student_learns_the_target_of_the_sheet(tiny, share, expected):
    client = learn(tiny, FedMKD(FedMKDOptions(memory_weight=share)))
    torch.testing.assert_close(target(client), float64(expected), rtol=0, atol=FLOAT32)


def test_a_third_is_the_plain_mean_of_all_three_models(tiny):
    mean = torch.softmax(float64(Z) / 3.0, dim=2).mean(dim=0)
    torch.testing.assert_close(mean, float64(MU_THIRD), rtol=0, atol=1e-9)


def test_memory_alone_teaches_with_mu_1(tiny):
    client = learn(tiny, FedMKD(FedMKDOptions(memory_weight=1.0)))
    torch.testing.assert_close(target(client), torch.softmax(float64(Z[0]) / 3.0, dim=1), rtol=0, atol=FLOAT32)


def test_without_memory_it_is_uniform_kd_bit_for_bit(tiny, tmp_path):
    uniform = learn(tiny, UniformKD(UniformKDOptions()))
    without = learn(tiny, FedMKD(FedMKDOptions(memory_weight=0.0)))
    assert torch.equal(without.model.backbone.module.rows, uniform.model.backbone.module.rows)
    usual = {"test_fraction": 0.4, "validation_fraction": 0.3, "rounds": 3}
    one = tiny.play("fedmkd", tmp_path / "one", memory_weight=0.0, **usual)
    other = tiny.play("uniform-kd", tmp_path / "other", **usual)
    assert tiny.rows(one) == tiny.rows(other)
    tiny.assert_same_tensors(tiny.weights(one), tiny.weights(other))


def test_the_memory_stays_while_the_student_moves(tiny):
    # With lambda 1 and memory alone the first step is at rest; a memory that followed the student would keep it there
    # in every epoch. Here the labels pull it away first, and the anchor pulls it back.
    whole = {"memory_weight": 1.0, "loss_weight": 1.0}
    still = learn(tiny, FedMKD(FedMKDOptions(**whole)), local_epochs=3)
    torch.testing.assert_close(still.model.backbone.module.rows.detach(), torch.tensor(Z[0]), rtol=0, atol=1e-6)
    client = student(tiny, Z[0], LABELS, local_epochs=2)
    FedMKD(FedMKDOptions(memory_weight=1.0)).peer_round(client, {1: Model(state(Z[1]))}, 1, tiny.draws)
    z, labels = float64(Z[0]).requires_grad_(), torch.tensor(LABELS)
    anchor = torch.softmax(float64(Z[0]) / 3.0, dim=1)
    for _ in range(2):
        kl = (anchor * (anchor.log() - torch.log_softmax(z / 3.0, dim=1))).sum(dim=1).mean()
        (gradient,) = torch.autograd.grad(0.3 * cross_entropy(z, labels) + 0.7 * 9.0 * kl, z)
        z = (z - gradient).detach().requires_grad_()
    torch.testing.assert_close(client.model.backbone.module.rows.detach().double(), z.detach(), rtol=0, atol=FLOAT32)


def test_alone_it_trains_on_its_labels_and_not_on_its_memory(tiny):
    assert set(learn(tiny, peers=()).journal["train"]["terms"]) == {"cross_entropy"}


def test_the_memory_is_what_the_peers_receive(tiny):
    client = student(tiny, Z[0], LABELS)
    method = FedMKD(FedMKDOptions())
    sent = method.snapshot(client, 1)
    teachers, _ = method.lesson(client, {1: state(Z[1])})
    assert list(teachers) == [1, 0]
    for name, tensor in teachers[0].items():
        assert torch.equal(tensor, sent.weights[name])
        assert tensor.data_ptr() != client.model.state_dict()[name].data_ptr()
