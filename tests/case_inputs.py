"""The small files that the cases A4 to A10 and F6 are about, built where a test wants them; all of it is synthetic."""

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

Colour = tuple[int, int, int]
EXIF_ORIENTATION = 0x0112
QUARTER_TURN = 6  # shown after a turn of 90 degrees to the right


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def plain(colour: Colour, side: int = 8) -> Image.Image:
    return Image.new("RGB", (side, side), colour)


def file_bytes(image: Image.Image, kind: str = "PNG", **settings: object) -> bytes:
    target = BytesIO()
    image.save(target, kind, **settings)
    return target.getvalue()


def noisy(seed: int, side: int = 16) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return file_bytes(Image.fromarray(pixels))


def numbered_folders(root: Path) -> Path:
    """A4: folders 0..11 with two pictures each (red is 20 x class), and what desktops and notebooks leave behind."""
    base = root / "numbered"
    for label in range(12):
        for copy in range(2):
            put(base / str(label) / f"{copy}.png", file_bytes(plain((20 * label, copy, 7))))
    put(base / ".ipynb_checkpoints" / "0-checkpoint.png", file_bytes(plain((255, 255, 255))))
    for hidden in (".DS_Store", "3/.DS_Store", "3/Thumbs.db", "3/._0.png", "5/desktop.ini", "__MACOSX/3/0.png"):
        put(base / hidden, b"\0\1\2")
    put(base / "notes.txt", "scanned twice\n")
    return base


def tiny_imagenet(root: Path) -> Path:
    """A5: the layout of the Tiny-ImageNet archive with three classes; one training picture is gray."""
    base = root / "tiny"
    colours = {"n00000001": (200, 0, 0), "n00000002": (0, 200, 0), "n00000003": (0, 0, 200)}
    put(base / "wnids.txt", "n00000003\nn00000001\nn00000002\n")
    put(
        base / "words.txt",
        "n00000001\tred thing, red object\nn00000002\tgreen thing\nn00000003\tblue thing\nn4\tother\n",
    )
    for name, colour in colours.items():
        for copy in range(2):
            image = Image.new("L", (16, 16), 120) if (name, copy) == ("n00000002", 1) else plain(colour, 16)
            put(base / "train" / name / "images" / f"{name}_{copy}.JPEG", file_bytes(image, "JPEG", quality=95))
        put(base / "train" / name / f"{name}_boxes.txt", f"{name}_0.JPEG\t0\t0\t15\t15\n")
    order = ("n00000002", "n00000002", "n00000001", "n00000003", "n00000001", "n00000003")
    for position, name in enumerate(order):
        put(base / "val" / "images" / f"val_{position}.JPEG", file_bytes(plain(colours[name], 16), "JPEG", quality=95))
    rows = [f"val_{position}.JPEG\t{name}\t0\t0\t15\t15\n" for position, name in enumerate(order)]
    put(base / "val" / "val_annotations.txt", "".join(rows))
    put(base / "test" / "images" / "test_0.JPEG", file_bytes(plain((9, 9, 9), 16), "JPEG"))
    return base


# The 8-bit RGB values at row 0, column 0 and at row 15, column 0, and by how much a file format may miss them.
MODE_PIXELS: Mapping[str, tuple[Colour, Colour, int]] = {
    "first/bilevel.png": ((255, 255, 255), (255, 255, 255), 0),
    "first/cmyk.jpg": ((255, 0, 0), (255, 0, 0), 3),
    "second/gray.png": ((77, 77, 77), (77, 77, 77), 0),
    "second/gray-alpha.png": ((77, 77, 77), (77, 77, 77), 0),
    "second/palette.png": ((10, 130, 250), (10, 130, 250), 0),
    "second/rgb.png": ((1, 2, 3), (1, 2, 3), 0),
    "second/rgba-transparent.png": ((10, 20, 30), (10, 20, 30), 0),
    "second/rotated.jpg": ((240, 0, 0), (0, 0, 240), 3),
    "second/sixteen-bit.png": ((100, 100, 100), (100, 100, 100), 0),
}


