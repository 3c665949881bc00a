"""FedTopo under relations from a file, and what its clients record of slots and changes."""

import pytest
import torch
from functional import fedtopo_numbers as sheet

import motley
from motley.errors import InvalidConfig
from motley.methods.fedtopo import FedTopo
from motley.methods.fedtopo_client import client_guidance
from motley.methods.fedtopo_given import given_relations
from motley.methods.fedtopo_options import FedTopoOptions
from motley.methods.fedtopo_wire import Topology
from motley.models.split import SplitModel

NAMES = ("cat", "dog", "a, b")
MATRIX = torch.tensor([[1.0, 0.7, 0.6], [0.7, 1.0, 1 / 3], [0.6, 1 / 3, 1.0]], dtype=torch.float64)
PLAIN = "1,0.7,0.6\n0.7,1,0.333333333333333314829616256247\n0.6,0.33333333333333331,1\n"


def written(tmp_path, text, **options):
    path = tmp_path / "given.csv"
    path.write_text(text, **{"encoding": "utf-8", "newline": ""} | options)
    return path


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f'cat,dog,"a, b"\n{PLAIN}',
        f'\ufeffcat , dog,"a, b"\r\n{PLAIN}\n\n'.replace("0.7", " 0.7 "),
    ],
)
def test_relations_are_read_exactly_with_and_without_names(tmp_path, text):
    assert torch.equal(given_relations(written(tmp_path, text), NAMES), MATRIX)


def test_classes_that_are_named_by_numbers_are_no_numbers(tmp_path):
    text = f"0,1,2\n{PLAIN}"
    assert torch.equal(given_relations(written(tmp_path, text), ("0", "1", "2")), MATRIX)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 lines of up to 0 values"),
        ("1,0.5\n0.5,1\n", "2 lines of up to 2 values, but the data have 3 classes; give 3 lines of 3 numbers"),
        (PLAIN.replace("0.6\n", "\n"), "a number"),
        (PLAIN.replace("0.6\n", "0.6,0.1\n"), "3 lines of up to 4 values"),
        (PLAIN.replace("0.7,0.6", "0.7,high"), "holds 'high' in row 0"),
        (PLAIN.replace("0.7,0.6", "0.7,nan"), "holds 'nan' in row 0"),
        (PLAIN.replace("0.7,0.6", "0.7,1.5"), "holds '1.5' in row 0 of its matrix; relations are numbers 0 to 1"),
        (PLAIN.replace("0.7,0.6", "0.7,-0.1"), "holds '-0.1'"),
        (PLAIN.replace("0.7,0.6", "0.8,0.6"), "not symmetric: 0.8 and 0.7 for the classes 'cat' and 'dog'"),
        (f"cat,bird,dog\n{PLAIN}", "names the class 'bird' where the data have 'dog'"),
        ('"1,0.7\n0.7,1\n', "0 to 1|CSV|lines"),
    ],
)
def test_a_file_that_holds_no_such_relations_is_refused_in_one_sentence(tmp_path, text, words):
    with pytest.raises(InvalidConfig, match=words if words != "a number" else "lines|holds ''") as caught:
        given_relations(written(tmp_path, text), NAMES)
    assert "fedtopo.relations: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InvalidConfig, match=r"No such file.*the start and the resume of the run need it"):
        given_relations(tmp_path / "none.csv", NAMES)
    with pytest.raises(InvalidConfig, match="cannot be read"):
        given_relations(tmp_path, NAMES)
    with pytest.raises(InvalidConfig, match="no CSV file in UTF-8"):
        given_relations(written(tmp_path, "1,ä", encoding="latin-1"), NAMES)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"relation_control": "given"}, "needs fedtopo.relations"),
        ({"relations": "some.csv"}, "means nothing for fedtopo.relation_control = none"),
        (
            {"relations": "some.csv", "relation_control": "given", "topology": "local"},
            "needs fedtopo.topology = global",
        ),
    ],
)
def test_options_that_would_not_be_looked_at_are_refused(options, words):
    with pytest.raises(InvalidConfig, match=words):
        FedTopoOptions(**options)


@pytest.mark.parametrize("wire", ["dense", "sparse"])
def test_given_relations_guide_and_the_rest_is_as_without_them(tiny, tmp_path, wire):
    names = ",".join(f"class-{one}" for one in range(4))
    rows = [[1.0 if a == b else 0.5 + 0.1 * abs(a - b) for b in range(4)] for a in range(4)]
    path = written(tmp_path, "\n".join([names, *(",".join(map(str, row)) for row in rows)]))
    plain = tiny.play("fedtopo", tmp_path / "plain", rounds=3, wire=wire, loss_weight=0.0)
    given = tiny.play(
        "fedtopo",
        tmp_path / "given",
        rounds=3,
        wire=wire,
        loss_weight=0.0,
        relation_control="given",
        relations=str(path),
    )
    before, after = tiny.weights(plain), tiny.weights(given)
    for name in ("relations", "reliability", "support", "times"):
        assert torch.equal(before[f"state/{name}"], after[f"state/{name}"])
    assert after["state/guide"].tolist() == rows
    client = [row for row in given.rows if row["kind"] == "client" and row["client"] == 0][-1]["method"]
    assert client["relations_change"] == 0.0
    assert client["guidance_max"] is not None


