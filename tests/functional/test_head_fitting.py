import pytest
import torch
from torch.nn.functional import cross_entropy, linear, one_hot

from motley.errors import InvalidInput
from motley.functional.head_fitting import fit_head, head_step

from . import server_numbers as sheet
from .closeness import assert_near, float64

GH = {"weight": float64(sheet.gh_W0), "bias": float64(sheet.gh_b0)}
RE = {"weight": float64(sheet.re_W0), "bias": float64(sheet.re_b0)}
X, Y = float64(sheet.gh_X), torch.tensor(sheet.gh_Y)


def loss(head, features, labels, reduction="mean"):
    return cross_entropy(linear(features, head["weight"], head["bias"]), labels, reduction=reduction)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_fedgh_one_step_on_all_prototypes():
    assert_near(loss(GH, X, Y), sheet.gh_loss)
    made = fit_head(GH, X, Y, epochs=1, batch_size=4, lr=sheet.gh_lr, reduction="mean", generator=generator())
    assert_near(made["weight"], sheet.gh_W1)
    assert_near(made["bias"], sheet.gh_b1)


def test_fedgh_two_steps():
    head, losses = GH, []
    for rows in (slice(0, 2), slice(2, 4)):
        losses.append(loss(head, X[rows], Y[rows]).item())
        head = head_step(head, X[rows], Y[rows], lr=sheet.gh_lr, reduction="mean")
    assert_near(losses, sheet.gh_loss_two)
    assert_near(head["weight"], sheet.gh_W2)
    assert_near(head["bias"], sheet.gh_b2)


def test_fedre_one_step_with_soft_labels_and_the_sum():
    z, y = float64(sheet.re_z), float64(sheet.re_y)
    assert_near(loss(RE, z, y, "sum"), sheet.re_loss_sum)
    made = fit_head(RE, z, y, epochs=1, batch_size=32, lr=sheet.re_lr, reduction="sum", generator=generator())
    assert_near(made["weight"], sheet.re_W1)
    assert_near(made["bias"], sheet.re_b1)


def test_batches_are_steps_in_the_drawn_order():
    made = fit_head(GH, X, Y, epochs=3, batch_size=3, lr=0.1, reduction="mean", generator=generator(5))
    head, order = GH, generator(5)
    for _ in range(3):
        rows = torch.randperm(4, generator=order)
        for part in (rows[:3], rows[3:]):
            head = head_step(head, X[part], Y[part], lr=0.1, reduction="mean")
    assert_near(made["weight"], head["weight"].tolist(), 0.0)


def test_hard_labels_are_soft_ones_of_one_class():
    hard = head_step(GH, X, Y, lr=0.1, reduction="mean")
    soft = head_step(GH, X, one_hot(Y, 3).double(), lr=0.1, reduction="mean")
    assert_near(soft["weight"], hard["weight"].tolist())


def test_identity_9_a_sum_is_a_mean_at_the_rate_times_the_rows():
    total = head_step(GH, X, Y, lr=0.01, reduction="sum")
    mean = head_step(GH, X, Y, lr=0.04, reduction="mean")
    assert_near(total["weight"], mean["weight"].tolist(), 1e-12)


@pytest.mark.parametrize("lr", [0.0, 0.1])
def test_identity_10_and_no_prototypes_leave_the_head(lr):
    features, labels = (X, Y) if lr == 0 else (X[:0], Y[:0])
    made = fit_head(GH, features, labels, epochs=2, batch_size=2, lr=lr, reduction="mean", generator=generator())
    assert torch.equal(made["weight"], GH["weight"])
    assert torch.equal(made["bias"], GH["bias"])


def test_a_head_without_bias_and_the_given_head_unchanged():
    held = {"weight": GH["weight"].clone()}
    made = fit_head(held, X, Y, epochs=1, batch_size=4, lr=0.1, reduction="mean", generator=generator())
    assert list(made) == ["weight"]
    assert torch.equal(held["weight"], GH["weight"])
    assert not torch.equal(made["weight"], GH["weight"])


def test_identity_15_renaming_classes_permutes_the_head():
    order = torch.tensor([2, 0, 1])
    back = torch.argsort(order)
    renamed = {name: tensor[order] for name, tensor in GH.items()}
    made = head_step(renamed, X, back[Y], lr=0.1, reduction="mean")
    assert_near(made["weight"][back], sheet.gh_W1)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInput, match="is fitted to features"):
        head_step(GH, torch.zeros(2, 3), Y[:2], lr=0.1, reduction="mean")
