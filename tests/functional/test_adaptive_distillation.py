"""FedKD's losses: the worked numbers of its sheet (section 8)."""

import pytest
import torch
from torch import Tensor

from motley.functional.adaptive_distillation import adaptive_losses

MENTOR = [[1.0, 0.2, -0.5], [0.1, 0.4, 0.0]]
MENTEE = [[0.3, 0.8, -0.2], [-0.4, 1.0, 0.5]]
Y = [0, 2]
H_MENTOR = [[1.0, 0.5, -0.5], [0.2, -0.3, 0.8]]
H_MENTEE = [[0.4, 0.6], [-0.2, 0.1]]
W = [[0.5, 0.1], [-0.2, 0.3], [0.0, 0.7]]
DENOMINATOR = 2.045769254153
MSE = 0.38465
LOSS_MENTOR = 1.149471281398
LOSS_MENTEE = 1.40645750285
GRADIENTS = {
    "mentor": [[-0.129983595441, 0.076207782812, 0.053775812629], [0.196194377277, 0.176847853603, -0.37304223088]],
    "mentee": [[-0.417457492941, 0.31136423512, 0.106093257821], [0.02396513375, 0.300337203258, -0.324302337007]],
    "h_mentor": [[0.120574041362, 0.065175157493, -0.149902862233], [0.047251989182, -0.060287020681, 0.118944662424]],
    "h_mentee": [[-0.047251989182, 0.073322052179], [-0.035683398727, -0.069900356411]],
    "w": [[-0.038779218708, -0.077069623735], [-0.038127467133, -0.033076392428], [0.083750077378, 0.078047251098]],
}
# With D not detached; only to recognise it.
DENOMINATOR_LIVE = [
    [-0.105192444064, 0.059642638604, 0.04554980546],
    [0.177250195231, 0.151275882617, -0.328526077848],
]


def leaves() -> dict[str, Tensor]:
    values = {"mentor": MENTOR, "mentee": MENTEE, "h_mentor": H_MENTOR, "h_mentee": H_MENTEE, "w": W}
    return {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in values.items()}


def losses(held: dict[str, Tensor]):
    mapped = held["h_mentee"] @ held["w"].T
    return adaptive_losses(held["mentor"], held["mentee"], held["h_mentor"], mapped, torch.tensor(Y))


def test_the_losses_of_the_sheet():
    made = losses(leaves())
    assert (made.mentor + made.mentee).item() == pytest.approx(DENOMINATOR, abs=1e-9)
    assert (made.mentor + made.mentor_learns).item() == pytest.approx(LOSS_MENTOR, abs=1e-9)
    assert (made.mentee + made.mentee_learns).item() == pytest.approx(LOSS_MENTEE, abs=1e-9)


def test_the_matching_of_features_is_a_mean_over_all_elements():
    held = leaves()
    logits = torch.zeros(2, 3, dtype=torch.float64)
    made = adaptive_losses(logits, logits, held["h_mentor"], held["h_mentee"] @ held["w"].T, torch.tensor(Y))
    assert (made.mentor_learns * (made.mentor + made.mentee)).item() == pytest.approx(MSE, abs=1e-12)


def test_one_backward_pass_gives_every_module_the_gradient_of_its_own_loss():
    held = leaves()
    made = losses(held)
    (made.mentor + made.mentor_learns + made.mentee + made.mentee_learns).backward()
    for name, expected in GRADIENTS.items():
        torch.testing.assert_close(
            held[name].grad, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9, msg=name
        )
    live = torch.tensor(DENOMINATOR_LIVE, dtype=torch.float64)
    assert (held["mentor"].grad - live).abs().max() > 0.01


def test_a_denominator_of_nothing_is_floored():
    sure = torch.tensor([[200.0, 0.0]], dtype=torch.float64)
    near, far = torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), 2.0, dtype=torch.float64)
    made = adaptive_losses(sure, sure, near, far, torch.tensor([0]))
    assert made.mentor_learns.item() == pytest.approx(4.0 / 1e-8)
