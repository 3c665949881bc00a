"""Messages and tensors on their way between processes of one machine: one block of bytes each, shared if it is large.

The block is the safetensors blob that travels between machines, too. A tensor of its own for every entry would need a
file descriptor each, of which a process has about a thousand.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import torch
import torch.multiprocessing
from safetensors.torch import load, save
from torch import Tensor

from motley.messages import Message

SHARED_FROM = 65_536  # bytes; what is smaller goes through the pipe
BUNDLE = 64_000_000  # bytes: a block for each of 1,000 snapshots would need as many file descriptors


@dataclass(frozen=True)
class Packed:
    """A block of bytes, and which message it holds; `kind` is None for plain named tensors."""

    block: bytes | Tensor
    kind: type[Message] | None = None

    @classmethod
    def message(cls, message: Message) -> Self:
        """Pack a message."""
        return cls(_block(message.to_bytes()), type(message))

    @classmethod
    def tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Pack named tensors; each gets memory of its own, as safetensors asks for."""
        return cls(_block(save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})))

    def to_message(self) -> Message:
        """Unpack a message."""
        assert self.kind is not None
        return self.kind.from_bytes(self._bytes())

    def to_tensors(self) -> dict[str, Tensor]:
        """Unpack named tensors."""
        return load(self._bytes())

    def _bytes(self) -> bytes:
        return self.block if isinstance(self.block, bytes) else self.block.numpy().tobytes()


@dataclass(frozen=True)
class Bundle:
    """Several messages in one block of bytes: by number, kind and where they lie."""

    block: bytes | Tensor
    parts: Mapping[int, tuple[type[Message], int, int]]

    @classmethod
    def of(cls, messages: Mapping[int, Message]) -> Iterator[Self]:
        """Pack messages in their order, as many into a bundle as fit; a larger one has its own."""
        data = bytearray()
        parts: dict[int, tuple[type[Message], int, int]] = {}
        for number, message in messages.items():
            blob = message.to_bytes()
            if parts and len(data) + len(blob) > BUNDLE:
                yield cls(_block(bytes(data)), parts)
                data, parts = bytearray(), {}
            parts[number] = type(message), len(data), len(data) + len(blob)
            data += blob
        if parts:
            yield cls(_block(bytes(data)), parts)

    def to_messages(self, wanted: Collection[int]) -> dict[int, Message]:
        """Unpack those messages that are wanted, in the order of the bundle."""
        block = memoryview(self.block) if isinstance(self.block, bytes) else self.block.numpy().data
        return {
            number: kind.from_bytes(bytes(block[start:stop]))
            for number, (kind, start, stop) in self.parts.items()
            if number in wanted
        }


def _block(data: bytes) -> bytes | Tensor:
    return data if len(data) < SHARED_FROM else torch.frombuffer(bytearray(data), dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
