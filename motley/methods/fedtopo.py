"""FedTopo: clients share how their classes relate, and the global topology sharpens local training.

    upload      R_k, relations of the classes a client holds, and n_k, its counts       C^2 + C numbers (dense)
    broadcast   R^g and S^g, global relations and their reliability                     2 C^2 numbers (dense)
    inference   unchanged

    Eqs. 2-3     p_kc = mean feature of class c;  R_k(c, c') = (1 + cos(p_kc, p_kc')) / 2
    Eqs. 4-5     w_k(c, c') = n_c n_c' / (n_c + n_c' + eps) where the client holds both, else 0
    Eqs. 6-7     R~ = sum w_k R_k / (sum w_k + eps);  S^g = sum w_k / (max sum w_k + eps)
    Eq. 8        R^g <- rho R^g + (1 - rho) R~
    Eqs. 9-11    B_y = the q largest of R^g(y, c) S^g(y, c) over held classes c != y
    Eqs. 12-13   L_k = CE(o, y) + lambda CE(o + gamma B_y, y)

Our readings: the maximum of S^g includes the diagonal (`s_norm`); a pair nobody observed keeps R^g and has S^g = 0;
warm-up rounds train on the plain loss while relations are exchanged; prototypes come from an extra pass in evaluation
mode (`prototypes`). `fedtopo_options.py` lists every switch, `fedtopo_client.py` holds what they change on the client,
`fedtopo_wire.py` how matrices travel.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.topology import (
    aggregate,
    debias,
    observed,
    reliability,
    smooth,
    smooth_support,
)
from motley.functional.topology_chunks import UploadSums, chunk_size
from motley.functional.topology_controls import constant_relations, pair_order, shuffled_relations
from motley.functional.topology_guidance import topology_loss
from motley.methods.contracts import ServerMethod, Upload
from motley.methods.fedtopo_client import client_guidance, upload
from motley.methods.fedtopo_given import given_relations
from motley.methods.fedtopo_options import FedTopoOptions
from motley.methods.fedtopo_wire import (
    Relations,
    Topology,
    TopologyState,
    note_reported,
    pack_topology,
    start_state,
    unpack_all,
)
from motley.methods.registry import register
from motley.training.local import Step, Terms, train_local
from motley.training.statistics import RunningPrototypes, counts_behind, local_prototypes


@register("fedtopo", options=FedTopoOptions, needs=("features",))
class FedTopo(ServerMethod[TopologyState, Topology, Relations]):
    """Relation-level topology sharing."""

    def __init__(self, options: FedTopoOptions) -> None:
        self.options = options

    def start(self, task: Task, draws: Draws) -> TopologyState:
        # With noise, or without the local mask, a client needs pairs beyond those that the server knows it to hold.
        sparse = self.options.wire == "sparse" and self.options.local_mask and not self.options.count_noise
        state = start_state(task.num_classes, task.num_clients if sparse else 0)
        if self.options.relations is None:
            return state
        return replace(state, guide=given_relations(Path(self.options.relations), task.class_names))

    def broadcast(self, state: TopologyState, client_id: int) -> Topology:
        return pack_topology(state, client_id, self.options.wire)

    def client_round(self, client: Client, received: Topology, round: int, draws: Draws) -> Relations:
        """Train under guidance, then measure the relations (Algorithm 1, lines 4-6)."""
        options = self.options
        guidance = client_guidance(client, received, options).float().to(client.shard.counts.device)
        weight = options.loss_weight if round > options.warmup_rounds else 0.0

        def loss(step: Step) -> Terms:
            made = topology_loss(
                step.logits, step.y, guidance, strength=options.strength, loss_weight=weight, norm=options.loss_norm
            )
            return (
                {"cross_entropy": made.plain, "topology": made.total - made.plain}
                if weight
                else {"cross_entropy": made.plain}
            )

        running = RunningPrototypes(client) if options.prototypes == "running" else None
        train_local(client, loss, draws, round=round, observe=running)
        prototypes = running.result() if running else local_prototypes(client, feature=options.relation_feature)
        return upload(client, prototypes, running.counts if running else counts_behind(client), options, draws)

    def server_round(
        self, state: TopologyState, uploads: Iterable[Upload[Relations]], round: int, draws: Draws
    ) -> TopologyState:
        """Aggregate by reliability and smooth (Eqs. 4-8; Algorithm 1, lines 8-10)."""
        options = self.options
        taken = UploadSums(len(state.relations), weighting=options.weighting)
        stream = iter(uploads)  # in ascending id, so that the floating sums do not depend on arrival
        while chunk := list(islice(stream, chunk_size(len(state.relations)))):
            relations, counts = unpack_all([sent.message for sent in chunk])
            taken.add(relations, counts)
            state = note_reported(state, [sent.client_id for sent in chunk], counts)
        sums = taken.result()
        seen = observed(sums)
        new = smooth(
            state.relations,
            aggregate(sums),
            seen,
            rho=options.smoothing,
            retain=options.retain,
            init="first" if options.ema_init == "first" else "identity",
            times=state.times,
        )
        support = (
            smooth_support(state.support, sums.support, rho=options.smoothing)
            if options.s_state == "ema"
            else sums.support
        )
        times = state.times + seen
        guide = debias(new, times, options.smoothing) if options.ema_init == "debias" else new
        if options.relation_control == "constant":
            guide = constant_relations(guide, times > 0)
        if options.relation_control == "shuffled":
            guide = shuffled_relations(guide, times > 0, pair_order(len(guide), draws.generator("relation-order")))
        if options.relation_control == "given":
            guide = state.guide  # as the run began, whatever has become of the file
        trust = reliability(support, norm=options.s_norm)
        return replace(state, relations=new, reliability=trust, support=support, times=times, guide=guide)
