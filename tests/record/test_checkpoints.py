import json
import struct

import pytest
import torch

from motley.errors import InvalidRunFolder, MotleyWarning
from motley.record.checkpoints import Checkpoint, read_checkpoint, write_checkpoint

TENSORS = {
    "client/0/model/w": torch.arange(6.0).reshape(2, 3),
    "client/0/model/steps": torch.tensor(5),
    "client/0/memory/relations": torch.eye(2, dtype=torch.float64),
    "state/reported": torch.zeros(0, 3, dtype=torch.bool),
}


def checkpoint(round: int) -> Checkpoint:
    return Checkpoint(round, {**TENSORS, "state/round": torch.tensor(round)}, {"failures": {"3": 1}})


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "checkpoints"
    for round in (2, 4):
        write_checkpoint(path, checkpoint(round))
    return path


def test_b4_a_checkpoint_comes_back_with_dtypes_and_shapes(folder):
    found = read_checkpoint(folder)
    assert (found.round, found.notes) == (4, {"failures": {"3": 1}})
    assert found.tensors.keys() == checkpoint(4).tensors.keys()
    for name, tensor in TENSORS.items():
        assert (found.tensors[name].dtype, found.tensors[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found.tensors[name], tensor)


def test_tensors_that_share_memory_and_views_are_written(tmp_path):
    table = torch.arange(8.0).reshape(2, 4)
    write_checkpoint(tmp_path, Checkpoint(1, {"a": table, "b": table, "row": table[0], "turned": table.T}, {}))
    assert torch.equal(read_checkpoint(tmp_path).tensors["turned"], table.T)


def test_only_the_last_two_are_kept_and_nothing_is_left_aside(folder):
    write_checkpoint(folder, checkpoint(10))
    assert {path.name for path in folder.iterdir()} == {
        "round-000004.json",
        "round-000004.safetensors",
        "round-000010.json",
        "round-000010.safetensors",
    }
    assert read_checkpoint(folder).round == 10


def test_writing_the_same_round_again_replaces_it(folder):
    write_checkpoint(folder, Checkpoint(4, {"other": torch.ones(1)}, {}))
    assert set(read_checkpoint(folder).tensors) == {"other"}


def test_nothing_written_yet_is_no_checkpoint(tmp_path):
    assert read_checkpoint(tmp_path / "checkpoints") is None


def header_of_another_format(path) -> None:
    header = json.loads(path.with_suffix(".json").read_bytes()) | {"format": 99}
    path.with_suffix(".json").write_text(json.dumps(header))


def changed_byte(path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:60]),
    "NUL bytes": lambda path: path.write_bytes(bytes(len(path.read_bytes()))),
    "changed byte": changed_byte,
    "something behind it": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "a pickle": lambda path: path.write_bytes(b"cos\nmkdir\n(Vmotley-pickle-was-loaded\ntR."),
    "no tensors": lambda path: path.unlink(),
    "no header": lambda path: path.with_suffix(".json").unlink(),
    "empty header": lambda path: path.with_suffix(".json").write_bytes(b""),
    "cut header": lambda path: path.with_suffix(".json").write_bytes(b'{"format": 1, "rou'),
    "NUL header": lambda path: path.with_suffix(".json").write_bytes(bytes(50)),
    "header without a checksum": lambda path: path.with_suffix(".json").write_bytes(b"{}"),
    "header that is a list": lambda path: path.with_suffix(".json").write_bytes(b"[]"),
    "header that is a number": lambda path: path.with_suffix(".json").write_bytes(b"4"),
    "header of another format": header_of_another_format,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_f5_a_damaged_checkpoint_is_passed_over_with_a_warning_that_names_it(folder, name):
    DAMAGES[name](folder / "round-000004.safetensors")
    with pytest.warns(MotleyWarning) as told:
        found = read_checkpoint(folder)
    assert found.round == 2
    assert len(told) == 1
    assert "round-000004 was passed over: " in str(told[0].message)


@pytest.mark.parametrize("name", DAMAGES)
def test_f5_without_a_whole_checkpoint_there_is_an_error(folder, name):
    for round in (2, 4):
        DAMAGES[name](folder / f"round-{round:06d}.safetensors")
    with (
        pytest.warns(MotleyWarning),
        pytest.raises(InvalidRunFolder, match=r"no checkpoint in .* is whole: round-000004"),
    ):
        read_checkpoint(folder)


def test_f5_a_leftover_temporary_file_is_never_read(folder):
    (folder / "round-000006.safetensors.part").write_bytes(struct.pack("<Q", 2**40))
    (folder / "round-000006.json.part").write_bytes(b"{")
    assert read_checkpoint(folder).round == 4
    write_checkpoint(folder, checkpoint(6))
    assert read_checkpoint(folder).round == 6
    assert not list(folder.glob("*.part"))
