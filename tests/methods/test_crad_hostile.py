"""What bad teachers do to a student's target (case G7, claim C11): eight honest peers of 150 samples and accuracy 0.8."""

import math

import pytest
import torch
from table_students import FLOAT32, float64, state, student, told_target

from motley.methods.crad import Crad, CradOptions
from motley.methods.crad_journal import TeacherJournal
from motley.methods.crad_wire import Snapshot
from motley.methods.distillation import Model
from motley.methods.uniform_kd import UniformKD, UniformKDOptions

C, HONEST, N, ACCURACY = 3, 8, 150, 0.8
STUDENT = [[0.5, 0.0, -0.5], [0.0, 0.0, 0.0], [0.0, 0.5, 1.0]]  # of three samples of the classes 0, 1, 2
FORGED = (1_000_000, 1.0)
EQUAL = {"weighting": "equal"}
NO_AGREEMENT = {"agreement_filter": "none"}
TEMPERED = {"agreement_filter": "tempered"}


def sure(share: float, shift: int = 0) -> list[list[float]]:
    """Return logits with this probability on class y + shift at T = 3."""
    high = 3 * math.log(share / ((1 - share) / 2))
    return [[high if c == (y + shift) % C else 0.0 for c in range(C)] for y in range(C)]


HONEST_SHARES = [0.70 + 0.02 * position for position in range(HONEST)]
BAD = {
    "lying": sure(0.9, shift=1),
    "constant": [[10.0, 0.0, 0.0]] * C,
    "untrained": [[0.01, 0.0, -0.01]] * C,
}


def inbox(kind: str | None = None, liars: int = 0, claim: tuple[int, float] = FORGED) -> dict[int, Snapshot]:
    peers = [(sure(share), N, ACCURACY) for share in HONEST_SHARES] + [(BAD[kind or "lying"], *claim)] * liars
    return {
        peer: Snapshot(state(rows), torch.full((C,), n, dtype=torch.int32), torch.full((C,), a))
        for peer, (rows, n, a) in enumerate(peers, start=1)
    }


def taught(tiny, messages, **options):
    """Return the target's probability on the true class of the three samples, and the record of the teachers."""
    client = student(tiny, STUDENT, range(C))
    Crad(CradOptions(**options)).peer_round(client, messages, 1, tiny.draws)
    target = told_target(client, STUDENT, temperature=3.0, loss_weight=0.7)
    return target.diagonal(), client.journal["teachers"]


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("claim", [FORGED, (N, 0.0), (N, 1 / 3)], ids=["forged", "honest, always wrong", "honest"])
@pytest.mark.parametrize(
    ("liars", "options"),
    [(1, {}), (1, EQUAL), (1, TEMPERED), (1, {"weighting": "one-sided"}), (2, {}), (2, EQUAL), (2, TEMPERED)],
    ids=str,
)
def test_the_agreement_filter_drops_a_minority_whatever_it_claims(tiny, kind, claim, liars, options):
    honest, _ = taught(tiny, inbox(), **options)
    found, told = taught(tiny, inbox(kind, liars, claim), **options)
    # The mean moves towards the bad ones, so others are kept than before; all kept are honest.
    assert bool((found > honest - 0.06).all())
    assert all(told["kept"][HONEST + position][c] < 1 / 2 for position in range(liars) for c in range(C))
    assert bool((found > 0.66).all())


def test_one_forged_claim_takes_over_where_nothing_filters(tiny):
    found, told = taught(tiny, inbox("lying", 1), **NO_AGREEMENT)
    # var of the honest: (122 / 154) (1 - 122 / 154) / 154; of the claim: about 2 / 10^12 (Eqs. 6-7, eps 1e-12).
    honest = HONEST * 154 / ((122 / 154) * (32 / 154))
    at = (FORGED[0] + 2) / (FORGED[0] + 4)
    forged = 1 / (at * (1 - at) / (FORGED[0] + 4) + 1e-12)
    assert forged / (forged + honest) > 0.99998  # case G7: "takes 99.99 % of the weight"
    assert told["largest_weight"] == pytest.approx(forged / (forged + honest), abs=1e-6)
    assert bool((found < 0.06).all())
    crad, _ = taught(tiny, inbox("lying", 1))
    assert bool((crad > 0.7).all())


def test_the_largest_weight_is_that_of_any_class(tiny):
    # One sample, two teachers, both kept; at a = 1/2 the weight is 4 (n + 4): 32 of 64, 32 of 128 and 40 of 80.
    counts = torch.tensor([[4, 4, 6], [4, 20, 6]], dtype=torch.int32)
    half = torch.full((C,), 0.5)
    client = student(tiny, STUDENT[:1], [0])
    messages = {peer: Snapshot(state(sure(0.7)[:1]), n, half) for peer, n in enumerate(counts, start=1)}
    Crad(CradOptions()).peer_round(client, messages, 1, tiny.draws)
    assert client.journal["teachers"]["largest_weight"] == pytest.approx(0.75, abs=1e-6)


