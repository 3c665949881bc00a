"""What methods ask of the models is compared before round 1 (rule R11)."""

from dataclasses import replace

import pytest
from torch import nn

from motley.data.dataset import Dataset
from motley.engine.config import ConfigFile, resolve
from motley.engine.needs import check_needs
from motley.engine.setup import Federation, build_federation
from motley.errors import InvalidConfig
from motley.methods.registry import find_method


def federation(tiny, factory=None, **flags: object) -> Federation:
    dataset: Dataset | None = tiny.dataset() if factory else None
    flags = {"clients": 4, **flags}
    return build_federation(resolve("local", ConfigFile(), flags, {}), dataset=dataset, factory=factory)


def check(built: Federation, need: str) -> None:
    check_needs(replace(find_method("local"), needs=frozenset([need])), built.clients, built.plan)


def same(client_id: int, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, num_classes))


def test_what_is_alike_is_accepted(tiny):
    pool = federation(tiny)
    for need in ("equal-width", "equal-head"):
        check(pool, need)
    check(federation(tiny, models="small-mlp"), "one-architecture")
    for need in ("equal-width", "equal-head", "one-architecture"):
        check(federation(tiny, same), need)


@pytest.mark.parametrize(
    ("flags", "need", "what"),
    [
        (
            {"models": "crad3", "width": "own"},
            "equal-width",
            r"features of one width .* client 0 has 512 and client 1 has 256",
        ),
        (
            {"models": "crad3", "width": "own"},
            "equal-head",
            r"heads of one shape .* Linear\(512, 10\) .* Linear\(256, 10\)",
        ),
        (
            {},
            "one-architecture",
            r"client 0 has small-linear and client 1 has small-cnn .*: 1, 2, 3\); take one --models",
        ),
    ],
)
def test_clients_that_differ_are_named(tiny, flags, need, what):
    flags = {"feature_width" if name == "width" else name: value for name, value in flags.items()}
    built = federation(tiny, **flags)
    with pytest.raises(InvalidConfig, match=what):
        check(built, need)


def test_modules_of_a_factory_are_compared_by_their_tensors(tiny):
    with pytest.raises(InvalidConfig, match=r"needs one architecture at all clients, but client 0 has Sequential \("):
        check(federation(tiny, tiny.model), "one-architecture")


def test_a_method_that_measures_by_validation_samples_warns_where_nobody_has_one(tiny, tmp_path):
    text = (
        "crad measures its peers on validation samples, of which no client has any, so all peers count alike; take "
        "--protocol global, or --validation-fraction 0.2 with protocol local"
    )
    usual = {"rounds": 2, "test_fraction": 0.4}
    without = tiny.play("crad", tmp_path / "without", **usual)
    assert without.summary["warnings"] == [text]
    # What the warning says is so: nobody is supported, and the target is the mean of all.
    mean = tiny.play("uniform-kd", tmp_path / "mean", **usual)
    for one, other in zip(client_terms(without), client_terms(mean), strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    assert tiny.play("crad", tmp_path / "with", **usual, validation_fraction=0.3).summary["warnings"] == []
    assert mean.summary["warnings"] == []


def client_terms(record) -> list[dict[str, float]]:
    return [row["train"]["terms"] for row in record.rows if row["kind"] == "client" and row["round"]]
