"""FedSCE's subspace and weights: the worked numbers of its sheet (section 6), and what must always hold."""

import pytest
import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.subspace import contributions, project, trajectory_basis

UPDATES = [[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [2.0, 1.0, 0.0, 1.0]]
GRAD = [1.0, -1.0, 2.0, 0.5]
PROJECTED = {
    1: [0.831195137419, 0.435507141133, 0.245376626741, 0.340441883937],
    2: [0.539528470752, 0.7271738078, 1.120376626741, 0.04877521727],
    3: [1.291666666667, -0.708333333333, 1.708333333333, -0.375],
}
PARAMETER, FEATURE = [2.0, 1.0, 1.0], [0.5, 0.5, 1.0]
WEIGHTS = [0.375, 0.25, 0.375]


def updates() -> Tensor:
    return torch.tensor(UPDATES, dtype=torch.float64)


@pytest.mark.parametrize(("directions", "expected"), [*PROJECTED.items(), (7, PROJECTED[3])])
def test_the_projections_of_the_sheet(directions, expected):
    found = project(trajectory_basis(updates(), directions), torch.tensor(GRAD, dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)


def test_identity_6_a_gradient_inside_the_span_of_the_updates_is_left_as_it_is():
    held = torch.randn(6, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradient = held.T @ torch.arange(1.0, 7.0, dtype=torch.float64)
    torch.testing.assert_close(project(trajectory_basis(held, 6), gradient), gradient, rtol=0, atol=1e-12)
    assert not torch.allclose(project(trajectory_basis(held, 5), gradient), gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_repeated_updates_are_one_direction(dtype):
    generator = torch.Generator().manual_seed(1)
    first, second = torch.randn(2, 30, generator=generator, dtype=dtype)
    basis = trajectory_basis(torch.stack([first, first, second, -2 * second, 0 * first]), 10)
    assert basis.shape == (30, 2)
    torch.testing.assert_close(basis.T @ basis, torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-12)


def test_updates_of_nothing_leave_no_direction():
    basis = trajectory_basis(torch.zeros(3, 5), 2)
    assert basis.shape == (5, 0)
    assert torch.equal(project(basis, torch.ones(5, dtype=torch.float64)), torch.zeros(5, dtype=torch.float64))


def test_the_basis_does_not_depend_on_the_order_of_the_updates():
    gradient = torch.tensor(GRAD, dtype=torch.float64)
    turned = project(trajectory_basis(updates()[[2, 0, 1]], 2), gradient)
    torch.testing.assert_close(turned, project(trajectory_basis(updates(), 2), gradient))


@pytest.mark.parametrize(("shape", "directions"), [((4,), 1), ((2, 4), 0)])
def test_what_makes_no_basis_is_refused(shape, directions):
    with pytest.raises(InvalidInput, match="a basis needs"):
        trajectory_basis(torch.ones(shape), directions)


def test_the_weights_of_the_sheet():
    assert contributions(FEATURE, PARAMETER, 0.5) == pytest.approx(WEIGHTS, abs=1e-12)
    assert contributions(FEATURE, PARAMETER, 1.0) == pytest.approx([0.25, 0.25, 0.5], abs=1e-12)
    assert contributions(FEATURE, PARAMETER, 0.0) == pytest.approx([0.5, 0.25, 0.25], abs=1e-12)


def test_a_half_whose_sum_is_0_is_uniform():
    assert contributions([0.0, 0.0], [3.0, 1.0], 0.5) == pytest.approx([0.625, 0.375])
    assert contributions([0.0, 0.0], [0.0, 0.0], 0.5) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(("feature", "share"), [([1.0, -1.0], 0.5), ([1.0], 0.5), ([1.0, 1.0], 1.5)])
def test_distances_that_are_none_are_refused(feature, share):
    with pytest.raises(InvalidInput):
        contributions(feature, [1.0, 1.0], share)
