# SPDX-License-Identifier: MIT
"""The layers of a model, their classes, and a process group for each class."""

from __future__ import annotations

import logging
import os
import pathlib
import time
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn

from mercury import hints
from mercury.layers import CLASSES_DEFAULT, LAYERS_MAX, NAME_BYTES_MAX, Layer, group_layers, read_csv
from mercury.torch.sockets import Ends, between_ranks, own_connections
from mercury.torch.tracing import TracedLayer, trace

_log = logging.getLogger("mercury")

LOWAT = 128 << 10  # what is not sent yet can still be overtaken
_IDLE_LIMIT = 10.0  # seconds until a new connection has everything acknowledged


def _joined(layers: list[TracedLayer]) -> list[TracedLayer]:
    """No more than a job may have: neighbours become one."""
    width = -(-len(layers) // LAYERS_MAX)
    joined = []
    for start in range(0, len(layers), width):
        group = layers[start : start + width]
        one = TracedLayer(group[0].name)
        for layer in group:
            one.parameters.update(layer.parameters)
            one.users += [user for user in layer.users if user not in one.users]
        joined.append(one)
    return joined


def _shortened(name: str) -> str:
    """To what a hint may have; the end of a module's name says most."""
    printable = "".join(c if c.isprintable() else "?" for c in name)
    return printable.encode()[-NAME_BYTES_MAX:].decode(errors="ignore")


def _job_name(model: nn.Module) -> str:
    """The same for all ranks of a job, and another one for each job."""
    run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if run == "none":  # torchrun's word for a run without an id
        run = os.environ.get("MASTER_PORT", "0")
    return _shortened(f"{type(model).__name__}-{run}")


def _measured(profile: Sequence[Layer] | str | pathlib.Path | None) -> dict[str, Layer]:
    if profile is None:
        return {}
    layers = read_csv(profile) if isinstance(profile, (str, pathlib.Path)) else profile
    return {layer.name: layer for layer in layers}


class Scheduler:
    """
    Reads the forward order of MODEL's layers from one pass over BATCH (arguments, if it is a tuple,
    or named ones, if it is a mapping), groups them into at most CLASSES classes, makes a process group
    for each class, and passes its sockets to mercuryd. All ranks make it at the same time, after
    init_process_group() and with the same model.

    JOB is the job's name at the daemon (default: the model's class and the run or port of torchrun).
    PROFILE, from mercury.torch.profile() or its file, has times of layers, from which the daemon
    makes deadlines. BACKEND is that of the process groups (default: that of the job). CLIENT speaks to
    the daemon; without it one that does what MERCURY_SOCKET says.

    Without a daemon the sockets get SO_PRIORITY 1 to 6; status() says which it is.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: object,
        *,
        classes: int = CLASSES_DEFAULT,
        job: str | None = None,
        profile: Sequence[Layer] | str | pathlib.Path | None = None,
        backend: str | None = None,
        client: hints.Client | None = None,
    ) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError("call torch.distributed.init_process_group() before Scheduler()")
        self.layers = _joined(trace(model, batch))
        measured = _measured(profile)
        described = [
            Layer(
                _shortened(layer.name),
                layer.bytes,
                *((one.forward_ns, one.backward_ns) if (one := measured.get(layer.name)) else ()),
            )
            for layer in self.layers
        ]
        self.classes = group_layers(described, classes)
        self._check_that_all_ranks_agree()
        self._layer_of = {p: i for i, l in enumerate(self.layers) for p in l.parameters.values()}
        self._client = client if client is not None else hints.Client()
        self._client.job(job or _job_name(model), described, classes)
        self._device = next(model.parameters()).device
        self.groups: list[dist.ProcessGroup] = []
        self._known: set[Ends] = set()  # connections that have a class
        self._take_sockets(backend)

    # What others ask for ----------------------------------------------------------------------

    def class_of(self, parameters: Iterable[nn.Parameter]) -> int:
        """The class of the one that is needed first."""
        layers = [self._layer_of[p] for p in parameters if p in self._layer_of]
        if not layers:
            raise ValueError(
                "none of these parameters is in the model that the Scheduler was made for, or was"
                " trained then"
            )
        return self._class_of_layer(min(layers))

    def _class_of_layer(self, layer: int) -> int:
        return next(i for i, one in enumerate(self.classes) if layer <= one.last)

    def group_of(self, parameters: Iterable[nn.Parameter]) -> dist.ProcessGroup:
        return self.groups[self.class_of(parameters)]

    def adopt(self, index: int) -> int:
        """
        Connections between ranks that are new since the Scheduler was made, such as those of a process
        group of the program's own, get the class INDEX (-1: the last). How many they are. All ranks
        call it at the same time.
        """
        found = self._new_sockets()
        self._assign(found, self.classes[index].first)
        return len(found)

    def step(self) -> None:
        """An iteration begins. CrossIteration and ddp_hook() call it. Never waits."""
        self._client.step()

    def status(self) -> hints.Status:
        return self._client.status()

    def close(self) -> None:
        """Ends the process groups, and the job at the daemon. Nothing may be underway."""
        for group in self.groups:
            dist.destroy_process_group(group)
        self.groups = []
        self._client.close()

    # Setting up -------------------------------------------------------------------------------

    def _check_that_all_ranks_agree(self) -> None:
        """Else gradients of different layers would be added up, or everybody would wait for ever."""
        mine = [
            [(name, tuple(p.shape), str(p.dtype)) for name, p in layer.parameters.items()]
            for layer in self.layers
        ], [(one.first, one.last) for one in self.classes]
        theirs: list[object] = [None] * dist.get_world_size()
        dist.all_gather_object(theirs, mine)
        for rank, other in enumerate(theirs):
            if other != theirs[0]:
                raise RuntimeError(
                    f"rank {rank} and rank 0 have different models, or their forward passes call the"
                    " layers in a different order, or their number of classes is not the same"
                )

    def _take_sockets(self, backend: str | None) -> None:
        # What coordinates the ranks, such as a barrier, must not wait behind a gradient.
        self._assign(self._new_sockets(), 0)
        for index, one in enumerate(self.classes):
            self.groups.append(self._new_group(backend))
            found = self._new_sockets()
            if not found and dist.get_world_size() > 1:
                _log.warning(
                    "no connection to another rank was found for class %d: it is not marked. Are"
                    " addresses translated between the ranks?", index
                )
            self._assign(found, one.first)

    def _new_group(self, backend: str | None) -> dist.ProcessGroup:
        group = dist.new_group(backend=backend)
        # Connections may be made only with the first operation.
        dist.all_reduce(torch.zeros(dist.get_world_size(), device=self._device), group=group)
        return group

    def _new_sockets(self) -> list[int]:
        """Between ranks, since it was called last."""
        own = {fd: ends for fd, ends in own_connections().items() if ends not in self._known}
        everybody: list[list[Ends]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(everybody, list(own.values()))
        found = between_ranks(own, everybody)
        self._known.update(found.values())
        return list(found)

    def _assign(self, fds: list[int], layer: int) -> None:
        for fd in fds:
            try:
                self._assign_when_idle(fd, layer)
            except hints.Error as problem:
                _log.warning("a connection of layer %d is not marked: %s", layer, problem)

    def _assign_when_idle(self, fd: int, layer: int) -> None:
        end = time.monotonic() + _IDLE_LIMIT
        while True:
            try:
                self._client.assign(fd, layer, LOWAT)
                return
            except hints.Error as problem:
                if problem.problem != hints.Problem.BUSY or time.monotonic() > end:
                    raise
            time.sleep(0.001)
