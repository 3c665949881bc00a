"""FedTopo through its own verbs, against the worked numbers of its sheet (section 9)."""

from dataclasses import replace

import pytest
import torch
from functional import fedtopo_numbers as sheet
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from motley.draws import Draws
from motley.errors import MotleyWarning
from motley.functional.topology import relations
from motley.functional.topology_controls import pair_order, shuffled_relations
from motley.methods.contracts import Upload
from motley.methods.fedtopo import FedTopo
from motley.methods.fedtopo_client import client_guidance
from motley.methods.fedtopo_options import FedTopoOptions
from motley.methods.fedtopo_wire import Topology, TopologyState, pack_relations, unpack_relations
from motley.methods.registry import find_method
from motley.models.split import SplitModel

C = 4
ON_THE_WIRE = 1e-7  # relations travel as float32; the worked numbers are without rounding
FEATURES = {1: (sheet.Z1, sheet.Y1), 2: (sheet.Z2, sheet.Y2), 3: (sheet.Z3, sheet.Y3)}


def float64(rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def near(made: Tensor, expected: object) -> None:
    torch.testing.assert_close(made.double(), float64(expected), rtol=0, atol=ON_THE_WIRE, equal_nan=True)


def rows_near(made: Tensor, expected: dict[int, list[float]]) -> None:
    for row, values in expected.items():
        near(made[row], values)


def method(**options: object) -> FedTopo:
    return FedTopo(FedTopoOptions(**options))


@pytest.fixture
def clients(tiny):
    """The three clients of V1: their features are their inputs, and training moves the head alone."""

    def build():
        made = {}
        for client_id, (z, y) in FEATURES.items():
            model = SplitModel(nn.Flatten(), nn.Linear(3, C))
            made[client_id] = tiny.client(
                torch.tensor(z, dtype=torch.float32)[:, None, :],
                y,
                model,
                num_classes=C,
                client_id=client_id,
                lr=0.01,
            )
        return made

    return build


def play(made, clients, draws, *, rounds: int = 1, only: tuple[int, ...] = (1, 2, 3)) -> TopologyState:
    state = made.start(clients[1].task, draws)
    for round in range(1, rounds + 1):
        uploads = [Upload(k, made.client_round(clients[k], made.broadcast(state, k), round, draws)) for k in only]
        state = made.server_round(state, iter(uploads), round, draws)
    return state


def after_round_one(made: FedTopo, clients, draws) -> TopologyState:
    return play(made, clients, draws)


@pytest.mark.parametrize("prototypes", ["exact", "running"])
@pytest.mark.parametrize("wire", ["dense", "sparse"])
def test_v2_a_client_uploads_the_relations_of_its_prototypes(clients, tiny, wire, prototypes):
    made = method(wire=wire, prototypes=prototypes)
    for client_id, expected in ((1, sheet.R1), (2, sheet.R2), (3, sheet.R3)):
        client = clients()[client_id]
        state = made.start(client.task, tiny.draws)
        sent = made.client_round(client, made.broadcast(state, client_id), 1, tiny.draws)
        found, counts = unpack_relations(sent)
        near(found, expected)
        assert counts.tolist() == [sheet.N1, sheet.N2, sheet.N3][client_id - 1]
        sent.check("client", C=C)
    if wire == "sparse":
        near(
            made.client_round(clients()[2], made.broadcast(state, 2), 1, tiny.draws).relations,
            sheet.SPARSE_UP_CLIENT2[0],
        )


@pytest.mark.parametrize(
    ("options", "smoothed", "trust"),
    [
        ({}, sheet.RG1, sheet.S_ALL),
        ({"wire": "sparse"}, sheet.RG1, sheet.S_ALL),
        ({"s_norm": "offdiag"}, sheet.RG1, sheet.S_OFF),
    ],
)
def test_v4_and_v5_the_server_aggregates_and_smooths(clients, tiny, options, smoothed, trust):
    made = method(**options)
    state = after_round_one(made, clients(), tiny.draws)
    near(state.relations, smoothed)
    near(state.reliability, trust)
    near(state.support, sheet.W)
    assert state.times.tolist() == (float64(sheet.W) > 0).long().tolist()
    state.check("the server", C=C)


def test_v4_without_memory_the_broadcast_is_the_aggregate_of_the_round(clients, tiny):
    state = after_round_one(method(smoothing=0.0, retain=False), clients(), tiny.draws)
    near(state.relations, sheet.RT)
    near(state.guide, sheet.RT)


def test_v4_uniform_weighting_is_the_plain_mean_and_leaves_the_reliability(clients, tiny):
    state = after_round_one(method(weighting="uniform", smoothing=0.0), clients(), tiny.draws)
    observed = float64(sheet.W) > 0
    near(state.relations[observed], float64(sheet.R_NAIVE)[observed].tolist())
    near(state.reliability, sheet.S_ALL)


@pytest.mark.parametrize(
    ("options", "smoothed", "trust"),
    [
        ({}, sheet.RG2, sheet.S2_ALL),
        ({"s_norm": "offdiag"}, sheet.RG2, sheet.S2_OFF),
        ({"retain": False}, sheet.RG2_NORETAIN, sheet.S2_ALL),
    ],
)
def test_v5_and_c5_a_pair_nobody_observed_keeps_its_relation_and_loses_its_reliability(
    clients, tiny, options, smoothed, trust
):
    made = method(**options)
    state = after_round_one(made, clients(), tiny.draws)
    moved = relations(float64(sheet.P1_ROUND2), torch.tensor(sheet.N1))
    uploads = [
        Upload(1, pack_relations(moved, torch.tensor(sheet.N1), "dense")),
        Upload(3, pack_relations(float64(sheet.R3), torch.tensor(sheet.N3), "dense")),
    ]
    state = made.server_round(state, iter(uploads), 2, tiny.draws)
    near(state.relations, smoothed)
    near(state.reliability, trust)
    near(state.support, sheet.W_ROUND2)


def test_c5_a_round_without_any_upload_leaves_the_relations_and_silences_the_guidance(clients, tiny):
    made = method()
    state = after_round_one(made, clients(), tiny.draws)
    after = made.server_round(state, iter(()), 2, tiny.draws)
    assert torch.equal(after.relations, state.relations)
    assert not after.reliability.any()
    after.check("the server", C=C)


def test_v5_constant_relations_follow_the_series_of_the_sheet(clients, tiny):
    made = method()
    matrix = torch.full((C, C), 0.8, dtype=torch.float64).fill_diagonal_(1.0)
    sent = Upload(0, pack_relations(matrix, torch.tensor([5] * C), "dense"))
    state = made.start(clients()[1].task, tiny.draws)
    for round, expected in enumerate(sheet.EMA_SERIES_08, start=1):
        state = made.server_round(state, iter([sent]), round, tiny.draws)
        near(state.guide[0, 1], expected)


@pytest.mark.parametrize("init", ["first", "debias"])
def test_the_other_starts_of_the_ema_give_the_first_observation_at_once(clients, tiny, init):
    made = method(ema_init=init)
    state = after_round_one(made, clients(), tiny.draws)
    observed = (float64(sheet.W) > 0) & ~torch.eye(C, dtype=torch.bool)
    near(state.guide[observed], float64(sheet.RT)[observed].tolist())
    matrix = torch.full((C, C), 0.8, dtype=torch.float64).fill_diagonal_(1.0)
    sent = Upload(0, pack_relations(matrix, torch.tensor([5] * C), "dense"))
    state = made.start(clients()[1].task, tiny.draws)
    for round in (1, 2, 3):
        state = made.server_round(state, iter([sent]), round, tiny.draws)
        near(state.guide[0, 1], 0.8)


def test_s_state_ema_smooths_the_support_so_that_a_missed_pair_is_not_silenced(clients, tiny):
    made = method(s_state="ema")
    state = after_round_one(made, clients(), tiny.draws)
    near(state.support, (0.3 * float64(sheet.W)).tolist())
    near(state.reliability[:3, :3], float64(sheet.S_ALL)[:3, :3].tolist())  # a common factor cancels
    uploads = [Upload(3, pack_relations(float64(sheet.R3), torch.tensor(sheet.N3), "dense"))]
    after = made.server_round(state, iter(uploads), 2, tiny.draws)
    near(after.support, (0.7 * 0.3 * float64(sheet.W) + 0.3 * float64(sheet.W3)).tolist())
    assert after.reliability[0, 1] > 0


def guidance_after(made: FedTopo, all_clients, client_id: int, draws, state: TopologyState | None = None) -> Tensor:
    state = state or after_round_one(made, all_clients, draws)
    return client_guidance(all_clients[client_id], made.broadcast(state, client_id), made.options)


@pytest.mark.parametrize("wire", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("options", "client_id", "expected"),
    [
        ({"negatives": 1}, 1, sheet.B1_Q1),
        ({}, 1, sheet.B1_Q3),
        ({"negatives": 1}, 2, sheet.B2_Q1),
        ({}, 2, sheet.B2_Q3),
        ({"negatives": 9}, 2, sheet.B2_Q3),
        ({"s_norm": "offdiag"}, 2, sheet.B2_Q3_OFF),
        ({"negatives": 1, "use_s": False}, 2, sheet.AB_NO_S),
        ({"negatives": "all"}, 2, sheet.AB_NO_TOPQ),
        ({"negatives": 1, "smoothing": 0.0, "retain": False}, 2, sheet.AB_NO_EMA),
        ({"negatives": 1, "topology": "local"}, 2, sheet.AB_LOCAL_ONES),
        ({"negatives": 1, "topology": "local", "local_s": "self"}, 2, sheet.AB_LOCAL_SELF),
        ({"negatives": 1, "topology": "local", "local_s": "global"}, 2, sheet.AB_LOCAL_GLOBAL),
    ],
    ids=str,
)
def test_v6_and_v8_guidance_of_the_state_after_round_one(clients, tiny, options, client_id, expected, wire):
    rows_near(guidance_after(method(wire=wire, **options), clients(), client_id, tiny.draws), expected)


def test_v8_without_the_local_mask_an_absent_class_takes_the_only_slot(clients, tiny):
    made = method(negatives=1, local_mask=False)  # on the dense wire, since the sparse one does not carry such pairs
    rows_near(guidance_after(made, clients(), 1, tiny.draws), sheet.AB_NO_MASK)


def test_without_the_local_mask_the_sparse_wire_is_as_good_as_the_dense_one(clients, tiny):
    dense = guidance_after(method(local_mask=False), clients(), 1, tiny.draws)
    sparse = guidance_after(method(local_mask=False, wire="sparse"), clients(), 1, tiny.draws)
    assert torch.equal(dense[:2], sparse[:2])


def test_v6_retained_relations_without_reliability_are_silent(clients, tiny):
    made = method()
    state = after_round_one(made, clients(), tiny.draws)
    state = replace(state, relations=float64(sheet.RG2), guide=float64(sheet.RG2), reliability=float64(sheet.S2_ALL))
    rows_near(guidance_after(made, clients(), 2, tiny.draws, state), sheet.B2_ROUND3_Q3)


def test_the_local_topology_is_kept_in_the_memory_of_the_client(clients, tiny):
    all_clients = clients()
    after_round_one(method(topology="local"), all_clients, tiny.draws)
    torch.testing.assert_close(all_clients[2].memory["relations"], float64(sheet.R_LOC2), rtol=0, atol=1e-9)


def test_before_any_round_there_is_no_guidance(clients, tiny):
    made = method()
    state = made.start(clients()[1].task, tiny.draws)
    assert not guidance_after(made, clients(), 2, tiny.draws, state).any()


@pytest.fixture
def student(tiny):
    """Client 2 of V7: its logits are its inputs, moved by the head's bias."""

    def build(**training: object):
        model = SplitModel(nn.Flatten(), nn.Linear(C, C))
        with torch.no_grad():
            model.head.weight.copy_(torch.eye(C))
            model.head.bias.zero_()
        x = torch.tensor(sheet.LOGITS)[:, None, :]
        return tiny.client(x, sheet.LABELS, model, num_classes=C, client_id=2, batch_size=3, **training)

    return build


def topology_after_round_one() -> Topology:
    return Topology(torch.cat([float64(sheet.RG1).flatten(), float64(sheet.S_ALL).flatten()]).float())


@pytest.mark.parametrize(
    ("options", "round", "total", "gradient"),
    [
        ({}, 4, sheet.LOSS_1_1, sheet.GRAD_1_1),
        ({"strength": 0.0}, 4, sheet.LOSS_GAMMA0, sheet.GRAD_GAMMA0),
        ({"loss_weight": 0.5, "strength": 2.0}, 4, sheet.LOSS_05_2, None),
        ({"loss_norm": "mean"}, 4, sheet.LOSS_1_1 / 2, (float64(sheet.GRAD_1_1) / 2).tolist()),
        ({}, 3, sheet.CE_PLAIN, (float64(sheet.GRAD_GAMMA0) / 2).tolist()),
        ({"warmup_rounds": 0}, 1, sheet.LOSS_1_1, sheet.GRAD_1_1),
        ({"loss_weight": 0.0}, 9, sheet.CE_PLAIN, (float64(sheet.GRAD_GAMMA0) / 2).tolist()),
    ],
    ids=str,
)
def test_v7_the_client_descends_the_loss_of_the_sheet(student, tiny, options, round, total, gradient):
    client, made = student(lr=1.0), method(**options)
    made.client_round(client, topology_after_round_one(), round, tiny.draws)
    terms = client.journal["train"]["terms"]
    assert sum(terms.values()) == pytest.approx(total, abs=1e-6)
    assert ("topology" in terms) is (options.get("loss_weight", 1.0) > 0 and round > options.get("warmup_rounds", 3))
    if gradient is not None:
        moved = -client.model.head.bias.detach()  # one step at rate 1: the bias collects the gradients of all samples
        torch.testing.assert_close(moved.double(), float64(gradient).sum(dim=0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("control", ["constant", "shuffled"])
def test_controls_of_the_relations_change_what_is_sent_and_nothing_else(clients, tiny, control):
    plain = after_round_one(method(), clients(), tiny.draws)
    state = after_round_one(method(relation_control=control), clients(), tiny.draws)
    for name in ("relations", "reliability", "support", "times"):
        assert torch.equal(getattr(state, name), getattr(plain, name)), name
    pairs = [(0, 1), (0, 2), (1, 2)]
    values = [float(plain.guide[pair]) for pair in pairs]
    sent = [float(state.guide[pair]) for pair in pairs]
    if control == "constant":
        assert sent == pytest.approx(3 * [sum(values) / 3], abs=1e-12)
    else:
        assert sorted(sent) == sorted(values)
        order = pair_order(C, tiny.draws.generator("relation-order"))
        assert torch.equal(state.guide, shuffled_relations(plain.guide, plain.times > 0, order))
    assert torch.equal(state.guide, state.guide.T)
    assert torch.equal(state.guide.diagonal(), plain.guide.diagonal())
    assert torch.equal(state.guide[3], plain.guide[3])


def test_the_margin_control_raises_all_held_negatives_alike(clients, tiny):
    made = guidance_after(method(relation_control="margin", margin=0.2), clients(), 2, tiny.draws)
    rows_near(made, {0: [0, 0.2, 0.2, 0], 1: [0.2, 0, 0.2, 0], 2: [0.2, 0.2, 0, 0]})


def test_match_norm_spreads_the_row_sums_of_the_largest_over_all(clients, tiny):
    whole = guidance_after(method(negatives="all"), clients(), 2, tiny.draws)
    best = guidance_after(method(negatives=1), clients(), 2, tiny.draws)
    made = guidance_after(method(negatives=1, relation_control="match-norm"), clients(), 2, tiny.draws)
    for row in (0, 1, 2):
        near(made[row], (whole[row] * (best[row].sum() / whole[row].sum())).tolist())
        assert (made[row] > 0).sum() == 2


def test_the_guidance_is_recorded_as_the_margin_that_matches_it(clients, tiny):
    all_clients, made = clients(), method()
    state = after_round_one(made, all_clients, tiny.draws)
    made.client_round(all_clients[2], made.broadcast(state, 2), 2, tiny.draws)
    rows = {row: [v for v in values if v > 0] for row, values in sheet.B2_Q3.items()}
    counts = dict(enumerate(sheet.N2))
    expected = sum(counts[y] * sum(values) for y, values in rows.items())
    expected /= sum(counts[y] * len(values) for y, values in rows.items())
    assert all_clients[2].journal["guidance_mean"] == pytest.approx(expected, abs=1e-7)
    assert all_clients[2].journal["guidance_max"] == pytest.approx(max(max(v) for v in rows.values()), abs=1e-7)


def test_c2_a_prototype_of_length_zero_takes_part_in_no_relation(tiny):
    # Sheet, Eq. 3: the effective count is 0. Case C2 would count the cosine as 0 (R = 0.5); the sheet wins.
    z, y = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]], [0, 1, 2]
    made = method()
    dead = tiny.client(
        torch.tensor(z)[:, None, :], y, SplitModel(nn.Flatten(), nn.Linear(3, C)), num_classes=C, client_id=5
    )
    with pytest.warns(MotleyWarning, match="client 5: the prototype of class 0 has length zero"):
        sent = made.client_round(dead, topology_after_round_one(), 1, tiny.draws)
    sent.check("client 5", C=C)
    found, counts = unpack_relations(sent)
    assert counts.tolist() == [0, 1, 1, 0]
    assert bool(found[0].isnan().all())
    assert float(found[1, 2]) == pytest.approx(0.853553390593, abs=1e-7)
    state = made.server_round(made.start(dead.task, tiny.draws), iter([Upload(5, sent)]), 1, tiny.draws)
    state.check("the server", C=C)
    # The client's own mask still has the class: it is held.
    assert dead.journal["guidance_max"] > 0


@pytest.mark.parametrize("hide", [False, True])
def test_noisy_counts_are_drawn_once_and_real(clients, tiny, hide):
    made, all_clients, draws = method(count_noise=3.0, hide_absent=hide), clients(), Draws(5)
    sent = [made.client_round(all_clients[2], topology_after_round_one(), round, draws) for round in (1, 2)]
    found, counts = unpack_relations(sent[0])
    sent[0].check("client 2", C=C)
    assert counts.dtype == torch.float32
    assert torch.equal(counts, sent[1].counts)
    assert counts.tolist() != [float(n) for n in sheet.N2]
    masked = counts == 0
    assert bool(found[masked].isnan().all())
    assert not found[~masked][:, ~masked].isnan().any()
    if not hide:
        assert counts[3] == 0
    else:  # what is claimed for classes that nobody holds is one of the client's own values, the same in each round
        assert torch.equal(torch.nan_to_num(sent[0].relations), torch.nan_to_num(sent[1].relations))
        assert counts[3] > 0
        own = float64(sheet.R2).float()
        claimed = found[3][~masked & (torch.arange(C) != 3)]
        assert all(bool(torch.isclose(own, value.float(), atol=1e-6).any()) for value in claimed)
    state = made.server_round(made.start(all_clients[2].task, tiny.draws), iter([Upload(2, sent[0])]), 1, tiny.draws)
    state.check("the server", C=C)


def test_without_noise_hide_absent_changes_nothing(clients, tiny):
    one = method(hide_absent=True).client_round(clients()[2], topology_after_round_one(), 1, tiny.draws)
    assert one.counts.dtype == torch.int32
    assert one.counts.tolist() == sheet.N2


def drawn_uploads(seed: int, number: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(number):
        counts = torch.randint(0, 4, (C,), generator=generator) * torch.randint(0, 2, (C,), generator=generator)
        prototypes = torch.randn(C, 6, generator=generator, dtype=torch.float64)
        made.append((relations(prototypes, counts), counts))
    return made


@given(seed=st.integers(0, 10_000), number=st.integers(0, 4), order=st.permutations(range(C)))
def test_a_renaming_of_the_classes_renames_the_state(tiny, seed, number, order):
    made, order = method(), torch.tensor(order)
    task = tiny.client(torch.zeros(1, 1, 3), [0], SplitModel(nn.Flatten(), nn.Linear(3, C)), num_classes=C).task
    uploads = drawn_uploads(seed, number)
    plain, renamed = made.start(task, tiny.draws), made.start(task, tiny.draws)
    for round in (1, 2):
        plain = made.server_round(
            plain,
            iter([Upload(k, pack_relations(r, n, "dense")) for k, (r, n) in enumerate(uploads)]),
            round,
            tiny.draws,
        )
        renamed = made.server_round(
            renamed,
            iter(
                [Upload(k, pack_relations(r[order][:, order], n[order], "dense")) for k, (r, n) in enumerate(uploads)]
            ),
            round,
            tiny.draws,
        )
    for name in ("relations", "reliability", "support", "times", "guide"):
        torch.testing.assert_close(getattr(renamed, name), getattr(plain, name)[order][:, order], rtol=0, atol=1e-12)


def test_the_registry_knows_what_travels():
    entry = find_method("FedTopo")
    assert entry.has_server
    assert {name: kind.__name__ for name, kind in entry.sends.items()} == {"up": "Relations", "down": "Topology"}
    assert entry.needs == {"features"}
