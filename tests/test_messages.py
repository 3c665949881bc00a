import io
import json
import struct
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import pytest
import torch
from functional import fedtopo_numbers as sheet
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor, nn

from motley.errors import InvalidMessage
from motley.messages import Message, entry, weights
from motley.methods.crad import Snapshot
from motley.methods.fedtopo_wire import (
    Relations,
    note_reported,
    pack_relations,
    pack_topology,
    start_state,
    unpack_topology,
)
from motley.models.registry import find_architecture
from motley.models.spec import InputSpec

C = 4


@dataclass(frozen=True)
class Mixed(Message):
    model: Mapping[str, Tensor] = weights("a model")
    table: Tensor = entry("C", 2, low=0, high=1)
    labels: Tensor = entry("C", dtype=torch.int64, counted=False)
    extra: Tensor = entry(..., masked=True)


def mixed(**changes: object) -> Mixed:
    values = {
        "model": {"b.weight": torch.ones(2, 3), "b.steps": torch.tensor(5), "a.bias": torch.zeros(2)},
        "table": torch.full((C, 2), 0.5),
        "labels": torch.arange(C),
        "extra": torch.tensor(float("nan")),
    }
    return Mixed(**(values | changes))


def relations(**changes: object) -> Relations:
    matrix = torch.full((C, C), 0.5)
    matrix.fill_diagonal_(1.0)
    counts = torch.tensor([5, 3, 0, 9], dtype=torch.int32)
    matrix[2, :] = matrix[:, 2] = float("nan")
    values = {"relations": matrix.flatten(), "counts": counts}
    return Relations(**(values | changes))


def with_entry(place: tuple[int, int], value: float, *, mirrored: bool) -> Tensor:
    matrix = relations().relations.clone().reshape(C, C)
    matrix[place] = value
    if mirrored:
        matrix[place[::-1]] = value
    return matrix.flatten()


def held(num_classes: int, num_held: int) -> tuple[Tensor, Tensor]:
    """Return relations and counts of a client that holds the first classes."""
    counts = torch.zeros(num_classes, dtype=torch.int64)
    counts[:num_held] = 3
    matrix = torch.full((num_classes, num_classes), float("nan"), dtype=torch.float64)
    matrix[:num_held, :num_held] = 0.75
    matrix[range(num_held), range(num_held)] = 1.0
    return matrix, counts


@pytest.mark.parametrize("sizes", sheet.SIZES.items(), ids=str)
def test_fedtopo_sends_the_numbers_of_the_sheet(sizes):
    (num_classes, num_held, _), (dense_up, dense_down, sparse_up, sparse_down, half_down, _) = sizes
    matrix, counts = held(num_classes, num_held)
    up = {wire: pack_relations(matrix, counts, wire) for wire in ("dense", "sparse")}
    assert (up["dense"].num_scalars, up["sparse"].num_scalars) == (dense_up, sparse_up)
    assert (up["dense"].num_bytes, up["sparse"].num_bytes) == (4 * dense_up, 4 * sparse_up)
    known = note_reported(start_state(num_classes, 2), [1], counts[None])
    assert pack_topology(known, 1, "dense").num_scalars == dense_down
    assert pack_topology(known, 1, "sparse").num_scalars == sparse_down
    assert pack_topology(known, 0, "sparse").num_scalars == half_down  # that client has not reported yet
    assert pack_topology(known, 1, "dense").num_bytes == 4 * dense_down


def test_fedtopo_counts_exactly_110_up_and_200_down_for_ten_classes():
    matrix, counts = held(10, 4)
    assert pack_relations(matrix, counts, "dense").num_scalars == 110
    assert pack_topology(start_state(10, 0), 0, "dense").num_scalars == 200


