"""Inference copies: the same function as the model in evaluation mode, and never a stale one."""

import pytest
import torch
from torch import Tensor, nn

from motley.errors import InvalidMessage
from motley.models.inference import InferenceCopies
from motley.models.registry import architectures
from motley.models.spec import InputSpec
from motley.models.split import SplitModel

SERIES = {"signal-cnn", "signal-residual", "signal-gru"}
SLOW = {"resnet34", "resnet50", "resnet101", "resnet152"}


def settled(model: SplitModel, shape: tuple[int, ...]) -> SplitModel:
    """Give batch norms statistics that are not those of the start."""
    torch.manual_seed(5)
    model.train()
    for _ in range(3):
        model(torch.randn(8, *shape) * 2 + 1)
    for part in model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.affine:
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.uniform_(part.bias, -0.5, 0.5)
    return model.eval()


@pytest.mark.parametrize("name", [name for name in architectures() if name not in SLOW])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_copy_of_every_architecture_computes_what_the_model_does(name, channels_last):
    shape = (3, 64) if name in SERIES else (3, 32, 32)
    if channels_last and name in SERIES:
        pytest.skip("a layout of pictures")
    torch.manual_seed(3)
    model = settled(architectures()[name].build(InputSpec(shape, 7)), shape)
    if channels_last:
        model.to(memory_format=torch.channels_last)
    x = torch.randn(5, *shape)
    with torch.inference_mode():
        expected, copied = model(x), InferenceCopies().of(name, model)(x)
    torch.testing.assert_close(copied, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_every_batch_norm_of_the_pools_is_folded():
    for name in ("small-bn", "googlenet", "mobilenetv2", "resnet18", "cnn6", "resnet18-3x3-half"):
        model = architectures()[name].build(InputSpec((3, 32, 32), 7)).eval()
        copied = InferenceCopies().of(name, model)
        assert copied is not model
        assert not any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in copied.modules()), name


@pytest.fixture
def model():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    return settled(SplitModel(net, nn.Linear(16, 3)), (1, 4, 4))


X = torch.linspace(-1, 1, 32).view(2, 1, 4, 4)


@pytest.mark.parametrize("change", ["step", "statistics", "load", "head"])
def test_a_copy_follows_its_model(model, change):
    copies = InferenceCopies()
    before = copies.of("a", model)(X)
    if change == "step":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        model(X).sum().backward()
        optimizer.step()
    elif change == "statistics":
        model.train()(X)
        model.eval()
    elif change == "load":
        model.load_state_dict({name: tensor * 2 for name, tensor in model.state_dict().items()})
    else:
        with torch.no_grad():
            model.head.bias.add_(1)
    after = copies.of("a", model)(X)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, model(X))


def test_a_copy_is_loaded_once_for_the_same_weights(model, monkeypatch):
    copies, loads = InferenceCopies(), []
    folded = copies.of("a", model)
    monkeypatch.setattr("motley.models.inference._Fold.load", lambda *_: loads.append(1))
    assert copies.of("a", model) is folded
    assert not loads
    copies.of_weights("a", model, {name: tensor.clone() for name, tensor in model.state_dict().items()})
    assert loads


def test_models_of_one_architecture_take_turns(model):
    copies, other = InferenceCopies(), settled(SplitModel(nn.Sequential(*_layers()), nn.Linear(16, 3)), (1, 4, 4))
    for one in (model, other, model):
        torch.testing.assert_close(copies.of("a", one)(X), one(X))
    sent = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    torch.testing.assert_close(copies.of_weights("a", model, sent)(X), other(X))


def _layers() -> list[nn.Module]:
    return [nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]


def test_a_copy_that_is_asked_for_inside_inference_mode_can_be_loaded_outside(model):
    copies = InferenceCopies()
    with torch.inference_mode():
        copies.of("a", model)(X)
    with torch.no_grad():
        model.head.bias.add_(1)
    torch.testing.assert_close(copies.of("a", model)(X), model(X))


def test_a_model_without_batch_norm_needs_no_copy_in_float32():
    model = SplitModel(nn.Flatten(), nn.Linear(16, 3))
    assert InferenceCopies().of("a", model) is model


def test_bfloat16_is_close_and_comes_back_as_float32(model):
    low = InferenceCopies({"a": torch.bfloat16}).of("a", model)
    features = low.features(X)
    assert features.dtype == torch.float32
    assert low(X).dtype == torch.float32
    torch.testing.assert_close(features, model.features(X), rtol=0.05, atol=0.05)
    assert not torch.equal(features, model.features(X))
    assert low.head.weight.dtype == torch.float32


class Bent(nn.Module):
    """Its flow depends on its input, and it calls its convolution twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)

    def forward(self, x: Tensor) -> Tensor:
        if x.mean() > 100:
            return x
        return self.norm(self.conv(self.conv(x))).flatten(1)


def test_what_cannot_be_folded_is_left_as_it_is():
    model = settled(SplitModel(Bent(), nn.Linear(16, 3), feature_width=16), (1, 4, 4))
    assert InferenceCopies().of("a", model) is model
    low = InferenceCopies({"a": torch.bfloat16}).of("a", model)  # batch norm keeps float32
    assert torch.equal(low(X), model(X))


@pytest.mark.parametrize("fault", ["lacks", "more", "shape"])
def test_received_weights_of_another_architecture_are_refused(model, fault):
    sent = dict(model.state_dict())
    if fault == "lacks":
        del sent["head.bias"]
    elif fault == "more":
        sent["head.scale"] = torch.ones(1)
    else:
        sent["head.bias"] = torch.ones(4)
    with pytest.raises(InvalidMessage, match=r"snapshot of a .*head\.(bias|scale)"):
        InferenceCopies().of_weights("a", model, sent)
