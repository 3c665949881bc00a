"""Who takes part in a round."""

import math

from motley.draws import Draws
from motley.errors import InvalidConfig


def participant_number(participation: float, num_clients: int) -> int:
    """Return how many clients take part: a share is rounded down, and at least one takes part.

    Raises:
        InvalidConfig: A share above 1 or at most 0, or a number above that of the clients.
    """
    if isinstance(participation, int):
        if not 1 <= participation <= num_clients:
            raise InvalidConfig(
                f"run.participation is {participation} clients, but there are {num_clients}; give a number from 1 to "
                f"{num_clients}, or a share such as 0.5"
            )
        return participation
    if not 0 < participation <= 1:
        raise InvalidConfig(
            f"run.participation is {participation}; give a share above 0 and up to 1.0, or a whole number of clients"
        )
    return max(1, math.floor(participation * num_clients + 1e-9))


def draw_participants(number: int, num_clients: int, draws: Draws, round: int) -> list[int]:
    """Return the ids of a round's participants, ascending; drawn without replacement, the same for every method."""
    if number == num_clients:
        return list(range(num_clients))
    return sorted(draws.numpy("participants", round=round).choice(num_clients, number, replace=False).tolist())
