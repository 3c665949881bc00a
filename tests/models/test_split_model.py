from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torchvision.models import GoogLeNet, mobilenet_v3_small, resnet18
from torchvision.models.vision_transformer import VisionTransformer

from motley.errors import InvalidModel
from motley.models.assign import trial
from motley.models.split import SplitModel


class Wrapped(nn.Module):
    """Returns what `wrap` makes of its logits."""

    def __init__(self, wrap, only_in_training=False):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU())
        self.fc = nn.Linear(6, 3)
        self.wrap, self.only_in_training = wrap, only_in_training

    def forward(self, x):
        logits = self.fc(self.body(x))
        return self.wrap(logits) if self.training or not self.only_in_training else logits


class WithoutLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 2)

    def forward(self, x):
        return self.conv(x).flatten(1)


def mlp(*, classes=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, classes))


def test_a_split_model_reads_its_widths_off_a_linear_head():
    model = SplitModel(nn.Flatten(), nn.Linear(4, 3))
    assert (model.feature_width, model.num_classes, model.has_features) == (4, 3, True)
    with pytest.raises(InvalidModel, match="Identity, of which feature_width and num_classes"):
        SplitModel(nn.Flatten(), nn.Identity())
    other = SplitModel(nn.Flatten(), nn.Sequential(nn.Linear(4, 3), nn.Tanh()), feature_width=4, num_classes=3)
    assert other(torch.zeros(2, 1, 2, 2)).shape == (2, 3)


def test_wrong_feature_and_score_shapes_are_named():
    with pytest.raises(
        InvalidModel, match=r"backbone of Flatten returned features of shape \(2, 5\); expected \(2, 4\)"
    ):
        SplitModel(nn.Flatten(), nn.Linear(4, 3)).features(torch.zeros(2, 5))
    with pytest.raises(InvalidModel, match=r"scores of shape \(2, 3\); expected \(2, 7\)"):
        SplitModel(nn.Flatten(), nn.Linear(4, 3), num_classes=7)(torch.zeros(2, 4))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda o: o,
        lambda o: {"logits": o},
        lambda o: OrderedDict(loss=0, logits=o),
        lambda o: SimpleNamespace(logits=o),
    ],
    ids=["tensor", "mapping", "ordered", "object"],
)
def test_case_b1_a_module_returns_a_tensor_or_something_with_logits(wrap):
    model = SplitModel.from_module(Wrapped(wrap), num_classes=3)
    x = torch.randn(5, 1, 2, 2)
    assert model.features(x).shape == (5, 6)
    torch.testing.assert_close(model.unsplit(x), model(x))
    trial(model, (1, 2, 2), 3)


@pytest.mark.parametrize(
    ("wrap", "came"),
    [
        (lambda o: (o, o), "a tuple of 2"),
        (lambda o: [o], "a list of 1"),
        (lambda o: None, "an object of type NoneType"),
        (lambda o: {"scores": o}, "a dict with the keys 'scores'"),
        (lambda o: {"logits": None}, "a dict with the keys 'logits'"),
        (lambda o: SimpleNamespace(out=o), "an object of type SimpleNamespace"),
    ],
)
@pytest.mark.parametrize("scores_only", [False, True])
def test_case_b1_anything_else_is_named_with_class_and_mode(wrap, came, scores_only):
    module = Wrapped(wrap, only_in_training=True)
    model = SplitModel.from_module(module, num_classes=3) if not scores_only else scores_of(module)
    with pytest.raises(InvalidModel, match=f"Wrapped returned {came} in training mode; expected a tensor"):
        trial(model, (1, 2, 2), 3, needs_features=False)


def scores_of(module):
    module.fc = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 3))
    module.fc[1].out_features = 9  # so that no head is recognised
    model = SplitModel.from_module(module, num_classes=3, scores_only=True)
    assert not model.has_features
    return model


def test_case_b1_torchvisions_googlenet_with_auxiliary_heads_is_read_by_field_in_training_mode():
    torch.manual_seed(0)
    net = GoogLeNet(num_classes=3, aux_logits=True, init_weights=False)
    net.train()
    with torch.random.fork_rng():
        outputs = net(torch.randn(2, 3, 64, 64))
    assert outputs._fields == ("logits", "aux_logits2", "aux_logits1")
    model = SplitModel.from_module(net, num_classes=3).train()
    assert model.features(torch.randn(2, 3, 64, 64)).shape == (2, 1024)
    assert model(torch.randn(2, 3, 64, 64)).shape == (2, 3)


def test_case_b1_scores_of_another_shape_are_named():
    model = SplitModel.from_module(Wrapped(lambda o: o[None]), num_classes=3)
    with pytest.raises(InvalidModel, match=r"Wrapped returned features of shape \(1, 2, 6\); expected \(2, 6\)"):
        trial(model, (1, 2, 2), 3)
    model = SplitModel.from_module(nn.Sequential(nn.Conv2d(1, 3, 1)), num_classes=3, scores_only=True)
    with pytest.raises(InvalidModel, match=r"Sequential returned scores of shape \(2, 3, 2, 2\); expected \(2, 3\)"):
        trial(model, (1, 2, 2), 3, needs_features=False)


