"""Configuration files: F1 and F6, and that the stored one repeats the run."""

import tomllib
from dataclasses import fields

import pytest
import tomli_w
from run_folders import rounds_of, rows_of, tensors_of

from motley.engine.config import SECTIONS

SIZES = ["--clients", "4", "--data-limit", "400", "--rounds", "2"]
UNKNOWN = (
    'method = "fedtopo"\n'
    "lerning_rate = 0.05\n"
    "[run]\nrounds = 3\n"
    "[fedtopo]\nstrength = 1.0\ngamma = 1.0\ntop-q = 3\n"
    "[partiton]\nalpha = 0.1\n"
)


@pytest.fixture
def config(tmp_path):
    """Write a configuration file, as text or as bytes."""

    def write(content, name="run.toml"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return write


def test_all_unknown_keys_are_listed_at_once_with_the_nearest_right_ones(config, refuses):
    refuses(
        ["run", "--config", config(UNKNOWN)],
        "run.toml: ",
        "key 'lerning_rate' (did you mean 'train.lr'?)",
        "key 'fedtopo.gamma' (here it is 'strength')",
        "key 'fedtopo.top-q' (here it is 'negatives')",
        "section 'partiton' (did you mean 'partition'?)",
    )


@pytest.mark.parametrize("command", ["run", "compare --methods local", "partition"])
def test_every_command_refuses_unknown_keys_of_every_section(command, config, refuses):
    text = "[train]\nlerning_rate = 1\n[compare]\nmethodes = ['local']\n[crad]\ntemprature = 2.0\n[local]\nx = 1\n"
    name = config(text)
    words = "'train.lerning_rate'", "'methods'", "'temperature'", "'local.x' (there are no options in this section)"
    refuses([*command.split(), "--config", name], *words)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("comm_round = 3", "key 'comm_round' (here it is run.rounds)"),
        ("[run]\ncomm_round = 3", "key 'run.comm_round' (here it is 'rounds')"),
        ("[train]\ncomm_round = 3", "key 'train.comm_round' (here it is run.rounds)"),
        ("[run]\njoin_ratio = 0.5", "(here it is 'participation')"),
        ("num_clients = 3", "(here it is partition.clients)"),
        ("[partition]\nalpha = 0.1", "(here it is 'scheme', as dirichlet:ALPHA)"),
        ("[train]\nlearning_rate = 0.1", "(here it is 'lr')"),
        ("rounds = 3", "key 'rounds' (it belongs into the section [run])"),
        ("[run]\nlr = 3", "key 'run.lr' (it belongs into the section [train])"),
        ("[train]\nweight-decay = 0.1", "key 'train.weight-decay' (did you mean 'weight_decay'?)"),
        ("[TRAIN]\nlr = 3", "section 'TRAIN' (did you mean 'train'?)"),
        ("[fedtopoo]\nstrength = 3", "section 'fedtopoo' (did you mean 'fedtopo'?)"),
        ("methd = 'local'", "key 'methd' (did you mean 'method'?)"),
        ("method = 3", "method is 3; it must be text"),
        ("run = 3", "'run' is 3; it must be a section [run]"),
        ("compare = true", "'compare' is true; it must be a section [compare]"),
        ("[somewhere]\nx = 1", "section 'somewhere' (known: data, partition,"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(text, hint, config, refuses):
    refuses(["run", "local", "--config", config(text)], hint)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[run]\nrounds = 3\nrounds = 4\n", "twice (line 3"),
        ("[run]\nrounds = 3\n[train]\nlr = 0.1\n[run]\nseed = 1\n", "twice (line 5"),
        ("[run\nrounds = 3\n", "line 1"),
        ("[run]\nrounds = \n", "line 2"),
        ("[run]\nout = C:\\runs\n", "line 2"),
    ],
)
def test_what_stands_twice_and_what_is_no_toml_is_named_with_its_line(text, place, config, refuses):
    refuses(["run", "local", "--config", config(text)], "run.toml is no valid TOML", place)


def test_values_of_another_type_are_all_named_with_the_type_wanted(config, refuses):
    wrong = config('method = "local"\n[run]\nrounds = "three"\n[train]\nlr = true\n')
    words = "run.rounds is 'three'; it must be a whole number (run.toml)", "train.lr is true; it must be a number"
    refuses(["run", "--config", wrong], *words)
    refuses(["run", "--config", wrong, "--rounds", "3"], words[1])
    more = "[run]\nrounds = 3.0\nseed = true\ndevice = 0\n[train]\nkeep_optimizer = 'no'\nlr = nan\n[data]\nlimit = true\nclass_names = 'cat'\n"
    words = ("run.rounds is 3.0", "run.seed is true", "run.device is 0; it must be text", "true or false")
    words += ("train.lr is nan", "data.limit is true", "data.class_names is 'cat'; it must be a list")
    refuses(["run", "local", "--config", config(more)], *words)
    refuses(["run", "local", "--config", config("[data]\nclass_names = ['cat', 3]\n")], "data.class_names holds 3")
    refuses(["run", "local", "--config", config("[run]\nrounds = {a = 3}\n")], "run.rounds is a section")


def test_a_mistake_in_the_flag_and_one_in_the_file_are_told_apart(config, refuses):
    name = config("[train]\nlr = -1.0\nmomentum = 1.0\n")
    refuses(["run", "local", "--config", name, "--lr", "-2"], "train.lr is -2.0", "(--lr)", "below 1", "(run.toml)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("methods = 'local,fedtopo'", "compare.methods is 'local,fedtopo'; it must be a list"),
        ("methods = ['local', 3]", "compare.methods holds 3; it must be text"),
        ("methods = ['local']\nseeds = 3", "compare.seeds is 3; it must be a list"),
        ("methods = ['local']\nseeds = [true]", "compare.seeds holds true; it must be a whole number"),
        ("methods = ['local']\nseeds = [-1]", "compare.seeds holds -1; it must be 0 or larger"),
        ("methods = ['local', 'fedtpo']", "did you mean 'fedtopo'?"),
        ("methods = ['local']\nreference = 'crad'", "'crad' is not one of the methods"),
    ],
)
def test_the_section_of_a_comparison_is_checked(text, words, config, refuses):
    refuses(["compare", "--config", config(f"[compare]\n{text}\n")], words)


