import json

import pytest

from motley.errors import InvalidRunFolder, MotleyWarning
from motley.record.rows import ClientRow, RoundRow, keep_rows, read_rows, to_line

ROWS = [RoundRow(number, [0, 1], metrics={"local_accuracy": 0.25 + number / 100}) for number in (1, 2, 3)]
WHOLE = "".join(map(to_line, ROWS)).encode()
CUT = to_line(RoundRow(4, [0])).encode()[:22]


def test_a_row_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "rounds.jsonl"
    client = ClientRow(2, 1, True, "the loss term 'ö' is not finite", scores={"test_local": {"loss": float("nan")}})
    path.write_bytes(to_line(client).encode() + to_line(ROWS[0]).encode())
    first, second = read_rows(path)
    assert first["kind"] == "client"
    assert first["missing"] == "the loss term 'ö' is not finite"
    assert first["scores"]["test_local"]["loss"] is None  # what is not finite is null
    assert second == {"kind": "round", **json.loads(json.dumps(ROWS[0].__dict__))}


@pytest.mark.parametrize(
    "tail",
    [CUT, bytes(40), bytes(41), CUT + bytes(7), CUT[:1], '{"a": "ü'.encode()[:-1], CUT + b"\n", bytes(3) + b"\n"],
    ids=repr,
)
def test_f5_what_a_power_cut_leaves_is_passed_over_with_a_warning_and_stays(tmp_path, tail):
    path = tmp_path / "rounds.jsonl"
    path.write_bytes(WHOLE + tail)
    with pytest.warns(MotleyWarning) as told:
        rows = read_rows(path)
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert len(told) == 1
    assert f"{path}, line 4 is incomplete" in str(told[0].message)
    assert path.read_bytes() == WHOLE + tail


def test_f5_a_last_line_that_lacks_only_its_end_is_whole(tmp_path):
    path = tmp_path / "rounds.jsonl"
    path.write_bytes(WHOLE[:-1])
    assert [row["round"] for row in read_rows(path)] == [1, 2, 3]


@pytest.mark.parametrize("damage", [CUT, bytes(10), b"oops"], ids=repr)
def test_f5_damage_in_the_middle_is_an_error_with_the_line(tmp_path, damage):
    path = tmp_path / "rounds.jsonl"
    first, *rest = WHOLE.splitlines(keepends=True)
    path.write_bytes(first + damage + b"\n" + b"".join(rest))
    with pytest.raises(InvalidRunFolder, match="line 2 is damaged in the middle of the file"):
        read_rows(path)


@pytest.mark.parametrize("line", [b"[1]", b"3", b"null", b'"text"'])
def test_a_line_that_is_no_row_is_an_error(tmp_path, line):
    path = tmp_path / "rounds.jsonl"
    path.write_bytes(WHOLE + line + b"\n")
    with pytest.raises(InvalidRunFolder, match="line 4 is no row of a run"):
        read_rows(path)


def test_nothing_written_yet_is_no_row(tmp_path):
    path = tmp_path / "rounds.jsonl"
    path.touch()
    assert read_rows(path) == []


def test_rows_after_a_round_are_dropped_before_they_are_made_again(tmp_path):
    path = tmp_path / "rounds.jsonl"
    path.write_bytes(WHOLE + CUT)
    with pytest.warns(MotleyWarning, match="line 4"):
        assert keep_rows(path, 2) == 2
    assert path.read_bytes() == "".join(map(to_line, ROWS[:2])).encode()
    assert keep_rows(path, -1) == 0
    assert path.read_bytes() == b""
