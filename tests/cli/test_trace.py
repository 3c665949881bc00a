"""`motley trace`: one sample of a finished run of CRAD, named or found, and what it refuses."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from run_folders import rows_of, snapshot

from motley.cli.main import main
from motley.engine.runs import stored_config
from motley.engine.setup import build_federation
from motley.engine.trace import tracing
from motley.errors import InvalidInput, MotleyWarning
from motley.record.checkpoints import read_checkpoint
from motley.record.folder import RunFolder
from motley.training.inputs import Normalizer

TINY = [
    "--protocol",
    "global",
    "--clients",
    "4",
    "--data-limit",
    "700",
    "--rounds",
    "2",
    "--lr",
    "0.05",
    "--device",
    "cpu",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run for all tests."""
    path = tmp_path_factory.mktemp("trace") / "crad"
    assert main(["run", "crad", *TINY, "--out", str(path)]) == 0
    return path


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it, in the working directory."""
    shutil.copytree(finished, tmp_path / "crad")
    return tmp_path / "crad"


def told(said):
    assert (said.status, said.err) == (0, ""), said
    return json.loads(said.out)


def test_a_trace_shows_what_the_teachers_have_and_say(motley, run):
    found = told(motley("trace", "crad", "--client", "1", "--image", "2", "--json"))
    trace, label = found["trace"], found["trace"]["label"]
    assert (found["round"], found["client"], found["part"], found["image"]) == (2, 1, "test", 2)
    assert [one["teacher"] for one in trace["teachers"]] == [0, 2, 3]

    # n and a are those of the evaluation after the last round; q is what the models of the checkpoint say.
    rows = {row["client"]: row for row in rows_of(run) if row["kind"] == "client" and row["round"] == 2}
    checkpoint = read_checkpoint(run / "checkpoints")
    federation = build_federation(stored_config(RunFolder.open(run)))
    held = federation.clients[1].shard
    assert label == held.test.y[2]
    x = Normalizer.of(held.normalization, held.test.x)(held.test.x[2:3])
    said = []
    for one in trace["teachers"]:
        score, prefix = rows[one["teacher"]]["scores"]["validation"], f"client/{one['teacher']}/model/"
        count = score["count"][label]
        assert one["count"] == count
        assert one["accuracy"] == pytest.approx(score["correct"][label] / count if count else 0.5)
        model = federation.clients[one["teacher"]].model.eval()
        model.load_state_dict(
            {name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items() if prefix in name}
        )
        with torch.inference_mode():
            said.append(torch.softmax(model(x) / found["temperature"], dim=1)[0, label].item())
        assert (one["state"] == "no support") == (count < 2)
    assert [one["probability"] for one in trace["teachers"]] == pytest.approx(said, abs=1e-5)
    assert trace["uniform"] == pytest.approx(sum(said) / 3, abs=1e-5)


def test_a_trace_leaves_a_figure_and_nothing_else(motley, run):
    before = snapshot(run)
    said = motley("trace", "crad", "--client", "0", "--image", "0")
    assert (said.status, said.err) == (0, "")
    after = snapshot(run)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"trace-client-0-image-0.svg"}
    drawing = (run / "trace-client-0-image-0.svg").read_text(encoding="utf-8")
    assert "client 0, test image 0" in drawing
    assert "target" in drawing
    for word in (
        "client 0, test image 0",
        "acceptance band",
        "consensus before",
        "target after",
        "crad/trace-client-0",
    ):
        assert word in said.out
    assert motley("trace", "crad", "--client", "0", "--image", "0", "--part", "train").status == 0
    assert (run / "trace-client-0-train-image-0.svg").exists()


def test_a_figure_is_written_where_it_is_wanted_and_over_another_one_only_if_told(motley, run):
    words = ("trace", "crad", "--client", "0", "--image", "1", "--out", "case.png")
    assert motley(*words).status == 0
    Path("case.png").write_bytes(b"mine")
    motley(*words).error("case.png exists", "--replace")
    assert Path("case.png").read_bytes() == b"mine"
    assert motley(*words, "--replace").status == 0
    assert Path("case.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("case", ["success", "failure"])
def test_the_largest_gain_and_the_largest_loss_are_found(motley, run, case):
    found = told(motley("trace", "crad", "--find", case, "--json"))
    sign = 1 if case == "success" else -1
    with tracing(Path("crad")) as tracer:  # one sample after the other
        clients = build_federation(stored_config(RunFolder.open(run))).clients
        gains = {
            client.id: [sign * tracer.trace(client.id, image).trace.gain for image in range(len(client.shard.test))]
            for client in clients
        }
        for client, own in gains.items():
            if max(own) > 1e-5:
                assert own[tracer.find(case, client)[1]] == pytest.approx(max(own), abs=1e-6)
            else:
                with pytest.raises(InvalidInput, match=f"client {client} of crad"):
                    tracer.find(case, client)
    best = max(max(own) for own in gains.values())
    assert best > 1e-4
    assert sign * found["trace"]["gain"] == pytest.approx(best, abs=1e-6)
    assert gains[found["client"]][found["image"]] == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("--client 4 --image 0", ("--client is 4", "clients 0 to 3")),
        ("--client=-1 --image 0", ("--client is -1",)),
        ("--client 0 --image 9999", ("--image is 9999", "test part of client 0")),
        ("--client 0 --image=-1", ("--image is -1",)),
        ("--client 0 --image 0 --part tests", ("--part is 'tests'", "test, validation, train")),
        ("--client 0", ("--client K --image I",)),
        ("--find sucess", ("--find is 'sucess'", "success, failure")),
        ("--find success --image 3", ("--image",)),
        ("--find success --client 7", ("--client is 7",)),
        ("--client x --image 0", ("--client is 'x'", "whole number")),
        ("--client 0 --image 0 --out case.gif", ("case.gif", ".svg")),
        ("--client 0 --image 0 --out no/where.svg", ("there is no folder no",)),
        ("--client 0 --image 0 --out crad", ("'crad'", ".svg")),
        ("--client 0 --image 0 --class 10", ("--class is '10'", "crad has the classes 0, 1, 2", "number from 0 to 9")),
        ("--client 0 --image 0 --class=-1", ("--class is '-1'", "number from 0 to 9")),
        ("--client 0 --image 0 --class seven", ("--class is 'seven'", "crad has the classes")),
        ("--find success --class cat", ("--class is 'cat'",)),
        ("--client 0 --image 0 --class=", ("--class is ''",)),
    ],
)
def test_mistakes_are_refused_in_one_sentence(refuses, run, words, answer):
    refuses(f"trace crad {words}", *answer)


def test_a_folder_that_cannot_be_traced_is_refused(motley, refuses, run):
    refuses("trace nowhere --find success", "nowhere is no run folder")
    short = ("--clients", "3", "--data-limit", "300", "--rounds", "1", "--device", "cpu")
    assert motley("run", "local", *short, "--out", "alone").status == 0
    refuses("trace alone --find success", "alone is a run of local", "crad")
    assert motley("run", "crad", *short, "--checkpoint-every", "0", "--out", "bare").status == 0
    refuses("trace bare --client 0 --image 0", "no checkpoint", "--checkpoint-every 0")


@pytest.mark.parametrize(
    "options",
    [
        "--agreement-filter none",
        "--agreement-filter tempered",
        "--audit",
        "--weighting cross-entropy --snapshot int8",
        "--count-epsilon 1",
    ],
)
def test_the_shares_of_every_variant_give_what_the_target_was_made_of(motley, options):
    assert motley("run", "crad", *TINY, *options.split(), "--out", "other").status == 0
    with tracing(Path("other")) as tracer:
        for client, image in ((0, 0), (1, 3), (2, 5), (3, 1)):
            trace = tracer.trace(client, image).trace
            if any(one.share for one in trace.teachers):
                made = sum(one.share * one.probability for one in trace.teachers)
                assert made == pytest.approx(trace.raw, abs=1e-5)
                assert sum(one.share for one in trace.teachers) == pytest.approx(1)
            else:
                assert trace.raw == pytest.approx(trace.uniform, abs=1e-5)
            assert (trace.band is None) == (trace.consensus is None or "none" in options)


def test_a_run_is_not_traced_on_other_data(refuses, run):
    with np.load(run / "partition.npz") as stored:
        arrays = dict(stored)
    arrays["indices"] = arrays["indices"][::-1].copy()
    np.savez_compressed(run / "partition.npz", **arrays)
    refuses(
        "trace crad --client 0 --image 0", "partition.npz does not fit the data as they are now", "trace the run with"
    )
    (run / "partition.npz").unlink()
    refuses("trace crad --client 0 --image 0", "partition.npz is damaged")


def test_teachers_of_a_trace_are_those_of_the_run_s_graph(motley):
    assert motley("run", "crad", *TINY, "--graph", "ring", "--out", "ring").status == 0
    with tracing(Path("ring")) as tracer:
        for client in range(4):
            trace = tracer.trace(client, 0).trace
            assert [one.teacher for one in trace.teachers] == sorted({(client - 1) % 4, (client + 1) % 4})


def test_a_teacher_whose_answers_are_not_finite_is_left_out_as_in_a_round(run):
    with tracing(run) as tracer:
        everybody = [one.teacher for one in tracer.trace(0, 0).trace.teachers]
        broken = tracer._next.fresh[2]
        huge = {
            name: tensor * 1e30 if tensor.is_floating_point() else tensor for name, tensor in broken.weights.items()
        }
        tracer._next.fresh[2] = dataclasses.replace(broken, weights=huge)
        with pytest.warns(MotleyWarning, match=r"2.*not finite.*left out of the trace"):
            left = [one.teacher for one in tracer.trace(0, 0).trace.teachers]
    assert (everybody, left) == ([1, 2, 3], [1, 3])


# Drawn with seed 0 and two of four clients: 0 and 1 in round 1, 0 and 2 in rounds 2 and 3; 3 has sent nothing.
@pytest.mark.parametrize(("peers", "taught"), [("stale", {0: [1, 2], 2: [0, 1]}), ("active", {0: [2], 2: [0]})])
def test_a_trace_is_of_what_the_next_round_starts_with(motley, peers, taught):
    words = ("--participation", "2", "--seed", "0", "--peers", peers, "--checkpoint-every", "1")
    assert motley("run", "crad", *TINY, *words, "--out", "some").status == 0
    with tracing(Path("some")) as tracer:
        held = {client: len(tracer._clients[client].shard.train) for client in taught}
        found = {
            client: [tracer.trace(client, image, "train") for image in range(number)] for client, number in held.items()
        }
    assert motley("resume", "some", "--rounds", "3").status == 0
    rows = {row["client"]: row for row in rows_of(Path("some")) if row["kind"] == "client" and row["round"] == 3}
    for client, teachers in taught.items():
        told = rows[client]["method"]["teachers"]
        traces = [one.trace for one in found[client]]
        assert [one.teacher for one in traces[0].teachers] == told["peers"] == teachers
        claimed = [[trace.teachers[j].count for trace in found[client][0].classes] for j in range(len(teachers))]
        assert claimed == told["support"]
        assert np.mean([trace.mass for trace in traces]) == pytest.approx(told["mass_mean"], abs=1e-5)
        assert {one.notes for one in found[client]} == {()}


@pytest.mark.parametrize(("peers", "teachers"), [("stale", [0, 1, 2]), ("active", [0, 2])])
def test_a_student_that_does_not_take_part_is_traced_as_if_it_did_and_that_is_said(motley, peers, teachers):
    words = ("--participation", "2", "--seed", "0", "--peers", peers)
    assert motley("run", "crad", *TINY, *words, "--out", "some").status == 0
    found = told(motley("trace", "some", "--client", "3", "--image", "0", "--json"))
    assert [one["teacher"] for one in found["trace"]["teachers"]] == teachers
    assert found["notes"] == ["client 3 does not take part in round 3: training would not use this target"]


def test_who_has_nothing_valid_to_send_stands_there_with_its_last_snapshot_if_peers_are_stale(motley):
    faults = ("--bad-peers", "1", "--bad-kind", "failing")  # in round 3, which would follow
    for peers in ("active", "stale"):
        assert motley("run", "crad", *TINY, *faults, "--peers", peers, "--out", peers).status == 0
    (bad,) = json.loads((Path("stale") / "summary.json").read_text(encoding="utf-8"))["faults"]["clients"]
    student = (bad + 1) % 4
    with tracing(Path("active")) as tracer, pytest.warns(MotleyWarning, match=f"client {bad} teaches nobody"):
        assert bad not in [one.teacher for one in tracer.trace(student, 0).trace.teachers]
    with tracing(Path("stale")) as tracer, pytest.warns(MotleyWarning, match=f"client {bad} teaches with its last"):
        assert bad in [one.teacher for one in tracer.trace(student, 0).trace.teachers]


# Drawn with seed 5 and one of four clients: 1 in round 1, 0 in round 2, 3 in round 3.
def test_a_student_without_teachers_is_refused_and_passed_over_in_a_search(motley, refuses):
    words = ("--participation", "1", "--seed", "5", "--checkpoint-every", "1")
    assert motley("run", "crad", *TINY, *words, "--out", "one").status == 0
    refuses("trace one --client 3 --image 0", "client 3 of one has no teachers in round 3", "--client")
    refuses("trace one --find success --client 3", "client 3 of one has no teachers in round 3")
    assert motley("trace", "one", "--client", "0", "--image", "0", "--out", "a.svg").status == 0
    with tracing(Path("one")) as tracer, pytest.raises(InvalidInput, match="gains target probability"):
        tracer.find("success")  # a single teacher is the mean of all


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ("--warmup-rounds 3", "round 3 is in the warm-up (warmup_rounds is 3): training would not use this target"),
        ("--loss-weight 0", "loss_weight is 0: training would not use this target"),
        ("--warmup-rounds 2", None),
    ],
)
def test_a_target_that_training_would_not_use_is_shown_and_that_is_said(motley, options, note):
    assert motley("run", "crad", *TINY, *options.split(), "--out", "other").status == 0
    said = motley("trace", "other", "--client", "0", "--image", "0")
    assert (said.status, said.err) == (0, "")
    assert [line for line in said.out.splitlines() if "training would not" in line] == ([note] if note else [])
    assert told(motley("trace", "other", "--client", "0", "--image", "1", "--json"))["notes"] == (
        [note] if note else []
    )


def test_another_class_of_a_sample_is_shown_by_its_name_or_number(motley, run):
    usual = told(motley("trace", "crad", "--client", "1", "--image", "2", "--json"))
    label = usual["label"]
    assert usual["class_name"] == usual["shown"] == str(label)
    assert [one["label"] for one in usual["classes"]] == list(range(10))
    assert usual["classes"][label] == usual["trace"]
    assert sum(one["target"] for one in usual["classes"]) == pytest.approx(1)
    assert sum(one["raw"] for one in usual["classes"]) == pytest.approx(usual["trace"]["mass"], abs=1e-5)
    other = (label + 1) % 10
    found = told(motley("trace", "crad", "--client", "1", "--image", "2", "--class", other, "--json"))
    assert found["trace"] == usual["classes"][other]
    assert (found["label"], found["class_name"], found["shown"]) == (label, str(label), str(other))
    assert found["figure"].endswith(f"trace-client-1-image-2-class-{other}.svg")
    drawing = Path(found["figure"]).read_text(encoding="utf-8")
    assert f"probability of class {other}" in drawing
    assert "the true class" not in drawing
    assert "the true class" in Path(usual["figure"]).read_text(encoding="utf-8")
    shown = motley("trace", "crad", "--client", "1", "--image", "2", "--class", other, "--replace").out
    assert f"\nprobability of class {other} " in shown
    # The true class by its number is no other class.
    same = motley("trace", "crad", "--client", "1", "--image", "2", "--class", label, "--replace")
    assert "trace-client-1-image-2.svg" in same.out
    assert "probability of class" not in same.out


def test_a_search_is_for_the_true_class_whatever_class_is_shown(motley, run):
    usual = told(motley("trace", "crad", "--find", "success", "--json"))
    found = told(motley("trace", "crad", "--find", "success", "--class", "0", "--json", "--out", "case.svg"))
    assert [found[name] for name in ("client", "image", "classes")] == [
        usual[name] for name in ("client", "image", "classes")
    ]
    assert found["trace"]["label"] == 0


def test_a_name_of_a_class_goes_before_its_number(motley, refuses):
    words = ("--keep-classes", "3,1,7")
    assert motley("run", "crad", *TINY, *words, "--out", "three").status == 0
    with tracing(Path("three")) as tracer:
        assert [tracer.class_number(word) for word in ("3", "1", "7", "0", "2")] == [0, 1, 2, 0, 2]
    refuses("trace three --client 0 --image 0 --class 4", "three has the classes 3, 1, 7; give a name or a number")
