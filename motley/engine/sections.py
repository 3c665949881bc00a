"""The sections of a configuration file that are not of a run: what is compared, and with which published figures."""

from dataclasses import field
from typing import Annotated, Any, Literal

import pydantic.dataclasses
from pydantic import Field

from motley.options import STRICT


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class CompareSection:
    """The section `compare` of a file."""

    methods: tuple[str, ...] = ()
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = ()
    reference: str | None = None


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class PaperSection:
    """The section `paper` of a file: published figures that a comparison is held against.

    Attributes:
        source: Which table of which paper.
        figure: Which accuracy of ours stands beside them: of the last round, or of the round that validation selects.
        values: Per cent by name of the row, alone or as mean and standard deviation.
        points: The same for the points of a sweep, by the point's text as in `fedtopo.strength=2`.
        departures: In what this comparison differs from the published one, a sentence each.
    """

    source: str = ""
    figure: Literal["local", "global", "local_selected", "global_selected"] = "local"
    values: dict[str, float | list[float]] = field(default_factory=dict)
    points: dict[str, dict[str, float | list[float]]] = field(default_factory=dict)
    departures: tuple[str, ...] = ()


EXTRA_SECTIONS: dict[str, type[Any]] = {"compare": CompareSection, "paper": PaperSection}  # not of a run
