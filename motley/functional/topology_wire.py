"""What FedTopo puts on the wire: flat arrays of float32 numbers, and their exact inverses (section 6 of its sheet).

    dense      up C C relations                    down R and S, 2 C C                     (the paper's form)
    sparse     up m (m - 1) / 2, held pairs        down the client's held pairs of R and S, m (m - 1)
    half       up as sparse                        down the upper triangles of R and S, C (C - 1)
    guidance   up as sparse                        down index and value of the selected entries, 2 m min(q, m - 1)

m is the number of held classes; C counts travel beside every upload. Pairs are those of the upper triangle, classes
ascending, row-major. Unpacking gives float64 matrices that hold the float32 values.
"""

from typing import Literal

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.topology import check_counts, pair_mask

Wire = Literal["dense", "sparse", "half", "guidance"]


def pack_upload(relations: Tensor, counts: Tensor, wire: Wire = "sparse") -> Tensor:
    """Return the relations of one client as they travel.

    Args:
        relations: Shape (C, C), NaN where masked.
        counts: Shape (C,), as uploaded; they decide which classes are held.
        wire: Form.

    Returns:
        float32; shape (C C,) for "dense", else (m (m - 1) / 2,).

    Raises:
        InvalidInput: The relations do not fit the counts, see `check_relations`.

    Source: FedTopo, section 6 of the sheet.

    >>> R = torch.tensor([[1.0, 0.75], [0.75, 1.0]], dtype=torch.float64)
    >>> pack_upload(R, torch.tensor([4, 2])).tolist()
    [0.75]
    """
    check_relations(relations, counts)
    if wire == "dense":
        return relations.flatten().float()
    rows, columns = _held_pairs(counts > 0)
    return relations[rows, columns].float()


def unpack_upload(values: Tensor, counts: Tensor, wire: Wire = "sparse") -> Tensor:
    """Return the relations (C, C) that an upload stands for: the inverse of `pack_upload` after rounding to float32.

    Args:
        values: Shape (C C,) for "dense", else (m (m - 1) / 2,).
        counts: Shape (C,), of the same upload.
        wire: Form.

    Returns:
        Shape (C, C), float64, symmetric, diagonal 1 for held classes, NaN where masked.

    Raises:
        InvalidInput: The upload breaks a rule of `check_relations`; the caller adds whose it is.

    Source: FedTopo, section 6 of the sheet.

    >>> unpack_upload(torch.tensor([0.75]), torch.tensor([4, 2])).tolist()
    [[1.0, 0.75], [0.75, 1.0]]
    """
    check_counts(counts)
    num_classes, held = len(counts), counts > 0
    rows, columns = _held_pairs(held)
    _check_length(values, num_classes**2 if wire == "dense" else len(rows), "upload")
    if wire == "dense":
        relations = values.reshape(num_classes, num_classes).double()
    else:
        relations = torch.full((num_classes, num_classes), torch.nan, dtype=torch.float64)
        relations[held, held] = 1.0
        relations[rows, columns] = relations[columns, rows] = values.double()
    check_relations(relations, counts)
    return relations


def check_relations(relations: Tensor, counts: Tensor) -> None:
    """Refuse relations that no client can have.

    Args:
        relations: Shape (C, C).
        counts: Shape (C,).

    Raises:
        InvalidInput: A count is negative or not finite; the shapes differ; an entry is NaN where held, not NaN where
            masked, outside of [0, 1], not symmetric, or not 1 on the diagonal. The sentence names the entry.

    Source: FedTopo, upload checks of section 6 of the sheet.

    >>> check_relations(torch.tensor([[1.0, 0.5], [0.5, 1.0]]), torch.tensor([1, 1]))
    """
    mask = pair_mask(counts)
    if relations.shape != mask.shape:
        raise InvalidInput(
            f"relations have shape {tuple(relations.shape)}, but the counts speak of {len(counts)} classes"
        )
    fine = (relations >= 0) & (relations <= 1) & (relations == relations.T)
    if bool(torch.where(mask, fine, relations.isnan()).all()) and bool((relations.diagonal()[counts > 0] == 1).all()):
        return
    diagonal = torch.eye(len(counts), dtype=torch.bool)
    for wrong, rule in (
        (relations.isnan() & mask, "is missing although both classes are held"),
        (~relations.isnan() & ~mask, "is given although a class is not held"),
        (mask & ~((relations >= 0) & (relations <= 1)), "lies outside of [0, 1]"),
        (mask & (relations != relations.T), "differs from its mirror image"),
        (mask & diagonal & (relations != 1), "must be 1 on the diagonal"),
    ):
        if bool(wrong.any()):
            a, b = wrong.nonzero()[0].tolist()
            raise InvalidInput(f"relation ({a}, {b}) = {float(relations[a, b])} {rule}")


