import pytest
import torch

from motley.errors import InvalidInput
from motley.functional.prototypes import class_prototypes, class_sums

from . import fedtopo_numbers as sheet
from .closeness import assert_near, float64


@pytest.mark.parametrize(
    ("features", "labels", "counts", "expected"),
    [
        (sheet.Z1, sheet.Y1, sheet.N1, sheet.P1),
        (sheet.Z2, sheet.Y2, sheet.N2, sheet.P2),
        (sheet.Z3, sheet.Y3, sheet.N3, sheet.P3),
    ],
)
def test_v1_prototypes(features, labels, counts, expected):
    sums, found = class_sums(torch.tensor(features, dtype=torch.float32), torch.tensor(labels), sheet.C)
    assert found.dtype == torch.int64
    assert found.tolist() == counts
    assert_near(class_prototypes(sums, found), expected)


@pytest.mark.parametrize("batch", [1, 7, 200])
def test_p3_neither_batches_nor_order_move_a_prototype(batch):
    generator = torch.Generator().manual_seed(3)
    features = 100 * torch.rand(200, 16, generator=generator)
    labels = torch.randint(0, 5, (200,), generator=generator)
    whole = class_prototypes(*class_sums(features, labels, 6))
    order = torch.randperm(200, generator=generator)
    sums, counts = torch.zeros(6, 16, dtype=torch.float64), torch.zeros(6, dtype=torch.int64)
    for part in order.split(batch):
        more, found = class_sums(features[part], labels[part], 6)
        sums, counts = sums + more, counts + found
    assert_near(class_prototypes(sums, counts), whole.tolist())
    assert whole[5].isnan().all()


def test_sums_are_taken_in_float64():
    # 2^24 + 1 is no float32 number: a float32 sum would lose the second sample.
    sums, _ = class_sums(torch.tensor([[2.0**24], [1.0]]), torch.tensor([0, 0]), 1)
    assert sums.item() == 2.0**24 + 1


def test_no_gradient_is_kept():
    sums, _ = class_sums(torch.ones(2, 2, requires_grad=True), torch.tensor([0, 1]), 2)
    assert not sums.requires_grad


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_outside_of_the_classes_is_refused(label):
    with pytest.raises(InvalidInput, match="labels lie in"):
        class_sums(torch.ones(1, 2), torch.tensor([label]), 3)


def test_shapes_must_fit():
    with pytest.raises(InvalidInput, match="features"):
        class_sums(torch.ones(2, 2), torch.tensor([0]), 3)
    with pytest.raises(InvalidInput, match="sums"):
        class_prototypes(float64([[1.0]]), torch.tensor([1, 2]))


def test_no_samples_give_no_prototypes():
    sums, counts = class_sums(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), 2)
    assert class_prototypes(sums, counts).isnan().all()
