"""What every registered method must stand, built in or not."""

import math
import re
import shutil
from types import SimpleNamespace

import pytest
import torch

import motley
from motley.engine.runs import Watch
from motley.errors import RunFailed
from motley.methods.registry import find_method, method_names
from motley.record.checkpoints import read_checkpoint

SPLIT = {"test_fraction": 0.4, "validation_fraction": 0.3}
LATE = {"fedtopo": {"warmup_rounds": 1}, "local-scaled": {"warmup_rounds": 1}}  # the extra term from round 2 on
MLP = {"auxiliary": "small-mlp"}  # the auxiliary model of the sheets takes too long
SMALL = {"fml": MLP, "fedkd": MLP, "fedmrl": MLP}
SMALL |= {"fedsce": MLP | {"warmup": 1, "window": 3}}  # confined from its second round on
SMALL |= {"fedgen": {"gen_steps": 5, "hidden_size": 32}}
SMALL |= {"fedgd": {"gen_steps": 3, "synthetic": 6, "gen_batch": 4, "refresh": 3}}
SMALL |= {"dfml": {"aggregators": "all"}}  # so that every client trains in every round, and not for one other alone
# A client whose model goes to another is found out before it trains.
NOT_FINITE = r"(the loss term '\w+' is not finite|peer 2 sent Model whose entry '\S+' is not finite; .* refused)"
FROM_ROUND_2 = {"fedproto", "fedtgp", "fd"}  # the server knows nothing before, so nothing comes down

pytestmark = pytest.mark.parametrize("method", method_names())


@pytest.fixture
def play(tiny, tmp_path):
    def run(method: str, **options: object):
        path = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        return tiny.play(method, path, **(SPLIT | LATE.get(method, {}) | SMALL.get(method, {}) | options))

    return run


def client_rows(record, round: int | None = None) -> list[dict]:
    return [row for row in record.rows if row["kind"] == "client" and round in (None, row["round"])]


def assert_sound(record, rounds: int) -> None:
    """A finished run whose weights, losses and metrics are all finite numbers."""
    assert record.summary["status"] == "finished"
    assert record.summary["rounds"] == rounds
    assert not record.summary["missing"]
    for row in client_rows(record):
        if row["active"]:
            assert row["train"]["steps"] > 0
            assert all(math.isfinite(value) for value in row["train"]["terms"].values())
    assert 0 <= record.final["local_accuracy"] <= 1
    for name, tensor in read_checkpoint(record.path / "checkpoints").tensors.items():
        if "/model/" in name or name.startswith("state/"):
            assert bool(torch.isfinite(tensor).all()), name


FEDERATIONS = {
    "class 3 held by nobody": ((12, 9, 0, 0), (0, 10, 8, 0), (6, 0, 11, 0), (7, 8, 9, 0)),
    "class 3 held by one client": ((12, 9, 0, 0), (0, 10, 8, 7), (6, 0, 11, 0)),
    "clients of one class": ((12, 0, 0), (0, 10, 0), (0, 0, 9), (8, 0, 0)),
    "two classes": ((9, 4), (3, 8), (7, 0)),
    "one client": ((9, 8, 7),),
    "one client of one class": ((0, 9, 0),),
    "a client with a single sample": ((9, 8, 7), (1, 0, 0), (5, 5, 0)),
    "disjoint classes": ((9, 8, 0, 0), (0, 0, 7, 8)),
}


@pytest.mark.parametrize("name", FEDERATIONS)
def test_it_runs_on_an_awkward_federation(play, tiny, method, name):
    assert_sound(play(method, data=tiny.dataset(FEDERATIONS[name]), rounds=3), 3)


def test_it_runs_on_signals(play, tiny, method):
    assert_sound(play(method, data=tiny.signals(), rounds=5), 5)


def test_two_hundred_classes_of_which_clients_hold_two_samples_each(play, tiny, method):
    table = [[2 * ((label + client) % 4 == 0) for label in range(200)] for client in range(3)]
    assert_sound(play(method, data=tiny.dataset(table), rounds=2), 2)


