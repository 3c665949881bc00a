import pytest

import motley
from motley.engine.comparison import CompareWatch, resume_comparison
from motley.engine.runs import Watch
from motley.errors import InvalidConfig, MotleyWarning, RunFailed
from motley.report.tables import comparison_table

USUAL = {
    "partition": "column:owner",
    "rounds": 3,
    "batch_size": 8,
    "device": "cpu",
    "participation": 0.5,
    "test_fraction": 0.4,
    "validation_fraction": 0.3,
}
METHODS = ["local", "fedtopo", "crad", "uniform-kd"]


@pytest.fixture
def compare(tiny, tmp_path):
    def run(methods=METHODS, **options):
        return motley.compare(
            methods, data=tiny.dataset(), models=tiny.model, out=tmp_path / "all", **(USUAL | options)
        )

    return run


def test_d2_all_methods_get_the_same_data_weights_batches_and_participants(compare):
    made = compare(seeds=(0, 1))
    for seed in (0, 1):
        runs = [made.runs[method][seed] for method in METHODS]
        assert len({run.summary["partition"]["digest"] for run in runs}) == 1
        rows = [[row for row in run.rows if row["kind"] == "client"] for run in runs]
        for kind in (
            lambda own: [(row["round"], row["client"], row["train"]["order"]) for row in own if row["train"]],
            lambda own: [(row["round"], row["client"]) for row in own if row["active"]],
            lambda own: [row["scores"] for row in own if row["round"] == 0],  # before any training
        ):
            assert len({repr(kind(own)) for own in rows}) == 1
            assert kind(rows[0])
    orders = [[row["train"]["order"] for row in made.runs["local"][seed].rows if row.get("train")] for seed in (0, 1)]
    assert set(orders[0]).isdisjoint(orders[1])


def test_a_comparison_gives_paired_differences_to_its_reference(compare):
    made = compare(["fedtopo", "local"], seeds=(0, 1), reference="local")
    lines = {line["method"]: line for line in made.table()}
    values = {m: [made.runs[m][s].final["local_accuracy"] for s in (0, 1)] for m in ("fedtopo", "local")}
    pairs = [one - other for one, other in zip(values["fedtopo"], values["local"], strict=True)]
    assert lines["fedtopo"]["local"]["difference"]["mean"] == pytest.approx(sum(pairs) / 2, abs=1e-12)
    assert lines["fedtopo"]["local"]["mean"] == pytest.approx(sum(values["fedtopo"]) / 2, abs=1e-12)
    assert "difference" not in lines["local"]["local"]


def test_d5_the_deviation_over_one_seed_is_null(compare):
    assert compare(["local"]).table()[0]["local"]["sd"] is None


def test_a_broken_comparison_goes_on_where_it_stopped(compare, tiny, tmp_path):
    def stop(row) -> None:
        if row.round == 2:
            raise OSError("power cut")

    def began(method, seed, position, number):
        return Watch(finished_round=stop) if position == 1 else Watch()

    with pytest.raises(RunFailed, match="power cut"):
        compare(["local", "fedtopo", "crad"], watch=CompareWatch(began))
    path = tmp_path / "all"
    assert set(motley.load_comparison(path).runs) == {"local", "fedtopo"}
    finished = (path / "runs" / "local" / "seed-0" / "summary.json").stat().st_mtime_ns
    begun = []
    made = resume_comparison(
        path,
        CompareWatch(lambda *job: begun.append(job) or Watch()),
        dataset=tiny.dataset(),
        factory=tiny.model,
    )
    assert [(method, position, number) for method, _, position, number in begun] == [("fedtopo", 1, 3), ("crad", 2, 3)]
    assert (path / "runs" / "local" / "seed-0" / "summary.json").stat().st_mtime_ns == finished
    whole = motley.compare(
        ["local", "fedtopo", "crad"], data=tiny.dataset(), models=tiny.model, out=tmp_path / "whole", **USUAL
    )
    for method in ("local", "fedtopo", "crad"):
        assert tiny.rows(made.runs[method][0]) == tiny.rows(whole.runs[method][0])


@pytest.mark.parametrize(
    ("methods", "options", "text"),
    [
        ([], {}, "nothing to compare"),
        (["local", "local"], {}, "method local is given twice"),
        (["local"], {"seeds": (0, 0)}, "seed 0 is given twice"),
        (["local"], {"seeds": (-1,)}, "compare.seeds"),
        (["local"], {"reference": "crad"}, "the reference 'crad' is not one of the methods"),
        (["local", "oops"], {}, "'oops' is not a known method"),
    ],
)
def test_a_comparison_is_checked_before_anything_runs(compare, tmp_path, methods, options, text):
    with pytest.raises(InvalidConfig, match=text):
        compare(methods, **options)
    assert not list(tmp_path.iterdir())


def test_a_run_that_diverges_is_named_and_the_others_go_on(compare):
    with pytest.warns(MotleyWarning, match=r"\w+, seed 0: no client finished round \d.*the other runs go on"):
        made = compare(["local", "fedtopo"], lr=1e30, rounds=5, participation=1.0)
    assert set(made.runs) == {"local", "fedtopo"}
    assert made.runs["local"][0].summary["status"] == "failed"
    assert "Not finished, and left out: local seed 0: failed" in comparison_table(made).remarks[0]
