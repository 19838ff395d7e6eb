"""Changes the number of ranks of a run without ending its processes: some leave, or some are forked, the rest go on.

A control process forks the ranks, after PyTorch is imported once, and before them a process that holds the rendezvous
store: the store runs threads, and a process forked while one of them holds a lock may wait for it for ever. Both stay
outside the gang, so no rank takes the store along when it leaves. Around a change the loop saves and resumes a snapshot
(`antiphon.ckpt`); here only processes and groups change. If a rank or the control process dies, all end with an error:
the job is then relaunched from its last snapshot, as after any failure.

    def train(gang):
        while True:
            model, optimizer = build()                      # on the gang's present ranks
            position = snapshots.resume(model, optimizer)
            ...
            if order:                                       # a `resize` at a boundary
                snapshots.take(model, optimizer, ...).wait()
                if not gang.resize(order.ranks):
                    return                                  # this rank leaves

    sys.exit(Control(train, ranks=4).run())
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

POLL_S = 0.02
# How often the store looks whether its control process still lives.
STORE_POLL_S = 1.0
_FORK = multiprocessing.get_context("fork")
# Ranks of one gang meet within a collective; longer than this one of them is gone.
MEET_TIMEOUT_S = 300.0


class Gang:
    """The ranks as one of them sees them. `rank` and `world` change with `resize`."""

    def __init__(self, port: int, orders: Connection, rank: int, world: int, generation: int, backend: str) -> None:
        self.rank = rank
        self.world = world
        self.generation = generation
        self._backend = backend
        self._orders = orders
        self._timeout = timedelta(seconds=MEET_TIMEOUT_S)
        self._store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=self._timeout)
        self._form()

    def resize(self, ranks: int) -> bool:
        """Goes on with so many ranks; all call it with the same number. False: this rank leaves and should return.

        Everything that was built on the old ranks, model and optimizer first, must be built anew.
        """
        if ranks < 1:
            raise ValueError(f"a gang cannot have {ranks} ranks")
        dist.barrier()
        dist.destroy_process_group()
        self.generation += 1
        if self.rank == 0:
            self._orders.send(ranks)
        self.world = ranks
        if self.rank >= ranks:
            return False
        self._form()
        return True

    def sum(self, number: float) -> float:
        """The sum over all ranks, such as of the target tokens of a step: what its loss is divided by."""
        total = torch.tensor(float(number), dtype=torch.float64)
        dist.all_reduce(total, group=self._host_group)
        return float(total)

    def broadcast(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Rank 0's payload on every rank: what `Job.boundary` takes."""
        box = [payload]
        dist.broadcast_object_list(box, src=0, group=self._host_group)
        return box[0]

    def _form(self) -> None:
        # A prefix of its own keeps the keys of two generations apart.
        store = dist.PrefixStore(f"generation-{self.generation}", self._store)
        dist.init_process_group(
            self._backend, store=store, rank=self.rank, world_size=self.world, timeout=self._timeout
        )
        self._host_group = None if self._backend == "gloo" else dist.new_group(backend="gloo")


class Control:
    """Forks the store and the ranks; `run` returns an exit code once all ranks have ended.

    `prepare` is called once before the first fork: import there what takes long, and touch no GPU.
    """

    def __init__(
        self,
        train: Callable[[Gang], None],
        ranks: int,
        *,
        backend: str = "gloo",
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._train = train
        self._backend = backend
        self._prepare = prepare
        self._world = ranks
        self._generation = 0
        self._processes: dict[int, Any] = {}

    def run(self) -> int:
        # The first use of FSDP2 imports these for seconds: once here, and not in every rank that is forked.
        for module in ("torch._dynamo", "torch.distributed.fsdp"):
            importlib.import_module(module)

        if self._prepare is not None:
            self._prepare()
        store, port = _fork_store()
        self._port = port
        self._told, self._orders = _FORK.Pipe(duplex=False)
        earlier = signal.signal(signal.SIGTERM, self._pass_on)
        try:
            for rank in range(self._world):
                self._fork(rank)
            while self._processes:
                if self._told.poll(POLL_S):
                    self._resize(self._told.recv())
                code = self._reap()
                if code != 0:
                    return code
            return 0
        finally:
            self._end_all()
            signal.signal(signal.SIGTERM, earlier)
            store.kill()
            store.join()

    def _resize(self, ranks: int) -> None:
        self._generation += 1
        before, self._world = self._world, ranks
        for rank in range(before, ranks):
            # The rank's earlier process may still be on its way out.
            leaving = self._processes.pop(rank, None)
            if leaving is not None:
                leaving.join()
            self._fork(rank)

    def _fork(self, rank: int) -> None:
        process = _FORK.Process(
            target=_in_rank,
            args=(self._train, self._port, self._orders, rank, self._world, self._generation, self._backend),
            name=f"rank-{rank}",
        )
        process.start()
        self._processes[rank] = process

    def _reap(self) -> int:
        for rank, process in list(self._processes.items()):
            if process.exitcode is not None:
                del self._processes[rank]
                if process.exitcode != 0:
                    return int(process.exitcode) if process.exitcode > 0 else 128 - int(process.exitcode)
        return 0

    def _pass_on(self, number: int, frame: object) -> None:
        for process in self._processes.values():
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, number)

    def _end_all(self) -> None:
        """A gang runs whole: what is left of a broken one waits in collectives for ever."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.join()
        self._processes.clear()


def _in_rank(
    train: Callable[[Gang], None],
    port: int,
    orders: Connection,
    rank: int,
    world: int,
    generation: int,
    backend: str,
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(world)
    train(Gang(port, orders, rank, world, generation, backend))
    if dist.is_initialized():
        dist.destroy_process_group()


def _fork_store() -> tuple[Any, int]:
    """A process that holds the rendezvous store, and the store's port."""
    told, port = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_hold_store, args=(port, os.getpid()), name="store", daemon=True)
    process.start()
    port.close()
    return process, int(told.recv())


def _hold_store(port: Connection, control: int) -> None:
    # A SIGTERM to the whole process group is the ranks' to act on: they need the store to end in order.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port.send(store.port)
    port.close()
    while os.getppid() == control:
        time.sleep(STORE_POLL_S)
