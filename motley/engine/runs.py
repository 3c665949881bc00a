"""One run from its folder to its summary: begun, resumed, interrupted, failed or finished."""

import io
import traceback
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from motley.data.dataset import Dataset
from motley.draws import Draws
from motley.engine.config import ConfigFile, RunConfig, parse_config, resolve
from motley.engine.crew import Crew, choose_crew, client_costs
from motley.engine.exchange import make_exchange
from motley.engine.executor import Executor, LocalExecutor
from motley.engine.faults import bad_peers, make_method
from motley.engine.header import run_header
from motley.engine.notices import told_warnings
from motley.engine.placement import measured_costs
from motley.engine.played import Exchange
from motley.engine.rounds import Rounds
from motley.engine.setup import Federation, build_federation
from motley.engine.signals import StopSignal, StopSignals
from motley.engine.threads import threads
from motley.engine.workers import hire
from motley.errors import Interrupted, InvalidConfig, InvalidRunFolder, MotleyError, RunFailed
from motley.models.assign import ModelFactory
from motley.record.folder import CLIENTS, CONFIG, LOG, PARTITION, ROWS, SUMMARY, RunFolder, check_free, fresh_path
from motley.record.load import RunRecord, load_run
from motley.record.rows import RoundRow
from motley.record.summary import client_table, summarise

RUNS = Path("runs")


@dataclass(frozen=True)
class Watch:
    """Whoever wants to see a run while it goes on.

    Attributes:
        staffed: Called with the number of processes and threads, before `began`.
        began: Called with the federation and the folder before round 1.
        finished_round: Called with the row of every finished round.
        warned: Called with the text of every warning, once.
    """

    staffed: Callable[[Crew], None] = lambda *_: None
    began: Callable[[RunConfig, Federation, Path], None] = lambda *_: None
    finished_round: Callable[[RoundRow], None] = lambda *_: None
    warned: Callable[[str], None] = lambda *_: None


@dataclass
class Material:
    """Data and models in memory instead of those that a configuration names; the data may be used by several runs."""

    dataset: Dataset | None = None
    factory: ModelFactory | None = None
    signals: StopSignals = field(default_factory=StopSignals)


def start_run(config: RunConfig, path: Path | None, material: Material, watch: Watch) -> RunRecord:
    """Begin a run in a new folder, one below `runs` if none is named, and play it to its end.

    Raises:
        MotleyError: As its kinds say; nothing is made for a user's mistake, and all finished rounds are kept otherwise.
    """
    if path is not None:
        check_free(path)
    with material.signals.listen(), told_warnings(watch.warned) as told:
        federation = build_federation(config, dataset=material.dataset, factory=material.factory)
        config = _with_run(config, precision=federation.precision)
        crew, ready = _prepare(config, federation, material)
        files = {
            CONFIG: tomli_w.dumps(config.to_dict()).encode(),
            PARTITION: _partition_bytes(federation),
            ROWS: b"",
        }
        with material.signals.writing():
            folder = make_folder(path, config.method, files)
        with threads(crew.threads), closing(ready[1]):
            return _play(config, federation, crew, ready, folder, None, material, watch, told)


def make_folder(path: Path | None, name: str, files: dict[str, bytes]) -> RunFolder:
    """Make a folder with its first files at a path, or at one below `runs` that nobody takes meanwhile.

    Raises:
        InvalidRunFolder: It exists and is not empty, or cannot be made.
    """
    if path is not None:
        return RunFolder.create(path, files)
    while True:
        fresh = fresh_path(RUNS, name)
        try:
            return RunFolder.create(fresh, files)
        except InvalidRunFolder:
            if not fresh.exists():  # else another run was faster
                raise


def resume_run(path: Path, material: Material, watch: Watch, *, rounds: int | None = None) -> RunRecord:
    """Continue a run after its newest whole checkpoint, or from the start if none was written yet.

    Args:
        path: The run folder.
        material: As for `start_run`; data and models that are not named in the configuration must be given again.
        watch: As for `start_run`.
        rounds: More rounds than the run was begun with.

    Raises:
        MotleyError: As its kinds say.
    """
    with material.signals.listen(), told_warnings(watch.warned) as told:
        folder = RunFolder.open(path)
        config = stored_config(folder)
        if rounds is not None:
            if rounds < config.settings.run.rounds:
                raise InvalidConfig(
                    f"{path} was begun with {config.settings.run.rounds} rounds; --rounds may only be larger"
                )
            config = _with_run(config, rounds=rounds)
        before = load_run(path)
        if before.finished and before.summary["rounds"] >= config.settings.run.rounds:
            raise InvalidRunFolder(
                f"{path} has finished all of its {before.summary['rounds']} rounds; ask for more with --rounds N"
            )
        federation = build_federation(config, dataset=material.dataset, factory=material.factory)
        check_partition(folder, federation, "resume")
        checkpoint = folder.latest()
        with material.signals.writing():
            folder.rewind(checkpoint.round if checkpoint else -1)
            folder.write_config(config.to_dict())
        crew, ready = _prepare(config, federation, material)
        with threads(crew.threads), closing(ready[1]):
            return _play(config, federation, crew, ready, folder, checkpoint, material, watch, told)


def _with_run(config: RunConfig, **changes: Any) -> RunConfig:
    """Return a configuration with other options of the section `run`."""
    return replace(config, settings=replace(config.settings, run=replace(config.settings.run, **changes)))


def stored_config(folder: RunFolder) -> RunConfig:
    """Return the configuration of a run folder."""
    file: ConfigFile = parse_config(folder.config(), str(folder.path / CONFIG))
    if file.method is None:
        raise InvalidRunFolder(f"{folder.path / CONFIG} names no method; restore it from a copy")
    return resolve(file.method, file, {}, {})