def test_a_resume_uses_the_values_of_the_start_and_says_when_the_file_is_gone(tiny, tmp_path):
    rows = [[1.0 if a == b else 0.75 for b in range(4)] for a in range(4)]
    path = written(tmp_path, "\n".join(",".join(map(str, row)) for row in rows))
    options = {"relation_control": "given", "relations": str(path), "warmup_rounds": 0}
    whole = tiny.play("fedtopo", tmp_path / "whole", rounds=4, **options)
    short = tiny.play("fedtopo", tmp_path / "short", rounds=2, **options)
    path.write_text(path.read_text(encoding="utf-8").replace("0.75", "0.6"), encoding="utf-8")
    data, models = tiny.dataset(), tiny.models_for("fedtopo")
    longer = motley.resume(short.path, rounds=4, data=data, models=models)
    tiny.assert_same_tensors(tiny.weights(longer), tiny.weights(whole))
    path.unlink()
    with pytest.raises(InvalidConfig, match="the start and the resume of the run need it"):
        motley.resume(short.path, rounds=6, data=data, models=models)
    path.write_text("anything\n", encoding="utf-8")
    with pytest.raises(InvalidConfig, match="but the data have 4 classes"):
        motley.resume(short.path, rounds=6, data=data, models=models)


def one_client(tiny, y):
    z = torch.rand(len(y), 1, 3)
    return tiny.client(z, y, SplitModel(torch.nn.Flatten(), torch.nn.Linear(3, 4)), num_classes=4)


def topology(relations, trust):
    return Topology(torch.tensor([relations, trust]).flatten())


def test_slots_of_absent_classes_are_counted(tiny):
    # V8, AB_NO_MASK: of client 1's two slots (q = 1) class 2, which it does not hold, takes that of row 1.
    client = one_client(tiny, [0, 0, 0, 0, 1, 1])
    received = topology(sheet.RG1, sheet.S_ALL)
    client_guidance(client, received, FedTopoOptions(negatives=1, local_mask=False))
    assert client.journal["guidance_absent"] == 0.5
    masked = one_client(tiny, [0, 0, 0, 0, 1, 1])
    client_guidance(masked, received, FedTopoOptions(negatives=1))
    assert masked.journal["guidance_absent"] == 0.0
    alone = one_client(tiny, [2, 2])
    client_guidance(alone, received, FedTopoOptions())
    assert alone.journal["guidance_absent"] is None
    assert alone.journal["relations_change"] is None


def test_the_changes_are_those_of_the_pairs_that_a_client_uses(tiny):
    # From V5's round 1 to round 2, client 1 (classes 0 and 1): the pair (0, 1) moves in R^g, and in B with S.
    client = one_client(tiny, [0, 0, 0, 0, 1, 1])
    client_guidance(client, topology(sheet.RG1, sheet.S_ALL), FedTopoOptions())
    assert (client.journal["relations_change"], client.journal["guidance_change"]) == (None, None)
    client_guidance(client, topology(sheet.RG2, sheet.S2_ALL), FedTopoOptions())
    moved = abs(sheet.RG2[0][1] - sheet.RG1[0][1])
    guidance = abs(sheet.RG2[0][1] * sheet.S2_ALL[0][1] - sheet.RG1[0][1] * sheet.S_ALL[0][1])
    assert client.journal["relations_change"] == pytest.approx(moved, abs=1e-7)
    assert client.journal["guidance_change"] == pytest.approx(guidance, abs=1e-7)
    client_guidance(client, topology(sheet.RG2, sheet.S2_ALL), FedTopoOptions())
    assert (client.journal["relations_change"], client.journal["guidance_change"]) == (0.0, 0.0)
    # Without the mask all pairs of a held class count: rows 0 and 1 against three others each.
    free = one_client(tiny, [0, 0, 0, 0, 1, 1])
    for relations, trust in ((sheet.RG1, sheet.S_ALL), (sheet.RG2, sheet.S2_ALL)):
        client_guidance(free, topology(relations, trust), FedTopoOptions(local_mask=False))
    assert free.journal["relations_change"] == pytest.approx(2 * moved / 6, abs=1e-7)


def test_changes_are_recorded_from_the_second_round_on_and_survive_a_resume(tiny, tmp_path):
    record = tiny.play("fedtopo", tmp_path / "whole", rounds=4)
    told = {(row["round"], row["client"]): row["method"] for row in record.rows if row["kind"] == "client"}
    assert told[1, 0]["relations_change"] is None
    assert told[2, 0]["relations_change"] > 0
    assert told[2, 0]["guidance_change"] > 0
    short = tiny.play("fedtopo", tmp_path / "short", rounds=2)
    longer = motley.resume(short.path, rounds=4, data=tiny.dataset(), models=tiny.models_for("fedtopo"))
    assert [row["method"] for row in longer.rows if row["kind"] == "client"] == [
        row["method"] for row in record.rows if row["kind"] == "client"
    ]


def test_the_method_reads_no_file_before_its_start(tmp_path):
    FedTopo(FedTopoOptions(relation_control="given", relations=str(tmp_path / "none.csv")))
