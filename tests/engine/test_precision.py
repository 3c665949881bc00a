"""Precision: what is asked for reaches training and inference, and what a measurement chose is kept."""

import json

import pytest
import torch

import motley
from motley.draws import Draws
from motley.engine import precision as engine_precision
from motley.engine.config import ConfigFile, resolve
from motley.engine.precision import precision_text
from motley.engine.setup import build_federation
from motley.errors import InvalidConfig
from motley.record.load import load_run
from motley.training import precision as training_precision
from motley.training.layout import Layout
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


@pytest.mark.parametrize(
    "asked",
    [
        "fp16",
        "bf16/fp32/bf16",
        "small-bn=bf16",
        "small-bn=int8,small-mlp=fp32",
        "",
        "trimmed",
        "fp32/trimmed/trimmed",
        "fp32/contiguous/channels-last",
        "contiguous/fp32",
    ],
)
def test_what_is_no_precision_is_refused(asked):
    with pytest.raises(InvalidConfig, match=r"run\.precision"):
        federation(asked)


WORDS = [
    ("fp32/fp32", Precision()),
    ("bf16/fp32/contiguous", Precision(BF16, FP32, Layout(False))),
    ("fp32/bf16/trimmed", Precision(FP32, BF16, Layout(None, True))),
    ("bf16/bf16/channels-last/trimmed", Precision(BF16, BF16, Layout(True, True))),
]


@pytest.mark.parametrize(("text", "precision"), WORDS)
def test_a_precision_is_written_as_it_is_read(text, precision):
    assert str(precision) == text
    assert Precision.parse(text) == precision
    assert Precision.parse(precision_text({"a": precision, "b": precision})) == precision


def test_a_layout_reaches_model_template_and_inference_copy():
    flags = {"clients": 2, "models": "resnet18", "data_limit": 200, "data": "digits"}
    built = build_federation(resolve("local", ConfigFile(), {**flags, "precision": "fp32/channels-last/trimmed"}, {}))
    assert built.precision == "fp32/channels-last/trimmed"
    client = built.clients[1]
    for model in (client.model, client.task.template(1), client.for_inference):
        assert model.backbone[1].conv1.weight.is_contiguous(memory_format=torch.channels_last)
        kinds = [type(part).__name__ for part in model.modules() if isinstance(part, torch.nn.Conv2d)]
        assert kinds.count("TrimmedConv2d") == 4  # the 3 x 3 convolutions of the last stage
        assert kinds.count("Conv2d") == 16


def test_all_layouts_that_may_gain_are_tried_in_all_dtypes(monkeypatch):
    client = federation("fp32").clients[0]  # small-bn on digits: convolutions on 1 x 8 x 8, nothing to trim
    seen = []

    def fastest(work, forms, device):
        seen.append(forms)
        for form in forms:
            work(form)
        return forms[-1]

    monkeypatch.setattr(training_precision, "_fastest", fastest)
    found = training_precision.measure_precision(client.model, (1, 8, 8), train_batch=4, infer_batch=4)
    assert found == Precision(BF16, BF16, Layout(True))
    by_rule, last = Layout(), Layout(True)
    assert seen == [[(by_rule, FP32), (last, FP32), (by_rule, BF16), (last, BF16)], [FP32, BF16]]


@pytest.mark.parametrize(
    ("times", "chosen"),
    [({"a": 1.0, "b": 0.95}, "a"), ({"a": 1.0, "b": 0.8}, "b"), ({"a": 1.0, "b": 0.5, "c": 0.4}, "c")],
)
def test_an_earlier_form_stays_unless_another_gains_more_than_a_measurement_errs(monkeypatch, times, chosen):
    now = [0.0]
    monkeypatch.setattr(training_precision.time, "perf_counter", lambda: now[0])

    def work(form):
        now[0] += times[form]

    assert training_precision._fastest(work, list(times), torch.device("cpu")) == chosen


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