def picture_modes(root: Path, names: Sequence[str] = tuple(MODE_PIXELS)) -> Path:
    """A6: one picture of 16 x 16 pixels for each way of storing colours, or those that are named."""
    side = 16
    left_and_right = np.zeros((side, side, 3), np.uint8)
    left_and_right[:, : side // 2] = (240, 0, 0)
    left_and_right[:, side // 2 :] = (0, 0, 240)
    turned = Image.Exif()
    turned[EXIF_ORIENTATION] = QUARTER_TURN
    palette = Image.new("P", (side, side), 1)
    palette.putpalette([0, 0, 0, 10, 130, 250])
    contents = {
        "first/bilevel.png": file_bytes(Image.new("1", (side, side), 1)),
        "first/cmyk.jpg": file_bytes(Image.new("CMYK", (side, side), (0, 255, 255, 0)), "JPEG", quality=100),
        "second/gray.png": file_bytes(Image.new("L", (side, side), 77)),
        "second/gray-alpha.png": file_bytes(Image.new("LA", (side, side), (77, 0))),
        "second/palette.png": file_bytes(palette),
        "second/rgb.png": file_bytes(plain((1, 2, 3), side)),
        "second/rgba-transparent.png": file_bytes(Image.new("RGBA", (side, side), (10, 20, 30, 0))),
        "second/rotated.jpg": file_bytes(
            Image.fromarray(left_and_right), "JPEG", quality=100, subsampling=0, exif=turned
        ),
        "second/sixteen-bit.png": file_bytes(Image.fromarray(np.full((side, side), 0x6432, np.uint16))),
    }
    for name in names:
        put(root / "modes" / name, contents[name])
    return root / "modes"


def medical_arrays(path: Path, **labels: np.ndarray) -> Path:
    """A7: an npz file with MedMNIST's names, gray pictures of 8 x 8 for the given labels of train, val and test."""
    rng = np.random.default_rng(7)
    arrays: dict[str, np.ndarray] = {}
    for split, own in labels.items():
        arrays[f"{split}_images"] = rng.integers(0, 256, (len(own), 8, 8), dtype=np.uint8)
        arrays[f"{split}_labels"] = own
    return save_arrays(path, arrays)


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def column(*values: int, kind: type = np.uint8) -> np.ndarray:
    return np.array(values, kind).reshape(-1, 1)


RED_LABELS = (0, 1, 2, 0, 1, 2)


def picture_table(path: Path, form: str = "struct") -> Path:
    """A8: six pictures of 8 x 8 (red is 40 x row) in one of the forms in which tables store them."""
    stored = [file_bytes(plain((40 * row, 0, 0))) for row in range(6)]
    labels: list[int | None] = list(RED_LABELS)
    names = {"other-names": ("img", "fine_label")}.get(form, ("image", "label"))
    classes: list[str] | None = ["cat", "dog", "owl"]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    images = pa.array([{"bytes": data, "path": f"{row}.png"} for row, data in enumerate(stored)], kind)
    if form in ("struct-without-names", "other-names"):
        classes = None
    elif form == "bytes":
        images, classes = pa.array(stored, pa.binary()), None
    elif form == "pixels":
        pixels = [np.asarray(plain((40 * row, 0, 0))).tolist() for row in range(6)]
        images, classes = pa.array(pixels, pa.list_(pa.list_(pa.list_(pa.uint8())))), None
    elif form == "path-only":
        images = pa.array([{"bytes": None, "path": f"missing/{row}.png"} for row in range(6)], kind)
    elif form == "null-label":
        labels[2] = None
    table = pa.table({names[0]: images, names[1]: pa.array(labels, pa.int64())})
    if classes is not None:
        features = {"image": {"_type": "Image"}, "label": {"names": classes, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def damaged_pictures(root: Path) -> Path:
    """A9: three damaged files among four good ones."""
    base = root / "damaged"
    for position in range(4):
        put(base / ("cat" if position % 2 else "dog") / f"good-{position}.png", noisy(position))
    whole = noisy(9)
    put(base / "cat" / "cut.png", whole[: len(whole) // 2])
    put(base / "dog" / "empty.png", b"")
    put(base / "dog" / "table.png", "id,label\n1,dog\n")
    return base


def class_sets(root: Path) -> Path:
    """A10: cat, dog, owl in train; cat, owl, zebra in test; two pictures each."""
    base = root / "class-sets"
    for split, names in {"train": ("cat", "dog", "owl"), "test": ("cat", "owl", "zebra")}.items():
        for position, name in enumerate(names):
            for copy in range(2):
                put(base / split / name / f"{copy}.png", file_bytes(plain((60 * position, 90, copy))))
    return base


def foreign_paths(root: Path) -> Path:
    """F6: folders and files with an umlaut, blanks, an apostrophe and letters outside Latin-1."""
    base = root / "Müllers Daten (v1.2) d'été"
    for name, red in (("猫", 10), ("собака", 200)):
        for copy in range(2):
            put(base / name / f"{copy} ä.png", file_bytes(plain((red, 0, copy))))
    return base
