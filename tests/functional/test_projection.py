import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.projection import principal_plane


@given(seed=st.integers(0, 2**31), number=st.integers(3, 12), width=st.integers(2, 9))
def test_the_plane_is_that_of_the_covariance(seed, number, width):
    points = torch.randn(number, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    plane = principal_plane(points)
    spread = np.sort(np.linalg.eigvalsh(np.cov(points.numpy().T)))[::-1]
    np.testing.assert_allclose(plane.explained, spread[:2] / spread.sum(), atol=1e-9)
    inside = plane.of(points)
    np.testing.assert_allclose(inside.mean(dim=0).numpy(), 0, atol=1e-9)
    np.testing.assert_allclose(inside.var(dim=0).numpy(), spread[:2], atol=1e-9)
    torch.testing.assert_close(plane.axes.T @ plane.axes, torch.eye(2, dtype=torch.float64))
    assert (plane.axes.gather(0, plane.axes.abs().argmax(dim=0, keepdim=True)) > 0).all()


def test_one_point_and_equal_points_lie_in_the_middle():
    for points in (torch.ones(1, 3), torch.ones(4, 3), torch.ones(4, 1)):
        plane = principal_plane(points)
        assert plane.explained == (0.0, 0.0)
        assert not plane.of(points).any()


def test_what_is_no_point_is_refused():
    for points in (torch.zeros(0, 3), torch.tensor([[float("nan"), 1.0]]), torch.zeros(3)):
        with pytest.raises(InvalidInput, match="finite points"):
            principal_plane(points)
