"""MSFKD-style against the worked numbers and identities of the distillation sheet (sections 3, 7, 8)."""

from collections.abc import Iterator

import pytest
import torch
from functional import proxy_numbers as sheet
from functional.closeness import assert_near, float64
from hypothesis import given, settings
from hypothesis import strategies as st
from proxy_students import proxy_student, rows_of
from torch.nn.functional import softmax

from motley.errors import InvalidConfig, InvalidMessage
from motley.federation import Proxy
from motley.functional.proxy_targets import entropies
from motley.methods.contracts import Upload
from motley.methods.msfkd import Answers, Ensemble, Msfkd, MsfkdOptions
from motley.methods.registry import find_method

FLOAT32 = 2e-6
Z = float64(sheet.z)


def answers(mask: list[list[int]] = sheet.msfkd_mask) -> Iterator[Upload[Answers]]:
    for client_id, row in enumerate(mask):
        chosen = torch.tensor(row, dtype=torch.bool)
        yield Upload(client_id, Answers(softmax(Z[client_id], dim=1)[chosen].float(), chosen))


def nothing() -> Ensemble:
    return Ensemble(torch.zeros(0, 3), torch.zeros(2, dtype=torch.bool))


def ensemble(tiny, mask=sheet.msfkd_mask, **options) -> Ensemble:
    return Msfkd(MsfkdOptions(**options)).server_round(nothing(), answers(mask), 1, tiny.draws)


def test_the_ensemble_of_the_sheet_keeps_what_is_clear(tiny):
    kept = ensemble(tiny)
    assert kept.kept.tolist() == [True, False]
    assert_near(kept.probabilities, [sheet.msfkd_ensemble[0]], FLOAT32)
    all_answered = ensemble(tiny, ambiguity=2.0)
    assert all_answered.kept.tolist() == [True, True]
    assert_near(all_answered.probabilities, sheet.msfkd_ensemble, FLOAT32)
    assert ensemble(tiny, ambiguity=0.5).kept.tolist() == [False, False]


def test_samples_that_nobody_answers_are_left_out(tiny):
    kept = ensemble(tiny, [[0, 1], [0, 0], [0, 0]], ambiguity=2.0)
    assert kept.kept.tolist() == [False, True]
    assert_near(kept.probabilities, softmax(Z[0], dim=1)[1:].tolist(), FLOAT32)


def test_identity_6_with_everything_answered_the_ensemble_is_the_mean_of_probabilities(tiny):
    assert_near(ensemble(tiny, [[1, 1]] * 3, ambiguity=2.0).probabilities, sheet.mean_of_softmax, FLOAT32)


@given(seed=st.integers(0, 2**31), number=st.integers(1, 5))
@settings(max_examples=40)
def test_identity_6_holds_whatever_the_clients_say(tiny, seed, number):
    said = softmax(4 * torch.randn(number, 7, 3, generator=torch.Generator().manual_seed(seed)), dim=2)
    all_of_them = torch.ones(7, dtype=torch.bool)
    uploads = (Upload(client_id, Answers(one, all_of_them)) for client_id, one in enumerate(said))
    before = Ensemble(torch.zeros(0, 3), ~all_of_them)
    found = Msfkd(MsfkdOptions(ambiguity=2.0)).server_round(before, uploads, 1, tiny.draws)
    assert bool(found.kept.all())
    assert_near(found.probabilities, said.double().mean(dim=0).tolist(), FLOAT32)


@given(order=st.permutations(range(3)), ambiguity=st.sampled_from([1.0, 2.0]))
def test_identity_7_the_order_of_the_clients_changes_no_ensemble(tiny, order, ambiguity):
    method, said = Msfkd(MsfkdOptions(ambiguity=ambiguity)), list(answers())
    moved = method.server_round(nothing(), (said[position] for position in order), 1, tiny.draws)
    usual = ensemble(tiny, ambiguity=ambiguity)
    assert moved.kept.tolist() == usual.kept.tolist()
    assert_near(moved.probabilities, usual.probabilities.tolist(), FLOAT32)


def test_identity_7_a_missing_peer_is_as_if_it_were_not_there(tiny):
    method = Msfkd(MsfkdOptions(ambiguity=2.0))
    two = method.server_round(nothing(), (one for one in answers() if one.client_id != 0), 1, tiny.draws)
    assert_near(two.probabilities, softmax(Z[1], dim=1).tolist(), FLOAT32)
    assert method.server_round(two, iter(()), 2, tiny.draws) is two


def test_the_digest_is_on_the_kept_samples_alone(tiny):
    client = proxy_student(tiny, sheet.z[0])
    Msfkd(MsfkdOptions()).client_round(client, ensemble(tiny), 2, tiny.draws)
    target = float64(sheet.msfkd_ensemble[0])
    expected = Z[0].clone()
    expected[0] -= softmax(Z[0, 0], dim=0) - target  # one sample, one step at rate 1
    assert_near(rows_of(client), expected.tolist(), FLOAT32)
    loss = -(target * Z[0, 0].log_softmax(dim=0)).sum().item()
    assert client.journal["digest"]["terms"]["target_cross_entropy"] == pytest.approx(loss, abs=FLOAT32)
    assert client.journal["proxy"]["kept"] == 1