def test_two_that_always_name_a_class_are_no_minority_where_few_have_support(tiny):
    # Of four supported teachers two name the classes 0 and 1 whatever they see (q 0.933, else 0.033). For a sample of
    # class 2 the honest say 0.70 and 0.60: the mean is 0.342, the deviations 0.358, 0.258, 0.308, 0.308, and the median
    # 0.308 keeps 0.60 and both bad ones. On the classes that they name they are dropped (claims C11).
    rows = [(sure(0.70), N, ACCURACY), (sure(0.60), N, ACCURACY)]
    rows += [([[10.0 * (c == named) for c in range(C)]] * C, *FORGED) for named in (0, 1)]
    messages = {
        peer: Snapshot(state(said), torch.full((C,), n, dtype=torch.int32), torch.full((C,), a))
        for peer, (said, n, a) in enumerate(rows, start=1)
    }
    found, told = taught(tiny, messages)
    assert [told["kept"][bad][2] >= 1 / 3 for bad in (2, 3)] == [True, True]
    assert found[2] < 0.1  # 0.033 beside about 0.17 for each of the others
    equal, _ = taught(tiny, messages, **EQUAL)
    tempered, _ = taught(tiny, messages, **TEMPERED)
    assert 0.35 < equal[2] < 0.45
    torch.testing.assert_close(tempered[2], equal[2], rtol=0, atol=FLOAT32)  # four equal shares of at most 1/4


def test_who_is_wrong_on_all_weighs_as_much_as_who_is_right_on_all(tiny):
    wrong, told = taught(tiny, inbox("lying", 1, (N, 0.0)), **NO_AGREEMENT)
    _, right = taught(tiny, inbox("lying", 1, (N, 1.0)), **NO_AGREEMENT)
    assert told["largest_weight"] == pytest.approx(right["largest_weight"], abs=1e-6)
    assert told["largest_weight"] == pytest.approx(0.616, abs=5e-4)  # case G7: 61.6 % against the eight
    assert told["below_chance"] == pytest.approx(1 / 9)  # case G7: the share of teachers with an accuracy below 1 / C
    assert right["below_chance"] == 0
    one_sided, _ = taught(tiny, inbox("lying", 1, (N, 0.0)), **NO_AGREEMENT, weighting="one-sided")
    assert bool((one_sided > wrong + 0.3).all())  # beyond the paper: being wrong is no evidence


def test_a_takeover_of_a_single_sample_is_seen():
    journal = TeacherJournal((1, 2), torch.full((2, 1), N), torch.tensor([[0.8], [1.0]]), torch.ones(2, 1).bool())
    kept = torch.ones(2, 20, 1).bool()
    kept[1, 1:], kept[0, 0] = False, False  # the second teacher is the one that is kept for the first sample
    journal.add(kept, torch.tensor([[1.0], [999.0]]), torch.ones(20))
    found = journal.summary()
    assert found["weight"] == [[0.95], [0.05]]
    assert found["largest_weight"] == 1.0


def test_what_an_audit_lets_join_counts_towards_the_largest_share():
    journal = TeacherJournal((1, 2), torch.full((2, 1), N), torch.tensor([[0.8], [1.0]]), torch.ones(2, 1).bool())
    kept, joined = torch.tensor([[[True]], [[False]]]), torch.tensor([[[0.0]], [[0.625]]])
    journal.add(kept, torch.tensor([[1.0], [9.0]]), torch.ones(1), joined)
    assert journal.summary()["weight"] == [[0.375], [0.625]]
    assert journal.summary()["largest_weight"] == 0.625


def test_two_forged_claims_need_a_cap_below_a_quarter(tiny):
    # Two shares of 0.25 are half of the weight (sheet, section 5): 1 / (2 f + 1) = 0.2 is what two liars need.
    safe, told = taught(tiny, inbox("lying", 2), **TEMPERED, rho=0.2)
    taken, lost = taught(tiny, inbox("lying", 2), **TEMPERED, rho=0.25)
    assert bool((safe > 0.7).all())
    assert all(told["kept"][HONEST][c] < 1 / 2 for c in range(C))
    assert lost["weight"][HONEST][0] > 2 * told["weight"][HONEST][0]
    assert bool((taken < 0.5).all())


def test_uniform_kd_counts_a_liar_as_everybody(tiny):
    for liars in (1, 2):
        client = student(tiny, STUDENT, range(C))
        messages = {peer: Model(message.weights) for peer, message in inbox("lying", liars).items()}
        UniformKD(UniformKDOptions()).peer_round(client, messages, 1, tiny.draws)
        target = told_target(client, STUDENT, temperature=3.0, loss_weight=0.7)
        expected = (sum(HONEST_SHARES) + liars * 0.05) / (HONEST + liars)
        torch.testing.assert_close(target.diagonal(), float64([expected] * C), rtol=0, atol=FLOAT32)


@pytest.mark.parametrize("liars", [1, 2])
def test_an_audit_refutes_a_forged_claim(tiny, liars):
    rows = [*STUDENT, *[[0.0] * C] * C]
    messages = inbox("lying", liars)
    for peer, message in messages.items():
        said = BAD["lying"] if peer > HONEST else sure(HONEST_SHARES[peer - 1])
        message.weights.update(state([*said, *said]))
    held = (torch.tensor([3.0, 4.0, 5.0] * 20).view(-1, 1, 1), [0, 1, 2] * 20)
    client = student(tiny, rows, range(C), validation=held)
    Crad(CradOptions(**TEMPERED, audit=True)).peer_round(client, messages, 1, tiny.draws)
    assert client.journal["audit"] == [[1] * C] * HONEST + [[-1] * C] * liars
    target = told_target(client, rows, temperature=3.0, loss_weight=0.7)
    assert bool((target.diagonal() > 0.7).all())