def test_a_client_that_is_drawn_late_takes_part(play, method):
    record = play(method, participation=1, rounds=8)
    assert_sound(record, 8)
    first = {}
    for row in client_rows(record):
        if row["active"]:
            first.setdefault(row["client"], row["round"])
    assert len(first) > 1
    assert max(first.values()) > 2
    assert all(len(row["participants"]) == 1 for row in record.rows if row["kind"] == "round" and row["round"])
    # All clients are evaluated, those who did not take part too.
    assert {row["client"] for row in client_rows(record, 8)} == {0, 1, 2, 3}


def test_half_of_the_clients_take_part(play, method):
    assert_sound(play(method, participation=0.5, rounds=5), 5)


def test_several_epochs_and_a_batch_of_one(play, method):
    assert_sound(play(method, local_epochs=2, batch_size=2, rounds=2), 2)


def test_names_of_classes_mean_nothing(play, tiny, method):
    plain = play(method)
    renamed = play(method, data=tiny.dataset(names=("猫", "b c", "0", "")))
    assert tiny.rows(plain) == tiny.rows(renamed)


def test_d1_the_same_configuration_twice_gives_the_same_bits(play, tiny, method):
    one, other = play(method), play(method)
    assert tiny.rows(one) == tiny.rows(other)
    tiny.assert_same_tensors(tiny.weights(one), tiny.weights(other))


def test_d3_a_run_resumed_from_any_round_equals_the_unbroken_one(play, tiny, method, tmp_path):
    copies = {}

    def keep(row) -> None:
        copies[row.round] = tmp_path / f"as-after-{row.round}"
        shutil.copytree(tmp_path / "run-0", copies[row.round])

    usual = {"rounds": 5, "checkpoint_every": 2, "participation": 0.5}
    whole = play(method, **usual, watch=Watch(finished_round=keep))
    for round in (0, 1, 2, 3, 4):
        resumed = motley.resume(copies[round], data=tiny.dataset(), models=tiny.models_for(method))
        assert tiny.rows(resumed) == tiny.rows(whole), round
        tiny.assert_same_tensors(tiny.weights(resumed), tiny.weights(whole))
        assert resumed.summary["last"] == whole.summary["last"]


def poison(client_id: int, after: int, held: SimpleNamespace) -> Watch:
    """Make a client's weights NaN after a round, and its features while it trains: a method may bring other weights."""

    def began(config, federation, path) -> None:
        held.clients = federation.clients

    def finished(row) -> None:
        if row.round == after:
            model = held.clients[client_id].model
            with torch.no_grad():
                next(model.parameters()).fill_(math.nan)
            model.backbone.register_forward_hook(lambda part, _, made: made * math.nan if part.training else made)

    return Watch(began=began, finished_round=finished)


def test_a_client_that_is_not_finite_is_left_out_and_the_others_go_on(play, method):
    held = SimpleNamespace()
    record = play(method, rounds=3, watch=poison(2, 1, held))
    assert record.summary["status"] == "finished"
    left_out = [(row["round"], row["client"], row["missing"]) for row in client_rows(record) if row["missing"]]
    assert [one[:2] for one in left_out] == [(2, 2), (3, 2)]
    # A digest of a proxy set comes before the private training and has terms of its own.
    assert all(re.fullmatch(NOT_FINITE, text) for _, _, text in left_out)
    assert [(one["round"], one["client"]) for one in record.summary["missing"]] == [(2, 2), (3, 2)]
    for row in client_rows(record, 3):
        if row["client"] != 2:
            assert all(math.isfinite(value) for value in row["train"]["terms"].values())
    for name, tensor in read_checkpoint(record.path / "checkpoints").tensors.items():
        if not name.startswith("client/2/") and ("/model/" in name or name.startswith("state/")):
            assert bool(torch.isfinite(tensor).all()), name


def test_three_rounds_in_a_row_without_a_client_end_the_run(play, tmp_path, method):
    with pytest.raises(RunFailed, match=rf"client 2 was left out of 3 rounds in a row, last of round 4: {NOT_FINITE}"):
        play(method, rounds=9, watch=poison(2, 1, SimpleNamespace()))
    record = motley.load_run(tmp_path / "run-0")
    assert record.summary["status"] == "failed"
    assert [row["round"] for row in record.rows if row["kind"] == "round"] == [0, 1, 2, 3, 4]


