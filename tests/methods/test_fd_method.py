"""FD through its own verbs: the worked numbers of its sheet (section 13), its pitfalls and identities (section 16)."""

import pytest
import torch
from functional import server_numbers as sheet
from prototype_clients import same_models
from table_students import FLOAT32, Table, float64, moved, student, table
from torch.nn.functional import cross_entropy, softmax

from motley.functional.class_tables import merge_means
from motley.methods.contracts import Upload
from motley.methods.fd import FD, FDOptions, LastRound, MeanOutputs
from motley.models.split import SplitModel

C = 3
Y = torch.tensor(sheet.fd_y)


def method(**options: object) -> FD:
    return FD(FDOptions(**options))


def outputs(rows: list) -> MeanOutputs:
    held = torch.tensor([row is not None for row in rows])
    return MeanOutputs(torch.tensor([row for row in rows if row is not None]).reshape(-1, C), held)


def uploads(tables=sheet.fd_means) -> list[Upload]:
    return [Upload(k, outputs(one)) for k, one in enumerate(tables)]


@pytest.fixture
def start(tiny):
    return lambda made: made.start(student(tiny, sheet.fd_logits, sheet.fd_y).task, tiny.draws)


def near(message: MeanOutputs, expected: list) -> None:
    assert message.present.tolist() == [row is not None for row in expected]
    held = [row for row in expected if row is not None]
    torch.testing.assert_close(message.rows.double(), float64(held).reshape(-1, C), rtol=0, atol=FLOAT32)


def teacher(made: FD, state: LastRound, client_id: int) -> MeanOutputs:
    message = made.broadcast(state, client_id)
    message.check("the server", C=C)
    return message


def test_teachers_of_the_sheet(tiny, start):
    made = method()
    state = made.server_round(start(made), iter(uploads()), 1, tiny.draws)
    state.check("the server", C=C)
    near(teacher(made, state, 0), sheet.fd_teacher_client0)
    near(teacher(made, state, 1), sheet.fd_teacher_client1)
    near(teacher(made, state, 7), sheet.fd_global)  # it did not take part
    near(teacher(method(exclude_self=False), state, 0), sheet.fd_global)


@pytest.mark.parametrize(
    ("options", "regulariser"),
    [({}, sheet.fd_reg_excluding_self), ({"exclude_self": False}, sheet.fd_reg_including_self)],
)
def test_a_client_learns_as_in_the_sheet(tiny, start, options, regulariser):
    made = method(**options)
    state = made.server_round(start(made), iter(uploads()), 1, tiny.draws)
    client = student(tiny, sheet.fd_logits, sheet.fd_y)
    made.client_round(client, made.broadcast(state, 0), 2, tiny.draws)
    terms = client.journal["train"]["terms"]
    assert terms["cross_entropy"] == pytest.approx(sheet.fd_ce, abs=FLOAT32)
    assert terms["distillation"] == pytest.approx(regulariser, abs=FLOAT32)
    if not options:
        assert sum(terms.values()) == pytest.approx(sheet.fd_loss, abs=FLOAT32)
        gradient = moved(client, sheet.fd_logits)
        torch.testing.assert_close(gradient, float64(sheet.fd_grad), rtol=0, atol=FLOAT32)


@pytest.mark.parametrize(("teacher_table", "expected"), [(sheet.fd_teacher_client0, sheet.fd_reg_excluding_self)])
def test_the_term_as_plain_loops(teacher_table, expected):
    log_q = torch.log_softmax(float64(sheet.fd_logits), dim=1)
    held = [(i, teacher_table[c]) for i, c in enumerate(sheet.fd_y) if teacher_table[c] is not None]
    assert -sum((float64(row) * log_q[i]).sum() for i, row in held).item() / 3 == pytest.approx(expected, abs=1e-9)


def test_the_strength_multiplies_the_term(tiny):
    terms = []
    for weight in (1.0, 3.0):
        client = student(tiny, sheet.fd_logits, sheet.fd_y)
        method(loss_weight=weight).client_round(client, outputs(sheet.fd_teacher_client0), 2, tiny.draws)
        terms.append(client.journal["train"]["terms"]["distillation"])
    assert terms[1] == pytest.approx(3 * terms[0], rel=1e-6)


@pytest.mark.parametrize("space", ["prob", "logit"])
def test_a_client_sends_the_mean_outputs_of_its_classes(tiny, space):
    client = student(tiny, sheet.fd_logits, sheet.fd_y, lr=1e-9)
    made = method(space=space)
    message = made.client_round(client, outputs([None] * C), 1, tiny.draws)
    message.check("client 0", C=C)
    assert message.num_scalars == 2 * C  # |C_k| C
    z = float64(sheet.fd_logits)
    said = softmax(z, dim=1) if space == "prob" else z
    near(message, [((said[0] + said[2]) / 2).tolist(), None, said[1].tolist()])


def test_in_the_space_of_logits_a_teacher_is_the_softmax_of_the_mean(tiny, start):
    made = method(space="logit")
    state = made.server_round(start(made), iter(uploads()), 1, tiny.draws)
    near(teacher(made, state, 0), sheet.fd_teacher_client0)  # means travel as they are
    client = student(tiny, sheet.fd_logits, sheet.fd_y)
    made.client_round(client, made.broadcast(state, 0), 2, tiny.draws)
    target = softmax(float64([sheet.fd_teacher_client0[0]] * 2), dim=1)
    term = cross_entropy(float64(sheet.fd_logits)[[0, 2]], target, reduction="sum") / 3
    assert client.journal["train"]["terms"]["distillation"] == pytest.approx(term.item(), abs=FLOAT32)


