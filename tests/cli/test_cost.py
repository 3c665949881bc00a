"""`motley cost`: what methods send and compute beyond Local, as a table or as JSON."""

import csv
import io
import json

import pytest

SMALL = ("--models", "small-linear", "--clients", 2, "--partition", "iid", "--data-limit", 80, "--device", "cpu")


def test_the_table_is_on_standard_output_and_progress_on_standard_error(motley, tmp_path):
    said = motley("cost", "--methods", "fedtopo,fedgh", *SMALL, "--table", "markdown")
    assert said.status == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].startswith("| method ")
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["fedtopo", "fedgh"]
    assert "torch's own counter" in said.out
    assert said.err.splitlines() == ["counting fedtopo", "counting local", "counting fedgh"]
    assert list(tmp_path.iterdir()) == []


def test_options_of_methods_and_variants_of_a_file_are_rows(motley, tmp_path):
    file = tmp_path / "cost.toml"
    file.write_text(
        '[compare]\nmethods = ["fedtopo", "thin"]\n[variants.thin]\nmethod = "fedtopo"\nfedtopo.wire = "sparse"\n'
    )
    said = motley("cost", "--config", file, "--rounds", 1, *SMALL, "--table", "csv")
    assert said.status == 0, said.err
    dense, sparse = csv.DictReader(io.StringIO(said.out))
    assert (dense["method"], sparse["method"]) == ("fedtopo", "thin")
    assert float(sparse["up_scalars_most"]) <= 55 < float(dense["up_scalars"]) == 110
    assert float(sparse["down_scalars"]) == 90  # before its first report a client gets the upper triangles


def test_time_and_memory_are_measured_when_asked_for(motley):
    said = motley("cost", "--methods", "local", *SMALL, "--timed", "--table", "json")
    assert said.status == 0, said.err
    told = json.loads(said.out)
    (row,) = told["methods"]
    for found in (told["local_footprint"], row["footprint"]):
        assert found["seconds"] > 0
        assert found["memory_bytes"] is None or 0 <= found["memory_bytes"] < 2e9
    assert row["sent"]["up_scalars"] == [0, 0]
    assert row["extra"]["forward"] == {"products": 0, "elementwise": 0}
    assert told["paper"] == {}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ("--methods",)),
        (("--methods", "fedtopi"), ("'fedtopi' is not a known method", "did you mean 'fedtopo'")),
        (("--methods", "fedtopo", "--rounds", 0), ("--rounds is 0", "at least one")),
        (("--methods", "fedtopo", "--table", "html"), ("--table is 'html'", "markdown", "json")),
        (("--methods", "fedtopo", "--set", "fedgh.server_lr=1"), ("fedgh", "does not run")),
        (("--methods", "fedtopo", "--set", "fedtopo.wire=tiny"), ("fedtopo.wire is 'tiny'", "'sparse'")),
    ],
)
def test_mistakes_are_said_in_one_sentence(refuses, words, expected):
    refuses(["cost", *words], *expected)


def test_a_federation_that_a_method_cannot_have_is_a_mistake(motley):
    said = motley("cost", "--methods", "fedavg", "--models", "small4", "--clients", 2, "--data-limit", 80)
    assert (said.status, said.out) == (2, "")
    assert said.err.splitlines()[0] == "counting fedavg"
    assert said.err.splitlines()[-1].startswith("motley: fedavg needs one architecture")
