"""The variants of CRAD through the method's own verbs: sections 3 to 5 of its sheet, options, noise and wire."""

import math
import shutil

import pytest
import torch
from functional import crad_numbers as sheet
from hypothesis import given, settings
from hypothesis import strategies as st
from table_students import FLOAT32, float64, state, student, told_target
from torch import nn

import motley
from motley.draws import Draws
from motley.engine.runs import Watch
from motley.errors import InvalidConfig, InvalidMessage
from motley.functional.reliability import agreement, class_weighted_target, precision, soft_targets, supported
from motley.methods import distillation
from motley.methods.crad import Crad, CradOptions, Snapshot
from motley.methods.crad_wire import pack_weights, unpack_weights
from motley.methods.distillation import Model, distil
from motley.methods.registry import find_method
from motley.methods.uniform_kd import UniformKD, UniformKDOptions
from motley.models.split import SplitModel

NO_FILTER = {"min_support": 0, "agreement_filter": "none"}
STUDENT = [[1.0, 0.0], [0.0, 1.0]]  # of the toys


def claim(n, correct) -> tuple[torch.Tensor, torch.Tensor]:
    n, correct = torch.tensor(n), torch.tensor(correct)
    return n.to(torch.int32), torch.where(n > 0, correct / n.clamp(min=1), 0.5).to(torch.float32)


def inbox(**more) -> dict[int, Snapshot]:
    rows = zip(sheet.z, sheet.n, sheet.correct, strict=True)
    return {peer: Snapshot(state(z), *claim(n, correct), **more) for peer, (z, n, correct) in enumerate(rows, start=1)}


def learn(tiny, messages=None, **options):
    client = student(tiny, sheet.student, sheet.y)
    Crad(CradOptions(**options)).peer_round(client, inbox() if messages is None else messages, 1, tiny.draws)
    return client


def target(client):
    return told_target(client, sheet.student, temperature=sheet.T, loss_weight=sheet.lam)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, sheet.target),
        (NO_FILTER | {"weighting": "equal"}, sheet.uniform),
        ({"agreement_filter": "none", "weighting": "equal"}, sheet.support_only),
        ({"weighting": "equal"}, sheet.stage1_only),
        ({"min_support": 0, "weighting": "equal"}, sheet.agreement_only),
        (NO_FILTER, sheet.stage2_only),
        ({"agreement_filter": "none"}, sheet.support_precision),
        ({"weighting": "one-sided"}, sheet.one_sided),
        ({"agreement_filter": "tempered"}, sheet.tempered_rho_02_target),
        ({"agreement_filter": "tempered", "rho": 0.4}, sheet.tempered_rho_04_target),
    ],
    ids=str,
)
def test_every_variant_gives_the_target_of_the_sheet(tiny, options, expected):
    torch.testing.assert_close(target(learn(tiny, **options)), float64(expected), rtol=0, atol=FLOAT32)


def test_the_mass_of_the_tempered_targets(tiny):
    found = learn(tiny, agreement_filter="tempered").journal["teachers"]
    mass = float64(sheet.tempered_rho_02_raw).sum(dim=1)
    assert found["mass_mean"] == pytest.approx(mass.mean().item(), abs=FLOAT32)
    assert found["largest_weight"] <= 1.0


def toy(case, nll=()) -> dict[int, Snapshot]:
    """Return peers that give the case's probability to class 0 of two, at T = 3, and claim nothing for class 1."""
    told = list(nll) + [1.0] * (len(case["q"]) - len(nll))
    return {
        peer: Snapshot(
            state([[3 * math.log(q), 3 * math.log(1 - q)]] * 2),
            *claim([n, 0], [right, 0]),
            cross_entropies=torch.tensor([told[peer], torch.nan]) if nll else torch.zeros(0),
        )
        for peer, (q, n, right) in enumerate(zip(case["q"], case["n"], case["correct"], strict=True))
    }


def learn_toy(tiny, messages, rows=STUDENT, **options):
    client = student(tiny, rows, [0, 1], **options.pop("client", {}))
    Crad(CradOptions(**options)).peer_round(client, messages, 1, tiny.draws)
    return client


def raw_of_class_0(client, case, rows=STUDENT) -> float:
    """Return raw of class 0; that of class 1, which nobody supports, is the mean of 1 - q over all teachers."""
    other = 1 - sum(case["q"]) / len(case["q"])
    share = told_target(client, rows, temperature=3.0, loss_weight=0.7)[0, 0].item()
    assert client.journal["teachers"]["mass_mean"] == pytest.approx(other / (1 - share), abs=5e-6)
    return other * share / (1 - share)


