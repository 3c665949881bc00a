"""The wheel in an empty environment; `make test` builds both and says where by MOTLEY_WHEEL."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

WHEEL = os.environ.get("MOTLEY_WHEEL")
pytestmark = pytest.mark.skipif(not WHEEL, reason="'make test' builds the wheel and its environment")


def in_wheel_env(program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(WHEEL or "").resolve() / "env/bin" / program), *arguments]
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "MOTLEY"))
    }
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_the_wheel_holds_the_package_its_licence_and_nothing_else():
    (wheel,) = Path(WHEEL or "").glob("dist/*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"motley", "motley_fl"}
    assert "motley/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.endswith(".pyc") for name in names)


def test_every_source_file_is_in_the_wheel():
    (wheel,) = Path(WHEEL or "").glob("dist/*.whl")
    root = Path(__file__).parents[2]
    sources = {
        str(path.relative_to(root))
        for path in root.glob("motley/**/*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources == {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("motley/")}


def test_the_installed_package_is_the_wheel_and_its_requirements_agree(tmp_path):
    where = in_wheel_env("python", "-c", "import motley; print(motley.__file__)", cwd=tmp_path).stdout.strip()
    assert Path(where).is_relative_to(Path(WHEEL or "").resolve() / "env")
    in_wheel_env("python", "-m", "pip", "check", cwd=tmp_path)


def test_help_is_printed(tmp_path):
    assert "motley run" in in_wheel_env("motley", "--help", cwd=tmp_path).stdout
    assert "motley run" in in_wheel_env("python", "-m", "motley", "--help", cwd=tmp_path).stdout


def test_a_run_of_one_round_writes_its_folder(tmp_path):
    in_wheel_env("motley", "run", "local", "--rounds", "1", "--clients", "4", "--out", "run", cwd=tmp_path)
    assert {"config.toml", "rounds.jsonl", "summary.json"} <= {path.name for path in (tmp_path / "run").iterdir()}
