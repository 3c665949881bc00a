import shutil
from pathlib import Path

import pytest

import motley
from motley.report.page import build_report

ODD_NAMES = ("<script>alert(1)</script>", 'a"b', "Grün & Blau", "$x$", "_under", "l'été", "日本", "c7", "c8", "c9" * 20)
ODD_FOLDER = "Müllers Daten (v1.2) d'été"


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="session")
def comparison_path(made):
    path = made / "comparison"
    motley.compare(["local", "fedtopo"], seeds=[0, 1, 2], rounds=2, clients=6, data_limit=300, out=path)
    return path


@pytest.fixture(scope="session")
def topology_path(made):
    """A FedTopo run whose folder and classes have names that must be escaped."""
    path = made / ODD_FOLDER
    motley.run("fedtopo", rounds=2, clients=6, data_limit=300, class_names=ODD_NAMES, out=path)
    return path


@pytest.fixture(scope="session")
def teacher_path(made):
    """A CRAD run with validation parts and a common test set."""
    path = made / "crad"
    motley.run(
        "crad",
        rounds=3,
        clients=5,
        protocol="global",
        partition="dirichlet:0.5",
        models="small3",
        data_limit=600,
        out=path,
    )
    return path


@pytest.fixture(scope="session")
def pages(topology_path, teacher_path, comparison_path):
    """The pages of the three, built once."""
    paths = {"fedtopo": topology_path, "crad": teacher_path, "comparison": comparison_path}
    return {name: build_report(path) for name, path in paths.items()}


@pytest.fixture
def copied(tmp_path):
    def copy(source: Path) -> Path:
        return Path(shutil.copytree(source, tmp_path / "copy"))

    return copy