@pytest.mark.parametrize(
    ("case", "kept", "shares", "raw"),
    [
        (sheet.bird, sheet.bird_kept, sheet.bird_W, sheet.bird_raw),
        (sheet.dog, sheet.dog_kept, sheet.dog_W, sheet.dog_raw),
    ],
    ids=["bird", "dog"],
)
def test_appendix_cases(tiny, case, kept, shares, raw):
    client = learn_toy(tiny, toy(case))
    found = client.journal["teachers"]
    assert [row[0] for row in found["kept"]] == kept
    assert [row[0] for row in found["weight"]] == pytest.approx(shares, abs=6e-5)
    assert raw_of_class_0(client, case) == pytest.approx(raw, abs=5e-6)


@pytest.mark.parametrize(("case", "raw"), [(sheet.bird, sheet.tempered_bird), (sheet.dog, sheet.tempered_dog)])
def test_appendix_cases_under_the_tempered_filter(tiny, case, raw):
    client = learn_toy(tiny, toy(case), agreement_filter="tempered")
    assert raw_of_class_0(client, case) == pytest.approx(raw, abs=5e-6)


OPTION_OF_RULE = {"softmax_neg_var": "softmax-variance", "lcb": "lower-bound", "inv_sigma": "inverse-deviation"}


@pytest.mark.parametrize("rule", sheet.rules)
def test_table_4_on_the_bird(tiny, rule):
    shares, raw = sheet.rules[rule]
    nll = [9.0] * 8
    for position, value in zip((1, 2, 4, 7), sheet.nll, strict=True):
        nll[position] = value
    weighting = OPTION_OF_RULE.get(rule, rule.replace("_", "-"))
    client = learn_toy(tiny, toy(sheet.bird, nll), weighting=weighting)
    found = [row[0] for row in client.journal["teachers"]["weight"]]
    assert [found[1], found[2], found[4], found[7]] == pytest.approx(shares, abs=6e-5)
    assert raw_of_class_0(client, sheet.bird) == pytest.approx(raw, abs=5e-6)


def audited(tiny, case, own, alarms, who=7, **options):
    """Return a student on whose 20 samples of class 0 a teacher is right `own` times, with `alarms` of 480 others."""
    rows = STUDENT + [[0.0, 0.0]] * 2
    messages = toy(case)
    for peer, message in messages.items():
        likes = [[5.0, 0.0], [0.0, 5.0]] if peer == who else [[0.0, 5.0]] * 2  # rows 2 and 3: says 0, says 1
        message.weights.update(state(message.weights[next(iter(message.weights))].tolist() + likes))
    indices = [2] * own + [3] * (20 - own) + [2] * alarms + [3] * (480 - alarms)
    held = (torch.tensor(indices, dtype=torch.float32).view(-1, 1, 1), [0] * 20 + [1] * 480)
    return learn_toy(tiny, messages, rows, client={"validation": held}, audit=True, **options), rows


@pytest.mark.parametrize(
    ("own", "alarms", "verdict"),
    [(17, 12, 1), (17, 46, 1), (17, 47, 0), (6, 12, -1), (19, 96, -1)],  # 46: (46 + 2) / (480 + 4) <= 0.1
)
def test_the_audit_lets_a_verified_specialist_join(tiny, own, alarms, verdict):
    client, rows = audited(tiny, sheet.dog, own, alarms)
    assert client.journal["audit"][7][0] == verdict
    expected = sheet.audited_dog if verdict == 1 else sheet.dog_raw
    assert raw_of_class_0(client, sheet.dog, rows) == pytest.approx(expected, abs=5e-6)


def test_a_verified_teacher_that_is_mostly_wrong_does_not_join(tiny):
    # It claims 300 of 1,000 right, which is true and well evidenced (4 (n + 4) = 4,016 against 43), and no recommendation.
    case = {"q": [0.3, 0.3, 0.31, 0.9], "n": [4, 4, 4, 1000], "correct": [4, 4, 4, 300]}
    client, rows = audited(tiny, case, 6, 12, who=3)
    assert client.journal["audit"][3][0] == 1
    assert client.journal["teachers"]["kept"][3][0] == 0
    assert raw_of_class_0(client, case, rows) == pytest.approx(0.91 / 3, abs=5e-6)


