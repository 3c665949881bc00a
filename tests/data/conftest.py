import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the six real sets, where MOTLEY_DATA names it."""
    folder = os.environ.get("MOTLEY_DATA")
    if not folder:
        pytest.skip("MOTLEY_DATA is not set; it names the folder with cifar10/, har/ and the others")
    return Path(folder)
