"""Messages: everything that leaves a participant, with a schema from which checks, counts, bytes and docs are made.

A message is a frozen dataclass whose fields are tensors, declared with `entry(...)`, or named tensors of a model,
declared with `weights(...)`. On disk and on every wire it is a safetensors blob; nothing is ever pickled.
"""

import json
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from types import EllipsisType
from typing import Any, ClassVar, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from motley.errors import InvalidMessage

MOST_OFFENDERS = 10


@dataclass(frozen=True)
class Entry:
    """The schema of one field.

    Attributes:
        shape: A name (C classes, d features; bound on receipt), a number, or "*" for any length, one per axis; `...`
            alone is any shape.
        dtype: What travels; `other_dtype` is what a named option of the method, or another kind of data, sends instead.
        low, high: Closed range of every finite value; None leaves a side open.
        masked: NaN is allowed and means "not there".
        counted: False for indices, masks and counters, which tables of scalars leave out.
        about: One phrase for the docs.
    """

    shape: tuple[str | int | EllipsisType, ...] = ()
    dtype: torch.dtype = torch.float32
    low: float | None = None
    high: float | None = None
    masked: bool = False
    counted: bool = True
    about: str = ""
    named: bool = False
    other_dtype: torch.dtype | None = None


def entry(
    *shape: str | int | EllipsisType,
    dtype: torch.dtype = torch.float32,
    low: float | None = None,
    high: float | None = None,
    masked: bool = False,
    counted: bool = True,
    about: str = "",
    other_dtype: torch.dtype | None = None,
) -> Any:
    """Declare a tensor field of a message; see `Entry`."""
    rule = Entry(shape, dtype, low, high, masked, counted, about, other_dtype=other_dtype)
    return field(metadata={"entry": rule})


def weights(about: str = "") -> Any:
    """Declare a field that holds the named tensors of a model (its state dict)."""
    return field(metadata={"entry": Entry(about=about, named=True)})