@pytest.mark.parametrize(("right", "own", "raw"), [(450, 9, 0.91 / 3), (500, 10, (0.91 / 3 + 0.9) / 2)])
def test_a_verified_teacher_joins_if_it_is_right_on_half_of_its_samples_or_more(tiny, right, own, raw):
    # at = (450 + 2) / 1004 = 0.4502, and 502 / 1004 = 1/2. Both have the evidence 4,016 against 128, a share of 1/2.
    case = {"q": [0.3, 0.3, 0.31, 0.9], "n": [4, 4, 4, 1000], "correct": [4, 4, 4, right]}
    client, rows = audited(tiny, case, own, 12, who=3)
    assert client.journal["audit"][3][0] == 1
    assert raw_of_class_0(client, case, rows) == pytest.approx(raw, abs=5e-6)


@pytest.mark.parametrize(("min_support", "raw"), [(10, 0.3), (9, (168 * 0.3 + 99.863636 * 0.9) / 267.863636)])
def test_a_verified_teacher_joins_only_where_it_has_support(tiny, min_support, raw):
    # It claims 9 of 9 right: at = 11/13, evidence 13 / (22/169) = 2197/22 = 99.8636 against 3 (10 + 4) 4 = 168.
    case = {"q": [0.3, 0.3, 0.3, 0.9], "n": [10, 10, 10, 9], "correct": [5, 5, 5, 9]}
    client, rows = audited(tiny, case, 17, 12, who=3, min_support=min_support)
    assert client.journal["audit"][3][0] == 1
    assert raw_of_class_0(client, case, rows) == pytest.approx(raw, abs=5e-6)


def test_the_audit_of_the_tempered_filter(tiny):
    plain = sheet.tempered_dog
    joined, rows = audited(tiny, sheet.dog, 17, 12, agreement_filter="tempered")
    assert raw_of_class_0(joined, sheet.dog, rows) > plain + 0.1
    refuted, rows = audited(tiny, sheet.dog, 6, 12, agreement_filter="tempered")
    assert raw_of_class_0(refuted, sheet.dog, rows) == pytest.approx(plain, abs=5e-6)


def test_without_own_validation_samples_nobody_is_verified_or_refuted(tiny):
    client = learn(tiny, audit=True)
    assert client.journal["audit"] == [[0, 0, 0]] * 4
    torch.testing.assert_close(target(client), float64(sheet.target), rtol=0, atol=FLOAT32)


@pytest.mark.parametrize("unsupported", ["uniform", "zero"])
def test_a_class_of_which_only_teachers_of_weight_0_are_left_has_no_teacher(tiny, unsupported):
    # weighting = support without the filter: nobody has a sample of class 2.
    messages = inbox()
    for message in messages.values():
        message.counts[2] = 0
    found = target(learn(tiny, messages, **NO_FILTER, weighting="support", unsupported=unsupported))
    expected = class_weighted_target(
        float64(sheet.q), torch.tensor([[1, 1, 0]] * 4).bool(), float64(sheet.n), unsupported=unsupported
    )
    torch.testing.assert_close(found, expected.target, rtol=0, atol=FLOAT32)


def test_equal_weights_and_no_filter_are_uniform_kd(tiny):
    uniform = student(tiny, sheet.student, sheet.y)
    messages = {peer: Model(message.weights) for peer, message in inbox().items()}
    UniformKD(UniformKDOptions()).peer_round(uniform, messages, 1, tiny.draws)
    torch.testing.assert_close(
        learn(tiny, **NO_FILTER, weighting="equal").model.backbone.module.rows,
        uniform.model.backbone.module.rows,
        rtol=0,
        atol=1e-6,
    )


@pytest.mark.parametrize("options", [{}, {"min_support": 1, "unsupported": "zero"}], ids=str)
def test_the_defaults_have_the_bits_of_the_plain_form(tiny, options):
    # The paper's method as one composition, as it stood before it had variants.
    chosen = CradOptions(**options)
    plain = student(tiny, sheet.student, sheet.y)
    messages = inbox()
    counts = torch.stack([message.counts for message in messages.values()])
    accuracies = torch.stack([message.accuracies for message in messages.values()])

    def aggregate(logits):
        q = soft_targets(logits, 3.0)
        kept = agreement(q, supported(counts, chosen.min_support)).kept
        return class_weighted_target(q, kept, precision(counts, accuracies), unsupported=chosen.unsupported).target

    teachers = {peer: message.weights for peer, message in messages.items()}
    distil(plain, teachers, aggregate, tiny.draws, round=1, temperature=3.0, loss_weight=0.7)
    assert torch.equal(learn(tiny, **options).model.backbone.module.rows, plain.model.backbone.module.rows)