def break_client(client_id: int, after: int) -> Watch:
    def finished(row) -> None:
        if row.round == after:

            def refuse(*_: object) -> None:
                if held.clients[client_id].model.training:
                    raise OSError("the disk is full")

            held.clients[client_id].model.register_forward_pre_hook(refuse)
            held.clients[client_id].model.backbone.register_forward_pre_hook(refuse)

    def began(config, federation, path) -> None:
        held.clients = federation.clients

    held = SimpleNamespace()
    return Watch(began=began, finished_round=finished)


def test_d7_the_first_exception_of_a_client_ends_the_run_with_its_reason(play, tmp_path, method):
    with pytest.raises(RunFailed, match="client 1 failed in round 3: OSError: the disk is full; 2 finished rounds are"):
        play(method, rounds=5, watch=break_client(1, 2))
    record = motley.load_run(tmp_path / "run-0")
    assert record.summary["status"] == "failed"
    assert [row["round"] for row in record.rows if row["kind"] == "round"] == [0, 1, 2]
    log = (tmp_path / "run-0" / "log.txt").read_text(encoding="utf-8")
    assert "Traceback (most recent call last)" in log
    assert "OSError: the disk is full" in log


def test_d7_and_d3_a_failed_run_is_resumed_after_its_last_finished_round(play, tiny, tmp_path, method):
    with pytest.raises(RunFailed):
        play(method, rounds=4, watch=break_client(1, 2), checkpoint_every=10)
    resumed = motley.resume(tmp_path / "run-0", data=tiny.dataset(), models=tiny.models_for(method))
    whole = play(method, rounds=4, checkpoint_every=10)
    assert tiny.rows(resumed) == tiny.rows(whole)
    tiny.assert_same_tensors(tiny.weights(resumed), tiny.weights(whole))


def test_c1_every_term_of_the_loss_is_in_the_rows_and_alive(play, method):
    expected = {
        "fedtopo": "topology",
        "crad": "distillation",
        "uniform-kd": "distillation",
        "uncertainty-kd": "distillation",
        "fedmkd": "distillation",
        "dfml": "distillation",
        "fedproto": "prototype",
        "fedtgp": "prototype",
        "fd": "distillation",
        "fml": "distillation",
        "fedkd": "distillation",
        "fedmrl": "auxiliary",
        "fedsce": "distillation",
        "fedrod": "balanced",
        "fedgen": "generated",
    }
    record = play(method)
    for row in client_rows(record):
        if not row["active"]:
            continue
        terms = row["train"]["terms"]
        assert terms["cross_entropy"] > 0
        if method in expected and (method not in {"fedtopo", "fedgen"} | FROM_ROUND_2 or row["round"] > 1):
            assert terms[expected[method]] > 0
    assert len({row["train"]["terms"]["cross_entropy"] for row in client_rows(record) if row["active"]}) > 4


def test_traffic_is_counted_in_both_directions(play, method):
    # By default a client of msfkd answers for what it knows alone, which may be nothing.
    record = play(method, **({"selector": "all", "ambiguity": 2.0} if method == "msfkd" else {}))
    for row in client_rows(record):
        traffic = row["traffic"]
        if method == "fedgd" and row["round"] in (1, 3):
            continue  # nothing is there to be sent; the pictures, which one client has and of a byte a number
        if not row["active"] or find_method(method).name in ("local", "local-scaled"):
            assert not any(traffic.values())
        else:
            # What clients say of a proxy set comes back in the next round: in round 1 there is nothing yet.
            late = row["round"] == 1 and (method in FROM_ROUND_2 or "proxy" in find_method(method).needs)
            assert all(value > 0 for name, value in traffic.items() if not (late and name.startswith("down")))
            assert traffic["up_bytes"] == 4 * traffic["up_scalars"]
    if method == "fedtopo":
        active = next(row["traffic"] for row in client_rows(record, 1))
        assert (active["up_scalars"], active["down_scalars"]) == (4 * 4 + 4, 2 * 4 * 4)


def test_c8_no_two_models_share_storage(play, method):
    held = {}

    def began(config, federation, path) -> None:
        held["clients"] = federation.clients
        held["template"] = federation.task.template

    play(method, watch=Watch(began=began))
    places = [
        tensor.untyped_storage().data_ptr()
        for client in held["clients"]
        for model in (client.model, held["template"](client.id))
        for tensor in model.state_dict().values()
        if tensor.numel()
    ]
    assert len(places) == len(set(places))
