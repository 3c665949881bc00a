"""Tables with a row for every class: how they travel, and how those of several clients are merged.

A table is (C, k), NaN where a class has no row. On the wire it is the rows that exist, in ascending class order, and
a mask.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from motley.errors import InvalidInput


def pack_rows(table: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of the present classes as they travel, and the mask.

    Args:
        table: Shape (C, k), floating.
        present: Shape (C,), bool. A row is sent because its class is there, not because it is finite: what training
            has broken must be seen on receipt.

    Returns:
        Rows (m, k), float32, and mask (C,), bool, both on the CPU.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: rule R2.

    >>> pack_rows(torch.tensor([[1.0, 2.0], [9.0, 9.0], [3.0, 4.0]]), torch.tensor([True, False, True]))[0].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    if table.ndim != 2 or present.shape != table.shape[:1]:
        raise InvalidInput(
            f"rows are packed from a table (C, k) and a mask (C,), not {tuple(table.shape)} and {tuple(present.shape)}"
        )
    mask = present.cpu()
    return table.cpu()[mask].float(), mask


def unpack_rows(rows: Tensor, present: Tensor) -> Tensor:
    """Return the table that rows and mask stand for: the inverse of `pack_rows` after rounding to float32.

    Args:
        rows: Shape (m, k), floating.
        present: Shape (C,), bool, m of them true.

    Returns:
        Shape (C, k), in the dtype and on the device of `rows`, NaN where absent.

    Raises:
        InvalidInput: There are more or fewer rows than present classes.

    >>> unpack_rows(torch.tensor([[1.0, 2.0]]), torch.tensor([False, True])).tolist()
    [[nan, nan], [1.0, 2.0]]
    """
    if fault := rows_fault(rows, present):
        raise InvalidInput(fault)
    table = torch.full((len(present), rows.shape[1]), torch.nan, dtype=rows.dtype, device=rows.device)
    table[present.to(rows.device)] = rows
    return table


def rows_fault(rows: Tensor, present: Tensor) -> str:
    """Return what is wrong between rows (m, k) and mask (C,), or nothing.

    >>> rows_fault(torch.zeros(1, 2), torch.tensor([True, True]))
    'there are rows for 1 classes, but 2 are present'
    """
    held = int(present.sum())
    return "" if len(rows) == held else f"there are rows for {len(rows)} classes, but {held} are present"


def merge_means(tables: Iterable[Tensor], weights: Iterable[Tensor] | None = None) -> Tensor:
    """Return the mean of every class over the tables that have it.

    g_c = sum over holders of w_kc p_kc / sum over holders of w_kc, with w = 1 if not given.

    Args:
        tables: M >= 1 of shape (C, k), floating, NaN where absent; in ascending client id.
        weights: As many of shape (C,), >= 0, for example samples per class; read where the class is present.

    Returns:
        Shape (C, k), float64, NaN for a class that no table has, or none with weight.

    Raises:
        InvalidInput: There is no table, or shapes disagree.

    Source: server methods, sections 10, 11 and 13.

    >>> a, b = torch.tensor([[2.0], [1.0]]), torch.tensor([[5.0], [torch.nan]])
    >>> merge_means([a, b]).tolist(), merge_means([a, b], [torch.tensor([2, 1]), torch.tensor([1, 0])]).tolist()
    ([[3.5], [1.0]], [[3.0], [1.0]])
    """
    held = list(tables)
    shares = [torch.ones(len(table)) for table in held] if weights is None else list(weights)
    if not held:
        raise InvalidInput("there is no table to merge")
    if any(table.ndim != 2 or table.shape != held[0].shape for table in held):
        raise InvalidInput(f"tables of one shape (C, k) are merged, not {[tuple(one.shape) for one in held][:10]}")
    if [tuple(share.shape) for share in shares] != [tuple(held[0].shape[:1])] * len(held):
        raise InvalidInput(f"{len(held)} tables need as many weights (C,)")
    total = torch.zeros(held[0].shape, dtype=torch.float64)
    weight = torch.zeros(len(held[0]), dtype=torch.float64)
    for table, share in zip(held, shares, strict=True):
        absent = table.isnan().any(dim=1)
        own = share.double().masked_fill(absent, 0.0)
        total += own[:, None] * table.double().masked_fill(absent[:, None], 0.0)
        weight += own
    return total / weight.masked_fill(weight == 0, torch.nan)[:, None]
