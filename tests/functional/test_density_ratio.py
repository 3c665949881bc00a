import pytest
import torch

from functional import proxy_numbers as sheet
from functional.closeness import assert_near, float64
from motley.errors import InvalidInput
from motley.functional import density_ratio
from motley.functional.density_ratio import fit_density_ratio, median_distance


def fitted():
    return fit_density_ratio(
        float64(sheet.known), float64(sheet.aux), penalty=sheet.kulsif_penalty, width=sheet.kulsif_width
    )


def test_the_ratio_of_the_sheet():
    ratio = fitted()
    assert_near(ratio.alpha, sheet.kulsif_alpha)
    assert_near(ratio(float64([[x] for x in sheet.kulsif_r])), list(sheet.kulsif_r.values()))


def test_the_coefficients_solve_the_system_and_are_no_product():
    k = torch.exp(-((float64(sheet.aux) - float64(sheet.aux).T) ** 2) / (2 * sheet.kulsif_width**2))
    near = torch.exp(-((float64(sheet.aux) - float64(sheet.known).T) ** 2) / (2 * sheet.kulsif_width**2))
    left = (k / 3 + sheet.kulsif_penalty * torch.eye(3, dtype=torch.float64)) @ fitted().alpha
    assert_near(left, (-near.sum(dim=1) / (3 * 2 * sheet.kulsif_penalty)).tolist(), 1e-12)


def test_parts_of_the_points_give_what_all_at_once_give(monkeypatch):
    draw = torch.Generator().manual_seed(0)
    known, aux, x = (torch.randn(number, 3, generator=draw) for number in (17, 9, 13))
    whole = fit_density_ratio(known, aux, penalty=0.1, width=1.0)(x)
    monkeypatch.setattr(density_ratio, "AT_ONCE", 4)
    assert_near(fit_density_ratio(known, aux, penalty=0.1, width=1.0)(x), whole.tolist(), 1e-12)


def test_points_of_the_own_kind_have_the_larger_ratio():
    draw = torch.Generator().manual_seed(1)
    own, other = torch.randn(200, 2, generator=draw), torch.randn(200, 2, generator=draw) + 3
    ratio = fit_density_ratio(own, torch.cat([own[:100], other]), penalty=0.1, width=1.0)
    assert ratio(torch.zeros(1, 2)) > 2 * ratio(torch.full((1, 2), 3.0))


def test_the_median_distance_of_equal_points_is_a_usable_width():
    assert median_distance(torch.zeros(3, 2)) == 1.0
    assert median_distance(torch.zeros(1, 2)) == 1.0


@pytest.mark.parametrize(
    ("known", "aux", "penalty", "width"),
    [((2,), (2, 1), 0.1, 1.0), ((2, 2), (2, 1), 0.1, 1.0), ((0, 1), (2, 1), 0.1, 1.0), ((2, 1), (2, 1), 0.0, 1.0),
     ((2, 1), (2, 1), 0.1, 0.0)],
)  # fmt: skip
def test_what_does_not_fit_is_refused(known, aux, penalty, width):
    with pytest.raises(InvalidInput, match="a density ratio needs points"):
        fit_density_ratio(torch.zeros(known), torch.zeros(aux), penalty=penalty, width=width)
