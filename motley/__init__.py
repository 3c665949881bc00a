"""motley: federated learning in which every participant keeps its own neural architecture."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motley.api import compare as compare
    from motley.api import load_comparison as load_comparison
    from motley.api import load_run as load_run
    from motley.api import resume as resume
    from motley.api import run as run

__version__ = "0.1.0"
__all__ = ["compare", "load_comparison", "load_run", "resume", "run"]


def __getattr__(name: str) -> Any:
    """Import the Python API when it is first used, so that `import motley` costs nothing."""
    if name in __all__:
        return getattr(import_module("motley.api"), name)
    raise AttributeError(f"module 'motley' has no attribute '{name}'")
