"""Where initial weights come from: the run's seed, or one that all runs share."""

import torch

from motley.draws import Draws
from motley.engine.config import ConfigFile, resolve
from motley.engine.setup import build_federation


def weights(tiny, seed, method="lg-fedavg", **options):
    """Return initial weights of clients, of an auxiliary model and of the server."""
    flags = {"data": "memory:tiny", "partition": "column:owner", "models": "small-mlp", "device": "cpu", "seed": seed}
    config = resolve(method, ConfigFile(), flags | options, {})
    made = build_federation(config, dataset=tiny.dataset())
    state = config.entry.method(config.options).start(made.task, made.starts)
    found = {f"{one.id}/{name}": tensor for one in made.clients for name, tensor in one.model.state_dict().items()}
    found |= {f"auxiliary/{name}": tensor for name, tensor in made.task.auxiliary("small-mlp", 5).state_dict().items()}
    return found | {f"server/{name}": tensor for name, tensor in state.tensors().items()}


def alike(one, other):
    return {name for name in one if torch.equal(one[name], other[name])}


def test_they_follow_the_seed_of_the_run_unless_one_is_given(tiny):
    assert not alike(weights(tiny, 0), weights(tiny, 1))
    fixed = weights(tiny, 0, init_seed=7)
    tiny.assert_same_tensors(fixed, weights(tiny, 1, init_seed=7))
    tiny.assert_same_tensors(fixed, weights(tiny, 7))  # the very weights of a run with this seed
    assert not alike(fixed, weights(tiny, 1, init_seed=8))


def test_clients_start_alike_only_if_asked(tiny):
    own, same = weights(tiny, 0), weights(tiny, 0, same_start=True)
    for name in (name for name in same if name.startswith("0/")):
        other = name.replace("0/", "2/")
        assert torch.equal(same[name], same[other])
        assert not torch.equal(own[name], own[other])
    assert {name for name in same if name.startswith("0/")} <= alike(own, same)  # client 0 is where it was


def test_what_peers_draw_at_the_start_is_not_tied_to_the_weights(tiny, tmp_path):
    options = {"count_epsilon": 0.1, "validation_fraction": 0.3, "rounds": 1, "init_seed": 3}
    runs = [tiny.play("crad", tmp_path / str(seed), seed=seed, **options) for seed in (0, 1)]
    noise = [{key: value for key, value in tiny.weights(run).items() if "noisy_counts" in key} for run in runs]
    assert noise[0]
    assert not alike(*noise)
    assert Draws(0).address("init") != Draws(1).address("init")
