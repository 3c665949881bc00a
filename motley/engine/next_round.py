"""The round after the newest checkpoint of a CRAD run: who takes part, and whose snapshots a client would receive."""

import warnings
from functools import cached_property
from typing import Any

from motley.draws import Draws
from motley.engine.config import RunConfig
from motley.engine.faults import make_method
from motley.engine.graph import Graph
from motley.engine.participation import draw_participants
from motley.engine.peers import held_snapshots
from motley.engine.setup import Federation
from motley.errors import InvalidMessage, MotleyWarning
from motley.methods.contracts import PeerMethod
from motley.methods.crad_wire import Snapshot
from motley.record.checkpoints import Checkpoint


class NextRound:
    """The snapshots with which a run would go on; its participants and its graph are those that it would draw.

    Attributes:
        number: The round.
        active: Ids of those who take part in it, ascending.

    Args:
        config: The run's.
        federation: Its clients, with the weights and memories of the checkpoint.
        checkpoint: Holds what stale peers kept of each other.
    """

    def __init__(self, config: RunConfig, federation: Federation, checkpoint: Checkpoint) -> None:
        run = config.settings.run
        self.number = checkpoint.round + 1
        self._draws, self._graph, self._clients = Draws(run.seed), Graph.parse(run.graph), federation.clients
        per_round = federation.participants_per_round
        self.active = draw_participants(per_round, len(self._clients), self._draws, self.number)
        sender = make_method(config, federation)  # with the run's faulty peers
        assert isinstance(sender, PeerMethod)
        self._sender: PeerMethod[Any] = sender
        self._stale = run.peers == "stale"
        self._held = held_snapshots(Snapshot, checkpoint.tensors)

    def inbox(self, client_id: int) -> dict[int, Snapshot]:
        """Return what a client receives; one that does not take part is answered as if it did, beside those that do."""
        if self._stale:
            known = {**self._held, **self.fresh}
            return {peer: known[peer] for peer in sorted(known) if peer != client_id}
        return {peer: self.fresh[peer] for peer in self._teachers(client_id) if peer in self.fresh}

    @cached_property
    def fresh(self) -> dict[int, Snapshot]:
        """Return what those who take part send; who has nothing valid to send sends nothing, as in a round."""
        sent = {}
        for client_id in self.active:
            client = self._clients[client_id]
            message = self._sender.snapshot(client, self.number)
            try:
                message.check(f"client {client_id}", C=client.num_classes)
                self._sender.check(message, client_id, client.task)
                sent[client_id] = message
            except InvalidMessage as error:
                what = "teaches with its last snapshot" if client_id in self._held else "teaches nobody"
                warnings.warn(f"client {client_id} {what}: {error}", MotleyWarning, stacklevel=2)
        return sent

    def _teachers(self, client_id: int) -> list[int]:
        if client_id in self._graph_of_active:
            return self._graph_of_active[client_id]
        return self._graph.teachers(sorted([*self.active, client_id]), self.number, self._draws)[client_id]

    @cached_property
    def _graph_of_active(self) -> dict[int, list[int]]:
        return self._graph.teachers(self.active, self.number, self._draws)