def _play(
    config: RunConfig,
    federation: Federation,
    crew: Crew,
    ready: tuple[Exchange, Executor],
    folder: RunFolder,
    checkpoint: Any,
    material: Material,
    watch: Watch,
    told: list[str],
) -> RunRecord:
    settings, signals = config.settings, material.signals
    exchange, executor = ready
    rounds = Rounds(
        exchange=exchange,
        executor=executor,
        draws=Draws(settings.run.seed),
        num_clients=federation.task.num_clients,
        per_round=federation.participants_per_round,
        total=settings.run.rounds,
        eval_every=settings.eval.every,
        checkpoint_every=settings.run.checkpoint_every,
        folder=folder,
        signals=signals,
        progress=watch.finished_round,
        bad=bad_peers(config, federation.task.num_clients),
    )
    try:
        if checkpoint is not None:
            rounds.restore(checkpoint)
            folder.log(f"resumed after round {checkpoint.round}")
        for text in federation.data.notes:
            folder.log(text)
        folder.write_json(SUMMARY, {"status": "unfinished", **run_header(config, federation, crew), "warnings": told})
        watch.staffed(crew)
        watch.began(config, federation, folder.path)
        rounds.play()
    except StopSignal as stop:
        with signals.closing():
            _leave(rounds, folder, config, federation, crew, told, "interrupted")
        raise Interrupted(_farewell(rounds, folder.path), stop.exit_status) from None
    except Exception as error:
        with signals.closing():
            folder.log("".join(traceback.format_exception(error)).rstrip())
            _leave(rounds, folder, config, federation, crew, told, "failed")
        if isinstance(error, MotleyError) and not isinstance(error, RunFailed):
            raise
        what = str(error) if isinstance(error, RunFailed) else f"{type(error).__name__}: {error}"
        kept = f"{max(rounds.round, 0)} finished rounds are kept in {folder.path}, the traceback is in {LOG} there"
        kind = type(error) if isinstance(error, RunFailed) else RunFailed
        raise kind(f"{what}; {kept}") from error
    with signals.writing():
        _leave(rounds, folder, config, federation, crew, told, "finished")
    return load_run(folder.path)


def _prepare(config: RunConfig, federation: Federation, material: Material) -> tuple[Crew, tuple[Exchange, Executor]]:
    """Return who plays the rounds, before anything is written.

    Raises:
        InvalidConfig: The method cannot run with this exchange, or there cannot be so many workers.
    """
    entry, run = config.entry, config.settings.run
    method = make_method(config, federation)
    costs = client_costs(federation.clients)
    crew = choose_crew(run, federation.clients, costs, federation.participants_per_round)
    executor: Executor
    if crew.workers == 1:
        executor = LocalExecutor(federation.clients, method, _common_test(federation))
    else:
        costs = measured_costs(federation.clients, crew.threads)
        executor = hire(config, crew, costs, material.dataset, material.factory)
    draws = federation.start_draws(config)
    return crew, (make_exchange(run, entry, method, executor, federation.task, draws), executor)


def _farewell(rounds: Rounds, path: Path) -> str:
    """Return what was kept of an interrupted run, and how it goes on."""
    if rounds.round < 0:
        return f"interrupted before round 1; begin it again with: motley resume {path}"
    kept = f"interrupted in round {rounds.round + 1}; {rounds.round} of {rounds.total} rounds are kept in {path}"
    if not rounds.checkpoint_every:
        return f"{kept}; without checkpoints (--checkpoint-every 0) a resume begins again"
    return f"{kept}; continue with: motley resume {path}"


def _leave(
    rounds: Rounds,
    folder: RunFolder,
    config: RunConfig,
    federation: Federation,
    crew: Crew,
    told: list[str],
    status: str,
) -> None:
    """Write what is left to write: a checkpoint if the run can go on, the summary and the table of clients."""
    if status != "finished" and rounds.round >= 0 and rounds.checkpoint_every:
        try:
            folder.save(rounds.checkpoint())
        except RunFailed as error:  # with a worker its clients are gone, too; older checkpoints are still there
            folder.log(f"no checkpoint after round {rounds.round}: {error}")
    folder.close()
    rows = folder.rows()
    folder.write_json(
        SUMMARY, {"status": status, **summarise(rows), **run_header(config, federation, crew), "warnings": told}
    )
    client_table(rows).to_csv(folder.path / CLIENTS, index=False, lineterminator="\n", encoding="utf-8")
    for text in told:
        folder.log(f"warning: {text}")
    folder.log(status)


def _common_test(federation: Federation) -> Any:
    samples = federation.data.common_test
    return samples.to(federation.device) if samples is not None else None


def _partition_bytes(federation: Federation) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **federation.data.partition_arrays())  # type: ignore[arg-type]
    return buffer.getvalue()


def check_partition(folder: RunFolder, federation: Federation, verb: str) -> None:
    """Refuse to go on with a run on other data.

    Args:
        folder: The run's.
        federation: Built of the data as they are now.
        verb: What was to be done with the run, for the message.

    Raises:
        InvalidRunFolder: The partition that the configuration gives now is not the one that was stored.
    """
    try:
        with (folder.path / PARTITION).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            same = all(
                np.array_equal(stored[name], array) for name, array in federation.data.partition_arrays().items()
            )
    except (OSError, ValueError, LookupError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidRunFolder(f"{folder.path / PARTITION} is damaged; restore it from a copy") from error
    if not same:
        raise InvalidRunFolder(
            f"{folder.path / PARTITION} does not fit the data as they are now; {verb} the run with those of its start"
        )
