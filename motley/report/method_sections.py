"""The sections of single methods: the topology of FedTopo, the teachers of CRAD."""

from collections.abc import Sequence

import numpy as np

from motley.record.load import RunRecord
from motley.report.drawing import slug
from motley.report.material import Floats, accuracies_by_class, guidance, teachers, topology
from motley.report.method_figures import change_figure, kept_figure, pair_figure, teacher_figure
from motley.report.sections import MOST_METHODS, Methods, Plate, Section, plate
from motley.report.wording import percent, plural


def method_sections(runs: Methods) -> list[Section]:
    """Return the sections of methods that left material of their own, from the first run that has it."""
    sections: list[Section] = []
    for method, own in runs.items():
        for run in own.values():
            made = [one for one in (_topology_section(method, run), _teacher_section(method, run)) if one is not None]
            sections += made
            if made:
                break
    return sections[:MOST_METHODS]


def _topology_section(method: str, run: RunRecord) -> Section | None:
    found = topology(run)
    names = run.summary.get("class_names", [])
    if found is None or len(names) != len(found.relations):
        return None
    pair = _strongest(found.relations, names)
    plates = [
        plate(
            pair_figure(found.relations, names, label="relation R"),
            f"relations-{method}",
            f"Heat map of the relations between {len(names)} classes{pair}.",
            "Relations R of the classes, 0 to 1: (1 + cosine of the class prototypes) / 2, aggregated and smoothed.",
        ),
        plate(
            pair_figure(found.reliability, names, label="reliability S"),
            f"reliability-{method}",
            f"Heat map of the reliability of each pair of {len(names)} classes.",
            "Reliability S of the last aggregation, 0 to 1: relative support of a pair of classes.",
        ),
    ]
    plates += _change_plates(method, run)
    lead = (
        f"{method}, seed {run.seed}, after round {found.round}. Grey: the diagonal, and pairs that no client ever held "
        "together."
    )
    return Section(slug(f"topology-{method}"), f"Topology of {method}", lead, plates)


def _change_plates(method: str, run: RunRecord) -> list[Plate]:
    """Return the figure of changes, if there were any rounds to compare."""
    found = guidance(run)
    if found is None or not np.nansum(found.relations_change) + np.nansum(found.guidance_change) > 0:
        return []
    absent = np.nanmax(found.absent, initial=0.0)
    more = f" At most {percent(absent, 1)} % of the guidance of a round is on classes that a client lacks."
    return [
        plate(
            change_figure(found),
            f"changes-{method}",
            f"Lines of the change of relations and guidance over {plural(len(found.rounds), 'round')}.",
            "Mean absolute change of the relations that a client uses and of its guidance B since it last took part, "
            f"mean over clients.{more if absent > 0 else ''}",
        )
    ]


def _strongest(relations: Floats, names: Sequence[str]) -> str:
    if not np.isfinite(relations).any():
        return ""
    row, column = divmod(int(np.nanargmax(relations)), len(names))
    return f"; the most alike are {names[row]} and {names[column]} ({relations[row, column]:.2f})"


def _knowledge_plates(method: str, run: RunRecord, ids: Sequence[int], names: Sequence[str]) -> list[Plate]:
    """Return the figure of what teachers know (CRAD, Fig. 4b), if there is a common test set."""
    known = accuracies_by_class(run, ids)
    if known is None:
        return []
    return [
        plate(
            teacher_figure(100 * known, ids, names, label="accuracy, %"),
            f"knowledge-{method}",
            f"Heat map of the accuracy of {len(ids)} teachers on {len(names)} classes of the common test set.",
            "What the teachers know: accuracy on the common test set by class, last evaluated round. It is never sent; "
            "held against the support it shows what the weights are made of, and what they cannot see.",
        )
    ]


def _teacher_section(method: str, run: RunRecord) -> Section | None:
    found, names = teachers(run), run.summary.get("class_names", [])
    if found is None or len(names) != found.support.shape[1]:
        return None
    ids = found.teachers
    plates = [
        plate(
            teacher_figure(found.support, ids, names, label="validation samples"),
            f"support-{method}",
            f"Heat map of the validation samples of {len(ids)} teachers in {len(names)} classes.",
            "Class support of the teachers: validation samples.",
        ),
        *_knowledge_plates(method, run, ids, names),
        plate(
            teacher_figure(found.weight, ids, names, label="mean weight"),
            f"weight-{method}",
            f"Heat map of the mean weight of {len(ids)} teachers in {len(names)} classes.",
            f"A teacher's share of the target for a class, mean over students and their samples, round {found.round}. "
            "Grey: no teacher supports the class.",
        ),
        plate(
            kept_figure(found),
            f"kept-{method}",
            f"Heat map of how often each of {len(ids)} teachers was kept, over {plural(len(found.rounds), 'round')}.",
            "How often the agreement filter kept a teacher, over its supported classes, students and samples; "
            "otherwise it was filtered. Grey: it supports no class.",
        ),
    ]
    return Section(slug(f"teachers-{method}"), f"Teachers of {method}", f"{method}, seed {run.seed}.", plates)