def pack_download(relations: Tensor, reliability: Tensor, held: Tensor, wire: Wire = "sparse") -> Tensor:
    """Return R and S as they travel to one client.

    Args:
        relations: R, shape (C, C), symmetric.
        reliability: S, shape (C, C), symmetric.
        held: Shape (C,), bool, classes of that client; read for "sparse" alone.
        wire: "dense", "sparse" or "half"; the form "guidance" is `pack_guidance`.

    Returns:
        float32, R before S; 2 C C, m (m - 1) or C (C - 1) numbers.

    Raises:
        InvalidInput: The shapes do not fit, or `wire` is "guidance".

    Source: FedTopo, section 6 of the sheet.

    >>> R = torch.tensor([[1.0, 0.75], [0.75, 1.0]])
    >>> pack_download(R, R / 2, torch.tensor([True, True])).tolist()
    [0.75, 0.375]
    """
    if not relations.shape == reliability.shape == (len(held), len(held)):
        raise InvalidInput(
            f"a download needs R (C, C), S (C, C) and held (C,), not {tuple(relations.shape)}, "
            f"{tuple(reliability.shape)} and {tuple(held.shape)}"
        )
    if wire == "dense":
        return torch.cat([relations.flatten(), reliability.flatten()]).float()
    rows, columns = _download_pairs(held, wire)
    return torch.cat([relations[rows, columns], reliability[rows, columns]]).float()


def unpack_download(values: Tensor, held: Tensor, wire: Wire = "sparse") -> tuple[Tensor, Tensor]:
    """Return (R, S) of a download: the inverse of `pack_download` for every entry that travels.

    Args:
        values: float32, as packed.
        held: Shape (C,), bool, the client's own classes.
        wire: Form.

    Returns:
        R and S, shape (C, C), float64. What did not travel, and no loss reads, is as before any observation: R is 1 on
        and 0 off the diagonal, S is 0.

    Raises:
        InvalidInput: The length does not fit, or `wire` is "guidance".

    Source: FedTopo, section 6 of the sheet.

    >>> R, S = unpack_download(torch.tensor([0.75, 0.375]), torch.tensor([True, True]))
    >>> R.tolist(), S.tolist()
    ([[1.0, 0.75], [0.75, 1.0]], [[0.0, 0.375], [0.375, 0.0]])
    """
    num_classes = len(held)
    if wire == "dense":
        _check_length(values, 2 * num_classes**2, "download")
        dense = values.double().reshape(2, num_classes, num_classes)
        return dense[0], dense[1]
    rows, columns = _download_pairs(held, wire)
    _check_length(values, 2 * len(rows), "download")
    matrices = torch.zeros(2, num_classes, num_classes, dtype=torch.float64)
    matrices[0].fill_diagonal_(1)
    matrices[:, rows, columns] = matrices[:, columns, rows] = values.double().reshape(2, len(rows))
    return matrices[0], matrices[1]