@pytest.mark.parametrize("num_held", [0, 1, 2, 4])
def test_what_the_sparse_wire_carries_is_what_the_dense_wire_carries(num_held):
    _, counts = held(C, num_held)
    state = note_reported(start_state(C, 1), [0], counts[None])
    drawn = torch.rand(C, C, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    drawn = (drawn + drawn.T) / 2
    state = type(state)(drawn, drawn / 2, drawn, state.times, drawn, state.reported)
    mask = (counts > 0).outer(counts > 0) & ~torch.eye(C, dtype=torch.bool)
    dense = unpack_topology(pack_topology(state, 0, "dense"), counts > 0)
    sparse = unpack_topology(pack_topology(state, 0, "sparse"), counts > 0)
    for one, other in zip(dense, sparse, strict=True):
        assert torch.equal(one[mask], other[mask])


@pytest.mark.parametrize(
    ("name", "expected"), [("resnet18-3x3", 44_734_248), ("resnet18-3x3-half", 11_209_640), ("cnn6", 3_270_952)]
)
def test_crad_snapshots_have_the_bytes_of_the_sheet_with_buffers_and_without_counters(name, expected):
    # CRAD sheet, section 3: bytes at float32 of the state dict; the 2C statistics come on top.
    model = find_architecture(name).build(InputSpec((3, 32, 32), 10))
    message = Snapshot(model.state_dict(), torch.zeros(10, dtype=torch.int32), torch.zeros(10))
    assert message.num_bytes == expected + 2 * 10 * 4
    counters = [tensor for tensor in model.state_dict().values() if not tensor.is_floating_point()]
    assert counters
    assert message.num_scalars == expected // 4 + 20


def test_b4_a_blob_keeps_names_order_dtypes_and_shapes():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    state = model.state_dict()
    sent = Snapshot(state, torch.tensor([2, 0], dtype=torch.int32), torch.tensor([0.5, 0.25]))
    received = Snapshot.from_bytes(sent.to_bytes())
    assert list(received.weights) == list(state)
    for name, tensor in state.items():
        assert (received.weights[name].dtype, received.weights[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(received.weights[name], tensor)
    assert received.weights["1.num_batches_tracked"].shape == ()
    assert received.weights["1.num_batches_tracked"].dtype == torch.int64
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    other.load_state_dict(dict(received.weights))
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(other.eval()(x), model.eval()(x))


@given(
    shape=st.lists(st.integers(0, 3), max_size=3),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.bfloat16]),
)
def test_b4_any_entry_survives_the_codec(shape, dtype):
    value = torch.zeros(shape).to(dtype)
    received = Mixed.from_bytes(mixed(model={"only": value}).to_bytes())
    assert received.model["only"].dtype == dtype
    assert received.model["only"].shape == tuple(shape)
    assert received.tensors().keys() == mixed(model={"only": value}).tensors().keys()


def test_views_transposed_and_shared_tensors_can_be_sent():
    table = torch.arange(8.0).reshape(2, 4)
    tied = torch.ones(3)
    sent = mixed(model={"first": tied, "second": tied, "view": table[0], "whole": table, "turned": table.T})
    received = Mixed.from_bytes(sent.to_bytes())
    for name, tensor in sent.model.items():
        assert torch.equal(received.model[name], tensor)


def test_only_counted_entries_and_no_counters_of_models_are_counted():
    assert mixed().num_scalars == 6 + 2 + 2 * C + 1
    assert mixed().num_bytes == 4 * mixed().num_scalars
    half = mixed(model={"w": torch.ones(6, dtype=torch.bfloat16)})
    assert half.num_bytes == 2 * 6 + 4 * (2 * C + 1)


def test_a_good_message_passes():
    mixed().check("client 3", C=C)
    relations().check("client 3", C=C)


@pytest.mark.parametrize(
    ("changes", "name", "fault"),
    [
        ({"table": torch.full((C, 2), float("nan"))}, "table", "is not finite at (0, 0)"),
        ({"table": torch.full((C, 2), float("inf"))}, "table", "is not finite"),
        ({"table": torch.full((C, 3), 0.5)}, "table", "has shape (4, 3), expected (4, 2)"),
        ({"table": torch.full((C + 1, 2), 0.5)}, "table", "has shape (5, 2), expected (4, 2)"),
        ({"table": torch.full((C,), 0.5)}, "table", "has shape (4,)"),
        ({"table": torch.full((C, 2), 0.5, dtype=torch.float64)}, "table", "has dtype float64, expected float32"),
        ({"table": torch.full((C, 2), 0.5, dtype=torch.complex64)}, "table", "has dtype complex64"),
        ({"table": torch.full((C, 2), -0.1)}, "table", "is below 0 at (0, 0)"),
        ({"table": torch.full((C, 2), 1.5)}, "table", "is above 1 at"),
        ({"labels": torch.arange(C, dtype=torch.int32)}, "labels", "has dtype int32, expected int64"),
        ({"extra": torch.tensor([float("-inf")])}, "extra", "is not finite"),
        ({"model": {"w": torch.tensor([1.0, float("nan")])}}, "model/w", "is not finite"),
    ],
)
def test_g7_a_refusal_names_the_sender_and_the_entry(changes, name, fault):
    with pytest.raises(InvalidMessage) as refused:
        mixed(**changes).check("client 3", C=C)
    assert str(refused.value).startswith(f"client 3 sent Mixed whose entry '{name}' {fault}")
    assert "\n" not in str(refused.value)


def test_g7_at_most_ten_places_are_named():
    with pytest.raises(InvalidMessage, match=r"\(4, 1\) and 2 more; the message was refused"):
        Mixed({}, torch.full((6, 2), 1.5), torch.arange(6), torch.zeros(())).check("client 1", C=6)
    flat = torch.full((12,), 1.5)
    with pytest.raises(InvalidMessage, match=r"\(9,\) and 2 more; the message was refused"):
        Relations(flat, torch.ones(C, dtype=torch.int32)).check("client 1", C=C)


@pytest.mark.parametrize(
    "changes",
    [
        {"relations": with_entry((0, 1), float("nan"), mirrored=True)},  # held, so a relation is missing
        {"relations": with_entry((1, 0), float("inf"), mirrored=False)},
        {"relations": with_entry((0, 1), 1.5, mirrored=True)},
        {"relations": with_entry((1, 3), -0.1, mirrored=True)},
        {"relations": with_entry((0, 1), 0.9, mirrored=False)},  # asymmetric
        {"relations": with_entry((0, 0), 0.9, mirrored=True)},  # a diagonal that is not 1
        {"relations": with_entry((0, 2), 0.5, mirrored=True)},  # of a class that is not held
        {"relations": torch.full((25,), 0.5)},
        {"relations": relations().relations.double()},
        {"relations": relations().relations.to(torch.complex64)},
        {"counts": torch.tensor([5, -3, 0, 9], dtype=torch.int32)},
        {"counts": torch.tensor([5, 2**62, 0, 9])},
        {"counts": torch.tensor([5, float("nan"), 0, 9])},
        {"counts": torch.tensor([5, 3, 0], dtype=torch.int32)},
    ],
)
def test_g7_fedtopo_refuses_what_no_client_can_have(changes):
    with pytest.raises(InvalidMessage, match="client 3 sent Relations"):
        relations(**changes).check("client 3", C=C)


def test_g7_crad_refuses_an_accuracy_above_one():
    counts = torch.tensor([3, 3], dtype=torch.int32)
    with pytest.raises(InvalidMessage, match=r"peer 1 sent Snapshot whose entry 'accuracies' is above 1 at \(1,\)"):
        Snapshot({}, counts, torch.tensor([0.5, 1.2])).check("peer 1", C=2)


PICKLE = b"cos\nmkdir\n(Vmotley-pickle-was-loaded\ntR."  # makes a folder when somebody loads it


def zipped_pickle() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in (("data.pkl", PICKLE), ("byteorder", b"little"), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), data)
    return buffer.getvalue()