def test_without_kept_samples_the_round_is_local_and_the_record_shows_it(tiny):
    client = proxy_student(tiny, sheet.z[0])
    Msfkd(MsfkdOptions()).client_round(client, nothing(), 2, tiny.draws)
    assert_near(rows_of(client), sheet.z[0], FLOAT32)
    assert client.journal["proxy"]["kept"] == 0
    assert "digest" not in client.journal


@pytest.mark.parametrize("part", ["validation", "train"])
def test_a_client_answers_where_it_is_as_sure_as_on_its_own_samples(tiny, part):
    # Entropies on the proxy, rows 0 and 1: about 0.5 and 1.0. The own sample is row 2 for training, or one between.
    rows = [[3.0, 0.0, 0.0], [0.2, 0.0, 0.0]]
    held = {"validation": (torch.full((1, 1, 1), 2.0), [0])} if part == "validation" else {}
    client = proxy_student(tiny, rows, **held)
    sent = Msfkd(MsfkdOptions()).client_round(client, nothing(), 1, tiny.draws)
    own = client.model.backbone.module.rows.detach().double()[2:]
    threshold = entropies(softmax(own, dim=1)).item()
    assert client.journal["proxy"]["threshold"] == pytest.approx(threshold, abs=1e-5)
    assert client.journal["proxy"]["measured_on"] == part
    expected = (entropies(softmax(float64(rows), dim=1)) <= threshold).tolist()
    assert sent.answered.tolist() == expected == [True, False]
    assert_near(sent.probabilities, softmax(float64(rows[:1]), dim=1).tolist(), FLOAT32)
    assert (sent.num_scalars, client.journal["proxy"]["answered"]) == (3, 1)


def test_everything_is_answered_if_asked(tiny):
    client = proxy_student(tiny, sheet.z[0])
    sent = Msfkd(MsfkdOptions(selector="all")).client_round(client, nothing(), 1, tiny.draws)
    assert sent.answered.tolist() == [True, True]
    assert "threshold" not in client.journal["proxy"]


def test_kulsif_needs_features_and_says_so(tiny):
    with pytest.raises(InvalidConfig, match="needs models with features; take selector = entropy"):
        Msfkd(MsfkdOptions(selector="kulsif")).client_round(proxy_student(tiny, sheet.z[0]), nothing(), 1, tiny.draws)


@pytest.mark.parametrize("width", ["median", 0.5])
def test_kulsif_answers_where_the_proxy_looks_like_the_own_samples(tiny, width):
    draw = torch.Generator().manual_seed(0)
    near, far = torch.rand(20, 1, 4, 4, generator=draw) * 0.1, torch.rand(20, 1, 4, 4, generator=draw) * 0.1 + 5
    own = torch.rand(30, 1, 4, 4, generator=draw) * 0.1
    torch.manual_seed(0)
    client = tiny.client(
        own[:20], [0, 1] * 10, tiny.model(0, (1, 4, 4), 3), num_classes=3, lr=1e-4, validation=(own[20:], [0, 1] * 5),
        proxy=Proxy(torch.cat([near, far]), torch.zeros(40, dtype=torch.int64)),
    )  # fmt: skip
    received = Ensemble(torch.zeros(0, 3), torch.zeros(40, dtype=torch.bool))
    sent = Msfkd(MsfkdOptions(selector="kulsif", kulsif_width=width)).client_round(client, received, 1, tiny.draws)
    # Fewer than three quarters: the estimate is lower at the very points that it was fitted on as denominator.
    assert sent.answered[:20].sum() >= 5
    assert not bool(sent.answered[20:].any())


def test_identity_5_a_filtered_proxy_gives_local(tiny, tmp_path):
    # Two of several classes are never certain, so that ambiguity 0 leaves nothing.
    one = tiny.play("msfkd", tmp_path / "msfkd", ambiguity=0.0)
    other = tiny.play("local", tmp_path / "local", proxy=6)
    own = {name: tensor for name, tensor in tiny.weights(one).items() if name.startswith("client/")}
    tiny.assert_same_tensors(own, tiny.weights(other))
    with_digest = tiny.weights(tiny.play("msfkd", tmp_path / "digest", selector="all", ambiguity=2.0))
    assert not all(torch.equal(tensor, with_digest[name]) for name, tensor in own.items())


def test_answers_that_do_not_fit_their_mask_are_refused():
    with pytest.raises(InvalidMessage, match="2 rows stand for 1 samples"):
        Answers(torch.full((2, 3), 1 / 3), torch.tensor([True, False])).check("client 4", C=3)


def test_it_is_labelled_as_our_reading():
    assert "our reading" in find_method("msfkd").summary
