"""`motley trace DIR`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from matplotlib.figure import Figure
from rich.table import Table

from motley.cli.command import command, extra, make_app, positional, whole_number
from motley.cli.output import print_table, warnings_to_stderr
from motley.engine.trace import TracedSample, tracing
from motley.errors import InvalidConfig, InvalidInput
from motley.functional.trace import Trace
from motley.record.files import dump_json
from motley.report.drawing import check_figure_path, save_figure
from motley.report.trace_figure import trace_figure
from motley.report.wording import percent, points

HELP = """Show how CRAD's teachers decided one sample of a run: a table, and a figure.

    motley trace runs/crad --client 0 --image 5
    motley trace runs/crad --client 0 --image 5 --part validation --out case.png
    motley trace runs/crad --client 0 --image 5 --class 3
    motley trace runs/crad --find success
    motley trace runs/crad --find failure --client 3

The models are those of the run's newest checkpoint, the teachers those of the round that would follow: its
participants, and with --peers stale all others with the last snapshots that they sent, if any. success and
failure are the samples whose target gains or loses most on the true class against the mean of all teachers.
"""

WHOLE = Annotated[int, Parameter(converter=whole_number)]


def _trace(values: dict[str, Any]) -> None:
    path, part, case, out = values["path"], values["part"], values.get("find"), values.get("out")
    client, image = values.get("client"), values.get("image")
    if case is None and (client is None or image is None):
        raise InvalidConfig("which sample to trace is not said; give --client K --image I, or --find success")
    if case is not None and image is not None:
        raise InvalidConfig("--find looks for the image itself; leave --image or --find away")
    if out is not None:
        _check_free(out, replace=values["replace"])
    with warnings_to_stderr(), tracing(path) as tracer:
        shown = tracer.class_number(values["class_"]) if "class_" in values else None
        place: tuple[Any, Any] = (client, image) if case is None else tracer.find(case, client, part)
        sample = tracer.trace(*place, part, shown)
        if out is None:
            out = path / _file_name(sample)
            _check_free(out, replace=values["replace"])
        _save(trace_figure(sample.trace, _title(sample), tracer.picture(sample), _class(sample)), out)
    if values["json"]:
        print_table(dump_json({"path": str(path), **_plain(sample), "figure": str(out)}, indent=1))
        return
    print_table(_table(sample))
    print_table(_summary(sample))
    print_table(f"written to {out}")


def _check_free(out: Path, *, replace: bool) -> None:
    """Refuse a path to which the figure cannot or must not be written, before anything is computed.

    Raises:
        InvalidInput: It has another ending, is taken, or lies in no folder.
    """
    check_figure_path(out)
    if out.is_dir() or (out.exists() and not replace):
        raise InvalidInput(f"{out} exists; choose another file with --out, or write over it with --replace")
    if not out.parent.is_dir():
        raise InvalidInput(f"there is no folder {out.parent} for the figure; choose another file with --out")


def _save(figure: Figure, out: Path) -> None:
    try:
        save_figure(figure, out)
    except OSError as error:
        raise InvalidInput(f"{out} cannot be written ({error.strerror}); choose another file with --out") from error


def _file_name(sample: TracedSample) -> str:
    part = "" if sample.part == "test" else f"{sample.part}-"
    other = "" if sample.trace.label == sample.label else f"-class-{sample.trace.label}"
    return f"trace-client-{sample.client}-{part}image-{sample.image}{other}.svg"


def _title(sample: TracedSample) -> str:
    return f"client {sample.client}, {sample.part} image {sample.image}: {sample.class_name}, round {sample.round}"


def _class(sample: TracedSample) -> str:
    return "the true class" if sample.trace.label == sample.label else f"class {sample.shown}"


def _plain(sample: TracedSample) -> dict[str, Any]:
    traces = {"trace": _plain_trace(sample.trace), "classes": [_plain_trace(one) for one in sample.classes]}
    return asdict(sample) | traces


def _plain_trace(trace: Trace) -> dict[str, Any]:
    return {**asdict(trace), "band": trace.band, "gain": trace.gain}


def _table(sample: TracedSample) -> Table:
    other = f"\nprobability of {_class(sample)}" if sample.trace.label != sample.label else ""
    table = Table("teacher", "state", box=None, pad_edge=False, title=_title(sample) + other, title_justify="left")
    table.title_style = ""
    for name in ("n", "a", "w", "W %", "q %"):
        table.add_column(name, justify="right")
    for one in sample.trace.teachers:
        share = percent(one.share) if one.share else "-"
        numbers = (f"{one.count:.4g}", f"{one.accuracy:.3f}", f"{one.weight:.5g}", share, percent(one.probability))
        table.add_row(str(one.teacher), one.state, *numbers)
    return table


def _summary(sample: TracedSample) -> str:
    trace = sample.trace
    band = f"{percent(trace.band[0])} .. {percent(trace.band[1])} %" if trace.band else "none"
    lines = [
        f"acceptance band {band}; probabilities at temperature {sample.temperature:g}",
        f"consensus before {percent(trace.consensus)} %, target after {percent(trace.target)} % "
        f"(before normalisation over the classes {percent(trace.raw)} %)",
        f"mean of all teachers {percent(trace.uniform)} %, gain over it {points(trace.gain)} points",
    ]
    if not any(one.share for one in trace.teachers):
        lines.append("no teacher has a share of this class: crad.unsupported says what it takes instead")
    return "\n".join([*lines, *sample.notes])


app = make_app("trace", HELP)
app.default(
    command(
        _trace,
        [
            positional("path", Path, "folder of a run of crad"),
            extra("client", WHOLE, "the student, 0 or larger"),
            extra("image", WHOLE, "position of the sample in the student's part, from 0"),
            extra("part", str, "test, validation or train  [default: test]", default="test"),
            extra("class_", str, "name or number of the class to show  [default: the true class]"),
            extra("find", str, "trace the largest gain or loss instead: success or failure"),
            extra("out", Path, "figure, .svg, .png or .pdf  [default: trace-client-K-image-I.svg in the run folder]"),
            extra("replace", bool, "write over a figure that exists", default=False),
            extra("json", bool, "print the trace as JSON, of all classes too", default=False),
        ],
        HELP,
    )
)