def test_without_a_teacher_for_any_of_its_classes_only_the_labels_teach(tiny):
    client = student(tiny, sheet.fd_logits, sheet.fd_y)
    method().client_round(client, outputs([None, [0.1, 0.8, 0.1], None]), 2, tiny.draws)
    assert client.journal["train"]["terms"]["distillation"] == 0
    labels = torch.eye(C, dtype=torch.float64)[Y]
    plain = (softmax(float64(sheet.fd_logits), dim=1) - labels) / 3
    torch.testing.assert_close(moved(client, sheet.fd_logits), plain, rtol=0, atol=FLOAT32)


def test_identity_13_of_two_holders_each_is_taught_the_others_upload_exactly(tiny, start):
    made = method()
    rows = softmax(torch.randn(2, C, C, generator=torch.Generator().manual_seed(4)) * 9, dim=2)
    sent = [Upload(k, MeanOutputs(rows[k], torch.ones(C, dtype=torch.bool))) for k in (0, 1)]
    state = made.server_round(start(made), iter(sent), 1, tiny.draws)
    for k in (0, 1):
        assert torch.equal(teacher(made, state, k).rows, rows[1 - k])


def test_identity_13_a_single_holder_has_no_teacher(tiny, start):
    made = method()
    state = made.server_round(start(made), iter(uploads()[:1]), 1, tiny.draws)
    assert teacher(made, state, 0).num_scalars == 0
    near(teacher(made, state, 1), sheet.fd_means[0])


def test_only_the_last_round_teaches(tiny, start):
    made = method()
    state = made.server_round(start(made), iter(uploads()), 1, tiny.draws)
    state = made.server_round(state, iter(uploads()[2:]), 2, tiny.draws)
    near(teacher(made, state, 0), sheet.fd_means[2])
    near(teacher(made, made.server_round(state, iter(()), 3, tiny.draws), 0), [None] * C)


def test_identity_17_the_order_in_which_a_state_comes_back_changes_no_bit(tiny, start):
    made, generator = method(), torch.Generator().manual_seed(1)
    rows = torch.rand(12, C, C, generator=generator)
    rows[2], rows[10] = 1e20, -1e20  # so that the order of the sum is seen
    sent = [Upload(k, MeanOutputs(rows[k], torch.ones(C, dtype=torch.bool))) for k in range(12)]
    state = made.server_round(start(made), iter(sent), 1, tiny.draws)
    tensors = state.tensors()
    back = LastRound.from_tensors({name: tensors[name] for name in sorted(tensors)})
    assert list(back.rows) != list(state.rows)
    for k in (0, 5, 20):
        assert torch.equal(teacher(made, back, k).rows, teacher(made, state, k).rows)
    assert torch.equal(teacher(made, back, 20).rows, merge_means(rows).float())  # summed in ascending id


def test_identity_15_renaming_classes_permutes_the_teachers(tiny, start):
    made, order = method(), [2, 0, 1]
    renamed = [[row and [row[c] for c in order] for row in (one[c] for c in order)] for one in sheet.fd_means]
    state = made.server_round(start(made), iter(uploads(renamed)), 1, tiny.draws)
    expected = [sheet.fd_teacher_client1[c] for c in order]
    near(teacher(made, state, 1), [row and [row[c] for c in order] for row in expected])


def test_identity_18_a_shift_of_all_logits_changes_no_teacher(tiny):
    sent = []
    for shift in (0.0, 4.0):
        rows = [[value + shift for value in row] for row in sheet.fd_logits]
        client = student(tiny, rows, sheet.fd_y, lr=1e-9)
        sent.append(method().client_round(client, outputs([None] * C), 1, tiny.draws).rows)
    torch.testing.assert_close(sent[0], sent[1], rtol=0, atol=1e-6)


def test_identity_1_without_the_term_it_is_local(tiny, tmp_path):
    one = tiny.play("fd", tmp_path / "one", loss_weight=0.0)
    other = tiny.play("local", tmp_path / "other")
    same_models(tiny.weights(one), tiny.weights(other))


def test_identity_2_round_1_is_that_of_local_and_round_2_is_not(tiny, tmp_path):
    def weights(method: str, rounds: int):
        return tiny.weights(tiny.play(method, tmp_path / f"{method}-{rounds}", rounds=rounds))

    same_models(weights("fd", 1), weights("local", 1))
    with pytest.raises(AssertionError):
        same_models(weights("fd", 2), weights("local", 2))


def test_scores_suffice(tiny):
    # No features are read: a model of which only the scores are known can take part.
    model = SplitModel.from_module(Table(sheet.fd_logits), num_classes=C, scores_only=True)
    assert not model.has_features
    client = tiny.client(torch.arange(3.0).view(-1, 1, 1), sheet.fd_y, model, num_classes=C)
    assert method().client_round(client, outputs(sheet.fd_teacher_client0), 2, tiny.draws).num_scalars == 2 * C
    assert table(sheet.fd_logits).num_classes == C


def test_a_message_whose_entries_do_not_fit_is_refused():
    assert MeanOutputs(torch.zeros(2, C), torch.tensor([True, False, False])).fault()
