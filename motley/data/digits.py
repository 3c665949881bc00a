"""Source `digits`: the 1,797 handwritten digits that come with scikit-learn, 8 x 8, one split."""

import numpy as np

from motley.data.raw import RawSource, RawSplit


def read_digits() -> RawSource:
    """Return the digits; the stored values 0..16 become 0..255."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  costs a second that the other sources need not pay

    values, labels = load_digits(return_X_y=True)
    pixels = np.round(values * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    names = tuple(str(digit) for digit in range(10))
    return RawSource("digits", {"train": RawSplit(pixels, labels.astype(np.int64))}, names)
