"""What methods cost: FedTopo's Table III from real messages of its pool, and who is charged for what."""

import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import motley
from motley.data.dataset import Dataset
from motley.data.memory import from_arrays
from motley.draws import Draws
from motley.engine.comparison import plan_comparison
from motley.engine.config import ConfigFile
from motley.engine.cost import measure_costs
from motley.errors import RunFailed
from motley.functional.topology import relations
from motley.functional.topology_chunks import chunk_size
from motley.methods.contracts import Upload
from motley.methods.fedtopo import FedTopo
from motley.methods.fedtopo_options import FedTopoOptions
from motley.methods.fedtopo_wire import Relations, pack_relations, start_state
from motley.record.checkpoints import read_checkpoint
from motley.record.cost import CostStudy, Flops, MethodCost, Work

C, D, B = 10, 512, 256
CNN, GOOGLENET, HEAD = 7_825_920, 30_563_328, D * C  # multiply-adds of a sample, head included; of the head
PROJECTION = 2 * D * D
PAPER = {"fedgh": (5120, 5130), "fedmrl": (878_538, 878_538), "fedtgp": (5120, 5120), "fedtopo": (110, 200)}
OTHERS = {"fedproto": (5120, 5120), "lg-fedavg": (5130, 5130), "fedre": (522, 5130), "fd": (100, 100), "local": (0, 0)}


def pictures(held: list[list[int]], shape: tuple[int, int, int], each: int = 4) -> Dataset:
    """Return pictures of owners that hold these classes, `each` of every one."""
    rng = np.random.default_rng(3)
    labels = np.array([label for classes in held for label in classes for _ in range(each)])
    owners = np.array([owner for owner, classes in enumerate(held) for _ in range(each * len(classes))])
    x = rng.integers(0, 256, (len(labels), *shape), dtype=np.uint8)
    return from_arrays("made", (x, labels), columns={"owner": owners})


def study(methods: str, data: Dataset, *, rounds: int = 2, options: dict | None = None, **flags: object) -> CostStudy:
    usual = {"partition": "column:owner", "device": "cpu", "batch_size": B, "threads": 1, "min_samples": 1}
    plan = plan_comparison(ConfigFile(), usual | flags, options or {}, methods=methods.split(","))
    return measure_costs(plan.rows, rounds, dataset=data)


@pytest.fixture(scope="module")
def table3() -> CostStudy:
    """Return the costs on the first two members of the paper's pool, cnn and googlenet; both clients hold all classes."""
    data = pictures([list(range(C))] * 2, (3, 32, 32))
    return study(",".join([*PAPER, *OTHERS]), data, models="fedtopo8")


@pytest.fixture
def cost(table3):
    def find(name: str) -> MethodCost:
        return next(row for row in table3.methods if row.name == name)

    return find


@pytest.mark.parametrize(("method", "numbers"), (PAPER | OTHERS).items())
def test_the_real_messages_have_the_numbers_of_the_sheets(cost, method, numbers):
    sent = cost(method).sent
    assert (set(sent.up_scalars), set(sent.down_scalars)) == ({numbers[0]}, {numbers[1]})
    assert (set(sent.up_bytes), set(sent.down_bytes)) == ({4 * numbers[0]}, {4 * numbers[1]})


def test_the_setting_is_that_of_the_paper(table3):
    assert (table3.models, table3.classes, table3.feature_width, table3.batch_size) == ("fedtopo8", C, D, B)
    assert (table3.clients, table3.participants, table3.round) == (2, 2, 2)
    assert table3.local.forward.products == pytest.approx(B * (CNN + GOOGLENET))
    assert table3.local.inference.products == pytest.approx(B * (CNN + GOOGLENET))
    assert 1.8 < table3.local.backward.products / table3.local.forward.products < 2


def test_local_costs_nothing_beyond_itself(cost):
    assert cost("local").extra == Work()


