"""The entry to all data: the kinds of sources, and `load_dataset`."""

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from motley.data.assemble import assemble
from motley.data.dataset import Dataset
from motley.data.digits import read_digits
from motley.data.folder import read_folder
from motley.data.notes import Notes
from motley.data.npz import read_npz
from motley.data.parquet import read_parquet
from motley.data.raw import RawSource
from motley.errors import InvalidData
from motley.options import DataOptions

SOURCES = {
    "digits": "1,797 handwritten digits of 8 x 8 pixels, part of scikit-learn; needs no file",
    "parquet:PATH": "a Parquet file, or a folder with train.parquet and test.parquet, as Hugging Face stores pictures",
    "npz:PATH": "one npz file with train_images, train_labels and so on, as MedMNIST has them",
    "folder:PATH": "class folders, split/class/file, or Tiny-ImageNet as it is distributed",
}
_READERS: dict[str, Callable[[Path, DataOptions, Notes], RawSource]] = {
    "parquet": read_parquet,
    "npz": read_npz,
    "folder": read_folder,
}


def load_dataset(options: DataOptions) -> Dataset:
    """Read a source whole into memory, check it, and decode every picture once.

    Raises:
        InvalidData: The source is unknown, missing or not as it should be.
    """
    notes = Notes()
    kind, _, location = options.source.partition(":")
    if kind != "parquet" and (options.image_column or options.label_column):
        raise InvalidData(f"data.image_column and data.label_column are for parquet:PATH, not for {options.source}")
    if options.source == "digits":
        return assemble(read_digits(), options, notes)
    if kind not in _READERS or not location:
        close = get_close_matches(kind, [name.partition(":")[0] for name in SOURCES], n=1)
        nearest = next((name for name in SOURCES if close and name.startswith(close[0])), None)
        hint = f"; did you mean '{nearest}'?" if nearest else ""
        raise InvalidData(f"data.source is '{options.source}', which is not one of {', '.join(SOURCES)}{hint}")
    path = Path(location).expanduser()
    if not path.exists():
        raise InvalidData(f"data.source: {path} does not exist; check the path behind {kind}:")
    return assemble(_READERS[kind](path, options, notes), options, notes)
