"""`motley bench` on the smallest work."""

import json
import subprocess
import sys

import pytest

from motley.engine.bench import Work, bench_federation, measure_overhead, measure_server, measure_throughput
from motley.training.precision import Precision

SMALL = Work(models="small4", size=8, channels=1, classes=3, samples=12, batch_size=6, repeats=1)


@pytest.fixture(scope="module")
def federation():
    return bench_federation(SMALL)


def test_each_architecture_of_a_pool_is_measured_once(federation):
    assert federation.plan.names == ("small-linear", "small-cnn", "small-bn", "small-mlp")
    assert all(len(client.shard.train) >= SMALL.samples for client in federation.clients)


def test_a_client_is_measured_in_both_precisions_and_left_as_it_was(federation):
    client = federation.clients[2]
    task, dtype = client.task, client.train_dtype
    row = measure_throughput(client, "small-bn", SMALL)
    assert set(row.train) == set(row.infer) == {"plain", "fp32", "bf16", "auto"}
    assert all(speed > 0 for speed in (*row.train.values(), *row.infer.values()))
    assert str(Precision.parse(row.auto)) == row.auto
    assert client.task is task
    assert client.train_dtype is dtype
    ratios = measure_overhead(client, "small-bn", SMALL)
    assert min(ratios.local, ratios.fedtopo, ratios.running, ratios.evaluate) > 0


def test_an_upload_of_ten_classes_has_the_bytes_of_the_paper():
    step = measure_server(10, 20, 1)
    assert step.upload_bytes == 4 * 110
    assert step.uploads == 20
    assert step.seconds > 0


def test_the_command_prints_json():
    line = "bench --models small-linear --size 8 --channels 1 --samples 8 --batch-size 4 --repeats 1 --json"
    done = subprocess.run([sys.executable, "-m", "motley", *line.split()], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert [row["architecture"] for row in told["throughput"]] == ["small-linear"]
    assert {"overhead", "server"} <= set(told)


def test_a_pool_that_is_not_known_is_one_sentence():
    command = [sys.executable, "-m", "motley", "bench", "--models", "restnet18"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'restnet18' is not a known model" in done.stderr
    assert "Traceback" not in done.stderr
