"""Train a federation on your own data with your own models, one architecture a client.

python examples/own_model_and_data.py
"""

import numpy as np
from torch import nn

import motley
from motley.data.memory import from_arrays


def make_data(seed: int, num_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures of three kinds of noisy stripes: uint8 (n, 1, 16, 16), and their labels (n,)."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, num_samples)
    rows, columns = np.mgrid[0:16, 0:16]
    patterns = np.stack([np.sin(rows), np.sin(columns), np.sin(rows + columns)])
    pictures = 128 + 60 * patterns[labels] + generator.normal(0, 40, (num_samples, 16, 16))
    return pictures.clip(0, 255).astype(np.uint8)[:, None], labels


def make_model(client_id: int, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the network of a client: every second one is convolutional. Any module that returns logits will do."""
    channels, height, width = input_shape
    if client_id % 2:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(channels * height * width, 32), nn.ReLU(), nn.Linear(32, num_classes)
        )
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, num_classes),
    )


def main() -> None:
    """Compare FedTopo with training alone and print the mean accuracies of the last round."""
    data = from_arrays("stripes", make_data(seed=0, num_samples=600), class_names=("rows", "columns", "diagonal"))
    comparison = motley.compare(
        ["local", "fedtopo"], data=data, models=make_model, clients=6, partition="dirichlet:0.5", rounds=5, seeds=[0, 1]
    )
    for line in comparison.table():
        print(f"{line['method']:8} {100 * line['local']['mean']:.1f} %  (runs in {comparison.path})")
    print(comparison.runs["fedtopo"][0].clients.tail())


if __name__ == "__main__":
    main()