def test_fedtopo_pays_five_operations_a_logit_and_its_prototypes(cost):
    extra = cost("fedtopo").extra
    assert (extra.forward.products, extra.backward.products) == (0, 0)
    assert extra.forward.elementwise == pytest.approx(B * C * 5)  # after the warm-up, which is cut
    relations_of_a_client = 2 * C * C * D / 30  # one product a round for 30 training samples
    assert extra.passes.products == pytest.approx(B * (CNN + GOOGLENET - 2 * HEAD + relations_of_a_client))
    assert extra.inference == Flops()
    assert extra.server.products == 0
    assert 0 < extra.server.elementwise < 50 * C * C


def test_fedgh_pays_the_same_pass_and_trains_a_head_on_the_server(cost):
    extra = cost("fedgh").extra
    assert (extra.forward, extra.backward, extra.inference) == (Flops(), Flops(), Flops())
    assert extra.passes.products == pytest.approx(B * (CNN + GOOGLENET - 2 * HEAD))
    assert extra.server.products == 2 * 2 * 20 * HEAD  # 20 prototypes, once: forward, and the gradient of the weights


def test_fedtgp_pays_three_operations_a_feature_and_leaves_out_the_head_in_inference(cost):
    extra = cost("fedtgp").extra
    assert extra.forward.elementwise == pytest.approx(B * D * 3)
    assert extra.inference.products == pytest.approx(-2 * B * HEAD)
    assert extra.inference.elementwise == pytest.approx(B * C * D * 3 + B * C)  # and the sign of each score
    assert extra.server.products > 0


def test_fedmrl_pays_its_auxiliary_model_and_the_projection(cost):
    extra = cost("fedmrl").extra
    # In training each model's head is applied once more, to the fused features.
    assert extra.forward.products == pytest.approx(2 * B * (CNN + PROJECTION + 2 * HEAD))
    assert extra.inference.products == pytest.approx(2 * B * (CNN - HEAD + PROJECTION))
    assert f"{extra.inference.total / 1e9:.2f}" == "4.30"  # as printed
    assert extra.server.products == 0


@pytest.mark.parametrize("method", ["fedproto", "fedre"])
def test_prototypes_cost_one_forward_pass_without_the_head(cost, method):
    assert cost(method).extra.passes.products >= B * (CNN + GOOGLENET - 2 * HEAD) * (1 - 1e-12)


SMALL = {"models": "small-cnn", "batch_size": 8, "lr": 0.01}


def test_teachers_cost_a_forward_pass_each_and_crad_sends_two_numbers_a_class_beside_its_model():
    data = pictures([list(range(4))] * 3, (1, 8, 8), each=6)
    found = study("uniform-kd,crad", data, rounds=1, protocol="global", **SMALL)
    uniform, crad = found.methods
    for row in (uniform, crad):
        assert row.extra.teachers.products == pytest.approx(2 * found.local.forward.products)
        assert (row.extra.forward.products, row.extra.backward.products) == (0, 0)
    model = uniform.sent.up_scalars[0] // 2
    assert uniform.sent.up_scalars == uniform.sent.down_scalars == (2 * model,) * 3
    assert crad.sent.up_scalars == crad.sent.down_scalars == (2 * (model + 2 * 4),) * 3
    assert crad.sent.up_bytes == (2 * 4 * (model + 2 * 4),) * 3
    assert crad.extra.passes.products > uniform.extra.passes.products == 0  # the validation of what it claims


def test_two_epochs_halve_what_a_pass_costs_a_batch():
    data = pictures([list(range(4))] * 2, (1, 8, 8))
    once, twice = (study("fedtopo", data, local_epochs=epochs, **SMALL) for epochs in (1, 2))
    assert (twice.local.forward.products, twice.local.backward) == (once.local.forward.products, once.local.backward)
    assert twice.methods[0].extra.passes.products == pytest.approx(once.methods[0].extra.passes.products / 2)
    assert twice.methods[0].extra.forward.elementwise == pytest.approx(once.methods[0].extra.forward.elementwise)


