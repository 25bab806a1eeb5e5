# SPDX-License-Identifier: MIT
"""DistributedDataParallel whose gradients are added up by mercury-server(8)."""

# DDP looks at the annotations of a hook, which therefore are no strings here.
import atexit
import threading
from collections.abc import Callable, Sequence
from typing import Optional

import torch
import torch.distributed as dist
from torch import nn

from mercury.layers import NAME_BYTES_MAX
from mercury.torch.ddp import Hook
from mercury.torch.scheduler import Scheduler
from mercury.transport import Element, Error, Order, Worker

_ELEMENTS = {
    torch.float32: Element.F32,
    torch.float16: Element.F16,
    torch.bfloat16: Element.BF16,
}


class _Bucket:
    """The tensors of a bucket that are still underway."""

    def __init__(self, buffer: torch.Tensor, tensors: int) -> None:
        self.future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self._buffer = buffer  # the transport's until the future is done
        self._lock = threading.Lock()
        self._left = tensors
        self._error: Optional[str] = None

    def done(self, error: Optional[str]) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            if self._left:
                return
        if self._error is None:
            self.future.set_result(self._buffer)
        else:
            self.future.set_exception(RuntimeError(f"push-pull: {self._error}"))


def ps_hook(
    scheduler: Scheduler,
    model: nn.Module,
    servers: Sequence[str],
    *,
    job: str = "torch",
    token: Optional[str] = None,
    same_bits: bool = False,
    marks: Optional[int] = None,
    in_flight: Optional[int] = None,
    join_time: Optional[float] = None,
    silence: Optional[float] = None,
) -> Hook:
    """
    For DistributedDataParallel.register_comm_hook(None, ps_hook(scheduler, model, servers)): the mean
    over all ranks, through SERVERS ("HOST:PORT" or "HOST:FIRST-LAST", the same at all ranks) instead
    of all-reduce. MODEL is what SCHEDULER was made for. Each parameter is a tensor of the transport,
    in the class of its layer, and travels from and to where DDP keeps it.

    JOB is its name at the servers. SAME_BITS adds up in the order of the ranks, so that every run has
    the same bits; otherwise nobody waits for another's turn. mercuryd marks the
    connections, here and at the servers' hosts, unless MARKS is the job's number for sch_mercury, which
    both ends then need CAP_NET_ADMIN for. The others are those of mercury_transport.h; times are in
    seconds.
    """
    worker = Worker(job, dist.get_rank(), dist.get_world_size())
    for server in servers:
        worker.add_server(server)
    if token is not None:
        worker.set_token(token)
    if same_bits:
        worker.set_order(Order.RANK)
    options = (
        (worker.set_marks, marks),
        (worker.set_in_flight, in_flight),
        (worker.set_join_time, join_time),
        (worker.set_silence, silence),
    )
    for option, value in options:
        if value is not None:
            option(value)
    index_of = _add_tensors(worker, scheduler, model)
    worker.join()
    atexit.register(worker.close)
    return _reducer(scheduler, worker, index_of)


def _add_tensors(worker: Worker, scheduler: Scheduler, model: nn.Module) -> dict[nn.Parameter, int]:
    index_of = {}
    for place, (name, parameter) in enumerate(model.named_parameters()):
        if not parameter.requires_grad:
            continue
        if parameter.dtype not in _ELEMENTS or parameter.device.type != "cpu":
            raise ValueError(f"{name} is {parameter.dtype} on {parameter.device.type}: the transport"
                             " takes float32, float16 and bfloat16 in the memory of the host")  # fmt: skip
        key = f"{place}:{name}".encode()[:NAME_BYTES_MAX].decode(errors="ignore")
        index_of[parameter] = worker.add_tensor(
            key, _ELEMENTS[parameter.dtype], parameter.numel(), scheduler.class_of([parameter])
        )
    return index_of


def _reducer(scheduler: Scheduler, worker: Worker, index_of: dict[nn.Parameter, int]) -> Hook:
    def reduce(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            scheduler.step()
        gradients = list(zip(bucket.parameters(), bucket.gradients()))
        underway = _Bucket(bucket.buffer(), len(gradients))
        # What is needed first goes first.
        gradients.sort(key=lambda one: index_of[one[0]])
        for parameter, gradient in gradients:
            _start(worker, index_of[parameter], gradient, underway.done)
        return underway.future

    return reduce


def _start(
    worker: Worker, index: int, gradient: torch.Tensor, done: Callable[[Optional[str]], None]
) -> None:
    size = gradient.numel() * gradient.element_size()
    try:
        worker.push_pull_then(index, gradient.data_ptr(), size, done)
    except Error as problem:
        done(str(problem))
