"""Several processes: the same numbers, the same records, and nobody left behind."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import motley
from motley.engine import packing
from motley.engine.config import ConfigFile, resolve
from motley.engine.crew import Crew, choose_crew, client_costs, usable_cores
from motley.engine.devices import worker_devices
from motley.engine.packing import SHARED_FROM, Bundle, Packed
from motley.engine.placement import measured_costs, share_clients
from motley.engine.runs import Material, Watch, start_run
from motley.engine.setup import build_federation
from motley.errors import InvalidConfig, MotleyWarning, RunFailed
from motley.messages import Message
from motley.methods.crad import Snapshot
from motley.methods.distillation import Model
from motley.options import RunOptions

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two workers need two cores")
DIGITS = {"clients": 5, "rounds": 3, "partition": "dirichlet:0.5", "data_limit": 400, "checkpoint_every": 1}


@pytest.fixture(autouse=True)
def all_cores(monkeypatch):
    """The tests run with OMP_NUM_THREADS=1, which a run obeys, too."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def play(path: Path, method: str, workers: int, **options: object):
    return motley.run(method, out=path, workers=workers, threads=1, **(DIGITS | options))


@needs_two_cores
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedtopo", {"participation": 0.6, "options": {"warmup_rounds": 1}}),
        ("crad", {"protocol": "global"}),
        ("crad", {"protocol": "global", "graph": "random:2"}),
        ("uniform-kd", {"peers": "stale", "participation": 0.6}),
        ("dfml", {"options": {"aggregators": "all", "senders": 2, "period": 2}}),
    ],
)
def test_two_workers_give_the_bits_of_one_process(tiny, tmp_path, method, options):
    nn.Conv2d(3, 8, 3)(torch.randn(8, 3, 32, 32))  # case E4: the parent has used its threads before
    torch.randn(500, 500) @ torch.randn(500, 500)
    method_options = options.pop("options", {})
    one, two = (play(tmp_path / str(n), method, n, **options, **method_options) for n in (1, 2))
    assert tiny.rows(one) == tiny.rows(two)
    tiny.assert_same_tensors(tiny.weights(one), tiny.weights(two))
    assert two.summary["machine"]["workers"] == 2


@needs_two_cores
def test_e4_a_killed_worker_is_noticed_its_client_is_named_and_the_run_goes_on_without_workers(tiny, tmp_path):
    def kill(row) -> None:
        if row.round == 1:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            ours = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            os.kill(ours[0], signal.SIGKILL)
            held["at"] = time.monotonic()

    held: dict[str, float] = {}
    config = resolve("local", ConfigFile(), {**DIGITS, "workers": 2, "threads": 1}, {})
    with pytest.raises(RunFailed, match=r"the worker process of client.* \d.* ended without a word"):
        start_run(config, tmp_path / "run", Material(), Watch(finished_round=kill))
    assert time.monotonic() - held["at"] < 10
    assert motley.load_run(tmp_path / "run").summary["status"] == "failed"
    whole = play(tmp_path / "whole", "local", 1)
    resumed = motley.resume(tmp_path / "run")
    assert tiny.rows(resumed) == tiny.rows(whole)
    tiny.assert_same_tensors(tiny.weights(resumed), tiny.weights(whole))


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(true, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.05)
    return bool(true())


@needs_two_cores
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_e4_no_worker_outlives_its_run(tmp_path, number):
    command = [sys.executable, "-m", "motley", "run", "local", "--clients", "4", "--rounds", "5000", "--workers", "2"]
    process = subprocess.Popen([*command, "--threads", "1", "--out", str(tmp_path / "run")], stderr=subprocess.DEVNULL)
    rows = tmp_path / "run" / "rounds.jsonl"
    assert wait_until(lambda: rows.exists() and rows.stat().st_size > 5000, 60)
    workers = children_of(process.pid)
    assert len(workers) >= 2
    process.send_signal(number)
    assert process.wait(30) == (130 if number == signal.SIGINT else -number)
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 10)
    if number == signal.SIGINT:
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


@needs_two_cores
def test_a_warning_of_a_worker_is_told_once_and_kept(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MotleyWarning)
        record = play(tmp_path / "run", "local", 2, batch_size=4, partition="dirichlet:0.02", data_limit=60)
    single = [text for text in record.summary["warnings"] if "single training sample" in text]
    assert len(single) == len(set(single))


@needs_two_cores
def test_a_factory_that_cannot_be_sent_is_refused(tiny, tmp_path):
    with pytest.raises(InvalidConfig, match=r"run.workers is 2, but the models' factory cannot be sent"):
        motley.run(
            "local",
            out=tmp_path / "run",
            data=tiny.dataset(),
            models=lambda *a: tiny.model(*a[:3]),
            workers=2,
            clients=4,
        )
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def clients():
    return build_federation(resolve("local", ConfigFile(), {"clients": 6}, {})).clients


