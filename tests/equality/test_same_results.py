"""Runs that must be equal: other wires, other exchanges, other orders, and methods whose extra part is switched off."""

import shutil
from dataclasses import fields

import pytest
import torch

import motley
from motley.engine import runs
from motley.engine.executor import LocalExecutor
from motley.methods.registry import find_method, method_names

ONE_CLASS_EACH = ((12, 0, 0, 0), (0, 10, 0, 0), (0, 0, 9, 0), (0, 0, 0, 11))


def models_of(tiny, record) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tiny.weights(record).items() if "/model/" in name}


def scores(record) -> list[object]:
    return [row["scores"] for row in record.rows if row["kind"] == "client"]


@pytest.fixture
def play(tiny, tmp_path):
    def run(method: str, **options: object):
        return tiny.play(method, tmp_path / f"run-{len(list(tmp_path.iterdir()))}", **options)

    return run


def assert_equal(tiny, one, other) -> None:
    tiny.assert_same_tensors(models_of(tiny, one), models_of(tiny, other))
    assert scores(one) == scores(other)


@pytest.mark.parametrize(
    "more", [{}, {"participation": 0.5}, {"negatives": 1, "topology": "local", "local_s": "global"}]
)
def test_p13_the_sparse_wire_gives_the_bits_of_the_dense_one(play, tiny, more):
    # Names without "reported" are the model; what each client remembers of its reports is the same on both wires.
    usual = {"rounds": 5, "warmup_rounds": 1} | more
    dense, sparse = play("fedtopo", wire="dense", **usual), play("fedtopo", wire="sparse", **usual)
    assert_equal(tiny, dense, sparse)
    one, other = tiny.weights(dense), tiny.weights(sparse)
    for name in one:
        if name != "state/reported":
            assert torch.equal(torch.nan_to_num(one[name]), torch.nan_to_num(other[name])), name
    terms = [[row["train"]["terms"] for row in record.rows if row.get("train")] for record in (dense, sparse)]
    assert terms[0] == terms[1]
    assert any("topology" in one for one in terms[0])
    assert dense.summary["traffic"]["up_scalars"] > sparse.summary["traffic"]["up_scalars"]
    assert dense.summary["traffic"]["down_scalars"] > sparse.summary["traffic"]["down_scalars"]


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("fedtopo", {"loss_weight": 0.0}),
        ("crad", {"loss_weight": 0.0}),
        ("uniform-kd", {"loss_weight": 0.0}),
        ("local-scaled", {"loss_weight": 0.0}),
        ("fedtopo", {"warmup_rounds": 4}),
        ("crad", {"warmup_rounds": 4}),
        ("uniform-kd", {"warmup_rounds": 4}),
        ("local-scaled", {"warmup_rounds": 4}),
    ],
    ids=str,
)
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_p16_and_d2_without_its_extra_term_a_method_equals_local_bit_for_bit(play, tiny, method, more, clip_norm):
    usual = {"clip_norm": clip_norm, "test_fraction": 0.4, "validation_fraction": 0.3}
    assert_equal(tiny, play("local", **usual), play(method, **usual, **more))


@pytest.mark.parametrize("method", [name for name in method_names() if name != "local"])
def test_with_its_extra_term_a_method_differs_from_local(play, tiny, method):
    usual = {"test_fraction": 0.4, "validation_fraction": 0.3}
    more = {"warmup_rounds": 1} if method in ("fedtopo", "local-scaled") else {}
    assert scores(play("local", **usual)) != scores(play(method, **usual, **more))


def test_p16_without_strength_fedtopo_equals_local_scaled(play, tiny):
    one = play("fedtopo", strength=0.0, warmup_rounds=1)
    other = play("local-scaled", warmup_rounds=1)
    assert_equal(tiny, one, other)  # with lambda = 1 the two terms are equal, so that even the bits are (P11)


@pytest.mark.parametrize("more", [{}, {"use_s": False}, {"topology": "local"}])
def test_p16_one_class_per_client_gives_local_scaled(play, tiny, more):
    data = tiny.dataset(ONE_CLASS_EACH)
    one = play("fedtopo", data=data, warmup_rounds=1, **more)
    other = play("local-scaled", data=data, warmup_rounds=1)
    assert_equal(tiny, one, other)  # with lambda = 1 the two terms are equal, so that even the bits are (P11)


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("method", [name for name in method_names() if find_method(name).has_server])
def test_replicated_servers_compute_what_one_server_computes(play, tiny, method, participation):
    names = {one.name for one in fields(find_method(method).options)}
    more = {"warmup_rounds": 1} if "warmup_rounds" in names else {}
    server = play(method, participation=participation, exchange="server", **more)
    replicated = play(method, participation=participation, exchange="replicated", **more)
    assert_equal(tiny, server, replicated)
    central, own = tiny.weights(server), tiny.weights(replicated)
    for name, tensor in central.items():
        if name.startswith("state/"):
            for peer in range(4):
                assert torch.equal(own[f"replica/{peer}/{name.removeprefix('state/')}"], tensor), name
    others = [row["traffic"] for row in replicated.rows if row["kind"] == "client" and row["round"] == 1]
    mine = [row["traffic"] for row in server.rows if row["kind"] == "client" and row["round"] == 1 and row["active"]]
    assert sum(one["up_scalars"] for one in others) == 3 * sum(one["up_scalars"] for one in mine)
    assert sum(one["down_scalars"] for one in others) == sum(one["up_scalars"] for one in others)


