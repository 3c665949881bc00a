"""The device of a run: only `auto` may choose one."""

import torch

from motley.errors import InvalidConfig


def find_device(name: str) -> torch.device:
    """Return the device of a name.

    Raises:
        InvalidConfig: This machine has no such device; those it has are listed.
    """
    have = available_devices()
    if name == "auto":
        return torch.device("cuda:0" if "cuda:0" in have else "mps" if "mps" in have else "cpu")
    wanted = "cuda:0" if name == "cuda" else name
    if wanted not in have:
        raise InvalidConfig(
            f"run.device is '{name}', which this machine does not have; it has {', '.join(have)} (or auto)"
        )
    return torch.device(wanted)


def available_devices() -> list[str]:
    """Return the names of this machine's devices."""
    cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return ["cpu", *cuda, *mps]


def worker_devices(name: str, workers: int) -> list[str]:
    """Return the device of each worker: where the name leaves a choice among several GPUs, they take turns."""
    cards = [device for device in available_devices() if device.startswith("cuda:")]
    if name not in {"auto", "cuda"} or len(cards) < 2:
        return [name] * workers
    return [cards[number % len(cards)] for number in range(workers)]