def test_e3_more_workers_than_cores_are_refused(clients, monkeypatch):
    monkeypatch.setattr("motley.engine.crew.usable_cores", lambda: 2)
    costs = client_costs(clients)
    assert choose_crew(RunOptions(workers=2, threads=1), clients, costs, 6) == Crew(2, 1)
    with pytest.raises(InvalidConfig, match=r"run.workers is 3 with 1 thread each, but this process may use 2 cores"):
        choose_crew(RunOptions(workers=3), clients, costs, 6)
    with pytest.raises(InvalidConfig, match=r"run.workers is 2 with 2 threads each"):
        choose_crew(RunOptions(workers=2, threads=2), clients, costs, 6)


def test_e3_omp_num_threads_is_obeyed(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert usable_cores() == 1


def test_only_a_long_run_gets_workers_by_itself(clients, monkeypatch):
    monkeypatch.setattr("motley.engine.crew.usable_cores", lambda: 2)
    costs = client_costs(clients)
    assert choose_crew(RunOptions(rounds=5), clients, costs, 6).workers == 1
    assert choose_crew(RunOptions(rounds=100_000), clients, costs, 6) == Crew(2, 1)
    assert choose_crew(RunOptions(rounds=100_000, threads=2), clients, costs, 6) == Crew(1, 2)


def test_workers_take_turns_on_several_gpus_unless_one_is_named(monkeypatch):
    monkeypatch.setattr("motley.engine.devices.available_devices", lambda: ["cpu", "cuda:0", "cuda:1"])
    for name in ("auto", "cuda"):
        assert worker_devices(name, 3) == ["cuda:0", "cuda:1", "cuda:0"]
    assert worker_devices("cuda:1", 2) == ["cuda:1", "cuda:1"]
    assert worker_devices("cpu", 2) == ["cpu", "cpu"]
    monkeypatch.setattr("motley.engine.devices.available_devices", lambda: ["cpu", "cuda:0"])
    assert worker_devices("auto", 2) == ["auto", "auto"]


def test_costs_are_measured_by_architecture_and_grow_with_the_samples():
    config = resolve("local", ConfigFile(), {"clients": 6, "models": "small-linear,small-bn"}, {})
    clients = build_federation(config).clients
    before = [{name: value.clone() for name, value in client.model.state_dict().items()} for client in clients]
    costs = measured_costs(clients, 1)
    assert list(costs) == [client.id for client in clients]
    for kind in (clients[::2], clients[1::2]):
        seconds = {costs[client.id] / len(client.shard.train) for client in kind}
        assert max(seconds) == pytest.approx(min(seconds))
        assert min(seconds) > 0
    for client, state in zip(clients, before, strict=True):
        assert all(torch.equal(state[name], value) for name, value in client.model.state_dict().items())


def test_clients_are_shared_by_cost():
    costs = {0: 8.0, 1: 1.0, 2: 1.0, 3: 7.0, 4: 1.0, 5: 0.0}
    shares = share_clients(costs, 2)
    assert sorted(client for own in shares for client in own) == [0, 1, 2, 3, 4, 5]
    assert [sum(costs[client] for client in own) for own in shares] == [9.0, 9.0]


@pytest.mark.parametrize("size", [2, SHARED_FROM])
def test_a_packed_message_is_the_message(size):
    sent = Snapshot({"a.b": torch.randn(size)}, torch.tensor([1, 2], dtype=torch.int32), torch.tensor([0.5, 1.0]))
    packed = Packed.message(sent)
    assert isinstance(packed.block, bytes) is (size == 2)
    received: Message = packed.to_message()
    assert type(received) is Snapshot
    for name, tensor in sent.tensors().items():
        assert torch.equal(received.tensors()[name], tensor)


def test_bundles_hold_every_message_once_in_their_order(monkeypatch):
    monkeypatch.setattr(packing, "BUNDLE", 1000)
    sizes = {4: 10, 2: 20, 9: 300, 5: 20}  # numbers of 4 bytes; each blob has a header of some 100 bytes, too
    sent = {number: Model({"w": torch.full((size,), float(number))}) for number, size in sizes.items()}
    bundles = list(Bundle.of(sent))
    assert [list(one.parts) for one in bundles] == [[4, 2], [9], [5]]
    found = {number: message for one in bundles for number, message in one.to_messages({9, 4}).items()}
    assert list(found) == [4, 9]
    for number, message in found.items():
        assert torch.equal(message.weights["w"], sent[number].weights["w"])
    assert not list(Bundle.of({}))