def test_windows_lines_and_a_byte_order_mark_change_nothing(config, motley):
    text = 'method = "fedtopo"\n# Größe der Föderation\n[run]\nrounds = 3\n[models]\npool = "small-cnn"\n'
    plain = motley("run", "--config", config(text), "--print-config")
    assert (plain.status, tomllib.loads(plain.out)["run"]["rounds"]) == (0, 3)
    for other in (text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode()):
        assert motley("run", "--config", config(other), "--print-config").out == plain.out


def test_another_encoding_is_named_with_the_byte(config, refuses):
    name = config('method = "fedtopo"\n# Größe\n'.encode("latin-1"))
    refuses(["run", "--config", name], "run.toml is not UTF-8", "0xf6", "position 23", "line 2")


def test_the_resolved_configuration_is_shown_without_running(motley, tmp_path):
    said = motley(
        "run", "FED_TOPO", *SIZES, "--strength", "2", "--negatives", "all", "--class-names", "a, b", "--print-config"
    )
    assert (said.status, said.err, list(tmp_path.iterdir())) == (0, "", [])
    shown = tomllib.loads(said.out)
    assert list(shown) == ["method", *SECTIONS, "fedtopo"]
    assert (shown["method"], shown["fedtopo"]["strength"], shown["fedtopo"]["negatives"]) == ("fedtopo", 2.0, "all")
    assert shown["data"]["class_names"] == ["a", "b"]
    for section, kind in SECTIONS.items():
        unset = {
            "image_column",
            "label_column",
            "size",
            "limit",
            "proxy",
            "min_samples",
            "test_fraction",
            "width",
            "clip_norm",
        }
        assert {one.name for one in fields(kind)} - unset <= set(shown[section])


def test_shares_and_numbers_of_clients_are_told_apart(motley):
    for word, value in (("1", 1), ("1.0", 1.0), ("0.5", 0.5), ("10", 10), ("1e-1", 0.1)):
        shown = tomllib.loads(motley("run", "local", "--participation", word, "--print-config").out)
        assert (shown["run"]["participation"], type(shown["run"]["participation"])) == (value, type(value))


def test_the_stored_configuration_repeats_the_run_and_flags_win_over_it(motley, tmp_path):
    first, second, third = tmp_path / "first", tmp_path / "second", tmp_path / "third"
    assert motley("run", "fedtopo", *SIZES, "--strength", "2", "--participation", "0.5", "--out", first).status == 0
    stored = tomllib.loads((first / "config.toml").read_text(encoding="utf-8"))
    assert list(stored) == ["method", *SECTIONS, "fedtopo"]
    assert motley("run", "--config", first / "config.toml", "--out", second).status == 0
    assert rows_of(second) == rows_of(first)
    assert (second / "config.toml").read_bytes() == (first / "config.toml").read_bytes()
    assert (second / "partition.npz").read_bytes() == (first / "partition.npz").read_bytes()
    assert tensors_of(second) == tensors_of(first)
    assert motley("run", "--config", first / "config.toml", "--seed", 1, "--rounds", 1, "--out", third).status == 0
    changed = tomllib.loads((third / "config.toml").read_text(encoding="utf-8"))
    assert changed == stored | {"run": stored["run"] | {"seed": 1, "rounds": 1}}
    assert rounds_of(third) == [0, 1]


def test_a_method_named_on_the_command_line_wins_over_the_file(motley, config):
    name = config(tomli_w.dumps({"method": "fedtopo", "fedtopo": {"strength": 2.0}, "crad": {"temperature": 3.0}}))
    shown = tomllib.loads(motley("run", "crad", "--config", name, "--print-config").out)
    assert (shown["method"], shown["crad"]["temperature"], "fedtopo" in shown) == ("crad", 3.0, False)