@dataclass(frozen=True)
class Message:
    """Base of all messages; subclasses add fields only."""

    SEPARATOR: ClassVar[str] = "/"

    @classmethod
    def schema(cls) -> dict[str, Entry]:
        """Return the entry of every field, in order."""
        return {one.name: _entry(one) for one in fields(cls)}

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name; those of a model are named field/key."""
        flat: dict[str, Tensor] = {}
        for name, rule in self.schema().items():
            value = getattr(self, name)
            if rule.named:
                flat |= {f"{name}{self.SEPARATOR}{key}": tensor for key, tensor in value.items()}
            else:
                flat[name] = value
        return flat

    @classmethod
    def from_tensors(cls, flat: Mapping[str, Tensor]) -> Self:
        """Rebuild a message from `tensors()`.

        Raises:
            InvalidMessage: A field is missing or a name belongs to no field.
        """
        values: dict[str, Any] = {name: {} for name, rule in cls.schema().items() if rule.named}
        for name, tensor in flat.items():
            head, separator, key = name.partition(cls.SEPARATOR)
            rule = cls.schema().get(head)
            if rule is None or rule.named != bool(separator):
                raise InvalidMessage(f"{cls.__name__} has no entry '{name}'; it has {', '.join(cls.schema())}")
            if rule.named:
                values[head][key] = tensor
            else:
                values[head] = tensor
        missing = [name for name in cls.schema() if name not in values]
        if missing:
            raise InvalidMessage(
                f"{cls.__name__} lacks its entry '{missing[0]}'; the sender must send all of its entries"
            )
        return cls(**values)

    def to_bytes(self) -> bytes:
        """Return the message as a safetensors blob."""
        flat = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in self.tensors().items()}
        return save(flat, metadata={"order": json.dumps(list(flat))})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a message from a safetensors blob; nothing in it can run code.

        Raises:
            InvalidMessage: The blob is damaged or is no message of this kind.
        """
        try:
            flat, order = load(data), _order(data)
        except (SafetensorError, LookupError, ValueError, TypeError, RecursionError) as error:
            raise InvalidMessage(f"{cls.__name__}: the data received are no safetensors blob ({error})") from error
        return cls.from_tensors({name: flat[name] for name in order if name in flat} | flat)

    @property
    def num_scalars(self) -> int:
        """Return how many numbers travel; integer counters of models and uncounted entries are left out."""
        return sum(tensor.numel() for tensor in self._counted())

    @property
    def num_bytes(self) -> int:
        """Return the bytes of these numbers in the dtype in which they travel."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._counted())

    def _counted(self) -> list[Tensor]:
        rules = self.schema()
        found = []
        for name, tensor in self.tensors().items():
            rule = rules[name.partition(self.SEPARATOR)[0]]
            number = tensor.is_floating_point() or tensor.dtype == torch.int8  # int8: quantised weights
            if rule.counted and (number or not rule.named):
                found.append(tensor)
        return found

    def check(self, sender: str, **axes: int) -> None:
        """Check shapes, dtypes and ranges against the schema.

        Args:
            sender: Who sent it, for the error ("client 3").
            axes: Lengths of the named axes, for example C=10.

        Raises:
            InvalidMessage: One sentence that names the sender, the entry and what is wrong with it.
        """
        rules = self.schema()
        for name, tensor in self.tensors().items():
            rule = rules[name.partition(self.SEPARATOR)[0]]
            fault = _named_fault(tensor) if rule.named else _fault(tensor, rule, axes)
            if fault:
                kind = type(self).__name__
                raise InvalidMessage(f"{sender} sent {kind} whose entry '{name}' {fault}; the message was refused")
        if fault := self.fault():
            raise InvalidMessage(f"{sender} sent {type(self).__name__} in which {fault}; the message was refused")

    def fault(self) -> str:
        """Return what is wrong between the entries, or nothing; for messages whose entries depend on each other."""
        return ""


def _order(data: bytes) -> list[str]:
    """Return the sender's order of names: safetensors itself sorts the tensors of a blob by dtype."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    order = json.loads(header.get("__metadata__", {}).get("order", "[]"))
    return [name for name in order if isinstance(name, str)]


def _entry(one: Field[Any]) -> Entry:
    rule = one.metadata["entry"]
    assert isinstance(rule, Entry), one.name
    return rule


def _named_fault(tensor: Tensor) -> str:
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        return "is not finite"
    return ""


def _fault(tensor: Tensor, rule: Entry, axes: Mapping[str, int]) -> str:
    """Return what is wrong with a tensor, or nothing."""
    if tensor.dtype not in (rule.dtype, rule.other_dtype):
        return f"has dtype {_short(tensor.dtype)}, expected {_short(rule.dtype)}"
    expected = tuple(axes.get(axis, axis) if isinstance(axis, str) else axis for axis in rule.shape)
    fits = expected == (...,) or (
        len(expected) == tensor.dim()
        and all(isinstance(want, str) or want == got for want, got in zip(expected, tensor.shape, strict=True))
    )
    if not fits:
        return f"has shape {tuple(tensor.shape)}, expected ({', '.join(map(str, expected))})"
    if not tensor.is_floating_point():
        wrong = torch.zeros_like(tensor, dtype=torch.bool)
    else:
        wrong = torch.isinf(tensor) if rule.masked else ~torch.isfinite(tensor)
    if bool(wrong.any()):
        return f"is not finite at {_places(wrong)}"
    if rule.low is not None and bool((below := tensor < rule.low).any()):
        return f"is below {rule.low:g} at {_places(below)}"
    if rule.high is not None and bool((above := tensor > rule.high).any()):
        return f"is above {rule.high:g} at {_places(above)}"
    return ""


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _places(wrong: Tensor) -> str:
    places = [tuple(place) for place in torch.nonzero(wrong).tolist()]
    rest = f" and {len(places) - MOST_OFFENDERS} more" if len(places) > MOST_OFFENDERS else ""
    return ", ".join(map(str, places[:MOST_OFFENDERS])) + rest