def pack_guidance(guidance: Tensor, held: Tensor, q: int | Literal["all"]) -> tuple[Tensor, Tensor]:
    """Return the guidance of one client as indices and values, row by row of its held classes.

    Args:
        guidance: B, shape (C, C), made with the local mask and the same q.
        held: Shape (C,), bool, the client's m classes.
        q: Number of negatives, >= 1, or "all".

    Returns:
        Indices int32 and values float32, both (m, min(q, m - 1)); rows with fewer entries are filled with zeros.

    Raises:
        InvalidInput: A held row has an entry on an absent class, on itself, or more than q of them.

    Source: FedTopo, section 6 of the sheet.

    >>> B = torch.tensor([[0.0, 0.5, 0.0], [0.25, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> indices, values = pack_guidance(B, torch.tensor([True, True, False]), q=3)
    >>> indices.tolist(), values.tolist()
    ([[1], [0]], [[0.5], [0.25]])
    """
    classes = held.nonzero().squeeze(1)
    slots = _slots(len(classes), q)
    allowed = held & ~torch.eye(len(held), dtype=torch.bool)
    rows = torch.where(allowed, guidance, -1.0)[classes]  # what is not allowed comes last, even after zeros
    indices = torch.sort(-rows, dim=1, stable=True).indices[:, :slots]
    packed = (indices.int(), rows.gather(1, indices).float())
    if bool((unpack_guidance(*packed, held)[classes] != guidance[classes].float()).any()):
        raise InvalidInput(
            "this guidance cannot travel in the form 'guidance', which needs the local mask and its own q"
        )
    return packed


def unpack_guidance(indices: Tensor, values: Tensor, held: Tensor) -> Tensor:
    """Return B from indices and values: the inverse of `pack_guidance` up to float32 rounding.

    Args:
        indices: Shape (m, s), integer, in [0, C).
        values: Shape (m, s), floating.
        held: Shape (C,), bool, the client's m classes.

    Returns:
        Shape (C, C), float64; rows of absent classes are 0.

    Raises:
        InvalidInput: The shapes do not fit or an index is outside of [0, C).

    Source: FedTopo, section 6 of the sheet.

    >>> unpack_guidance(torch.tensor([[1], [0]]), torch.tensor([[0.5], [0.25]]), torch.tensor([True, True])).tolist()
    [[0.0, 0.5], [0.25, 0.0]]
    """
    classes = held.nonzero().squeeze(1)
    if indices.ndim != 2 or indices.shape != values.shape or len(indices) != len(classes):
        raise InvalidInput(
            f"guidance for {len(classes)} held classes needs as many rows of indices and values, not "
            f"{tuple(indices.shape)} and {tuple(values.shape)}"
        )
    if bool(((indices < 0) | (indices >= len(held))).any()):
        raise InvalidInput(f"an index of the guidance lies outside of [0, {len(held) - 1}]")
    matrix = torch.zeros(len(held), len(held), dtype=torch.float64)
    matrix[classes] = matrix[classes].scatter(1, indices.long(), values.double())
    return matrix


def upload_size(num_classes: int, num_held: int, wire: Wire) -> int:
    """Return how many numbers a client sends per round, its C counts included; each takes 4 bytes.

    >>> upload_size(10, 5, "dense"), upload_size(10, 5, "sparse")
    (110, 20)
    """
    return num_classes + (num_classes**2 if wire == "dense" else num_held * (num_held - 1) // 2)


def download_size(num_classes: int, num_held: int, wire: Wire, *, q: int | Literal["all"] = "all") -> int:
    """Return how many numbers a client receives per round; `q` counts for "guidance" alone; each takes 4 bytes.

    >>> [download_size(10, 5, wire, q=3) for wire in ("dense", "sparse", "half", "guidance")]
    [200, 20, 90, 30]
    """
    sizes = {
        "dense": 2 * num_classes**2,
        "sparse": num_held * (num_held - 1),
        "half": num_classes * (num_classes - 1),
        "guidance": 2 * num_held * _slots(num_held, q),
    }
    return sizes[wire]


def _slots(num_held: int, q: int | Literal["all"]) -> int:
    negatives = max(num_held - 1, 0)
    return negatives if q == "all" else min(q, negatives)


def _held_pairs(held: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = (held.unsqueeze(1) & held).triu(diagonal=1).nonzero(as_tuple=True)
    return rows, columns


def _download_pairs(held: Tensor, wire: Wire) -> tuple[Tensor, Tensor]:
    if wire == "guidance":
        raise InvalidInput("the form 'guidance' carries no R and S; use pack_guidance and unpack_guidance")
    return _held_pairs(held if wire == "sparse" else torch.ones_like(held))


def _check_length(values: Tensor, expected: int, name: str) -> None:
    if values.shape != (expected,):
        raise InvalidInput(f"the {name} has shape {tuple(values.shape)} where {expected} numbers are expected")
