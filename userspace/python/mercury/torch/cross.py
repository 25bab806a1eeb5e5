# SPDX-License-Identifier: MIT
"""
Training in which the next forward pass begins before the last gradient has arrived.

The gradients of a bucket of layers are reduced as soon as they are complete. optimizer.step() only
notes what is to be done; the forward pass that follows waits for each bucket when it reaches the first
layer of it, and updates its parameters then, with the settings (such as the learning rate) that the
optimizer had at step(). What is computed is the same, only later.
"""

from __future__ import annotations

import contextlib
import inspect
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

from mercury.torch.scheduler import Scheduler
from mercury.torch.tracing import on_gradient

# Their update of a parameter depends on nothing but its own gradient and state.
_PER_PARAMETER = frozenset(
    {"SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "ASGD", "Rprop"}
)
_BUCKET_BYTES = 256 << 10  # smaller layers share a bucket: an operation has a start-up cost

_Kind = tuple[torch.dtype, torch.device]
_Tensor = TypeVar("_Tensor", bound=torch.Tensor)


class _InFlight(torch.Tensor):
    """Stands for a gradient that is being reduced, and lets nobody use it."""

    @classmethod
    def __torch_function__(cls, function: object, types: object, *_: object, **__: object) -> object:
        raise RuntimeError(
            "this gradient is being reduced: to clip it by norm, scale it or look at it, call"
            " wait_for_gradients() of CrossIteration first, which gives up the overlap"
        )

    @staticmethod
    def like(parameter: nn.Parameter) -> _InFlight:
        return parameter.detach().new_empty(()).expand(parameter.shape).as_subclass(_InFlight)


@dataclass
class _Bucket:
    """Layers of one class whose gradients are reduced together."""

    group: dist.ProcessGroup
    layers: list[int]
    parameters: list[nn.Parameter]
    flat: torch.Tensor
    views: list[torch.Tensor]
    stand_ins: list[_InFlight]
    # Of each parameter group of the optimizer, those that are here.
    by_group: list[list[nn.Parameter]]
    missing: set[nn.Parameter] = field(default_factory=set)  # gradients in this backward pass
    work: dist.Work | None = None
    # What step() asked for: the settings of each parameter group, and the bound of gradients.
    update: tuple[list[dict[str, object]], float | None] | None = None
    # How the gradients have been cleared since step().
    cleared: str | None = None


class CrossIteration(nn.Module):
    """
    Takes the place of DistributedDataParallel. OPTIMIZER updates the parameters of MODEL, for which
    SCHEDULER was made, and all that are trained. The training loop stays as it is:

        model = CrossIteration(model, optimizer, scheduler)
        for x, y in data:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()

    The optimizer updates each parameter by itself (those of torch.optim but LBFGS; PER_PARAMETER
    says that another one does as well). FIND_UNUSED_PARAMETERS and BROADCAST_BUFFERS are those of
    DistributedDataParallel. Layers below BUCKET_BYTES are reduced together with their neighbours.

    eval(), state_dict() of the model and of the optimizer, parameters() of this, and synchronize()
    wait for all updates. Who reads parameters in another way between step() and the next forward pass
    calls synchronize() first.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Scheduler,
        *,
        bucket_bytes: int = _BUCKET_BYTES,
        broadcast_buffers: bool = True,
        find_unused_parameters: bool = False,
        per_parameter: bool = False,
    ) -> None:
        super().__init__()
        self.module = model
        self._scheduler = scheduler
        self._optimizer = optimizer
        self._broadcasts_buffers = broadcast_buffers
        self._finds_unused = find_unused_parameters
        self._share = 1.0 / dist.get_world_size()
        _check_optimizer(optimizer, model, per_parameter)

        self._names = {p: name for name, p in model.named_parameters()}
        self._buckets = self._make_buckets(bucket_bytes)
        self._bucket_of = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        self._index_of = {p: index for index, p in enumerate(self._bucket_of)}
        self._place_of = {p: i for bucket in self._buckets for i, p in enumerate(bucket.parameters)}
        # In the order in which they are reduced, the same at all ranks.
        self._queues = [
            [bucket for bucket in reversed(self._buckets) if bucket.group is group]
            for group in scheduler.groups
        ]
        self._launched = [0] * len(self._queues)

        self._synchronizes = True  # gradients of a backward pass; not within no_sync()
        self._buffers_are_due = True
        self._in_backward = False
        self._stepped = True  # since the last forward pass
        self._failure = ""
        self._clip_value: float | None = None
        self._late: set[nn.Parameter] = set()  # updated after the forward pass had to use them
        self._used: set[nn.Parameter] = set()  # since gradients were reduced, if that is asked for
        self._used_map: torch.Tensor | None = None
        self._used_work: dist.Work | None = None
        self._waits = [0.0] * len(scheduler.layers)
        self._undo: list[Callable[[], None]] = []
        self._broadcast(self.module.parameters())
        self._broadcast(self.module.buffers())
        self._hook_model()
        self._hook_optimizer()

    # What a training program calls ------------------------------------------------------------

    def forward(self, *inputs: object, **named: object) -> object:
        # Gradients that are not stepped yet are to be added to.
        self.wait_for_gradients()
        if self._stepped and self.module.training:
            self._stepped = False
            self._scheduler.step()
        if self._broadcasts_buffers and self._buffers_are_due:
            self._broadcast(self.module.buffers())
        # As DistributedDataParallel does: what comes after no_sync() has the buffers of its rank.
        self._buffers_are_due = self._synchronizes and torch.is_grad_enabled()
        return self.module(*inputs, **named)

    def synchronize(self) -> None:
        """Waits until all updates that were asked for are done. Needs no other rank to call it."""
        for bucket in self._buckets:
            if bucket.update is not None:
                self._land(bucket)

    def wait_for_gradients(self) -> None:
        """
        Waits until gradients that were not stepped yet are reduced: then parameter.grad has them, and
        the next step() updates at once. A barrier: nothing of this iteration overlaps with the next.
        """
        self._check()
        for bucket in self._buckets:
            if bucket.update is None and bucket.work is not None:
                self._land(bucket)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """
        Between backward() and step(). The norm is that of all gradients, so this waits for all of them
        (see wait_for_gradients()). Clipping by value needs no wait.
        """
        self.wait_for_gradients()
        return nn.utils.clip_grad_norm_(self.module.parameters(), max_norm, norm_type)

    def clip_grad_value_(self, clip_value: float) -> None:
        """Between backward() and step(): the reduced gradients are clipped before they are used."""
        if not clip_value > 0:
            raise ValueError(f"clip_value must be above 0, not {clip_value}")
        if any(bucket.work is not None and bucket.update is None for bucket in self._buckets):
            self._clip_value = clip_value
        else:
            nn.utils.clip_grad_value_(self.module.parameters(), clip_value)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in it add to the gradients of this rank, which are reduced by a later one."""
        before, self._synchronizes = self._synchronizes, False
        try:
            yield
        finally:
            self._synchronizes = before

    def waits(self) -> dict[str, float]:
        """Seconds that forward passes have waited for each layer since this was asked last."""
        waited, self._waits = self._waits, [0.0] * len(self._waits)
        return {layer.name: one for layer, one in zip(self._scheduler.layers, waited)}

    def detach(self) -> None:
        """The model and the optimizer are as before, with all updates done."""
        self.synchronize()
        self.wait_for_gradients()
        while self._undo:
            self._undo.pop()()

    def train(self, mode: bool = True) -> CrossIteration:
        if not mode:
            self.synchronize()
        return super().train(mode)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._optimizer.zero_grad(set_to_none=set_to_none)

    def named_parameters(self, *args: object, **kwargs: object) -> Iterator[tuple[str, nn.Parameter]]:
        self.synchronize()
        return super().named_parameters(*args, **kwargs)

    # Setting up -------------------------------------------------------------------------------

    def _make_buckets(self, bucket_bytes: int) -> list[_Bucket]:
        """Of each class, in the order of the forward pass; one has parameters of one type only."""
        buckets = []
        for one, group in zip(self._scheduler.classes, self._scheduler.groups):
            open_ones: dict[_Kind, tuple[list[int], list[nn.Parameter]]] = {}
            for index in range(one.first, one.last + 1):
                for kind, added in _by_kind(self._scheduler.layers[index].parameters.values()).items():
                    layers, parameters = open_ones.get(kind, ([], []))
                    if parameters and _bytes_of([*parameters, *added]) > bucket_bytes:
                        buckets.append(self._make_bucket(group, layers, parameters))
                        layers, parameters = [], []
                    open_ones[kind] = ([*layers, index], [*parameters, *added])
            buckets += [self._make_bucket(group, *members) for members in open_ones.values()]
        return sorted(buckets, key=lambda bucket: bucket.layers[0])

    def _make_bucket(
        self, group: dist.ProcessGroup, layers: list[int], parameters: list[nn.Parameter]
    ) -> _Bucket:
        sizes = [p.numel() for p in parameters]
        flat = parameters[0].detach().new_zeros(sum(sizes))
        views = [part.view(p.shape) for part, p in zip(flat.split(sizes), parameters)]
        members = set(parameters)
        by_group = [
            [p for p in group["params"] if p in members] for group in self._optimizer.param_groups
        ]
        stand_ins = [_InFlight.like(p) for p in parameters]
        return _Bucket(group, layers, parameters, flat, views, stand_ins, by_group)

    def _hook_model(self) -> None:
        buckets_of: dict[nn.Module, list[_Bucket]] = {module: [] for module in self.module.modules()}
        for bucket in self._buckets:
            for index in bucket.layers:
                for user in self._scheduler.layers[index].users:
                    buckets_of[user].append(bucket)
        for module, buckets in buckets_of.items():
            hook = self._waiter(buckets)
            self._undo.append(module.register_forward_pre_hook(hook).remove)
        for parameter in self._bucket_of:
            self._undo.append(parameter.register_hook(self._guard(parameter)).remove)
            self._undo.append(on_gradient(parameter, self._take))
        # What is saved or loaded are the tensors themselves: their values may still change.
        keep = self.module._register_state_dict_hook(lambda *_: self.synchronize())
        self._undo.append(keep.remove)
        load = self.module._register_load_state_dict_pre_hook(lambda *_: self.synchronize())
        self._undo.append(load.remove)

    def _waiter(self, buckets: Sequence[_Bucket]) -> Callable[[nn.Module, object], None]:
        def wait(module: nn.Module, _: object) -> None:
            if not module.training:  # what calls what may be another thing then
                self.synchronize()
            for bucket in buckets:
                if bucket.update is not None:
                    self._land(bucket)

        return wait

    def _hook_optimizer(self) -> None:
        optimizer = self._optimizer
        previous = optimizer.step
        self._update = types.MethodType(type(optimizer).step, optimizer)
        clears = inspect.signature(type(optimizer).zero_grad).parameters["set_to_none"].default

        def step(_: object, closure: object = None, **others: object) -> None:
            if closure is not None or others:
                raise ValueError("CrossIteration's optimizer takes no closure, and no other argument")
            self._ask_for_update()
            # A learning rate's schedule wants to know that there was a step.
            optimizer._opt_called = True
            optimizer._step_count = getattr(optimizer, "_step_count", 0) + 1

        def zero_grad(_: object, set_to_none: bool = clears) -> None:
            self._clear(set_to_none)

        def state_dict(_: object, *args: object, **kwargs: object) -> object:
            self.synchronize()
            return type(optimizer).state_dict(optimizer, *args, **kwargs)

        def load_state_dict(_: object, *args: object, **kwargs: object) -> object:
            self.synchronize()
            return type(optimizer).load_state_dict(optimizer, *args, **kwargs)

        def add_param_group(*_: object) -> None:
            raise RuntimeError("CrossIteration knows the parameters that the optimizer had: detach()"
                               " it, add the group, and make it again")  # fmt: skip

        step.__dict__.update(getattr(previous, "__dict__", {}))
        for replaced in (step, zero_grad, state_dict, load_state_dict, add_param_group):
            name = replaced.__name__
            own = vars(optimizer).get(name)
            setattr(optimizer, name, types.MethodType(replaced, optimizer))
            self._undo.append(
                (lambda name=name: delattr(optimizer, name)) if own is None
                else (lambda name=name, own=own: setattr(optimizer, name, own))
            )  # fmt: skip

    # The backward pass ------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure:
            raise RuntimeError(self._failure)
        if self._in_backward:
            raise RuntimeError(
                "the last backward pass ended with an exception, and some gradients were reduced"
                " while others were not: go on from a checkpoint, at all ranks"
            )

    def _guard(self, parameter: nn.Parameter) -> Callable[[torch.Tensor], None]:
        """Before the gradient is added to parameter.grad."""
        bucket = self._bucket_of[parameter]

        def guard(_: torch.Tensor) -> None:
            if self._failure:
                raise RuntimeError(self._failure)
            if self._synchronizes and not self._in_backward:
                self._begin_backward()
            if bucket.update is not None or parameter in self._late:
                raise RuntimeError(
                    f"{self._names[parameter]} was used by the forward pass before it was updated:"
                    " another module uses it than when the Scheduler was made. Call synchronize()"
                    " before such a forward pass"
                )
            if self._synchronizes and (bucket.work is not None or parameter not in bucket.missing):
                raise RuntimeError(
                    f"{self._names[parameter]} has a second backward pass before step():"
                    " do all but the last within no_sync()"
                )

        return guard

    def _begin_backward(self) -> None:
        # What the forward pass did not reach.
        self._late = {p for b in self._buckets if b.update is not None for p in b.parameters}
        self.synchronize()
        self._in_backward = True
        self._launched = [0] * len(self._queues)
        for bucket in self._buckets:
            if bucket.work is None:
                bucket.missing = set(bucket.parameters)
        torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)

    def _take(self, parameter: nn.Parameter) -> None:
        """parameter.grad is complete."""
        if self._finds_unused:
            self._used.add(parameter)
        if not self._synchronizes:
            return
        bucket = self._bucket_of[parameter]
        self._prepare(parameter)
        bucket.missing.discard(parameter)
        if not bucket.missing:
            self._launch(bucket.group)

    def _prepare(self, parameter: nn.Parameter) -> None:
        """This rank's share of the mean, in its place."""
        bucket, index = self._bucket_of[parameter], self._place_of[parameter]
        if parameter.grad.is_sparse:
            raise RuntimeError(f"the gradient of {self._names[parameter]} is sparse: use sparse=False")
        with torch.no_grad():
            torch.mul(parameter.grad, self._share, out=bucket.views[index])
        parameter.grad = bucket.stand_ins[index]

    def _launch(self, group: dist.ProcessGroup) -> None:
        """Those that are complete, in the order that all ranks keep to."""
        index = self._scheduler.groups.index(group)
        queue = self._queues[index]
        while self._launched[index] < len(queue) and not queue[self._launched[index]].missing:
            bucket = queue[self._launched[index]]
            bucket.work = dist.all_reduce(bucket.flat, group=group, async_op=True)
            self._launched[index] += 1

    def _end_backward(self) -> None:
        missing = [p for bucket in self._buckets for p in bucket.missing]
        if missing and not self._finds_unused:
            names = ", ".join(self._names[p] for p in missing[:5])
            raise RuntimeError(
                f"the backward pass has no gradient for {names}{' ...' if missing[5:] else ''}: if that"
                " is meant, make CrossIteration with find_unused_parameters=True, or freeze them"
                " with requires_grad_(False) before the Scheduler is made"
            )
        if self._finds_unused:
            self._reduce_the_unused()
        self._in_backward = False
        self._late = set()

    def _reduce_the_unused(self) -> None:
        """Other ranks may have a gradient where this one has none: zeros, or what no_sync() left."""
        for bucket in self._buckets:
            for index, parameter in enumerate(bucket.parameters):
                if parameter not in bucket.missing:
                    continue
                if parameter in self._used:
                    self._prepare(parameter)
                else:
                    bucket.views[index].zero_()
            bucket.missing = set()
        for group in self._scheduler.groups:
            self._launch(group)
        used = [parameter in self._used for parameter in self._bucket_of]
        self._used_map = torch.tensor(used, dtype=torch.int32, device=self._buckets[0].flat.device)
        self._used_work = dist.all_reduce(self._used_map, group=self._scheduler.groups[0], async_op=True)
        self._used = set()

    # The update -------------------------------------------------------------------------------

    def _ask_for_update(self) -> None:
        self._check()
        self._stepped = True
        flying = [b for b in self._buckets if b.work is not None and b.update is None]
        if not flying:  # the gradients are where they always are
            self._update()
            return
        settings = [
            {k: _kept(v) for k, v in group.items() if k != "params"}
            for group in self._optimizer.param_groups
        ]
        for bucket in flying:
            bucket.update = (settings, self._clip_value)
            bucket.cleared = None
        self._clip_value = None

    def _clear(self, set_to_none: bool) -> None:
        for bucket in self._buckets:
            if bucket.update is not None:
                bucket.cleared = "none" if set_to_none else "zero"
            elif bucket.work is not None:  # nobody wants them
                self._land(bucket)
        self._clip_value = None
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                bucket = self._bucket_of.get(parameter)
                if parameter.grad is None or (bucket is not None and bucket.update is not None):
                    continue
                if set_to_none:
                    parameter.grad = None
                else:
                    parameter.grad = parameter.grad.detach()
                    parameter.grad.zero_()

    def _land(self, bucket: _Bucket) -> None:
        """Waits for the gradients of a bucket, and does what step() has asked for."""
        start = time.perf_counter()
        self._wait(bucket)
        self._waits[bucket.layers[0]] += time.perf_counter() - start
        wanted = [self._is_used(p) for p in bucket.parameters]
        cleared = [p.grad is None for p in bucket.parameters]
        for parameter, view, is_wanted in zip(bucket.parameters, bucket.views, wanted):
            if is_wanted:
                parameter.grad = view
        bucket.work = None
        if bucket.update is None:
            return
        (settings, clip_value), bucket.update = bucket.update, None
        if clip_value is not None:
            nn.utils.clip_grad_value_(bucket.parameters, clip_value)
        self._update_some(bucket, settings)
        for parameter, is_wanted, was_cleared in zip(bucket.parameters, wanted, cleared):
            if bucket.cleared == "none" or (was_cleared and is_wanted):
                parameter.grad = None
            elif bucket.cleared == "zero" and parameter.grad is not None:
                parameter.grad.zero_()

    def _wait(self, bucket: _Bucket) -> None:
        if self._failure:
            raise RuntimeError(self._failure)
        try:
            if self._used_work is not None:
                self._used_work.wait()
                self._used_work = None
            bucket.work.wait()
        except RuntimeError as problem:
            layer = self._scheduler.layers[bucket.layers[0]].name
            self._failure = f"the gradients of {layer} could not be reduced: {problem}"
            raise RuntimeError(self._failure) from problem

    def _is_used(self, parameter: nn.Parameter) -> bool:
        """By any rank, in this iteration."""
        if self._used_map is None:
            return True
        return bool(self._used_map[self._index_of[parameter]])

    def _update_some(self, bucket: _Bucket, settings: Sequence[Mapping[str, object]]) -> None:
        """The optimizer's step for these parameters alone; its state is theirs."""
        whole = self._optimizer.param_groups
        self._optimizer.param_groups = [
            {"params": parameters, **one} for parameters, one in zip(bucket.by_group, settings) if parameters
        ]
        try:
            self._update()
        finally:
            self._optimizer.param_groups = whole

    def _broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """From rank 0, those of a type at once."""
        for same in _by_kind(tensor.detach() for tensor in tensors).values():
            flat = torch.cat([tensor.reshape(-1) for tensor in same])
            dist.broadcast(flat, 0, group=self._scheduler.groups[0])
            for tensor, value in zip(same, flat.split([t.numel() for t in same])):
                tensor.copy_(value.view(tensor.shape))