@pytest.mark.parametrize(
    ("module", "width"),
    [
        (lambda: resnet18(weights=None, num_classes=5), 512),
        (lambda: mobilenet_v3_small(weights=None, num_classes=5), 1024),
        (lambda: VisionTransformer(32, 8, 1, 2, 24, 48, num_classes=5), 24),
        (lambda: VisionTransformer(32, 8, 1, 2, 24, 48, num_classes=5, representation_size=12), 12),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 5)), 3072),
    ],
    ids=["resnet", "mobilenet", "vit", "vit-hidden", "linear"],
)
def test_case_b2_the_head_is_found_wherever_it_is_called(module, width):
    module = module()
    x = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        scores = module.eval()(x)
        model = SplitModel.from_module(module, num_classes=5).eval()
        assert model.feature_width == width
        assert isinstance(model.head, nn.Linear)
        torch.testing.assert_close(model(x), scores, rtol=0, atol=1e-5)
        torch.testing.assert_close(model.classify(model.features(x)), scores, rtol=0, atol=1e-5)
        torch.testing.assert_close(model.unsplit(x), scores, rtol=0, atol=1e-5)
    head = set(map(id, model.head.parameters()))
    assert not head & set(map(id, model.backbone.parameters()))
    trial(model, (3, 32, 32), 5)


def test_case_b2_a_module_that_is_itself_linear_has_its_input_as_feature():
    model = SplitModel.from_module(nn.Linear(4, 3), num_classes=3)
    x = torch.randn(2, 4)
    assert torch.equal(model.features(x), x)
    trial(model, (4,), 3)
    assert [name for name, _ in model.named_parameters()] == ["head.weight", "head.bias"]


def test_case_b2_the_head_can_be_named():
    module = nn.ModuleDict()  # registered in another order than used
    module["head"] = nn.Linear(6, 3)
    module["body"] = nn.Linear(4, 6)
    module.forward = lambda x: module["head"](module["body"](x.flatten(1)).relu())
    with pytest.raises(
        InvalidModel, match=r"ModuleDict: the linear layer 'body' has 6 outputs, but there are 3 classes .*'head'"
    ):
        SplitModel.from_module(module, num_classes=3)
    model = SplitModel.from_module(module, num_classes=3, head="head")
    assert model.feature_width == 6
    trial(model, (1, 2, 2), 3)
    with pytest.raises(InvalidModel, match="no linear layer named 'fc'; its last linear layers are: '1', '3'"):
        SplitModel.from_module(mlp(), num_classes=3, head="fc")


def test_case_b2_without_a_recognisable_head_only_the_scores_are_known():
    with pytest.raises(InvalidModel, match=r"WithoutLinear has no linear layer .* state the split with SplitModel"):
        SplitModel.from_module(WithoutLinear(), num_classes=3)
    model = SplitModel.from_module(WithoutLinear(), num_classes=3, scores_only=True)
    assert (model.has_features, model.feature_width) == (False, 0)
    assert model(torch.zeros(2, 1, 2, 2)).shape == (2, 3)
    trial(model, (1, 2, 2), 3, needs_features=False)
    for call in (model.features, model.classify, lambda x: trial(model, (1, 2, 2), 3)):
        with pytest.raises(
            InvalidModel, match=r"WithoutLinear has no recognisable head.*state the split with SplitModel"
        ):
            call(torch.zeros(2, 1, 2, 2))


def test_case_b2_scores_that_do_not_follow_from_the_features_are_refused():
    module = nn.Sequential(mlp(), nn.LogSoftmax(dim=1))
    with pytest.raises(
        InvalidModel, match="scores of Sequential are not its last linear layer applied to its features"
    ):
        trial(SplitModel.from_module(module, num_classes=3), (1, 2, 2), 3)


def test_case_b2_shared_and_stray_parameters_are_refused():
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(3, 3))
    with pytest.raises(InvalidModel, match="backbone and head of Sequential share parameters"):
        trial(SplitModel(backbone, backbone[1]), (3,), 3)
    model = SplitModel(nn.Sequential(nn.Flatten()), nn.Linear(4, 3))
    model.scale = nn.Parameter(torch.ones(()))
    with pytest.raises(InvalidModel, match="parameters outside of backbone and head: scale"):
        trial(model, (4,), 3)


def test_a_model_without_anything_to_train_is_refused():
    model = SplitModel(nn.Flatten(), nn.Linear(4, 3)).requires_grad_(False)
    with pytest.raises(InvalidModel, match="no trainable parameter"):
        trial(model, (4,), 3)


def test_an_adapted_module_copies_and_loads_like_any_other():
    first, second = (SplitModel.from_module(resnet18(weights=None, num_classes=5), num_classes=5) for _ in range(2))
    first.train()(torch.randn(4, 3, 32, 32))
    second.load_state_dict(first.state_dict())
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(first.eval()(x), second.eval()(x))
