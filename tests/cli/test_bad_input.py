"""Mistakes of the user: one sentence with the thing, the place and the remedy, status 2, and no file touched."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from case_inputs import (
    class_sets,
    column,
    damaged_pictures,
    medical_arrays,
    noisy,
    picture_table,
    put,
    save_arrays,
    tiny_imagenet,
)
from run_folders import rounds_of, summary_of

WORDS = [  # the command, and words of the answer
    ("runn fedtopo", "there is no command 'runn'", "'run'"),
    ("--verson", "'--verson'", "'--version'"),
    ("run", "no method was named", "motley list methods"),
    ("run fedtpo", "'fedtpo' is not a known method", "'fedtopo'"),
    ("run fedtpo --rounds 3", "'fedtpo' is not a known method", "'fedtopo'"),
    ("run --rounds 3 fedtpo", "'fedtpo' is not a known method", "'fedtopo'"),
    ("run --rounds 3 fedtopo", "before the options", "motley run fedtopo"),
    ("run fedtopo crad", "'crad'", "motley run fedtopo --help"),
    ("compare --methods local,fedtpo", "'fedtpo' is not a known method", "'fedtopo'"),
    ("compare", "--methods local,fedtopo"),
    ("compare --methods local,LOCAL", "local is given twice"),
    ("compare --methods local --seeds 0,0", "seed 0 is given twice"),
    ("compare --methods local --seeds 0,x", "--seeds is '0,x'", "'x' is no whole number"),
    ("compare --methods local --seeds 0,1.5", "'1.5' is no whole number"),
    ("compare --methods local --seeds=-1", "0 or larger"),
    ("compare --methods local,fedtopo --reference crad", "'crad' is not one of the methods", "local, fedtopo"),
    ("compare --methods local --seed 2", "--seed;", "--seeds"),
    ("compare --methods local,fedtopo --set fedtopo.strenght=2", "'fedtopo.strenght'", "'strength'"),
    ("compare --methods local,fedtopo --set fedtopo.strength=big", "fedtopo.strength is 'big'", "a number"),
    ("compare --methods local,fedtopo --set strength=2", "METHOD.OPTION=VALUE"),
    ("compare --methods local,fedtopo --set fedtopo.strength", "METHOD.OPTION=VALUE"),
    ("compare --methods local,fedtopo --set crad.temperature=2", "crad, which the comparison does not run"),
    ("compare --methods local,fedtopo --strength 2", "--set fedtopo.strength=VALUE"),
    ("list foo", "'foo'", "methods, models, sources, partitions"),
    ("list methods extra", "'extra'", "motley list --help"),
    ("data", "needs SOURCE", "digits"),
    ("data digits --image-sizes 3", "--image-sizes", "--image-size?"),
    ("data digits --lr 3", "motley data has no option --lr"),
    ("resume", "needs PATH"),
    ("resume nowhere", "nowhere is no run folder"),
    ("report nowhere", "nowhere is no run folder"),
    ("resume nowhere --rounds 5.5", "--rounds is '5.5'", "whole number"),
    # F1: options that do not exist, shortened ones, and values for switches
    ("run fedtopo --round 3", "--round;", "did you mean --rounds?"),
    ("run fedtopo --round=3", "--round;", "did you mean --rounds?"),
    ("run fedtopo --rouns 3", "--rouns;", "did you mean --rounds?"),
    ("run fedtopo --comm-round 3", "here it is --rounds"),
    ("run fedtopo --learning-rate 0.1", "here it is --lr"),
    ("run fedtopo --num-clients 3", "here it is --clients"),
    ("run --strength 2", "motley run fedtopo --strength"),
    ("run crad --strength 2", "motley run crad has no option --strength", "one of fedtopo"),
    ("run fedtopo --balance False", "--balance takes no value, but it got 'False'", "--no-balance"),
    ("run fedtopo --balance=maybe", "--balance takes no value, but it got 'maybe'"),
    ("run fedtopo --no-retain True", "--no-retain takes no value"),
    ("run fedtopo --json yes", "--json takes no value, but it got 'yes'"),
    ("run fedtopo --rounds", "--rounds needs a value"),
    ("run fedtopo --out", "--out needs a value"),
    ("run fedtopo --rounds 3 --rounds 4", "--rounds is given twice"),
    # values of another type or out of range
    ("run fedtopo --rounds three", "run.rounds is 'three'", "a whole number", "--rounds"),
    ("run fedtopo --rounds 3.5", "run.rounds is '3.5'", "a whole number"),
    ("run fedtopo --rounds true", "run.rounds is 'true'", "a whole number"),
    ("run fedtopo --rounds=", "run.rounds is ''", "a whole number"),
    ("run fedtopo --rounds 0", "run.rounds is 0", "1 or larger"),
    ("run fedtopo --clients 0", "partition.clients is 0", "1 or larger", "--clients"),
    ("run fedtopo --seed -1", "run.seed is -1", "0 or larger"),
    ("run fedtopo --lr -1", "train.lr is -1.0", "above 0", "--lr"),
    ("run fedtopo --lr nan", "train.lr is nan", "finite"),
    ("run fedtopo --lr inf", "train.lr is inf", "finite"),
    ("run fedtopo --lr 0,05", "train.lr is '0,05'", "a number"),
    ("run fedtopo --smoothing 1", "fedtopo.smoothing is 1.0", "below 1"),
    ("run fedtopo --negatives 0", "fedtopo.negatives is 0", "1 or larger"),  # C6
    ("run fedtopo --negatives most", "fedtopo.negatives is 'most'", "'all'"),
    ("compare --methods fedtopo --set fedtopo.negatives=0", "fedtopo.negatives is 0", "1 or larger"),
    ("run fedtopo --optimizer sgdd", "train.optimizer is 'sgdd'", "did you mean 'sgd'?"),
    ("run fedtopo --lr -1 --rounds 0 --strength x", "train.lr is", "run.rounds is", "fedtopo.strength is"),
    # D6
    ("run fedtopo --participation 0", "run.participation is 0", "above 0"),
    ("run fedtopo --participation 0.0", "run.participation is 0.0", "above 0"),
    ("run fedtopo --participation=-0.5", "run.participation is -0.5", "above 0"),
    ("run fedtopo --participation 1.5", "run.participation is 1.5", "up to 1.0", "a whole number of clients"),
    ("run fedtopo --participation 5 --clients 4", "run.participation is 5 clients, but there are 4"),
    ("run fedtopo --participation all", "run.participation is 'all'", "a number"),
    ("run crad --exchange server", "crad has no server", "'peers'"),
    ("run uniform-kd --graph star", "run.graph is 'star'", "complete, ring or random:K"),
    ("run uniform-kd --graph random:0", "run.graph is 'random:0'", "K >= 1"),
    ("run fedtopo --graph ring", "run.graph is 'ring'", "fedtopo has a server", "leave --graph out"),
    ("run uniform-kd --graph ring --peers stale", "run.peers is 'stale'", "run.graph = 'ring'", "take one of the two"),
    ("run uniform-kd --peers all", "run.peers is 'all'", "one of 'active'"),
    ("run dfml --alpha-min 0.9 --alpha-max 0.5", "dfml.alpha_min is 0.9", "exchange the two"),
    ("run dfml --period 1", "dfml.period is 1", "2 or larger"),
    ("run fedgd --graph ring", "run.graph is 'ring'", "fedgd needs all peers to hear the same", "leave --graph out"),
    ("run crad --audit --agreement-filter none", "crad.audit", "drops nobody", "leave one of the two out"),
    ("run crad --rho 0.5", "crad.rho is 0.5", "crad.agreement_filter = median does not use", "take tempered"),
    ("run fedmd --temperature 9", "fedmd.temperature is 9", "fedmd.digest_loss = mae does not use", "take kl"),
    ("run msfkd --selector all --quantile 0.5", "msfkd.quantile is 0.5", "msfkd.selector = all does not use"),
    ("run msfkd --kulsif-penalty 0.5", "msfkd.kulsif_penalty is 0.5", "msfkd.selector = entropy does not use"),
    ("run crad --exchange replicated", "crad has no server", "'peers'"),
    ("run fedtopo --exchange peers", "fedtopo has a server", "'replicated'"),
    # B2 and names of models
    ("run fedtopo --models restnet18", "'restnet18' is not a known model", "'resnet18'"),
    ("run fedtopo --models small-cnn,small-cn", "'small-cn' is not a known model", "'small-cnn'"),
    ("run fedtopo --models nowhere:make", "'nowhere'", "cannot be imported"),
    ("run fedtopo --models json:nothing", "'json' has no function 'nothing'"),
    ("run fedtopo --models json:", "package.module:function"),
    # A1, A11 and other partitions
    ("run fedtopo --clients 1000 --min-samples 40", "40000", "1797", "at most 44 clients"),
    ("run fedtopo --clients 100 --min-samples 17", "smallest client", "17", "raise alpha", "fewer clients"),
    ("run fedtopo --clients 2000 --partition iid", "2000", "1797"),
    ("run fedtopo --partition pathological:11", "11", "10"),
    ("run fedtopo --partition pathological:1 --clients 4", "4 clients with 1 classes each", "10"),
    ("run fedtopo --partition dirichlet", "dirichlet:ALPHA"),
    ("run fedtopo --partition dirichlt:0.1", "'dirichlt:0.1'", "'dirichlet:ALPHA'"),
    ("partition dirichlet:-1", "'dirichlet:-1'", "above 0"),
    ("partition column:subject", "subject"),
    ("run fedtopo --data digit", "'digit'", "'digits'"),
    ("run fedtopo --data folder:nowhere", "nowhere does not exist"),
    ("data npz:nowhere.npz", "nowhere.npz does not exist"),
    ("data parquet:nowhere", "nowhere does not exist"),
    ("run fedtopo --config nowhere.toml", "nowhere.toml cannot be read"),
    ("partition iid --config .", "cannot be read"),
    # F4
    ("run fedtopo --device cuda:77", "'cuda:77'", "it has cpu"),
    ("run fedtopo --device gpu", "'gpu'", "it has cpu"),
    ("run fedtopo --device CPU", "'CPU'", "it has cpu"),
]


@pytest.mark.parametrize(("command", "words"), [(command, words) for command, *words in WORDS], ids=str)
def test_a_mistake_is_answered_in_one_sentence(command, words, refuses):
    refuses(command, *words)


def test_mps_is_refused_where_there_is_none(refuses, monkeypatch):
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    refuses("run local --device mps", "'mps'", "it has cpu")


def test_a_mistake_looks_the_same_from_a_process_of_its_own(process, tmp_path):
    process("run", "fedtopo", "--round", "3").error("did you mean --rounds?")
    assert not list(tmp_path.iterdir())


def test_no_message_speaks_of_its_tools(motley):
    for command, *_ in WORDS[:60]:
        said = motley(*command.split()).err
        for word in ("pydantic", "cyclopts", "Token", "Optional", "None", "Traceback", "errno"):
            assert word not in said, said


# A5, A7 to A10: data sources


def labels(path: Path, kind: str) -> Path:
    rows = column(0, 1, 2, 0, 1, 2)
    own = {
        "multi-label": {"train": np.eye(6, 14, dtype=np.uint8), "test": np.eye(3, 14, dtype=np.uint8)},
        "unlabelled": {"train": rows, "test": column(-1, -1, -1, kind=np.int64)},
        "differs": {"train": rows, "test": column(2, 1, 0)},
    }[kind]
    made = medical_arrays(path / f"{kind}.npz", **own)
    if kind == "differs":
        with np.load(made) as arrays:
            loaded = dict(arrays)
        save_arrays(made, loaded | {"train_labels": loaded["train_labels"][:5]})
    return made


SOURCES = {
    "multi-label": (lambda path: f"npz:{labels(path, 'multi-label')}", "multi-label", "14"),
    "unlabelled": (lambda path: f"npz:{labels(path, 'unlabelled')}", "test", "3 of 3 rows are -1"),
    "counts differ": (lambda path: f"npz:{labels(path, 'differs')}", "6 ", "5 "),
    "other columns": (lambda path: f"parquet:{picture_table(path / 'a.parquet', 'other-names')}", "img", "fine_label"),
    "path only": (lambda path: f"parquet:{picture_table(path / 'a.parquet', 'path-only')}", "row 0", "missing/0.png"),
    "null label": (lambda path: f"parquet:{picture_table(path / 'a.parquet', 'null-label')}", "row 2"),
    "damaged": (
        lambda path: f"folder:{damaged_pictures(path)}",
        "cut.png",
        "empty.png",
        "table.png",
        "skip_damaged",
    ),
    "class sets": (lambda path: f"folder:{class_sets(path)}", "zebra", "skip_unknown_classes"),
    "no pictures": (lambda path: f"folder:{put(path / 'empty' / 'notes.txt', 'nothing').parent}", "empty"),
    "no npz": (lambda path: f"npz:{put(path / 'text.npz', 'no array')}", "text.npz"),
    "no parquet": (lambda path: f"parquet:{put(path / 'text.parquet', 'no table')}", "text.parquet"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_that_cannot_be_used_is_refused_before_anything_is_written(name, refuses, tmp_path):
    make, *words = SOURCES[name]
    source = make(tmp_path)
    for command in (
        ["data", source],
        ["partition", "iid", "--data", source, "--clients", "2"],
        ["run", "local", "--data", source, "--out", tmp_path / "out"],
        ["compare", "--methods", "local,fedtopo", "--data", source, "--out", tmp_path / "out"],
    ):
        refuses(command, *words)


def test_the_options_that_the_messages_name_help(motley, tmp_path):
    said = motley("data", f"folder:{damaged_pictures(tmp_path)}", "--skip-damaged")
    assert said.status == 0
    assert all(name in said.out for name in ("cut.png", "empty.png", "table.png"))
    said = motley("data", f"folder:{class_sets(tmp_path)}", "--skip-unknown-classes", "--json")
    assert (said.status, '"test": [\n   2,\n   0,\n   2\n  ]' in said.out) == (0, True)
    said = motley("data", f"parquet:{picture_table(tmp_path / 'a.parquet', 'other-names')}", "--image-column", "img",
                  "--label-column", "fine_label")  # fmt: skip
    assert said.status == 0, said
    said = motley("data", f"folder:{tiny_imagenet(tmp_path)}")
    assert (said.status, "red thing" in said.out) == (0, True)


def test_labels_from_one_are_told_on_standard_error(motley, tmp_path):
    source = medical_arrays(tmp_path / "one.npz", train=column(1, 2, 3, 1, 2, 3), test=column(3, 2, 1))
    said = motley("data", f"npz:{source}")
    assert (said.status, said.err.startswith("warning: ")) == (0, True)
    assert said.err.count("\n") == 1
    assert "0" in said.err


def test_class_names_with_brackets_and_colons_are_shown_as_they_are(motley, tmp_path):
    for name in ("[bold]", "[-x]", "a :smile: b"):
        for copy in range(4):
            put(tmp_path / "odd" / name / f"{copy}.png", noisy(copy))
    for command in (("data", f"folder:{tmp_path / 'odd'}"), ("partition", "iid", "--data", f"folder:{tmp_path / 'odd'}", "--clients", "2")):  # fmt: skip
        for more in ((), ("--json",)):
            said = motley(*command, *more)
            assert said.status == 0, said
            assert all(name in said.out for name in ("[bold]", "[-x]", "a :smile: b")), said.out


# Factories of models: B1, B2 and D7

FACTORIES = '''
import torch
from torch import nn

def wrong(client, shape, classes):
    return "a model"

def raises(client, shape, classes):
    raise RuntimeError(f"no weights for client {client}")

class Raises(nn.Module):
    """Works in the trial and in round 1, fails at client 2 in round 2."""
    calls = 0
    def __init__(self, client, inputs, classes):
        super().__init__()
        self.client, self.linear = client, nn.Linear(inputs, classes)
    def forward(self, x):
        if self.client == 2 and self.training and x.shape[0] != 2:
            Raises.calls += 1
            if Raises.calls > ROUND_ONE:
                raise ValueError("the sensor is unplugged")
        return self.linear(x.flatten(1))

ROUND_ONE = 1

def breaks(client, shape, classes):
    return Raises(client, torch.Size(shape).numel(), classes)

class Scores(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, classes))
    def forward(self, x):
        return x.flatten(1) @ self.weight

def scores(client, shape, classes):
    return Scores(torch.Size(shape).numel(), classes)

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)
    def forward(self, x):
        return "first", self.linear(x.flatten(1))

def pair(client, shape, classes):
    return Pair()
'''


@pytest.fixture
def factories(tmp_path, monkeypatch):
    """A module of model factories in the working directory, as a user has it."""
    name = f"own_models_{tmp_path.name.replace('-', '_')}"
    put(tmp_path / f"{name}.py", FACTORIES)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return name


def test_a_factory_that_gives_no_model_is_refused(factories, refuses):
    run = "run local --clients 4 --data-limit 400 --models"
    refuses(f"{run} {factories}:wrong", f"{factories}:wrong", "str", "torch.nn.Module")
    refuses(f"{run} {factories}:raises", f"{factories}:raises", "client 0", "no weights for client 0")
    refuses(f"{run} {factories}:pair", f"{factories}:pair", "Pair", "tuple")
    refuses(f"{run.replace('local', 'fedtopo')} {factories}:scores", "Scores", "SplitModel")


def test_a_module_with_scores_only_runs_with_methods_that_need_no_features(factories, motley, tmp_path):
    said = motley("run", "crad", "--clients", 4, "--data-limit", 400, "--rounds", 1, "--models", f"{factories}:scores",
                  "--validation-fraction", 0.2, "--out", tmp_path / "out")  # fmt: skip
    assert said.status == 0, said


def test_a_client_that_raises_ends_the_run_as_a_failure_and_keeps_its_rounds(factories, motley, tmp_path):
    out = tmp_path / "out"
    run = ["--clients", 4, "--data-limit", 400, "--rounds", 3, "--batch-size", 512, "--partition", "iid"]
    said = motley("run", "local", *run, "--models", f"{factories}:breaks", "--out", out)
    assert said.status == 1
    message = said.err.splitlines()[-1]
    assert message.startswith("motley: ")
    for word in ("client 2", "round 2", "ValueError: the sensor is unplugged", "1 finished round", str(out), "log.txt"):
        assert word in message
    assert "Traceback" not in said.err
    log = (out / "log.txt").read_text(encoding="utf-8")
    assert "Traceback" in log
    assert "the sensor is unplugged" in log
    assert rounds_of(out) == [0, 1]
    assert summary_of(out)["status"] == "failed"
    sys.modules[factories].ROUND_ONE = 10**6
    assert motley("resume", out).status == 0
    assert rounds_of(out) == [0, 1, 2, 3]


def test_an_installed_command_finds_a_factory_in_the_working_directory(factories, tmp_path):
    script = Path(sys.executable).with_name("motley")
    if not script.exists():
        pytest.skip("the command is not installed beside this interpreter")
    words = [
        "run",
        "local",
        "--clients",
        "4",
        "--data-limit",
        "400",
        "--rounds",
        "1",
        "--models",
        f"{factories}:scores",
    ]
    done = subprocess.run([script, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
