"""Relations that somebody gives FedTopo in the place of those of its clients, read from a CSV file.

The file holds C lines of C numbers; a line with the names of the classes may stand before them. `motley analyse` writes
such a file, for example of a model that was trained on the pooled data (the oracle of the sheet's claim T4).
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from motley.errors import InvalidConfig

ROUNDED = 1e-6  # two entries of a pair that differ by no more are one number, written twice


def given_relations(path: Path, class_names: Sequence[str]) -> Tensor:
    """Return the relations of a file, (C, C) float64, symmetric bit for bit.

    Raises:
        InvalidConfig: The file cannot be read, or holds no relations of these classes.
    """
    lines, size = _lines(path), len(class_names)
    if len(lines) == size + 1 and len(lines[0]) == size:
        for named, wanted in zip(lines.pop(0), class_names, strict=True):
            if named != wanted:
                raise InvalidConfig(
                    f"{_place(path)} names the class '{named}' where the data have '{wanted}'; give the relations of "
                    "the run's classes, in their order"
                )
    if len(lines) != size or any(len(line) != size for line in lines):
        raise InvalidConfig(
            f"{_place(path)} holds {len(lines)} lines of up to {max(map(len, lines), default=0)} values, but the data "
            f"have {size} classes; give {size} lines of {size} numbers"
        )
    rows = [[_number(path, row, word) for word in line] for row, line in enumerate(lines)]
    matrix = torch.tensor(rows, dtype=torch.float64)
    apart = (matrix - matrix.T).abs()
    if bool((apart > ROUNDED).any()):
        row, column = divmod(int(apart.argmax()), size)
        raise InvalidConfig(
            f"{_place(path)} is not symmetric: {matrix[row, column]:g} and {matrix[column, row]:g} for the classes "
            f"'{class_names[row]}' and '{class_names[column]}'; a relation is one number for both directions"
        )
    upper: Tensor = matrix.triu()
    return upper + matrix.triu(diagonal=1).T


def _lines(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [[word.strip() for word in line] for line in csv.reader(file) if any(map(str.strip, line))]
    except OSError as error:
        raise InvalidConfig(
            f"{_place(path)} cannot be read ({error.strerror}); the start and the resume of the run need it"
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidConfig(f"{_place(path)} is no CSV file in UTF-8 ({error}); give a file of numbers") from error


def _number(path: Path, row: int, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InvalidConfig(f"{_place(path)} holds '{word}' in row {row} of its matrix; relations are numbers 0 to 1")
    return value


def _place(path: Path) -> str:
    return f"fedtopo.relations: {path}"