@pytest.mark.parametrize("options", [{}, {"agreement_filter": "tempered"}, NO_FILTER], ids=str)
@pytest.mark.parametrize("numbers", [1, 24, 36])  # a sample has M C = 12: chunks of one, two and three of five
def test_chunks_of_samples_change_nothing(tiny, monkeypatch, options, numbers):
    index = [0, 1, 1, 0, 1]

    def learned(**more):
        rows = [sheet.student[i] for i in index]
        client = student(tiny, rows, [sheet.y[i] for i in index], **more)
        messages = {
            peer: Snapshot(state([sheet.z[peer - 1][i] for i in index]), message.counts, message.accuracies)
            for peer, message in inbox().items()
        }
        Crad(CradOptions(**options)).peer_round(client, messages, 1, tiny.draws)
        return client.model.backbone.module.rows.detach(), client.journal["teachers"]

    whole, told = learned()
    monkeypatch.setattr(distillation, "AGGREGATED_AT_ONCE", numbers)
    parts, again = learned(eval_batch_size=2)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-6)
    assert again["kept"] == told["kept"]
    torch.testing.assert_close(float64(again["weight"]), float64(told["weight"]), rtol=0, atol=1e-4)


@given(seed=st.integers(0, 2**31), name=st.sampled_from(["crad", "uniform-kd", "uncertainty-kd", "fedmkd"]))
@settings(max_examples=40)
def test_lambda_0_is_the_cross_entropy_whatever_the_teachers_say(tiny, seed, name):
    draw = torch.Generator().manual_seed(seed)
    z = 3 * torch.randn(4, 5, 3, generator=draw)
    labels = torch.randint(0, 3, (5,), generator=draw)
    counts = torch.randint(0, 9, (4, 3), generator=draw, dtype=torch.int32)
    accuracies = torch.rand(4, 3, generator=draw)
    entry = find_method(name)

    def learned(peers):
        client = student(tiny, z[0].tolist(), labels.tolist())
        messages = {
            peer: Snapshot(state(z[peer].tolist()), counts[peer], accuracies[peer])
            if name == "crad"
            else Model(state(z[peer].tolist()))
            for peer in peers
        }
        entry.method(entry.options(loss_weight=0.0)).peer_round(client, messages, 1, tiny.draws)
        return client.model.backbone.module.rows.detach(), client.journal["train"]["terms"]

    rows, terms = learned((1, 2, 3))
    alone, same = learned(())
    assert torch.equal(rows, alone)
    assert terms == same
    own = z[0].double().requires_grad_()
    loss = nn.functional.cross_entropy(own, labels)
    (gradient,) = torch.autograd.grad(loss, own)
    assert terms == {"cross_entropy": pytest.approx(loss.item(), abs=FLOAT32)}
    torch.testing.assert_close(rows.double(), (own - gradient).detach(), rtol=0, atol=FLOAT32)


def test_choices_that_exclude_each_other_are_refused():
    with pytest.raises(InvalidConfig, match="weights of its own"):
        CradOptions(agreement_filter="tempered", weighting="equal")
    with pytest.raises(InvalidConfig, match="does not cover"):
        CradOptions(count_epsilon=1.0, weighting="cross-entropy")


def test_a_peer_without_cross_entropies_is_named(tiny):
    with pytest.raises(InvalidMessage, match="peer 1 sent no cross-entropies"):
        learn(tiny, weighting="cross-entropy")


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, x):
        return self.body(x)


@pytest.fixture
def peer(tiny):
    def build(labels=(0, 0, 1, 1, 1), client_id=0):
        torch.manual_seed(1)
        x = torch.rand(12, 1, 4, 4)
        template = SplitModel.from_module(Small(), num_classes=3, scores_only=True)
        return tiny.client(
            x,
            [0, 1, 2] * 4,
            SplitModel.from_module(Small(), num_classes=3, scores_only=True),
            num_classes=3,
            client_id=client_id,
            validation=(x[: len(labels)], list(labels)) if labels else None,
            template=lambda _: template,
            lr=0.1,
        )

    return build