def object_array() -> bytes:
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + PICKLE


def blob(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


GOOD = mixed().to_bytes()
ONE_FLOAT = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
DAMAGED = {
    "bare pickle": PICKLE,
    "checkpoint with a pickle": zipped_pickle(),
    "array of objects": object_array(),
    "nothing": b"",
    "seven bytes": b"1234567",
    "cut in the header": GOOD[:40],
    "cut in the data": GOOD[:-1],
    "something behind it": GOOD + b"\0",
    "NUL bytes": bytes(64),
    "forged length": struct.pack("<Q", 2**62) + GOOD[8:],
    "header is no object": blob([1, 2]),
    "offsets beyond the end": blob({"table": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}),
    "shape that does not fit": blob({"table": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)),
    "unknown dtype": blob({"table": {"dtype": "F3", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
    "dtype that torch lacks": blob({"table": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, bytes(1)),
    "order is no JSON": save({"table": torch.zeros(1)}, metadata={"order": "oops"}),
    "order without end": save({"table": torch.zeros(1)}, metadata={"order": "[" * 100_000}),
    "order is no list": save({"table": torch.zeros(1)}, metadata={"order": "5"}),
    "unknown entry": save({"oops": torch.zeros(1)}),
    "entry of a model without a key": save({"model": torch.zeros(1)}),
    "key of an entry that is no model": save({"table/x": torch.zeros(1)}),
    "missing entries": save({"model/w": torch.zeros(1)}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_g7_damaged_blobs_and_pickles_are_refused_and_nothing_is_unpickled(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidMessage, match="Mixed"):
        Mixed.from_bytes(DAMAGED[name])
    assert not list(tmp_path.iterdir())


@given(position=st.integers(0, len(GOOD) - 1), value=st.integers(0, 255))
def test_g7_a_changed_byte_gives_a_message_or_a_refusal(position, value):
    with suppress(InvalidMessage):
        Mixed.from_bytes(GOOD[:position] + bytes([value]) + GOOD[position + 1 :])
