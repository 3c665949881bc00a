import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from motley.errors import InvalidModel
from motley.models.fedtopo8 import AtLeast32
from motley.models.registry import ALIASES, POOLS, architectures, find_architecture, find_pool, register
from motley.models.spec import InputSpec
from motley.models.split import SplitModel

FEDTOPO8 = {  # the sheet's POOL: own feature width, parameters, multiply-adds per sample at C = 10, d = 512, 3x32x32
    "cnn": (512, 878538, 7825920),
    "googlenet": (1024, 5605034, 30563328),
    "mobilenetv2": (1280, 2229002, 6117248),
    "resnet18": (512, 11181642, 37016576),
    "resnet34": (512, 21289802, 74765312),
    "resnet50": (2048, 23513162, 83416064),
    "resnet101": (2048, 42505290, 159175680),
    "resnet152": (2048, 58148938, 234935296),
}
CRAD3 = {  # parameters at C = 10, 100 and 9, and bytes of the floating entries at C = 10
    "resnet18-3x3": (11173962, 11220132, 11173449, 44734248),
    "resnet18-3x3-half": (2797610, 2820740, 2797353, 11209640),
    "cnn6": (816202, 833572, 816009, 3270952),
}
SMALL4 = {  # counted by hand at 1x8x8, C = 10; the head is 64 * 10 + 10 = 650
    "small-linear": 64 * 64 + 64 + 650,
    "small-cnn": (9 * 16 + 16) + (16 * 32 * 9 + 32) + (128 * 64 + 64) + 650,
    "small-bn": (9 * 16 + 16) + 2 * 16 + (16 * 64 * 9 + 64) + 2 * 64 + 650,
    "small-mlp": (64 * 128 + 128) + (128 * 64 + 64) + 650,
}
QUICK = [*SMALL4, "cnn", "cnn6"]


def build(name: str, shape: tuple[int, ...], num_classes: int = 10, width: int | None = None) -> SplitModel:
    return find_architecture(name).build(InputSpec(shape, num_classes, width))


def on_meta(name: str, shape: tuple[int, ...], num_classes: int = 10, width: int | None = None) -> SplitModel:
    with torch.device("meta"):
        return build(name, shape, num_classes, width)


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", FEDTOPO8)
def test_fedtopo8_has_the_parameters_and_the_multiply_adds_of_the_sheet(name):
    width, parameters, multiply_adds = FEDTOPO8[name]
    model = on_meta(name, (3, 32, 32), width=512).eval()
    assert size(model) == parameters
    assert (model.feature_width, model.num_classes) == (512, 10)
    assert on_meta(name, (3, 32, 32)).feature_width == width
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        assert model(torch.zeros(1, 3, 32, 32, device="meta")).shape == (1, 10)
    assert counter.get_total_flops() == 2 * multiply_adds


@pytest.mark.parametrize("name", ["cnn", "mobilenetv2", "resnet18", "resnet50"])
def test_fedtopo8_grows_with_the_classes_by_its_head_only(name):
    # 512 * C + C more weights: 90 more classes are 46,170 and 190 are 97,470.
    for classes, more in ((100, 46170), (200, 97470)):
        assert size(on_meta(name, (3, 32, 32), classes, 512)) == FEDTOPO8[name][1] + more


def test_fedtopo8_cnn_follows_the_size_of_the_picture():
    assert size(on_meta("cnn", (3, 64, 64), 200, 512)) == 5694600
    assert build("cnn", (3, 40, 64))(torch.zeros(2, 3, 40, 64)).shape == (2, 10)


def test_fedtopo8_googlenet_and_mobilenet_keep_their_dropout_and_have_no_auxiliary_heads():
    for name in ("googlenet", "mobilenetv2"):
        model = on_meta(name, (3, 32, 32))
        assert [module.p for module in model.backbone.modules() if isinstance(module, nn.Dropout)] == [0.2]
        assert not any("aux" in key for key in model.state_dict())


@pytest.mark.parametrize("name", CRAD3)
def test_crad3_has_the_parameters_and_the_bytes_of_the_sheet(name):
    *parameters, state_bytes = CRAD3[name]
    assert [size(on_meta(name, (3, 32, 32), classes)) for classes in (10, 100, 9)] == parameters
    entries = on_meta(name, (3, 32, 32)).state_dict().values()
    assert sum(entry.numel() * entry.element_size() for entry in entries if entry.is_floating_point()) == state_bytes


@pytest.mark.parametrize("name", SMALL4)
def test_small4_is_what_the_sheet_says_at_8_pixels(name):
    model = build(name, (1, 8, 8))
    assert size(model) == SMALL4[name]
    assert model.features(torch.zeros(3, 1, 8, 8)).shape == (3, 64)


def test_signal3_is_small_and_of_three_kinds():
    models = [build(name, (9, 128), 6) for name in POOLS["signal3"].members]
    assert [20_000 < size(model) < 100_000 for model in models] == [True] * 3
    kinds = [{type(module) for module in model.modules()} for model in models]
    assert (nn.GRU in kinds[2]) > (nn.GRU in kinds[0])
    assert (nn.BatchNorm1d in kinds[1]) > (nn.BatchNorm1d in kinds[0])