def test_cross_entropies_are_means_over_the_samples_of_a_class(peer):
    client = peer()
    made = Crad(CradOptions(weighting="cross-entropy")).snapshot(client, 1)
    with torch.no_grad():
        client.model.eval()
        logits = client.model(client.shard.validation.x)
    losses = nn.functional.cross_entropy(logits, client.shard.validation.y, reduction="none")
    expected = torch.tensor([losses[:2].mean(), losses[2:].mean(), torch.nan])
    torch.testing.assert_close(made.cross_entropies, expected, rtol=0, atol=1e-6, equal_nan=True)
    made.check("peer 0", C=3)
    assert made.num_scalars == Crad(CradOptions()).snapshot(client, 1).num_scalars + 3
    nothing = Crad(CradOptions(weighting="cross-entropy")).snapshot(peer(labels=()), 1)
    assert bool(nothing.cross_entropies.isnan().all())
    wrong = Snapshot({}, made.counts, made.accuracies, torch.zeros(2))
    with pytest.raises(InvalidMessage, match="2 numbers for 3"):
        wrong.check("peer 0", C=3)


def test_noisy_counts_are_drawn_once_a_run_and_accuracies_are_rounded(peer):
    method, draws = Crad(CradOptions(count_epsilon=0.5)), Draws(5)
    client = peer()
    method.start(client, draws)
    one, other = method.snapshot(client, 1), method.snapshot(client, 2)
    one.check("peer 0", C=3)
    assert one.counts.dtype == torch.float32
    assert torch.equal(one.counts, other.counts)
    assert bool((one.counts >= 0).all())
    assert not torch.equal(one.counts, one.counts.round())
    assert torch.equal(one.accuracies * 32, (one.accuracies * 32).round())
    exact = Crad(CradOptions()).snapshot(client, 1).accuracies
    assert bool(((one.accuracies - exact).abs() <= 1 / 64).all())
    stranger = peer(client_id=1)
    method.start(stranger, draws)
    assert not torch.equal(method.snapshot(stranger, 1).counts, one.counts)
    again = peer()
    method.start(again, draws)
    assert torch.equal(method.snapshot(again, 1).counts, one.counts)


def test_an_absent_class_with_a_noised_count_of_3_weighs_28_and_not_34_3(peer):
    client = peer()  # without a validation sample of class 2
    client.memory["noisy_counts"] = torch.tensor([2.0, 3.0, 3.0])
    made = Crad(CradOptions(count_epsilon=1.0)).snapshot(client, 1)
    assert precision(made.counts, made.accuracies)[2].item() == pytest.approx(28.0, abs=1e-8)


def test_noisy_counts_are_clipped_at_0_and_have_the_scale_1_by_epsilon(tiny):
    # 4,000 absent classes: half of the draws are clipped to 0, and P(n' >= 2) is the sheet's 0.0677 at epsilon 1.
    client = student(tiny, [[0.0] * 4000], [0])
    Crad(CradOptions(count_epsilon=1.0)).start(client, Draws(1))
    drawn = client.memory["noisy_counts"]
    assert (drawn == 0).float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert (drawn >= 2).float().mean().item() == pytest.approx(sheet.dp_pass[0], abs=0.015)


def test_real_valued_counts_reach_filter_and_weight_and_the_record_says_so(tiny):
    noisy = float64(sheet.n) + float64([[0.25, -1.5, 0.75], [1.5, -0.25, 2.5], [-4.25, 0.5, 0.5], [0.5, 1.5, -8.0]])
    messages = inbox()
    for row, message in zip(noisy.float(), messages.values(), strict=True):
        object.__setattr__(message, "counts", row)
    client = student(tiny, sheet.student, sheet.y)
    Crad(CradOptions(count_epsilon=1.0)).peer_round(client, messages, 1, tiny.draws)
    accuracies = torch.stack([message.accuracies for message in messages.values()])
    q, backed = float64(sheet.q), supported(noisy)
    assert backed.tolist() != (torch.tensor(sheet.n) >= 2).tolist()
    expected = class_weighted_target(q, agreement(q, backed).kept, precision(noisy, accuracies)).target
    torch.testing.assert_close(target(client), expected, rtol=0, atol=FLOAT32)
    assert client.journal["privacy"] == {
        "counts": "Laplace noise of scale 1 / epsilon, drawn once a run, clipped at 0",
        "epsilon_spent": 1.0,
        "adjacency": "one validation sample of the peer more or less",
        "l1_sensitivity": 1,
        "accuracies": "not covered, rounded to 1/32",
        "weights": "not covered",
    }