def _by_kind(tensors: Iterable[_Tensor]) -> dict[_Kind, list[_Tensor]]:
    """What can be in one flat tensor."""
    kinds: dict[_Kind, list[_Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    return kinds


def _bytes_of(parameters: Sequence[nn.Parameter]) -> int:
    return sum(p.numel() * p.element_size() for p in parameters)


def _kept(value: object) -> object:
    """As it is now."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def _check_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, per_parameter: bool) -> None:
    kind = type(optimizer)
    known = kind.__module__.startswith("torch.optim") and kind.__name__ in _PER_PARAMETER
    if not known and not per_parameter:
        raise ValueError(
            f"{kind.__name__} may update a parameter from more than its own gradient and state, which"
            " is not there when a layer is updated by itself: there are"
            f" {', '.join(sorted(_PER_PARAMETER))}. If it does not, say per_parameter=True"
        )
    optimized = {p for group in optimizer.param_groups for p in group["params"]}
    names = {p: name for name, p in model.named_parameters()}
    for parameter, name in names.items():
        if parameter.requires_grad and parameter not in optimized:
            raise ValueError(f"{name} is trained, but the optimizer does not have it: freeze it with"
                             " requires_grad_(False) before the Scheduler is made")  # fmt: skip
    if any(p.requires_grad and p not in names for p in optimized):
        raise ValueError("the optimizer has a parameter that is not the model's")
