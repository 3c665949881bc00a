import numpy as np
import pytest
from case_inputs import MODE_PIXELS, damaged_pictures, file_bytes, noisy, picture_modes, plain, put
from PIL import Image

from motley.data.dataset import Dataset
from motley.data.pictures import decode_picture
from motley.data.sources import load_dataset
from motley.errors import InvalidData, MotleyWarning
from motley.options import DataOptions


def load(path, **options) -> Dataset:
    return load_dataset(DataOptions(source=f"folder:{path}", **options))


def test_a6_every_mode_becomes_eight_bit_rgb(tmp_path):
    with pytest.warns(MotleyWarning, match="alpha channel of 2 pictures dropped"):
        dataset = load(picture_modes(tmp_path))
    assert dataset.train.x.shape == (9, 3, 16, 16)
    for sample, (top, bottom, tolerance) in zip(dataset.train.x.numpy().astype(int), MODE_PIXELS.values(), strict=True):
        assert np.abs(sample[:, 0, 0] - top).max() <= tolerance
        assert np.abs(sample[:, 15, 0] - bottom).max() <= tolerance
    modes = {"1": 1, "CMYK": 1, "I;16": 1, "L": 1, "LA": 1, "P": 1, "RGB": 2, "RGBA": 1}
    assert dataset.report.modes == modes
    assert any("alpha" in note for note in dataset.report.notes)


def test_a6_an_all_gray_set_has_one_channel(tmp_path):
    gray = ("first/bilevel.png", "second/gray.png", "second/gray-alpha.png", "second/sixteen-bit.png")
    with pytest.warns(MotleyWarning, match="alpha"):
        dataset = load(picture_modes(tmp_path, gray))
    assert dataset.input_shape == (1, 16, 16)
    assert dataset.train.x[:, 0, 3, 3].tolist() == [255, 77, 77, 100]


def test_a6_sizes_that_differ_are_named_with_the_remedy(tmp_path):
    put(tmp_path / "a" / "1.png", noisy(1, 16))
    put(tmp_path / "b" / "2.png", noisy(2, 20))
    with pytest.raises(InvalidData, match=r"a/1.png has 16 x 16 pixels, b/2.png has 20 x 20; give data.size"):
        load(tmp_path)
    assert load(tmp_path, size=8).train.x.shape == (2, 3, 8, 8)


def test_a6_the_whole_picture_is_resized_without_cropping(tmp_path):
    # Left half black, right half white; 32 x 8 becomes 8 x 8 with the edge still in the middle, smoothed by the filter.
    wide = np.zeros((8, 32), np.uint8)
    wide[:, 16:] = 255
    put(tmp_path / "a" / "wide.png", file_bytes(Image.fromarray(wide)))
    row = load(tmp_path, size=8).train.x[0, 0, 0].int().tolist()
    assert row[:3] == [0, 0, 0]
    assert row[5:] == [255, 255, 255]
    assert 0 < row[3] < 128 < row[4] < 255


def test_a_transparent_colour_of_the_palette_is_dropped_as_stored():
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 10, 130, 250])
    picture = decode_picture(file_bytes(image, transparency=b"\x80\x00"))
    assert picture.had_alpha
    assert picture.pixels[0, 0].tolist() == [10, 130, 250]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a9_a_cut_picture_is_never_filled_up(kind, share):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = file_bytes(Image.fromarray(pixels), kind)
    assert decode_picture(data).pixels is not None
    assert decode_picture(data[: int(share * len(data))]).pixels is None


def test_a9_all_damaged_pictures_are_named_with_what_is_wrong(tmp_path):
    base = damaged_pictures(tmp_path)
    with pytest.raises(InvalidData) as caught:
        load(base)
    message = str(caught.value)
    assert message.startswith("3 pictures cannot be decoded: ")
    assert "cat/cut.png: cut off" in message
    assert "dog/empty.png: the file is empty" in message
    assert "dog/table.png: not a picture" in message
    assert "data.skip_damaged = true" in message
    assert "\n" not in message


def test_a9_damaged_pictures_can_be_left_out(tmp_path):
    base = damaged_pictures(tmp_path)
    with pytest.warns(MotleyWarning, match="3 pictures left out since they cannot be decoded"):
        dataset = load(base, skip_damaged=True)
    assert len(dataset.train) == 4
    assert dataset.train.y.tolist() == [0, 0, 1, 1]
    assert dataset.report.damaged == ("cat/cut.png", "dog/empty.png", "dog/table.png")


def test_a9_ten_names_at_most_then_a_number(tmp_path):
    for number in range(13):
        put(tmp_path / "a" / f"{number:02}.png", b"")
    put(tmp_path / "b" / "good.png", noisy(1))
    with pytest.raises(InvalidData, match=r"13 pictures .*a/09.png: the file is empty; and 3 more"):
        load(tmp_path)


def test_postscript_is_never_run():
    header = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n%%EOF\n"
    assert decode_picture(header).damage == "not a picture"


def test_thirty_two_bit_pictures_are_refused_and_not_clipped():
    picture = decode_picture(file_bytes(Image.fromarray(np.full((4, 4), 70_000, np.int32)), "TIFF"))
    assert "32-bit" in picture.damage


def test_pictures_come_in_order_over_many_threads(tmp_path):
    for number in range(600):
        put(tmp_path / "a" / f"{number:03}.png", file_bytes(plain((number % 256, number // 256, 0), 2)))
    x = load(tmp_path).train.x[:, :2, 0, 0].int()
    assert (x[:, 0] + 256 * x[:, 1]).tolist() == list(range(600))
