"""Trimmed convolutions: the same function and gradients as the convolutions that they stand for."""

import copy

import pytest
import torch
from torch import Tensor, nn

from motley.models.registry import architectures
from motley.models.spec import InputSpec
from motley.models.split import SplitModel
from motley.models.trimmed import TrimmedConv2d, trim

SHAPE = (3, 32, 32)


def trimmed_parts(model: nn.Module) -> int:
    return sum(isinstance(part, TrimmedConv2d) for part in model.modules())


def result(layer: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = layer(x)
    weights = torch.arange(out.numel(), dtype=out.dtype).view(out.shape) + 1
    gradients = torch.autograd.grad((out * weights).sum(), [x, *layer.parameters()])
    return [out, *gradients]


@pytest.mark.parametrize(
    ("side", "options", "cut"),
    [
        (1, {"kernel_size": 3, "padding": 1}, True),
        (2, {"kernel_size": 3, "padding": 1, "stride": 2}, True),
        (1, {"kernel_size": 3, "padding": 1, "groups": 4}, True),
        (2, {"kernel_size": 3, "padding": 1, "stride": 2, "groups": 2, "bias": False}, True),
        (3, {"kernel_size": 3, "padding": 1, "stride": 3}, True),
        (1, {"kernel_size": 5, "padding": 2}, True),
        (1, {"kernel_size": (3, 1), "padding": (1, 0)}, True),
        (4, {"kernel_size": 4, "padding": 1, "stride": 4}, True),
        (2, {"kernel_size": 3, "padding": 1}, False),
        (1, {"kernel_size": 1}, False),
        (1, {"kernel_size": 3, "padding": "same"}, False),
        (1, {"kernel_size": 3, "padding": 1, "padding_mode": "replicate"}, False),
        (1, {"kernel_size": 3, "padding": 2, "dilation": 2}, False),
        (1, {"kernel_size": 1, "padding": 1, "stride": 3}, False),
    ],
)
def test_a_trimmed_convolution_is_the_convolution(side, options, cut):
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 8, **options)
    x = torch.randn(5, 4, side, side, dtype=torch.float64)
    width = layer(x.float())[0].numel()
    model = SplitModel(nn.Sequential(layer, nn.Flatten()), nn.Linear(width, 2))
    other = copy.deepcopy(layer).double()
    assert trim(model, (4, side, side)) is cut
    layer.__class__ = TrimmedConv2d  # what cannot be cut computes as before
    for one, two in zip(result(layer.double(), x), result(other, x), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("name", "parts"), [("resnet18", 4), ("mobilenetv2", 4), ("googlenet", 4), ("cnn6", 0)])
def test_an_architecture_keeps_its_function_gradients_and_state(name, parts):
    torch.manual_seed(1)
    model = architectures()[name].build(InputSpec(SHAPE, 7)).double()
    model.eval()
    trimmed = copy.deepcopy(model).float()
    before = {key: tensor.clone() for key, tensor in trimmed.state_dict().items()}
    assert trim(trimmed, SHAPE) is (parts > 0)
    assert trimmed_parts(trimmed) == parts
    assert not any(part.training or part._forward_pre_hooks for part in trimmed.modules())
    assert all(torch.equal(tensor, before[key]) for key, tensor in trimmed.state_dict().items())
    x = torch.randn(3, *SHAPE, dtype=torch.float64)
    for one, other in zip(result(trimmed.double(), x), result(model, x), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9 * max(1.0, float(other.detach().abs().max())))


def test_all_convolutions_that_see_more_than_one_pixel_are_left_alone():
    model = architectures()["small-cnn"].build(InputSpec((1, 8, 8), 3))
    assert not trim(model, (1, 8, 8))
    assert {type(part) for part in model.modules()}.isdisjoint({TrimmedConv2d})
