"""Recipes that train as public code does, and `motley report --published`."""

import json
import tomllib
from pathlib import Path

import pytest

from motley.cli.main import main
from motley.engine.comparison import plan_comparison
from motley.engine.config import read_config
from motley.record.load import load_run

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
DIGITS, CIFAR = RECIPES / "as-published-digits.toml", RECIPES / "as-published-cifar10.toml"
HABITS = {
    "train": {"shuffle": False, "last_batch": "drop", "class_means": "batches"},
    "models": {"init_seed": 0, "same_start": True},
    "partition": {"seed": 1, "split": "random", "scheme": "dirichlet-capped:0.1", "clients": 20},
    "eval": {"every": 1},
}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The small recipe for two rounds, with two seeds and the methods that take least time."""
    out = tmp_path_factory.mktemp("published") / "out"
    words = ["compare", "--config", str(DIGITS), "--methods", "local,fedproto", "--seeds", "0,1", "--rounds", "2"]
    assert main([*words, "--workers", "1", "--device", "cpu", "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize("recipe", [DIGITS, CIFAR], ids=lambda path: path.stem)
def test_every_row_of_a_recipe_has_the_habits_and_the_difference_is_told(recipe):
    plan = plan_comparison(read_config(recipe), {}, {})
    assert plan.seeds == (0, 1, 2)
    for position in range(len(plan.names)):
        config = plan.config(position, 0).to_dict()
        for section, habits in HABITS.items():
            assert {name: config[section][name] for name in habits} == habits
        assert config[config["method"]].get("kl", "element-mean") == "element-mean"
    lines = recipe.read_text(encoding="utf-8").splitlines()
    for name in (name for habits in HABITS.values() for name in habits if name not in {"clients"}):
        (line,) = [line for line in lines if line.startswith(f"{name} =")]
        assert "#" in line, f"{name} has no comment"


def test_the_full_recipe_is_the_papers_setting_and_has_every_method_of_its_table():
    recipe = tomllib.loads(CIFAR.read_text(encoding="utf-8"))
    assert recipe["models"]["pool"] == "fedtopo8"
    assert (recipe["run"]["rounds"], recipe["train"]["batch_size"], recipe["train"]["lr"]) == (500, 256, 0.05)
    assert len(recipe["compare"]["methods"]) == 12
    assert recipe["fedgh"]["server_batch"] == recipe["fedtgp"]["server_batch"] == recipe["train"]["batch_size"]


def test_repetitions_of_a_method_without_draws_of_its_own_are_one_run(published):
    one, two = (load_run(published / "runs" / "local" / f"seed-{seed}") for seed in (0, 1))
    assert [row["scores"] for row in one.rows if row["kind"] == "client"] == [
        row["scores"] for row in two.rows if row["kind"] == "client"
    ]
    steps = {row["client"]: row["train"]["steps"] for row in one.rows if row["kind"] == "client" and row["round"] == 1}
    idle = sorted(client for client, number in steps.items() if not number)
    assert idle
    told = [text for text in one.summary["warnings"] if "never trains" in text]
    assert [int(text.split()[1]) for text in told] == idle


def test_the_published_figures_stand_beside_ours_in_every_form(published, motley):
    said = motley("report", published, "--published")
    assert said.status == 0
    text = " ".join(said.out.split())
    for words in ("As published: ", "an oracle, never a headline", "Never trained", "train.shuffle = false"):
        assert words in text
    table = json.loads(motley("report", published, "--published", "--table", "json").out)
    rows = {row["method"]: row for row in table["table"]}
    runs = [load_run(published / "runs" / "fedproto" / f"seed-{seed}") for seed in (0, 1)]
    best = [max(row["metrics"]["local_accuracy_pooled"] for row in run.rows if row["kind"] == "round") for run in runs]
    assert rows["fedproto"]["published_accuracy"] == pytest.approx(sum(best) / 2)
    assert rows["fedproto"]["local_accuracy"] == pytest.approx(sum(run.final["local_accuracy"] for run in runs) / 2)
    assert rows["local"]["published_accuracy_sd_ddof0"] == 0.0
    assert rows["local"]["published_difference"] is None
    assert motley("report", published, "--published", "--table", "markdown").out.startswith("| method")
    usual = motley("report", published, "--table", "markdown").out
    assert "published" not in usual
    single = motley("report", published / "runs" / "local" / "seed-0", "--published", "--table", "csv").out
    assert len(single.strip().splitlines()) == 2


def test_a_comparison_with_the_habits_goes_on_where_it_stopped(published, motley, tmp_path):
    words = ("--methods", "local", "--seeds", "0", "--workers", "1", "--device", "cpu")
    assert motley("compare", "--config", DIGITS, *words, "--rounds", "1", "--out", tmp_path / "out").status == 0
    run = tmp_path / "out" / "runs" / "local" / "seed-0"
    assert motley("resume", run, "--rounds", "2").status == 0
    whole = load_run(published / "runs" / "local" / "seed-0")

    def without_time(record):
        return [{name: value for name, value in row.items() if name != "seconds"} for row in record.rows]

    assert without_time(load_run(run)) == without_time(whole)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--last-batch", "skip"), ("train.last_batch is 'skip'", "'keep' or 'drop'")),
        (("--init-seed", "same"), ("models.init_seed is 'same'", "'run'")),
        (("--class-means", "some"), ("train.class_means is 'some'", "'all' or 'batches'")),
        (("--set", "fml.kl=sum"), ("fml.kl is 'sum'", "'batchmean' or 'element-mean'")),
    ],
)
def test_mistakes_are_answered_in_one_sentence(words, parts, refuses, tmp_path):
    refuses(["compare", "--methods", "fml", *words, "--out", tmp_path / "out"], *parts)


def test_a_sweep_has_no_published_figures_of_its_own(refuses, tmp_path):
    (tmp_path / "sweep.toml").write_text("")
    refuses(["report", tmp_path, "--published"], "is a sweep", "name one of the comparisons")
