"""Precision: what is asked for reaches training and inference, and what a measurement chose is kept."""

import json

import pytest
import torch

import motley
from motley.draws import Draws
from motley.engine import precision as engine_precision
from motley.engine.config import ConfigFile, resolve
from motley.engine.setup import build_federation
from motley.errors import InvalidConfig
from motley.record.load import load_run
from motley.training.local import train_local
from motley.training.precision import Precision

SMALL = {"clients": 2, "rounds": 2, "models": "small-bn,small-mlp", "data_limit": 200}
BF16, FP32 = torch.bfloat16, torch.float32


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "motley" / "precision.json"


def federation(precision: str):
    return build_federation(resolve("local", ConfigFile(), {**SMALL, "precision": precision}, {}))


@pytest.mark.parametrize(
    ("asked", "train", "infer", "text"),
    [
        ("fp32", [FP32, FP32], [FP32, FP32], "fp32"),
        ("bf16", [BF16, BF16], [BF16, BF16], "bf16"),
        ("fp32/bf16", [FP32, FP32], [BF16, BF16], "fp32/bf16"),
        ("small-bn=bf16/fp32, small-mlp=fp32", [BF16, FP32], [FP32, FP32], "small-bn=bf16/fp32,small-mlp=fp32/fp32"),
    ],
)
def test_a_choice_reaches_every_client(asked, train, infer, text):
    built = federation(asked)
    assert [client.train_dtype for client in built.clients] == train
    lows = [hasattr(client.for_inference.backbone, "dtype") for client in built.clients]
    assert lows == [dtype == BF16 for dtype in infer]
    assert built.precision == text


@pytest.mark.parametrize("asked", ["fp16", "bf16/fp32/bf16", "small-bn=bf16", "small-bn=int8,small-mlp=fp32", ""])
def test_what_is_no_precision_is_refused(asked):
    with pytest.raises(InvalidConfig, match=r"run\.precision"):
        federation(asked)


def test_auto_is_measured_once_and_stored_with_the_run(tmp_path, monkeypatch, cache):
    found = iter([Precision(BF16, BF16), Precision(FP32, BF16)])
    monkeypatch.setattr(engine_precision, "computes_bfloat16", lambda _: True)
    monkeypatch.setattr(engine_precision, "measure_precision", lambda *_, **__: next(found))
    motley.run("local", out=tmp_path / "a", precision="auto", **SMALL)
    stored = load_run(tmp_path / "a").config["run"]["precision"]
    assert stored == "small-bn=bf16/bf16,small-mlp=fp32/bf16"
    assert len(json.loads(cache.read_text())) == 2
    again = motley.run("local", out=tmp_path / "b", precision="auto", **SMALL)  # a third measurement would raise
    assert again.config["run"]["precision"] == stored
    cache.unlink()
    assert motley.resume(tmp_path / "a", rounds=3).config["run"]["precision"] == stored


def test_a_damaged_cache_is_measured_anew(cache):
    cache.parent.mkdir(parents=True)
    cache.write_text("{")
    assert federation("auto").precision
    if engine_precision.computes_bfloat16(torch.device("cpu")):
        assert len(json.loads(cache.read_text())) == 2


def test_training_in_bfloat16_learns_the_same_within_rounding(tmp_path):
    flags = {**SMALL, "rounds": 8, "clients": 4, "data_limit": 800, "lr": 0.1, "batch_size": 16}
    high, low = (motley.run("local", out=tmp_path / p, precision=p, **flags).final for p in ("fp32", "bf16"))
    assert high["local_accuracy"] > 0.6
    assert high != low
    assert abs(high["local_accuracy"] - low["local_accuracy"]) < 0.1


def test_losses_and_weights_stay_float32(tmp_path):
    built = federation("bf16")
    client = built.clients[0]
    seen = []

    def loss(step):
        seen.append((step.logits.dtype, step.features.dtype))
        return {"loss": torch.nn.functional.cross_entropy(step.logits, step.y)}

    train_local(client, loss, Draws(0), round=1)
    assert set(seen) == {(FP32, FP32)}
    assert {tensor.dtype for tensor in client.model.parameters()} == {FP32}
