"""What ran: facts, options and the commands that repeat it, as pairs of a name and a text."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from motley.record.comparison import CONFIG as COMPARE_CONFIG
from motley.record.comparison import Comparison
from motley.record.folder import CONFIG
from motley.record.load import RunRecord
from motley.report.material import FINISHED, Runs, status
from motley.report.wording import number, percent, plural

LONGEST = 300  # letters of one value


class Fact(NamedTuple):
    """A name and what is known."""

    name: str
    text: str


class Options(NamedTuple):
    """The options of a section of the configuration."""

    section: str
    values: list[Fact]


def facts_of_run(run: RunRecord) -> list[Fact]:
    """Return what one run did, and where."""
    asked = run.config["run"]["rounds"]
    done = run.summary.get("rounds")
    return [
        Fact("status", f"{status(run)}, {done if done is not None else 0} of {asked} rounds"),
        Fact("method", run.method),
        *_common_facts(run),
        *_privacy_facts("privacy", run),
        Fact("seed", str(run.seed)),
        *_machine_facts([run]),
        Fact("folder", str(run.path)),
    ]


def facts_of_comparison(comparison: Comparison, runs: Mapping[str, Runs]) -> list[Fact]:
    """Return what a comparison ran, and where."""
    asked = comparison.config["compare"]
    everything = [run for own in runs.values() for run in own.values()]
    total = len(asked["methods"]) * len(asked["seeds"])
    done = sum(status(run) == FINISHED for run in everything)
    firsts = {row: next(iter(own.values())) for row, own in runs.items() if own}
    known = next((run for run in everything if "counts" in run.summary), everything[0] if everything else None)
    return [
        Fact("status", f"{done} of {plural(total, 'run')} finished"),
        Fact("methods", ", ".join(asked["methods"])),
        Fact("reference", comparison.reference),
        *(_common_facts(known) if known else []),
        *(fact for row, run in firsts.items() for fact in _privacy_facts(f"privacy of {row}", run)),
        Fact("seeds", ", ".join(map(str, asked["seeds"]))),
        Fact("the same in all runs of a seed", "partition, initial weights, order of batches, participants"),
        *_machine_facts(everything),
        Fact("folder", str(comparison.path)),
    ]


def _common_facts(run: RunRecord) -> list[Fact]:
    config, told = run.config, run.summary
    data, partition, plan = config.get("data", {}), config.get("partition", {}), told.get("partition", {})
    facts = [Fact("data", _data(str(data.get("source", "")), told)), Fact("partition", _partition(partition, told))]
    if plan:
        facts.append(
            Fact(
                "how unlike the clients are",
                f"{plan['effective_classes']:.2f} effective classes a client (of {len(told['class_names'])}; fewer is "
                f"more skewed), mean distance of its labels to all labels {plan['label_distance']:.2f} (0 alike, 1 "
                "disjoint)",
            )
        )
    facts += [
        Fact("protocol", _protocol(str(partition.get("protocol", "")))),
        Fact("models", _models(config, told)),
        Fact("rounds", f"{config['run']['rounds']}, of {plural(config['train']['local_epochs'], 'local epoch')} each"),
    ]
    if "participation" in told:
        facts.append(Fact("clients in a round", str(told["participation"])))
    if "faults" in told:
        facts.append(Fact("faulty peers", _faults(told)))
    return facts


def _faults(told: Mapping[str, Any]) -> str:
    """Return which clients were made faulty, and how."""
    faults = told["faults"]
    text = f"{', '.join(map(str, faults['clients']))}, {faults['bad_kind']}"
    if faults["forged_samples"]:
        text += f", claiming {number(faults['forged_samples'])} validation samples of every class, all right"
    return text


def _privacy_facts(name: str, run: RunRecord) -> list[Fact]:
    """Return what a method with noised statistics says of its noise; nothing of others."""
    rows = (row["method"] for row in run.rows if row["kind"] == "client")
    told = next((row["privacy"] for row in rows if "privacy" in row), None)
    if told is None:
        return []
    return [Fact(name, "; ".join(f"{part.replace('_', ' ')}: {_value(value)}" for part, value in told.items()))]


def _data(source: str, told: Mapping[str, Any]) -> str:
    parts = [source]
    if told.get("class_names"):
        parts.append(plural(len(told["class_names"]), "class", "classes"))
    if "input_shape" in told:
        parts.append(f"inputs {' x '.join(map(str, told['input_shape']))}")
    if "samples" in told:
        sums = {part: sum(one[part] for one in told["samples"]) for part in ("train", "validation", "test")}
        parts.append(", ".join(f"{number(count)} {part}" for part, count in sums.items() if count))
    return "; ".join(parts)


def _partition(asked: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    found = told.get("partition", {})
    text = f"{asked.get('scheme', '')} over {plural(int(told.get('num_clients', asked.get('clients', 0))), 'client')}"
    text += f", seed {found.get('seed', asked.get('seed'))}"
    if found.get("tries", 1) > 1:
        text += f", accepted at draw {found['tries']} ({percent(found['acceptance_rate'], 1)} % of draws)"
    return text + (f", digest {found['digest'][:12]}" if "digest" in found else "")


def _protocol(name: str) -> str:
    meaning = {
        "local": "all samples are partitioned, and each client is tested on its own part",
        "global": "the training set is partitioned; tested on each client's own part and on the common test set",
    }
    return f"{name}: {meaning[name]}" if name in meaning else name


def _models(config: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    pool = str(config.get("models", {}).get("pool", ""))
    counts = Counter(told.get("architectures", []))
    most = 12
    shown = [f"{name} ({count})" for name, count in list(counts.items())[:most]]
    if len(counts) > most:
        shown.append(f"and {len(counts) - most} more")
    return f"{pool}: {', '.join(shown)}; clients of each in brackets" if shown else pool


def _machine_facts(runs: Sequence[RunRecord]) -> list[Fact]:
    machines = list(dict.fromkeys(_machine(run.summary) for run in runs if "machine" in run.summary))
    return [
        Fact("machine" if len(machines) == 1 else f"machine {place}", text) for place, text in enumerate(machines, 1)
    ]


def _machine(told: Mapping[str, Any]) -> str:
    machine = told["machine"]
    libraries = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items())
    workers = machine.get("workers", 1)
    crew = f"{workers} workers of " if workers > 1 else ""
    where = f"{crew}{plural(machine['threads'], 'thread')}, device {told['device']}"
    return (
        f"{machine['system']}, {machine['processor']}, {plural(machine['cores'], 'core')}, "
        f"{where}; Python {machine['python']}, {libraries}"
    )


def options_of(config: Mapping[str, Any]) -> list[Options]:
    """Return all options as they were resolved."""
    return [
        Options(section, [Fact(name, _value(value)) for name, value in values.items()])
        for section, values in config.items()
        if isinstance(values, dict) and values
    ]


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else _list(value) if isinstance(value, list) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _list(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values)) or "none"


def repeat_run(run: RunRecord) -> list[Fact]:
    """Return the commands that repeat or continue a run."""
    own = shlex.quote(str(run.path / CONFIG))
    facts = [Fact("repeat it", f"motley run --config {own} --out NEW_FOLDER")]
    if status(run) != FINISHED:
        facts.append(Fact("continue it", f"motley resume {shlex.quote(str(run.path))}"))
    return facts + _started_by([run])


def repeat_comparison(comparison: Comparison) -> list[Fact]:
    """Return the commands that repeat or continue a comparison."""
    own = shlex.quote(str(comparison.path / COMPARE_CONFIG))
    runs = [run for own in comparison.runs.values() for run in own.values()]
    asked = comparison.config["compare"]
    facts = [Fact("repeat it", f"motley compare --config {own} --out NEW_FOLDER")]
    if sum(status(run) == FINISHED for run in runs) < len(asked["methods"]) * len(asked["seeds"]):
        facts.append(Fact("continue it", f"motley resume {shlex.quote(str(comparison.path))}"))
    return facts + _started_by(runs)


def _started_by(runs: Sequence[RunRecord]) -> list[Fact]:
    """Return the command line; that of an interpreter which read the program elsewhere says nothing."""
    commands = [str(run.summary.get("command", "-")) for run in runs]
    return [Fact("it was started by", command[:LONGEST]) for command in commands[:1] if not command.startswith("-")]
