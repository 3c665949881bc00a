"""FedProto through its own verbs: the worked numbers of its sheet (section 10) and its identities (section 16)."""

import pytest
import torch
from functional import server_numbers as sheet
from prototype_clients import C, fixed_client, pulled_client, same_models
from table_students import FLOAT32, float64

from motley.errors import InvalidMessage
from motley.methods.contracts import Upload
from motley.methods.fedproto import CountedPrototypes, FedProto, FedProtoOptions
from motley.methods.prototype_sharing import Prototypes, own_prototypes

CLIENTS = ((sheet.pr_zA, sheet.pr_yA), (sheet.pr_zB, sheet.pr_yB))


def method(**options: object) -> FedProto:
    return FedProto(FedProtoOptions(**options))


def uploads(tiny, made: FedProto, only=(0, 1), round: int = 1) -> list[Upload]:
    found = []
    for number in only:
        client = fixed_client(tiny, *CLIENTS[number], client_id=number)
        received = made.start(client.task, tiny.draws)
        found.append(Upload(number, made.client_round(client, received, round, tiny.draws)))
    return found


def known(classes=(0, 1, 2)) -> Prototypes:
    present = torch.tensor([label in classes for label in range(C)])
    return Prototypes(torch.tensor(sheet.pr_uniform)[present], present)


@pytest.mark.parametrize(("weighting", "expected"), [("uniform", sheet.pr_uniform), ("samples", sheet.pr_samples)])
def test_the_server_takes_the_mean_of_the_holders(tiny, weighting, expected):
    made = method(weighting=weighting)
    sent = uploads(tiny, made)
    state = made.server_round(made.start(fixed_client(tiny, *CLIENTS[0]).task, tiny.draws), iter(sent), 1, tiny.draws)
    state.check("the server", C=C, d=2)
    torch.testing.assert_close(state.rows.double(), float64(expected), rtol=0, atol=FLOAT32)
    assert state.present.tolist() == [True] * 3


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_a_client_sends_the_rows_of_its_classes_and_counts_them(tiny, weighting):
    for upload, held in zip(uploads(tiny, method(weighting=weighting)), ([0, 2], [0, 1]), strict=True):
        message = upload.message
        message.check("client", C=C, d=2)
        assert message.present.nonzero().flatten().tolist() == held
        expected = sheet.re_protos[upload.client_id]
        torch.testing.assert_close(message.rows.double(), float64([expected[c] for c in held]), rtol=0, atol=FLOAT32)
        assert message.num_scalars == 2 * 2 + (2 if weighting == "samples" else 0)  # |C_k| d (+ |C_k|), not C d


def test_a_client_is_pulled_by_the_gradient_of_the_sheet(tiny):
    client = pulled_client(tiny, sheet.pr_z, sheet.pr_y)
    method().client_round(client, known(sheet.pr_have), 2, tiny.draws)
    moved = float64(sheet.pr_z) - client.model.backbone.rows.detach().double()
    torch.testing.assert_close(moved, float64(sheet.pr_grad_z), rtol=0, atol=FLOAT32)
    terms = client.journal["train"]["terms"]
    assert terms["prototype"] == pytest.approx(sheet.pr_lambda * sheet.pr_mse, abs=1e-5)


def test_identity_2_round_1_trains_on_the_cross_entropy_alone(tiny):
    client = pulled_client(tiny, sheet.pr_z, sheet.pr_y)
    made = method()
    made.client_round(client, made.start(client.task, tiny.draws), 1, tiny.draws)
    assert set(client.journal["train"]["terms"]) == {"cross_entropy"}


def test_a_class_without_a_holder_keeps_its_prototype(tiny):
    made = method()
    state = made.server_round(known(), iter(uploads(tiny, made, only=(1,))), 2, tiny.draws)  # holds 0 and 1
    torch.testing.assert_close(state.rows[2], torch.tensor(sheet.pr_uniform[2]), rtol=0, atol=0)
    torch.testing.assert_close(state.rows[:2], torch.tensor([[5.0, 0.0], [2.0, 2.0]]), rtol=0, atol=FLOAT32)
    assert made.server_round(known(), iter(()), 3, tiny.draws).rows.tolist() == known().rows.tolist()


