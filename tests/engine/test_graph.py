"""Who learns from whom: the three graphs, what they cost, and stale peers."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import motley
from motley.draws import Draws
from motley.engine.config import ConfigFile, resolve
from motley.engine.exchange import make_exchange
from motley.engine.executor import LocalExecutor
from motley.engine.graph import Graph
from motley.engine.peers import PeerExchange, StalePeerExchange
from motley.engine.setup import build_federation
from motley.errors import InvalidConfig, RunFailed
from motley.methods.uniform_kd import UniformKD
from motley.options import RunOptions
from motley.record.checkpoints import read_checkpoint

DRAWS = Draws(5)
SPLIT = {"test_fraction": 0.4, "validation_fraction": 0.3}
FIVE = ((12, 9, 0, 0), (0, 10, 8, 0), (6, 0, 11, 0), (7, 8, 9, 0), (5, 6, 0, 8))
PEER_METHODS = ("crad", "uniform-kd", "uncertainty-kd", "fedmkd", "feddf")
active_peers = st.sets(st.integers(0, 200), min_size=1, max_size=30).map(sorted)


@pytest.mark.parametrize(
    ("text", "graph"),
    [("complete", Graph("complete")), ("ring", Graph("ring")), ("random:1", Graph("random", 1))],
)
def test_a_graph_is_read_from_its_option(text, graph):
    assert Graph.parse(text) == graph


@pytest.mark.parametrize(
    "text", ["", "star", "ring:", "ring:2", "random", "random:", "random:0", "random:-1", "random:x"]
)
def test_what_is_no_graph_is_refused_in_one_sentence(text):
    with pytest.raises(InvalidConfig, match=re.escape(f"run.graph is '{text}'; it can be complete, ring or random:K")):
        Graph.parse(text)


@given(active=active_peers)
def test_everybody_learns_from_all_others_in_a_complete_graph(active):
    assert Graph("complete").teachers(active, 1, DRAWS) == {
        peer: [other for other in active if other != peer] for peer in active
    }


def test_a_ring_goes_through_the_active_peers_in_ascending_order():
    assert Graph("ring").teachers([2, 5, 7, 9], 1, DRAWS) == {2: [5, 9], 5: [2, 7], 7: [5, 9], 9: [2, 7]}
    assert Graph("ring").teachers([4, 6], 1, DRAWS) == {4: [6], 6: [4]}
    assert Graph("ring").teachers([4], 1, DRAWS) == {4: []}


@given(active=active_peers, degree=st.integers(1, 40), round=st.integers(1, 50))
def test_a_random_graph_gives_k_other_active_peers(active, degree, round):
    drawn = Graph("random", degree).teachers(active, round, DRAWS)
    assert list(drawn) == active
    for peer, teachers in drawn.items():
        assert teachers == sorted(set(teachers))
        assert set(teachers) <= set(active) - {peer}
        assert len(teachers) == min(degree, len(active) - 1)


def test_a_random_graph_is_drawn_anew_each_round_by_address():
    graph, active = Graph("random", 3), list(range(20))
    first, second = (graph.teachers(active, round, DRAWS) for round in (1, 2))
    assert first != second
    assert first == graph.teachers(active, 1, Draws(5))
    assert first != graph.teachers(active, 1, Draws(6))
    # What one peer draws depends on its own address alone.
    assert graph._teachers_of(7, active, 1, DRAWS) == first[7]


def test_every_other_peer_is_drawn_equally_often():
    told = Counter(
        other for round in range(1, 2001) for other in Graph("random", 2).teachers([0, 3, 4, 8, 9], round, DRAWS)[4]
    )
    assert set(told) == {0, 3, 8, 9}
    assert all(abs(count - 1000) < 100 for count in told.values())  # deviation sqrt(2000 / 4) = 22


@pytest.fixture
def play(tiny, tmp_path):
    def run(method: str, **options: object):
        path = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        return tiny.play(method, path, **(SPLIT | {"data": tiny.dataset(FIVE), "rounds": 3} | options))

    return run


def active_rows(record) -> list[dict]:
    return [row for row in record.rows if row["kind"] == "client" and row["round"] and row["active"]]


@pytest.mark.parametrize("method", PEER_METHODS)
def test_k_of_all_others_is_the_complete_graph_bit_for_bit(play, tiny, method):
    complete, drawn = play(method), play(method, graph="random:4")
    assert tiny.rows(complete) == tiny.rows(drawn)
    tiny.assert_same_tensors(tiny.weights(complete), tiny.weights(drawn))


@pytest.mark.parametrize("graph", ["ring", "random:2"])
@pytest.mark.parametrize("method", PEER_METHODS)
def test_traffic_is_counted_for_every_edge(play, method, graph):
    complete, sparse = play(method, rounds=1), play(method, rounds=1, graph=graph)
    sent = {row["client"]: row["traffic"]["up_scalars"] // 4 for row in active_rows(complete)}  # to each of 4 others
    down = sum(row["traffic"]["down_scalars"] for row in active_rows(sparse))
    assert down == sum(row["traffic"]["up_scalars"] for row in active_rows(sparse))
    for row in active_rows(sparse):
        times, rest = divmod(row["traffic"]["up_scalars"], sent[row["client"]])
        assert not rest
        assert times == 2 if graph == "ring" else 0 <= times <= 4
    if graph == "ring":
        received = {row["client"]: row["traffic"]["down_scalars"] for row in active_rows(sparse)}
        assert received == {peer: sent[(peer - 1) % 5] + sent[(peer + 1) % 5] for peer in range(5)}


@pytest.mark.parametrize("graph", ["ring", "random:1"])
@pytest.mark.parametrize("method", PEER_METHODS)
def test_a_sparse_graph_with_partial_participation_is_resumed_bit_for_bit(play, tiny, tmp_path, method, graph):
    usual = {"graph": graph, "participation": 3, "rounds": 4, "checkpoint_every": 2}
    whole = play(method, **usual)
    assert whole.summary["status"] == "finished"
    short = play(method, **(usual | {"rounds": 2}))
    resumed = motley.resume(short.path, data=tiny.dataset(FIVE), models=tiny.models_for(method), rounds=4)
    assert tiny.rows(resumed) == tiny.rows(whole)
    tiny.assert_same_tensors(tiny.weights(resumed), tiny.weights(whole))


def test_crad_journals_the_teachers_of_its_ring(play):
    record = play("crad", graph="ring")
    for row in active_rows(record):
        peer = row["client"]
        assert row["method"]["teachers"]["peers"] == sorted({(peer - 1) % 5, (peer + 1) % 5})


class Counting(LocalExecutor):
    """Keeps the snapshots that it was asked for, and those that its clients were shown."""

    def snapshots(self, ids, round):
        self.made = super().snapshots(ids, round)
        return self.made

    def learn(self, inboxes, round, draws):
        self.shown = inboxes
        yield from super().learn(inboxes, round, draws)


def test_a_snapshot_exists_once_whoever_reads_it(tiny):
    peers = _exchange(tiny, "uniform-kd", graph="ring")
    peers.play(1, [0, 1, 2, 3], tiny.draws)
    made = {id(message) for message in peers._executor.made.values()}
    shown = [id(message) for inbox in peers._executor.shown.values() for message in inbox.values()]
    assert len(shown) == 8
    assert set(shown) == made


def test_nobody_is_asked_for_a_snapshot_that_nobody_reads(tiny):
    peers = _exchange(tiny, "uniform-kd", graph="random:1")
    for round in range(1, 20):
        peers.play(round, [0, 1, 2, 3], tiny.draws)
        read = {other for inbox in peers._executor.shown.values() for other in inbox}
        assert set(peers._executor.made) == read
        if len(read) < 4:
            return
    raise AssertionError("in 19 rounds each of 4 peers was drawn by somebody")


def _exchange(tiny, method: str, **options: object):
    config = resolve(method, ConfigFile(), {"partition": "column:owner", "batch_size": 8, "device": "cpu"}, {})
    federation = build_federation(config, dataset=tiny.dataset(), factory=tiny.models_for(method))
    made = config.entry.method(config.options)
    executor = Counting(federation.clients, made, None)
    return make_exchange(RunOptions(**options), config.entry, made, executor, federation.task, tiny.draws)


def test_who_is_active_learns_from_all_that_ever_sent(tiny):
    peers = _exchange(tiny, "uniform-kd", peers="stale")
    assert isinstance(peers, StalePeerExchange)
    first = peers.play(1, [0, 1], tiny.draws)
    assert {peer: sorted(inbox) for peer, inbox in peers._executor.shown.items()} == {0: [1], 1: [0]}
    held = dict(peers._executor.made)
    size = {peer: message.num_scalars for peer, message in held.items()}
    # All others hear a snapshot, whether they take part or not.
    assert [first.traffic[peer].up_scalars for peer in range(4)] == [3 * size[0], 3 * size[1], 0, 0]
    assert [first.traffic[peer].down_scalars for peer in range(4)] == [size[1], size[0], *[size[0] + size[1]] * 2]
    peers.finish_round()
    second = peers.play(2, [1, 3], tiny.draws)
    shown = peers._executor.shown
    assert {peer: sorted(inbox) for peer, inbox in shown.items()} == {1: [0, 3], 3: [0, 1]}
    assert shown[1][0] is held[0]  # that of round 1
    assert shown[3][1] is not held[1]  # that of this round
    assert second.traffic[0].up_scalars == 0


@pytest.mark.parametrize("method", PEER_METHODS)
def test_with_all_active_stale_peers_change_nothing(play, tiny, method):
    fresh, stale = play(method), play(method, peers="stale")
    assert tiny.rows(fresh) == tiny.rows(stale)
    own = {name: tensor for name, tensor in tiny.weights(stale).items() if not name.startswith("held/")}
    tiny.assert_same_tensors(tiny.weights(fresh), own)


@pytest.mark.parametrize("method", PEER_METHODS)
def test_stale_snapshots_survive_a_resume_bit_for_bit(play, tiny, method):
    usual = {"peers": "stale", "participation": 2, "rounds": 6, "checkpoint_every": 1}
    whole = play(method, **usual)
    held = {name.split("/")[1] for name in read_checkpoint(whole.path / "checkpoints").tensors if name[:5] == "held/"}
    assert len(held) > 2
    for rounds in (2, 4):
        short = play(method, **(usual | {"rounds": rounds}))
        resumed = motley.resume(short.path, data=tiny.dataset(FIVE), models=tiny.models_for(method), rounds=6)
        assert tiny.rows(resumed) == tiny.rows(whole)
        tiny.assert_same_tensors(tiny.weights(resumed), tiny.weights(whole))
    assert tiny.rows(play(method, **(usual | {"peers": "active"}))) != tiny.rows(whole)


def test_a_round_that_breaks_off_leaves_the_stale_snapshots_of_the_last_one_behind(play, tiny, tmp_path, monkeypatch):
    usual = {"peers": "stale", "participation": 2, "rounds": 6, "checkpoint_every": 10}
    whole = play("uniform-kd", **usual)
    learn = UniformKD.peer_round

    def breaks(self, client, inbox, round, draws):
        if round == 4:
            raise OSError("the network is down")
        learn(self, client, inbox, round, draws)

    monkeypatch.setattr(UniformKD, "peer_round", breaks)
    with pytest.raises(RunFailed, match="the network is down; 3 finished rounds"):
        play("uniform-kd", **usual)
    monkeypatch.setattr(UniformKD, "peer_round", learn)
    resumed = motley.resume(tmp_path / "run-1", data=tiny.dataset(FIVE), models=tiny.models_for("uniform-kd"))
    assert tiny.rows(resumed) == tiny.rows(whole)
    tiny.assert_same_tensors(tiny.weights(resumed), tiny.weights(whole))


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        (
            "fedtopo",
            {"graph": "ring"},
            r"run.graph is 'ring', but fedtopo has a server, which hears all .* leave --graph",
        ),
        ("fedtopo", {"graph": "ring", "exchange": "replicated"}, r"fedtopo has a server, .*\(so does every peer"),
        ("fedtopo", {"peers": "stale"}, r"run.peers is 'stale', but fedtopo has a server"),
        ("dfml", {"graph": "random:2"}, r"run.graph is 'random:2', but dfml draws for itself who sends to whom"),
        ("dfml", {"peers": "stale"}, r"run.peers is 'stale', but dfml draws for itself"),
        (
            "crad",
            {"graph": "ring", "peers": "stale"},
            r"run.peers is 'stale' with run.graph = 'ring'.* take one of the",
        ),
        ("fedgd", {"graph": "ring"}, r"run.graph is 'ring', but fedgd needs all peers to hear the same; leave --graph"),
        ("fedgd", {"graph": "random:2"}, r"fedgd needs all peers to hear the same"),
        ("fedmd", {"graph": "ring"}, r"run.graph is 'ring', but fedmd has a server"),
        ("crad", {"graph": "star"}, r"run.graph is 'star'; it can be complete"),
    ],
)
def test_where_nobody_chooses_whom_to_learn_from_a_graph_is_refused(play, tmp_path, method, options, words):
    with pytest.raises(InvalidConfig, match=words):
        play(method, **options)
    assert not list(tmp_path.iterdir())


def test_a_method_that_sends_nothing_runs_beside_others_with_any_graph(play, tiny):
    plain = play("local")
    for options in ({"graph": "ring"}, {"peers": "stale"}):
        assert tiny.rows(play("local", **options)) == tiny.rows(plain)


def test_a_peer_exchange_has_nothing_to_keep(tiny):
    peers = _exchange(tiny, "uniform-kd")
    assert isinstance(peers, PeerExchange)
    assert not peers.tensors()