@pytest.mark.parametrize("shape", [(1, 8), (3, 100), (9, 128), (1, 500)])
@pytest.mark.parametrize("name", POOLS["signal3"].members)
def test_signal3_takes_any_channels_and_length(name, shape):
    model = build(name, shape, 6)
    model(torch.randn(2, *shape)).sum().backward()
    assert model.features(torch.randn(5, *shape)).shape == (5, 64)


@pytest.mark.parametrize(
    ("values", "pooled"),
    [
        ([1, 2, 3, 4, 5], [1.5, 3.0, 4.5]),
        ([1, 2, 3, 4], [1.5, 2.5, 3.5]),
        ([1, 2], [1.0, 1.5, 2.0]),
        ([1, 2], [1.0, 1.0, 2.0, 2.0]),
    ],
)
def test_v14_pooling_to_the_common_width(values, pooled):
    values = torch.tensor(values, dtype=torch.float32)
    model = InputSpec((len(values),), 2, len(pooled)).join(nn.Identity(), len(values))
    assert model.features(values.expand(3, -1)).tolist() == [pooled] * 3


def test_v14_equal_width_is_left_alone_and_another_is_pooled():
    x = torch.randn(4, 1, 8, 8)
    torch.manual_seed(0)
    own = build("small-mlp", (1, 8, 8))
    torch.manual_seed(0)
    same = build("small-mlp", (1, 8, 8), width=64)
    assert torch.equal(own.features(x), same.features(x))
    torch.manual_seed(0)
    half = build("small-mlp", (1, 8, 8), width=32)
    torch.testing.assert_close(half.features(x), own.features(x).reshape(4, 32, 2).mean(dim=2))


def test_v14_of_1280_to_512_are_windows_of_three_of_which_neighbours_share_one():
    pool = InputSpec((1280,), 2, 512).join(nn.Identity(), 1280).pool
    weights = pool(torch.eye(1280)).T  # (512, 1280)
    assert ((weights > 0).sum(dim=1) == 3).all()
    assert weights[2].nonzero().flatten().tolist() == [5, 6, 7]
    assert weights[3].nonzero().flatten().tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("side", "factor", "before"), [(28, 1, 2), (8, 4, 0), (16, 2, 0), (15, 2, 1), (31, 1, 0), (1, 32, 0)]
)
def test_pictures_below_32_pixels_are_repeated_and_padded(side, factor, before):
    x = torch.rand(2, 3, side, side) + 1
    shown = AtLeast32()(x)
    assert shown.shape == (2, 3, 32, 32)
    inner = shown[:, :, before : before + factor * side, before : before + factor * side]
    assert torch.equal(inner, nn.functional.interpolate(x, scale_factor=factor, mode="nearest"))
    assert (shown == 0).sum() == 2 * 3 * (32**2 - (factor * side) ** 2)


def test_pictures_from_32_pixels_on_are_left_alone_and_the_axes_are_independent():
    x = torch.rand(2, 1, 33, 64)
    assert torch.equal(AtLeast32()(x), x)
    assert AtLeast32()(torch.rand(2, 1, 10, 40)).shape == (2, 1, 32, 40)


