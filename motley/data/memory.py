"""Own data in memory: arrays become a data set with the same checks as every other source."""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from motley.data.assemble import assemble
from motley.data.dataset import Dataset
from motley.data.notes import Notes
from motley.data.raw import RawSource, RawSplit
from motley.errors import InvalidData
from motley.options import DataOptions

Arrays = tuple[np.ndarray | Tensor, np.ndarray | Tensor]


def from_arrays(
    name: str,
    train: Arrays,
    test: Arrays | None = None,
    *,
    class_names: Sequence[str] = (),
    columns: Mapping[str, np.ndarray] | None = None,
) -> Dataset:
    """Return a data set of arrays.

    Args:
        name: What records and reports call it.
        train: Inputs and labels (n,): pictures as uint8 (n, channels, H, W), or signals as float32 (n, channels,
            length). Labels are whole numbers or names.
        test: The same for a test set.
        class_names: Names of the classes in label order; taken from the labels if not given.
        columns: Further values of each training sample (n,), for natural clients (`column:NAME`).

    Raises:
        InvalidData: Shapes, dtypes or labels are not as they should be.
    """
    splits = {"train": _split("train", train, columns or {})}
    if test is not None:
        splits["test"] = _split("test", test, {})
    options = DataOptions(source=f"memory:{name}", class_names=tuple(class_names))
    return assemble(RawSource(name, splits, tuple(class_names) or None), options, Notes())


def _split(split: str, arrays: Arrays, columns: Mapping[str, np.ndarray]) -> RawSplit:
    x, y = (np.asarray(array) for array in arrays)
    if not ((x.dtype == np.uint8 and x.ndim == 4) or (x.dtype == np.float32 and x.ndim in {3, 4})):
        raise InvalidData(
            f"the inputs of split {split} are {x.dtype} of shape {x.shape}; give pictures as uint8 (n, channels, H, W) "
            "or signals as float32 (n, channels, length)"
        )
    return RawSplit(x, y, columns)