@pytest.mark.parametrize(("wire", "size"), [("float32", 4), ("float16", 2)])
def test_the_bytes_of_a_snapshot_are_counted_from_what_travels(peer, wire, size):
    client = peer()
    made = Crad(CradOptions(snapshot=wire)).snapshot(client, 1)
    floating = sum(t.numel() for t in client.model.state_dict().values() if t.is_floating_point())
    assert made.num_bytes == size * floating + 2 * 3 * 4
    assert made.num_scalars == floating + 2 * 3


def test_int8_sends_codes_of_matrices_one_scale_each_and_vectors_in_full(peer):
    client = peer()
    made = Crad(CradOptions(snapshot="int8")).snapshot(client, 1)
    made.check("peer 0", C=3)
    matrices, vectors = 16 * 6 + 6 * 3, 6 + 4 * 6 + 3
    assert made.num_bytes == matrices + 4 * (vectors + 2) + 2 * 3 * 4
    received = Snapshot.from_bytes(made.to_bytes())
    for name, tensor in unpack_weights(received).items():
        own = client.model.state_dict()[name]
        assert tensor.dtype == own.dtype
        limit = own.abs().max().item() / 254 * 1.001 if own.ndim > 1 else 0.0
        assert (tensor.double() - own.double()).abs().max().item() <= limit, name
    assert made.weights["backbone.module.body.1.weight"].abs().max() == 127


def test_float16_keeps_what_is_beyond_its_range_and_float32_is_untouched():
    held = {"a": torch.tensor([1.0, 1e5]), "b": torch.tensor([0.1]), "n": torch.tensor(3)}
    sent, scales = pack_weights(held, "float16")
    assert not scales
    assert [tensor.dtype for tensor in sent.values()] == [torch.float32, torch.float16, torch.int64]
    counts = torch.zeros(1, dtype=torch.int32)
    back = unpack_weights(Snapshot(sent, counts, torch.zeros(1)))
    assert torch.equal(back["a"], held["a"])
    assert back["b"].item() == pytest.approx(0.1, abs=3e-5)
    assert back["b"].dtype == torch.float32
    assert pack_weights(held, "float32")[0] == held


@pytest.mark.parametrize("wire", ["float16", "int8"])
def test_a_student_learns_from_weights_in_fewer_bits(peer, tiny, wire):
    method = Crad(CradOptions(snapshot=wire, min_support=1))
    client, other = peer(), peer(client_id=1)
    sent = {1: Snapshot.from_bytes(method.snapshot(other, 1).to_bytes())}
    method.peer_round(client, sent, 1, tiny.draws)
    exact, plain = peer(), Crad(CradOptions(min_support=1))
    plain.peer_round(exact, {1: plain.snapshot(other, 1)}, 1, tiny.draws)
    for name, tensor in client.model.state_dict().items():
        torch.testing.assert_close(tensor, exact.model.state_dict()[name], rtol=0, atol=1e-3)
    assert client.journal["train"]["terms"]["distillation"] > 0


def test_codes_without_a_scale_are_refused(peer):
    made = Crad(CradOptions(snapshot="int8")).snapshot(peer(), 1)
    wrong = Snapshot(made.weights, made.counts, made.accuracies)
    with pytest.raises(InvalidMessage, match="needs both"):
        wrong.check("peer 0", C=3)


def test_a_matrix_that_is_not_finite_is_refused_as_codes_too(peer):
    client = peer()
    with torch.no_grad():
        client.model.backbone.module.body[1].weight[0, 0] = torch.nan
    with pytest.raises(InvalidMessage, match=r"entry 'scales/.*' is not finite"):
        Crad(CradOptions(snapshot="int8")).snapshot(client, 1).check("peer 0", C=3)


@pytest.mark.parametrize(
    "options",
    [
        {"count_epsilon": 1.0, "snapshot": "int8", "audit": True},
        {"agreement_filter": "tempered", "snapshot": "float16"},
        {"weighting": "cross-entropy"},
    ],
    ids=str,
)
def test_a_whole_run_with_variants_is_resumed_to_the_same_bits(tiny, tmp_path, options):

    usual = {"test_fraction": 0.4, "validation_fraction": 0.3, "participation": 0.5, "rounds": 4, **options}

    def keep(row) -> None:
        if row.round == 3:
            shutil.copytree(tmp_path / "whole", tmp_path / "part")

    whole = tiny.play("crad", tmp_path / "whole", watch=Watch(finished_round=keep), **usual)
    resumed = motley.resume(tmp_path / "part", data=tiny.dataset(), models=tiny.model)
    assert tiny.rows(resumed) == tiny.rows(whole)
    tiny.assert_same_tensors(tiny.weights(resumed), tiny.weights(whole))
