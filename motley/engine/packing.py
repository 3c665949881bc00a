"""Messages and tensors on their way between processes of one machine: one block of bytes each, shared if it is large.

The block is the safetensors blob that travels between machines, too. A tensor of its own for every entry would need a
file descriptor each, of which a process has about a thousand.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
import torch.multiprocessing
from safetensors.torch import load, save
from torch import Tensor

from motley.messages import Message

SHARED_FROM = 65_536  # bytes; what is smaller goes through the pipe


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


def _block(data: bytes) -> bytes | Tensor:
    return data if len(data) < SHARED_FROM else torch.frombuffer(bytearray(data), dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