@pytest.mark.parametrize("side", [28, 32, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_case_b3_every_picture_architecture_works_at_28_32_and_64_pixels(channels, side):
    for name in (*FEDTOPO8, *CRAD3, *SMALL4):
        model = on_meta(name, (channels, side, side), width=POOLS[find_architecture(name).family].width)
        x = torch.zeros(2, channels, side, side, device="meta")
        for mode in (True, False):
            assert model.train(mode)(x).shape == (2, 10), name


@pytest.mark.parametrize("name", ["googlenet", "mobilenetv2", "resnet18", "resnet50"])
def test_case_b3_large_architectures_make_finite_scores_of_one_channel_at_28_pixels(name):
    model = build(name, (1, 28, 28), width=512).eval()
    with torch.no_grad():
        assert model(torch.randn(2, 1, 28, 28)).isfinite().all()


@pytest.mark.parametrize(
    "name", [name for name, entry in architectures().items() if entry.family in ("small4", "crad3", "signal3")]
)
def test_case_b3_the_smallest_size_is_true(name):
    entry = architectures()[name]
    sides = 1 if entry.family == "signal3" else 2
    shape = (1, *[entry.min_size] * sides)
    build(name, shape)(torch.randn(2, *shape)).sum().backward()
    if entry.min_size > 1:
        for smaller in range(1, entry.min_size):
            with pytest.raises(InvalidModel, match=rf"{name} needs inputs of size {entry.min_size} or more"):
                build(name, (1, *[smaller] * sides))


@pytest.mark.parametrize("name", [*QUICK, *POOLS["signal3"].members, "mobilenetv2", "resnet18-3x3-half"])
def test_case_b2_the_head_of_the_features_is_the_model_and_the_parts_are_disjoint_and_complete(name):
    shape = (9, 32) if name.startswith("signal") else (3, 32, 32)
    model = build(name, shape, width=16).eval()
    x = torch.randn(4, *shape)
    with torch.no_grad():
        assert model.features(x).shape == (4, 16)
        torch.testing.assert_close(model.classify(model.features(x)), model(x), rtol=0, atol=1e-5)
    backbone, head = (set(map(id, part.parameters())) for part in (model.backbone, model.head))
    assert not backbone & head
    assert backbone | head == set(map(id, model.parameters()))


@pytest.mark.parametrize("name", ["small-bn", "cnn6", "signal-residual", "mobilenetv2"])
def test_case_b4_a_state_keeps_every_entry_and_the_receiver_scores_the_same_bits(name):
    shape = (9, 32) if name.startswith("signal") else (3, 16, 16)
    sender, receiver = build(name, shape), build(name, shape)
    sender(torch.randn(8, *shape))  # moves the running statistics and the counters
    state = {key: entry.clone() for key, entry in sender.state_dict().items()}
    counters = [entry for key, entry in state.items() if key.endswith("num_batches_tracked")]
    assert counters
    assert all(entry.shape == () and entry.dtype == torch.int64 and entry == 1 for entry in counters)
    receiver.load_state_dict(state)
    assert list(receiver.state_dict()) == list(state)
    x = torch.randn(5, *shape)
    with torch.no_grad():
        assert torch.equal(sender.eval()(x), receiver.eval()(x))


@pytest.mark.parametrize("name", ["small-bn", "cnn6", "signal-residual", "mobilenetv2", "googlenet"])
def test_case_b5_evaluation_leaves_the_state_alone_and_does_not_depend_on_the_batch(name):
    shape = (9, 32) if name.startswith("signal") else (3, 16, 16)
    model = build(name, shape, width=64).eval()
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(6, *shape)
    with torch.no_grad():
        scores, features = model(x), model.features(x)
        assert torch.equal(scores, model(x))
        torch.testing.assert_close(torch.cat([model(part) for part in x.split(2)]), scores, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(model.features(x[:1]), features[:1], rtol=1e-5, atol=1e-5)
    assert not model.training
    assert all(torch.equal(entry, before[key]) for key, entry in model.state_dict().items())


def test_pools_name_known_architectures_and_have_the_sheets_order():
    assert POOLS["fedtopo8"].members == tuple(FEDTOPO8)
    assert POOLS["crad3"].members == tuple(CRAD3)
    assert POOLS["small4"].members == tuple(SMALL4)
    assert POOLS["fedtopo8-moderate"].members == ("cnn", "googlenet", "mobilenetv2", "resnet18")
    assert all(member in architectures() for pool in POOLS.values() for member in pool.members)
    assert all(POOLS[entry.family] for entry in architectures().values())
    assert all(pool in POOLS for pool in ALIASES.values())


def test_names_are_found_without_case_and_hyphens_and_the_nearest_are_offered():
    assert find_architecture("ResNet_18").name == "resnet18"
    assert find_pool("FedTopo8_Mild") is find_pool("mild") is POOLS["fedtopo8-mild"]
    with pytest.raises(
        InvalidModel, match=r"'restnet18' is not a known model; did you mean 'resnet18'.*'motley list models'"
    ):
        find_architecture("restnet18")


def test_register_enters_a_builder_and_refuses_taken_and_unreadable_names(monkeypatch):
    table = dict(architectures())
    monkeypatch.setattr("motley.models.registry._ARCHITECTURES", table)
    enter = register("mine", family="small4", min_size=1, description="a test")
    enter(lambda spec: spec.join(nn.Flatten(), 4))
    assert build("mine", (1, 2, 2), 3)(torch.zeros(5, 1, 2, 2)).shape == (5, 3)
    for name in ("mine", "Small4", "mild", "resnet18"):
        with pytest.raises(InvalidModel, match="is taken"):
            register(name, family="small4", min_size=1, description="")
    for name in ("a:b", "a,b", "", "a b"):
        with pytest.raises(InvalidModel, match="colon, comma or blank"):
            register(name, family="small4", min_size=1, description="")


@pytest.mark.parametrize("name", [*FEDTOPO8, *CRAD3, "small-cnn", "small-bn"])
def test_picture_networks_refuse_series_and_name_the_pool_for_them(name):
    with pytest.raises(InvalidModel, match=rf"{name} expects pictures .* \(9, 128\); .*signal3"):
        build(name, (9, 128))


def test_signal_networks_refuse_pictures():
    for name in POOLS["signal3"].members:
        with pytest.raises(InvalidModel, match=rf"{name} expects series .* \(1, 8, 8\); .*small4"):
            build(name, (1, 8, 8))


def test_listing_the_architectures_imports_no_torch():
    code = "import sys; from motley.models.registry import architectures; architectures(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
