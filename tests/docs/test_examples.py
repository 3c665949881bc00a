"""The examples run as they stand, in a process and a folder of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_with_own_data_and_models_runs_and_prints_both_methods(tmp_path):
    said = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "own_model_and_data.py")],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["local", "fedtopo"]
    # Stripes of three kinds are easy: three classes by chance would be 33 %.
    assert all(float(line.split()[1]) > 60 for line in lines[:2])
    assert len(list((tmp_path / "runs").glob("compare-*/runs/*/seed-*/summary.json"))) == 4
