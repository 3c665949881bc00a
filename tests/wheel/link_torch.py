"""Put torch, torchvision and what they require into another environment as hard links: no second copy of 5 GB on the disk.

    python tests/wheel/link_torch.py ENV      (run by the Python of the environment that has them)

pip finds them there with their metadata and installs the rest. Where the disk has no hard links, files are copied.
"""

import os
import shutil
import sys
import sysconfig
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement


def requirements(dist: Distribution, extras: frozenset[str]) -> list[Requirement]:
    """Return what a distribution requires on this machine, with some of its extras."""
    stated = [Requirement(text) for text in dist.requires or []]
    return [
        own
        for own in stated
        if own.marker is None or any(own.marker.evaluate({"extra": extra}) for extra in extras | {""})
    ]


def closure(names: list[str]) -> dict[str, Distribution]:
    """Return distributions by name: those named, what they require, and so on."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(name, frozenset[str]()) for name in names]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found[name] = distribution(name)
        waiting += [(own.name, frozenset(own.extras)) for own in requirements(found[name], extras)]
    return found


def link(source: Path, target: Path) -> None:
    """Make a file appear at a second place, as the same file where the disk can do that."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        return  # of two distributions that share a file
    except OSError:
        shutil.copy2(source, target)


def main(environment: str) -> None:
    """Link every file of the closure that lies in site-packages; launchers in bin/ name their own Python."""
    here = Path(sysconfig.get_path("purelib"))
    there = Path(sysconfig.get_path("purelib", vars={"base": str(Path(environment).resolve())}))
    for dist in closure(["torch", "torchvision"]).values():
        for file in dist.files or []:
            if ".." not in file.parts and (here / file).is_file():
                link(here / file, there / file)


if __name__ == "__main__":
    main(*sys.argv[1:])
