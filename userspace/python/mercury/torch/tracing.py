# SPDX-License-Identifier: MIT
"""
In which order a model's forward pass needs its parameters, from one pass that is looked at.

A layer is what one module uses of parameters. It counts which module uses them and not which one has
them: multi-head attention uses the weight of its output projection without calling that. The module
whose code is running when a function is given a parameter is its user, so a parameter may have
several; it is needed when the first of them is called.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

# These ask about a tensor and do not need its content.
_QUESTIONS = frozenset(
    {"size", "dim", "numel", "stride", "is_contiguous", "is_floating_point", "element_size"}
)
_CONTENT_PROPERTIES = frozenset({"data", "T", "mT", "H", "mH", "real", "imag"})


@dataclass
class TracedLayer:
    """Modules that are called at about the same time, and parameters that they use first."""

    name: str
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    # Who calls one of these needs the parameters.
    users: list[nn.Module] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Of the gradients."""
        return sum(p.numel() * p.element_size() for p in self.parameters.values() if p.requires_grad)


def call(model: nn.Module, batch: object) -> object:
    """A tuple or list is several arguments, and a mapping named ones."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, (tuple, list)):
        return model(*batch)
    return model(batch)


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """In training mode; buffers, gradients, modes and random numbers are put back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    with torch.random.fork_rng():
        try:
            model.train()
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            for parameter, gradient in gradients:
                parameter.grad = gradient
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)


def on_gradient(
    parameter: nn.Parameter, callback: Callable[[nn.Parameter], None]
) -> Callable[[], None]:
    """CALLBACK is called when parameter.grad is complete in a backward pass; how to stop that."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):  # torch 2.1
        return parameter.register_post_accumulate_grad_hook(callback).remove
    with torch.enable_grad():
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    handle = accumulator.register_hook(lambda *_: callback(parameter))

    def remove(kept: object = accumulator) -> None:  # which would go away, and the hook with it
        handle.remove()

    return remove


def tensors_in(values: Iterable[object]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, Mapping):
            yield from tensors_in(value.values())
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value)


class _Watch(TorchFunctionMode):
    """Which module is running when a function is given a parameter."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._known = {id(parameter): parameter for parameter in model.parameters()}
        self._running: list[nn.Module] = []
        self._counter = itertools.count()
        self.called: dict[nn.Module, int] = {}  # when it was first
        self.users: dict[int, list[nn.Module]] = {}  # of a parameter, by its id

    def enter(self, module: nn.Module, _: object) -> None:
        self.called.setdefault(module, next(self._counter))
        self._running.append(module)

    def leave(self, *_: object) -> None:
        self._running.pop()

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if self._running and self._needs_content(function):
            for tensor in tensors_in((args, kwargs)):
                if id(tensor) in self._known:
                    users = self.users.setdefault(id(tensor), [])
                    if self._running[-1] not in users:
                        users.append(self._running[-1])
        return function(*args, **kwargs)

    @staticmethod
    def _needs_content(function: Callable[..., object]) -> bool:
        name = getattr(function, "__name__", "")
        if name == "__get__":
            return getattr(function.__self__, "__name__", "") in _CONTENT_PROPERTIES
        return name not in _QUESTIONS


def _watch(model: nn.Module, batch: object) -> _Watch:
    watch = _Watch(model)
    with contextlib.ExitStack() as stack:
        for module in model.modules():
            stack.callback(module.register_forward_pre_hook(watch.enter).remove)
            stack.callback(module.register_forward_hook(watch.leave).remove)
        stack.enter_context(undisturbed(model))
        stack.enter_context(torch.no_grad())
        with watch:
            call(model, batch)
    return watch


def trace(model: nn.Module, batch: object) -> list[TracedLayer]:
    """Layers that have trainable parameters, in the order in which a pass with BATCH needs them."""
    watch = _watch(model, batch)
    names = {module: name for name, module in model.named_modules()}
    last = len(watch.called)
    layers: dict[nn.Module, TracedLayer] = {}
    first_user: dict[nn.Module, int] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        users = watch.users.get(id(parameter)) or [_likely_user(model, name, watch.called)]
        user = min(users, key=lambda one: watch.called.get(one, last))
        first_user[user] = watch.called.get(user, last)
        layer = layers.setdefault(user, TracedLayer(names[user] or type(user).__name__))
        layer.parameters[name] = parameter
        layer.users += [one for one in users if one not in layer.users]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no parameter that is trained")
    return [layers[user] for user in sorted(layers, key=first_user.__getitem__)]


def _likely_user(model: nn.Module, name: str, called: Mapping[nn.Module, int]) -> nn.Module:
    """
    Of a parameter that was not seen in use, which may be because it was used out of sight, such as
    in TorchScript: the module that has it, or the nearest around it that was called, or its owner.
    """
    path = name.split(".")[:-1]
    owner = model.get_submodule(".".join(path))
    for length in range(len(path), -1, -1):
        module = model.get_submodule(".".join(path[:length]))
        if module in called:
            return module if module is not model else owner
    return owner
