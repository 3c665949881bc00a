import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.draws import Draws
from motley.engine.participation import draw_participants, participant_number
from motley.errors import InvalidConfig


@pytest.mark.parametrize(
    ("clients", "share", "expected"),
    [(20, 1.0, 20), (7, 0.1, 1), (5, 0.5, 2), (10, 0.25, 2), (10, 0.3, 3), (10, 0.7, 7), (100, 0.29, 29), (3, 1e-6, 1)],
)
def test_d6_a_share_is_rounded_down_and_at_least_one_takes_part(clients, share, expected):
    # Case D6 rounds to the nearest, (5, 0.5) to 3; FedTopo's sheet, section 3, fixes max(1, floor(ratio N + 1e-9)).
    assert participant_number(share, clients) == expected


@pytest.mark.parametrize("share", [0.0, -0.5, 1.01, 2.0])
def test_d6_a_share_outside_of_its_range_is_refused(share):
    with pytest.raises(InvalidConfig, match=r"run.participation is .*share above 0 and up to 1.0"):
        participant_number(share, 10)


def test_d6_a_whole_number_is_a_number_of_clients():
    assert participant_number(1, 10) == 1
    assert participant_number(10, 10) == 10
    with pytest.raises(InvalidConfig, match=r"run.participation is 11 clients, but there are 10"):
        participant_number(11, 10)


@given(clients=st.integers(1, 60), data=st.data())
def test_d6_participants_are_drawn_without_replacement_and_in_ascending_order(clients, data):
    number = data.draw(st.integers(1, clients))
    drawn = draw_participants(number, clients, Draws(data.draw(st.integers(0, 99))), 3)
    assert len(set(drawn)) == number
    assert drawn == sorted(drawn)
    assert set(drawn) <= set(range(clients))
    assert all(type(one) is int for one in drawn)


def test_everybody_is_drawn_as_often_as_the_others():
    draws = Draws(0)
    times = [0] * 8
    for round in range(1, 1001):
        for client in draw_participants(2, 8, draws, round):
            times[client] += 1
    assert all(abs(one - 250) < 55 for one in times)  # four standard deviations
