"""Decoding of pictures to one array of bytes: modes, rotation flags, sizes and damage (cases A6 and A9)."""

import io
import os
import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from motley.data.notes import Notes
from motley.data.raw import Pictures
from motley.data.wording import counted, listed
from motley.errors import InvalidData

FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")  # no EPS, which starts Ghostscript
DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


@dataclass(frozen=True)
class Picture:
    """One decoded picture, or what is wrong with it."""

    pixels: np.ndarray | None  # uint8 (H, W) if gray, else (H, W, 3)
    mode: str = ""
    had_alpha: bool = False
    damage: str = ""


@dataclass(frozen=True)
class Decoded:
    """The pictures of all splits as arrays of one shape."""

    arrays: Mapping[str, np.ndarray]  # split -> uint8 (n, channels, H, W)
    rows: Mapping[str, np.ndarray]  # split -> positions of the pictures that could be decoded
    modes: Mapping[str, int]  # mode in the file -> pictures
    damaged: tuple[str, ...]  # names of those that were left out


def decode_all(splits: Mapping[str, Pictures], size: int | None, *, skip_damaged: bool, notes: Notes) -> Decoded:
    """Decode every picture of all splits once.

    One picture in colour makes the whole set RGB; otherwise there is one channel.

    Args:
        splits: Pictures of each split.
        size: Height and width to which every picture is resized as a whole, bilinear, antialiased; None: as stored.
        skip_damaged: Leave out what cannot be decoded, instead of an error.
        notes: Takes warnings.

    Raises:
        InvalidData: Pictures are damaged, or their sizes differ and no size is given.
    """
    Image.init()  # here, since the threads must not all load Pillow's formats at once
    decoded = {split: _decode_split(pictures, size) for split, pictures in splits.items()}
    damaged = [
        (pictures.names[row], picture.damage)
        for split, pictures in splits.items()
        for row, picture in enumerate(decoded[split])
        if picture.damage
    ]
    _refuse_damage(damaged, skip=skip_damaged, notes=notes)
    _refuse_sizes(splits, decoded)
    whole = [picture for pictures in decoded.values() for picture in pictures if picture.pixels is not None]
    with_alpha = sum(picture.had_alpha for picture in whole)
    if with_alpha:
        notes.warn(f"alpha channel of {counted(with_alpha, 'picture')} dropped; colours are used as stored")
    in_colour = any(picture.pixels is not None and picture.pixels.ndim == 3 for picture in whole)
    rows = {
        split: np.array([row for row, picture in enumerate(pictures) if not picture.damage], np.int64)
        for split, pictures in decoded.items()
    }
    arrays = {split: _stack(pictures, in_colour=in_colour) for split, pictures in decoded.items()}
    modes = Counter(picture.mode for picture in whole)
    return Decoded(arrays, rows, dict(sorted(modes.items())), tuple(name for name, _ in damaged))


def decode_picture(data: bytes | np.ndarray, size: int | None = None) -> Picture:
    """Return the 8-bit pixels of one picture; damage is told, not raised, and never filled up."""
    if isinstance(data, bytes) and not data:
        return Picture(None, damage="the file is empty")
    try:
        if isinstance(data, bytes):
            with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
                opened.load()
                mode = opened.mode
                image = ImageOps.exif_transpose(opened)
        else:
            image = Image.fromarray(data)
            mode = image.mode
        image, had_alpha = _to_eight_bits(image)
    except UnidentifiedImageError:
        return Picture(None, damage="not a picture")
    except DAMAGE as error:
        text = str(error)
        cut = "truncated" in text or isinstance(error, EOFError)
        return Picture(None, damage=f"cut off ({text})" if cut else text or type(error).__name__)
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return Picture(np.asarray(image), mode, had_alpha)


def _to_eight_bits(image: Image.Image) -> tuple[Image.Image, bool]:
    """Return the picture in mode L or RGB, and whether it had an alpha channel, which is dropped as stored."""
    had_alpha = image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info
    image.info.pop("transparency", None)  # else Pillow warns, or mixes it into the colours
    if image.mode in ("L", "RGB"):
        return image, had_alpha
    if image.mode in ("LA", "RGBA"):
        bands = image.split()[:-1]
        return (bands[0] if len(bands) == 1 else Image.merge("RGB", bands)), had_alpha
    if image.mode == "PA":
        return Image.merge("RGB", image.convert("RGBA").split()[:-1]), had_alpha
    if image.mode == "1":
        return image.convert("L"), had_alpha
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 0xFFFF:
            raise ValueError("32-bit values, which are not supported; store 8 or 16 bits")
        # Pillow's own conversion clips at 255, which turns 16-bit pictures white.
        return Image.fromarray((values >> 8).astype(np.uint8)), had_alpha
    if image.mode == "F":
        raise ValueError("floating-point values, which are not supported; store 8 or 16 bits")
    return image.convert("RGB"), had_alpha


def _decode_split(pictures: Pictures, size: int | None) -> list[Picture]:
    def decode(rows: range) -> list[Picture]:
        return [_decode_row(pictures, row, size) for row in rows]

    chunk = 256  # pictures a task: small enough to share out, large enough that the pool costs nothing
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        chunks = pool.map(decode, [range(start, len(pictures))[:chunk] for start in range(0, len(pictures), chunk)])
        return [picture for part in chunks for picture in part]


def _decode_row(pictures: Pictures, row: int, size: int | None) -> Picture:
    try:
        data = pictures.read(row)
    except OSError as error:
        return Picture(None, damage=error.strerror or str(error))
    return decode_picture(data, size)


def _refuse_damage(damaged: Sequence[tuple[str, str]], *, skip: bool, notes: Notes) -> None:
    if not damaged:
        return
    described = listed([f"{name}: {damage}" for name, damage in damaged], "; ")
    number = counted(len(damaged), "picture")
    if skip:
        notes.warn(f"{number} left out since they cannot be decoded: {described}")
        return
    raise InvalidData(f"{number} cannot be decoded: {described}; data.skip_damaged = true leaves them out")


def _refuse_sizes(splits: Mapping[str, Pictures], decoded: Mapping[str, Sequence[Picture]]) -> None:
    first: tuple[str, tuple[int, ...]] | None = None
    for split, pictures in decoded.items():
        for row, picture in enumerate(pictures):
            if picture.pixels is None:
                continue
            name, shape = splits[split].names[row], picture.pixels.shape[:2]
            first = first or (name, shape)
            if shape != first[1]:
                raise InvalidData(
                    f"pictures differ in size: {first[0]} has {first[1][0]} x {first[1][1]} pixels, {name} has "
                    f"{shape[0]} x {shape[1]}; give data.size to resize them all"
                )


def _stack(pictures: Sequence[Picture], *, in_colour: bool) -> np.ndarray:
    """Return uint8 (n, channels, H, W); gray pictures are repeated over three channels if the set has colour."""
    whole = [picture.pixels for picture in pictures if picture.pixels is not None]
    if not whole:
        return np.zeros((0, 3 if in_colour else 1, 0, 0), np.uint8)
    height, width = whole[0].shape[:2]
    stacked = np.empty((len(whole), 3 if in_colour else 1, height, width), np.uint8)
    for row, pixels in enumerate(whole):
        stacked[row] = pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return stacked