def test_a_class_that_nobody_ever_held_is_neither_sent_nor_predicted(tiny):
    made = method()
    client = fixed_client(tiny, *CLIENTS[1])
    state = made.server_round(made.start(client.task, tiny.draws), iter(uploads(tiny, made, only=(1,))), 1, tiny.draws)
    down = made.broadcast(state, 0)
    assert down.num_scalars == 2 * 2
    query = torch.tensor([[0.0, -1.0]])[:, None]  # class 2 of client A lies here
    assert made.predict(client, down, query).argmax(dim=1).item() == 1
    assert made.predict(client, down, query)[0, 2] == -torch.inf


def test_both_inferences_are_reported_and_the_option_chooses_the_headline(tiny):
    client = fixed_client(tiny, *CLIENTS[0])
    query = torch.tensor(sheet.pr_query)[:, None]
    head, near = client.model(query), method().predict(client, known(), query)
    torch.testing.assert_close(near.double() ** 2, float64(sheet.pr_sqdist), rtol=0, atol=1e-5)
    assert near.argmax(dim=1).tolist() == sheet.pr_pred
    by_prototype, by_head = method(), method(inference="head")
    assert torch.equal(by_head.predict(client, known(), query), head)
    assert list(by_prototype.other_predictions(client, known(), query)) == ["head"]
    assert torch.equal(by_prototype.other_predictions(client, known(), query)["head"], head)
    assert torch.equal(by_head.other_predictions(client, known(), query)["nearest"], near)


def test_without_prototypes_the_head_classifies(tiny):
    client, made = fixed_client(tiny, *CLIENTS[0]), method()
    query = torch.tensor(sheet.pr_query)[:, None]
    nothing = made.start(client.task, tiny.draws)
    assert torch.equal(made.predict(client, nothing, query), client.model(query))
    assert torch.equal(made.predict(client, None, query), client.model(query))  # R8: it never took part


def test_r8_with_local_state_a_client_uses_what_it_received_last(tiny):
    client, made = fixed_client(tiny, *CLIENTS[0]), method()
    made.client_round(client, known((0, 1)), 2, tiny.draws)
    query = torch.tensor(sheet.pr_query)[:, None]
    assert torch.equal(made.predict(client, None, query), made.predict(client, known((0, 1)), query))
    assert not torch.equal(made.predict(client, None, query), made.predict(client, known(), query))


def test_identity_1_without_the_pull_it_is_local(tiny, tmp_path):
    one = tiny.play("fedproto", tmp_path / "one", loss_weight=0.0, inference="head")
    other = tiny.play("local", tmp_path / "other", models=tiny.models_for("fedproto"))
    same_models(tiny.weights(one), tiny.weights(other))
    assert [row["metrics"]["local_accuracy"] for row in one.rows if row["kind"] == "round"] == [
        row["metrics"]["local_accuracy"] for row in other.rows if row["kind"] == "round"
    ]


def test_with_the_pull_it_is_not_local(tiny, tmp_path):
    one = tiny.play("fedproto", tmp_path / "one", rounds=2)
    other = tiny.play("local", tmp_path / "other", rounds=2, models=tiny.models_for("fedproto"))
    with pytest.raises(AssertionError):
        same_models(tiny.weights(one), tiny.weights(other))


def test_rows_hold_both_predictors(tiny, tmp_path):
    record = tiny.play("fedproto", tmp_path / "run", rounds=2, test_fraction=0.4)
    last = [row for row in record.rows if row["kind"] == "round"][-1]["metrics"]
    assert {"local_accuracy", "local_accuracy:head"} <= set(last)


@pytest.mark.parametrize(
    ("rows", "present", "counts"), [(2, [True, False, False], []), (1, [True, False, False], [3, 4])]
)
def test_a_message_whose_entries_do_not_fit_is_refused(rows, present, counts):
    message = CountedPrototypes(torch.zeros(rows, 2), torch.tensor(present), torch.tensor(counts, dtype=torch.int32))
    assert message.fault()


def test_a_prototype_that_is_not_finite_is_refused_and_not_called_absent(tiny):
    client = fixed_client(tiny, *CLIENTS[0])
    client.shard.train.x[0, 0, 0] = torch.nan
    with pytest.raises(InvalidMessage, match="'rows' is not finite"):
        own_prototypes(client).check("client 0", C=C)