def test_p15_and_r8_the_prediction_is_that_of_the_plain_model(play, tiny):
    held = {}

    def began(config, federation, path) -> None:
        held["federation"] = federation

    record = play("fedtopo", warmup_rounds=1, watch=runs.Watch(began=began))
    federation, entry = held["federation"], find_method("fedtopo")
    method = entry.method(entry.options())
    generator = torch.Generator().manual_seed(0)
    for client in federation.clients:
        x = torch.randn(5, 1, 4, 4, generator=generator)
        client.model.eval()
        with torch.no_grad():
            plain = client.model(x)
            for _ in range(3):
                views = method.broadcast(method.start(client.task, tiny.draws), client.id)
                views = type(views)(torch.rand(views.values.shape, generator=generator))
                assert torch.equal(method.predict(client, views, x), plain)
    assert record.summary["status"] == "finished"


class AnyOrder(LocalExecutor):
    """Works off the clients of a round in a drawn order, and reports in ascending id as the contract says."""

    seed = 0

    def _shuffled(self, work):
        order = torch.randperm(len(work), generator=torch.Generator().manual_seed(self.seed)).tolist()
        ids = list(work)
        return {ids[position]: work[ids[position]] for position in order}

    def train(self, received, round, draws):
        yield from sorted(super().train(self._shuffled(received), round, draws), key=lambda one: one.client_id)

    def learn(self, inboxes, round, draws):
        yield from sorted(super().learn(self._shuffled(inboxes), round, draws), key=lambda one: one.client_id)

    def snapshots(self, ids, round):
        return dict(sorted(super().snapshots(self._shuffled(dict.fromkeys(ids)), round).items()))


@pytest.mark.parametrize("method", method_names())
def test_c8_three_orders_of_working_off_the_clients_give_the_same_bits(play, tiny, method, monkeypatch):
    usual = {"test_fraction": 0.4, "validation_fraction": 0.3}
    reference = play(method, **usual)
    monkeypatch.setattr(runs, "LocalExecutor", AnyOrder)
    for seed in (1, 2, 3):
        monkeypatch.setattr(AnyOrder, "seed", seed)
        other = play(method, **usual)
        tiny.assert_same_tensors(tiny.weights(reference), tiny.weights(other))
        assert tiny.rows(reference) == tiny.rows(other)


class Coded(LocalExecutor):
    """Puts every message through the codec, as a network does, and checks it against its own schema."""

    def _coded(self, message, sender: str):
        received = type(message).from_bytes(message.to_bytes())
        assert list(received.tensors()) == list(message.tensors())
        for name, tensor in message.tensors().items():
            assert received.tensors()[name].dtype == tensor.dtype
            assert received.tensors()[name].shape == tensor.shape
        received.check(sender, C=4)
        assert (received.num_scalars, received.num_bytes) == (message.num_scalars, message.num_bytes)
        return received

    def train(self, received, round, draws):
        down = {client: self._coded(message, "the server") for client, message in received.items()}
        for outcome in super().train(down, round, draws):
            yield type(outcome)(
                outcome.client_id,
                outcome.message and self._coded(outcome.message, f"client {outcome.client_id}"),
                outcome.missing,
                outcome.journal,
                outcome.seconds,
            )

    def scores(self, views):
        coded = {client: view and self._coded(view, "the server") for client, view in views.items()}
        return super().scores(coded)

    def snapshots(self, ids, round):
        sent = super().snapshots(ids, round)
        return {peer: self._coded(message, f"peer {peer}") for peer, message in sent.items()}


@pytest.mark.parametrize(
    ("method", "more"),
    [
        *((name, {}) for name in method_names()),
        ("fedtopo", {"wire": "sparse"}),
        ("fedtopo", {"count_noise": 2.0}),
        ("fedtopo", {"count_noise": 2.0, "hide_absent": True, "wire": "sparse"}),
    ],
    ids=str,
)
def test_the_codec_changes_nothing(play, tiny, method, more, monkeypatch):
    usual = {"test_fraction": 0.4, "validation_fraction": 0.3} | more
    reference = play(method, **usual)
    monkeypatch.setattr(runs, "LocalExecutor", Coded)
    other = play(method, **usual)
    tiny.assert_same_tensors(tiny.weights(reference), tiny.weights(other))
    assert tiny.rows(reference) == tiny.rows(other)


@pytest.mark.parametrize("method", [name for name in method_names() if name != "local"])
def test_codec_and_resume_change_nothing_for_convolutions_on_colour(play, tiny, method, monkeypatch, tmp_path):
    # Convolutions on several channels compute in another memory layout, which no message and no file keeps.
    colour = tiny.dataset(channels=3)
    needs = find_method(method).needs
    pool = "small-bn" if "one-architecture" in needs else "small-bn,small-cnn"
    usual = {"data": colour, "models": pool, "rounds": 3, "checkpoint_every": 1, "keep_optimizer": True}
    usual |= {"feature_width": 16} if needs & {"equal-width", "equal-head"} else {}
    usual |= {"momentum": 0.9, "test_fraction": 0.4, "validation_fraction": 0.3}

    def keep(row) -> None:
        if row.round == 2:
            shutil.copytree(tmp_path / "run-0", tmp_path / "broken")

    reference = play(method, **usual, watch=runs.Watch(finished_round=keep))
    resumed = motley.resume(tmp_path / "broken", data=colour)
    monkeypatch.setattr(runs, "LocalExecutor", Coded)
    for other in (resumed, play(method, **usual)):
        tiny.assert_same_tensors(tiny.weights(reference), tiny.weights(other))
        assert tiny.rows(reference) == tiny.rows(other)