def test_a_variant_with_another_federation_is_held_against_local_there():
    data = pictures([list(range(4))] * 2, (1, 8, 8))
    file = ConfigFile(variants={"wide": {"method": "fedtopo", "models": {"pool": "small-mlp"}}})
    flags = {"partition": "column:owner", "device": "cpu", "min_samples": 1} | SMALL
    plan = plan_comparison(file, flags, {}, methods=["fedtopo", "wide"])
    found = measure_costs(plan.rows, 2, dataset=data)
    assert [row.extra.forward.products for row in found.methods] == [0, 0]
    assert "Some rows change the federation" in found.notes[0]


@pytest.fixture(scope="module")
def wires() -> dict[str, MethodCost]:
    data = pictures([[0, 1], list(range(5)), list(range(C))], (1, 8, 8))
    return {
        wire: study("fedtopo", data, options={"fedtopo": {"wire": wire}}, **SMALL).methods[0]
        for wire in ("dense", "sparse")
    }


def test_both_forms_of_the_wire_have_the_sizes_of_the_sheet(wires):
    # V12 at C = 10 for 2, 5 and 10 held classes.
    dense, sparse = wires["dense"].sent, wires["sparse"].sent
    assert (dense.up_scalars, dense.down_scalars) == ((110,) * 3, (200,) * 3)
    assert (sparse.up_scalars, sparse.down_scalars) == ((11, 20, 55), (2, 20, 90))
    assert sparse.up_bytes == (44, 80, 220)


def test_a_short_run_on_digits_gives_the_same_bits_with_both_forms_of_the_wire(tmp_path):
    records = [
        motley.run(
            "fedtopo",
            wire=wire,
            warmup_rounds=1,
            clients=4,
            data_limit=300,
            rounds=4,
            device="cpu",
            out=tmp_path / wire,
        )
        for wire in ("dense", "sparse")
    ]
    timeless = [[{**row, "seconds": None, "traffic": None} for row in record.rows] for record in records]
    assert timeless[0] == timeless[1]
    ends = [read_checkpoint(record.path / "checkpoints") for record in records]
    models = [{name: tensor for name, tensor in end.tensors.items() if name != "state/reported"} for end in ends if end]
    assert len(models) == 2
    assert models[0].keys() == models[1].keys()
    for name, tensor in models[0].items():
        assert torch.equal(torch.nan_to_num(tensor), torch.nan_to_num(models[1][name])), name


@pytest.mark.parametrize("wire", ["dense", "sparse"])
def test_fedtopos_server_holds_two_chunks_of_uploads_whatever_their_number(wire):
    classes = 40
    most = chunk_size(classes)
    number = 5 * most + 2
    living: weakref.WeakSet[Relations] = weakref.WeakSet()
    peaks = []

    def stream() -> Iterator[Upload[Relations]]:
        generator = torch.Generator().manual_seed(0)
        for client in range(number):
            counts = torch.randint(0, 3, (classes,), generator=generator)
            prototypes = torch.rand(classes, 3, dtype=torch.float64, generator=generator)
            prototypes[counts == 0] = torch.nan
            message = pack_relations(relations(prototypes, counts), counts, wire)
            living.add(message)
            peaks.append(len(living))
            yield Upload(client, message)

    method = FedTopo(FedTopoOptions(wire=wire))
    state = method.server_round(start_state(classes, 0), stream(), 1, Draws(0))
    assert len(peaks) == number
    assert max(peaks) <= 2 * most + 1  # the chunk that was added, and the one that is being read
    assert sum(tensor.numel() for tensor in state.tensors().values()) <= 6 * classes**2


def test_a_client_that_is_left_out_ends_the_study_with_a_remedy():
    data = pictures([list(range(4))] * 2, (1, 8, 8))
    with pytest.raises(RunFailed, match=r"left out of round 2 of local: .*; a smaller --lr may help"):
        study("local", data, **SMALL | {"lr": 1e30})
