"""The counter of operations: the conventions of FedTopo's Table III (sheet, section 10), and whose work is counted."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from motley.engine.flops import FlopMeter
from motley.functional.global_prototypes import nearest, prototype_loss
from motley.functional.topology_guidance import topology_loss
from motley.models.registry import POOLS, find_architecture
from motley.models.spec import InputSpec
from motley.models.split import SplitModel
from motley.record.cost import Flops

B, C, D = 256, 10, 512
GFLOPS = {  # the sheet's POOL: for a batch of 256, elementwise operations included
    "cnn": 4.031315968,
    "googlenet": 15.714537472,
    "mobilenetv2": 3.202465792,
    "resnet18": 18.99495424,
    "resnet34": 38.341967872,
    "resnet50": 42.880598016,
    "resnet101": 81.749737472,
    "resnet152": 120.637751296,
}
TABLE3_ARITHMETIC = {
    "FedGH GFLOPs": 40.694166016,
    "FedMRL GFLOPs": 4.299620352,
    "FedTGP train": 256 * 512 * 3,
    "FedTGP inference": 256 * 10 * 512 * 3,
    "FedTopo train": 256 * 10 * 5,
}


def on_meta(name: str) -> SplitModel:
    with torch.device("meta"):
        return find_architecture(name).build(InputSpec((3, 32, 32), C, D)).eval()


def counted(model: nn.Module, batch: int) -> Flops:
    """Return the work of a forward pass, of which nothing is computed."""
    with FlopMeter() as meter, torch.no_grad():
        model(torch.zeros(batch, 3, 32, 32, device="meta"))
    return sum(meter.spent().values(), Flops())


@pytest.fixture(scope="module")
def pool() -> dict[str, Flops]:
    return {name: counted(on_meta(name), B) for name in POOLS["fedtopo8"].members}


def test_the_pool_needs_the_operations_of_the_sheet(pool):
    # The sheet counts the pooling of 512 features to 512, which we leave out, and not the sums of residual connections,
    # which those of mobilenetv2 are to our counter: 24 x 64 + 2 x 32 x 16 + 3 x 64 x 4 + 2 x 96 x 4 + 2 x 160 a sample.
    ours = {name: work.total for name, work in pool.items()}
    for name in ("cnn", "resnet18", "resnet34"):
        ours[name] += B * D
    ours["mobilenetv2"] -= B * 4416
    assert {name: total / 1e9 for name, total in ours.items()} == pytest.approx(GFLOPS, abs=5e-10)


def test_fedgh_is_charged_the_mean_forward_pass_of_the_pool(pool):
    assert sum(GFLOPS.values()) / 8 == pytest.approx(TABLE3_ARITHMETIC["FedGH GFLOPs"], abs=5e-10)
    means = [
        sum(values) / len(pool) / 1e9 for values in zip(*((w.total, w.products) for w in pool.values()), strict=True)
    ]
    assert f"{means[0]:.2f}" == "40.69"  # as printed
    assert f"{means[1]:.2f}" == "40.56"  # with multiply-adds alone, not the paper's
    assert f"{means[1] / 2:.2f}" == "20.28"  # with 1 for a multiply-add, not the paper's either


def test_fedmrl_is_charged_its_auxiliary_model_and_the_projection():
    # Without the identity pooling of 512 features that the pool's member has: the sheet's 4.031185 G.
    model = on_meta("cnn")
    auxiliary = counted(nn.Sequential(model.backbone, model.head), B)
    assert f"{auxiliary.total / 1e9:.6f}" == "4.031185"
    with FlopMeter() as meter:
        nn.Linear(2 * D, D, device="meta")(torch.zeros(B, 2 * D, device="meta"))
    projection = sum(meter.spent().values(), Flops())
    assert projection == Flops(2 * 2 * D * D * B)
    assert (auxiliary + projection).total / 1e9 == pytest.approx(TABLE3_ARITHMETIC["FedMRL GFLOPs"], abs=5e-10)
    assert f"{(auxiliary + projection).products / 1e9:.2f}" == "4.28"


def test_the_losses_of_fedtopo_and_fedtgp_need_what_table_iii_prints():
    logits, features, labels = torch.randn(B, C), torch.randn(B, D), torch.arange(B) % C
    table, present = torch.randn(C, D), torch.ones(C, dtype=torch.bool)
    works = {}
    for name, ask in {
        "plain": lambda: cross_entropy(logits, labels),
        "FedTopo train": lambda: topology_loss(logits, labels, torch.rand(C, C), strength=0.7, loss_weight=0.5),
        "FedTGP train": lambda: prototype_loss(features, labels, table, present),
        "FedTGP inference": lambda: nearest(features, table, present),
    }.items():
        with FlopMeter() as meter:
            ask()
        works[name] = sum(meter.spent().values(), Flops())
    assert all(work.products == 0 for work in works.values())
    assert (works["FedTopo train"] - works["plain"]).elementwise == TABLE3_ARITHMETIC["FedTopo train"]
    assert works["FedTGP train"].elementwise == TABLE3_ARITHMETIC["FedTGP train"]
    # One more operation a score: the distance is turned into a score by its sign.
    assert works["FedTGP inference"].elementwise - B * C == TABLE3_ARITHMETIC["FedTGP inference"]


def test_work_belongs_to_the_innermost_part_and_to_the_client_around_it():
    x = torch.zeros(2, 3)  # 2 x 3 by 3 x 4 and back: 24 multiply-adds, 48 operations
    layer = nn.Linear(3, 4, bias=False)
    with FlopMeter() as meter:
        layer(x)
        with meter.part("passes", 5):
            layer(x)
            with meter.part("training"):
                out = layer(x).relu().sum()
                with meter.part("backward"):
                    out.backward()
            layer(x)
        with meter.part("passes", 6):
            layer(x)
    assert meter.spent() == {
        (None, "server"): Flops(48),
        (5, "passes"): Flops(96),
        (5, "training"): Flops(48, 8),
        (5, "backward"): Flops(48),  # the inputs need no gradient
        (6, "passes"): Flops(48),
    }
