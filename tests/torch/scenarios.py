# SPDX-License-Identifier: GPL-2.0
"""What the ranks of a job do in the tests. Each function gets its rank and the test's arguments."""

from __future__ import annotations

import contextlib
import copy
import socket
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import models
from mercury.hints import borrowed
from mercury.torch import CrossIteration, Scheduler, ddp_hook, ps_hook, sharded
from mercury.torch.sockets import own_connections
from ranks import hear, say

SO_MARK, TCP_NOTSENT_LOWAT = 36, 25


def make(name: str) -> nn.Module:
    """The same weights at all ranks."""
    torch.manual_seed(1)
    return getattr(models, name)()


def batch_of(name: str, generator: torch.Generator) -> torch.Tensor:
    if name in ("Shared", "Attention"):
        return torch.randint(10, (4, 6), generator=generator)
    if name == "Recurrent":
        return torch.randn(4, 3, 8, generator=generator)
    return torch.randn(4, 8, generator=generator)


def optimizer_of(name: str, parameters: object) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4)
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=0.01)
    return getattr(torch.optim, name)(parameters, lr=0.01)


def weights(model: nn.Module) -> dict[str, object]:
    return {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}


# The Scheduler ------------------------------------------------------------------------------------


def sockets_of(fds: list[int]) -> list[tuple[int, int, int]]:
    """Mark, priority and late binding."""
    seen = []
    for fd in fds:
        with borrowed(fd) as sock:
            seen.append((
                sock.getsockopt(socket.SOL_SOCKET, SO_MARK),
                sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY),
                sock.getsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT),
            ))  # fmt: skip
    return sorted(seen)


def schedule(rank: int, address: tuple[str, int], classes: int) -> dict[str, object]:
    """With a connection of the program's own, which is nobody's business."""
    with socket.create_connection(address) as stranger:
        scheduler = Scheduler(make("Attention"), batch_of("Attention", torch.Generator()), classes=classes)
        for _ in range(3):
            scheduler.step()
        status = scheduler.status()
        ours = [fd for fd in own_connections() if fd != stranger.fileno()]
        seen = {
            "sockets": sockets_of(ours),
            "stranger": sockets_of([stranger.fileno()])[0],
            "classes": [(one.first, one.last) for one in scheduler.classes],
            "status": (status.connected, status.job, status.sockets, status.marked, status.why),
        }
        dist.barrier()  # gloo closes connections to a rank that has ended
        return seen


def carry(rank: int) -> list[list[int]]:
    """For each class, what an all-reduce on its group has each socket of a class send."""
    scheduler = Scheduler(make("Attention"), batch_of("Attention", torch.Generator()), classes=4)
    rows = []
    for group in scheduler.groups:
        before = _sent()
        dist.all_reduce(torch.zeros(1 << 18), group=group)
        after = _sent()
        grown = {fd: after[fd] - before[fd] for fd in before if after[fd] - before[fd] > 1 << 18}
        rows.append([mark & 0xFFFF for mark, _, _ in sockets_of(list(grown))])
    dist.barrier()
    return rows


def _sent() -> dict[int, int]:
    """tcpi_bytes_acked and what is underway of each connection, as the kernel counts."""
    sent = {}
    for fd in own_connections():
        with borrowed(fd) as sock:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
            sent[fd] = int.from_bytes(info[200:208], "little")  # tcpi_bytes_sent
    return sent


def disagree(rank: int, what: str) -> None:
    model = make("Plain" if what != "model" or rank == 0 else "Branches")
    classes = 3 if what == "classes" and rank == 0 else 1
    Scheduler(model, torch.randn(4, 8), classes=classes)


# Training -----------------------------------------------------------------------------------------


def train_ddp(rank: int, name: str, optimizer: str, steps: int, hook: bool) -> dict[str, object]:
    """Plain DDP, which everything is compared with, or with the hook."""
    model = make(name)
    data = torch.Generator().manual_seed(100 + rank)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.001)
    if hook:
        scheduler = Scheduler(model, batch_of(name, torch.Generator()))
        wrapped.register_comm_hook(None, ddp_hook(scheduler))
    update = optimizer_of(optimizer, model.parameters())
    torch.manual_seed(rank)  # of dropout
    for _ in range(steps):
        update.zero_grad()
        wrapped(batch_of(name, data)).square().mean().backward()
        update.step()
    return weights(model)


class Plain:
    """DDP, with the same calls as CrossIteration has."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, unused: bool) -> None:
        self.model = DistributedDataParallel(
            model, bucket_cap_mb=0.001, find_unused_parameters=unused
        )
        self.no_sync = self.model.no_sync
        self.parameters = model.parameters

    def __call__(self, *inputs: object) -> torch.Tensor:
        return self.model(*inputs)

    def clip_grad_value_(self, value: float) -> None:
        nn.utils.clip_grad_value_(self.parameters(), value)

    def clip_grad_norm_(self, norm: float) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), norm)

    def wait_for_gradients(self) -> None:
        pass

    def train(self, mode: bool = True) -> None:
        self.model.train(mode)


class Run:
    """One rank's training, either way; a test says what is special about it."""

    def __init__(self, rank: int, cross: bool, name: str, optimizer: str, unused: bool = False) -> None:
        self.inner = make(name)
        self.name = name
        self.rank = rank
        self.data = torch.Generator().manual_seed(100 + rank)
        self.optimizer = optimizer_of(optimizer, self.inner.parameters())
        if cross:
            self.scheduler = Scheduler(self.inner, batch_of(name, torch.Generator()), classes=3)
            self.model = CrossIteration(
                self.inner, self.optimizer, self.scheduler, bucket_bytes=600, find_unused_parameters=unused
            )
        else:
            self.model = Plain(self.inner, self.optimizer, unused)
        torch.manual_seed(rank)  # of dropout

    def backward(self, *inputs: object) -> None:
        output = self.model(batch_of(self.name, self.data), *inputs)
        output.square().mean().backward()

    def iteration(self, *inputs: object) -> None:
        self.optimizer.zero_grad()
        self.backward(*inputs)
        self.optimizer.step()

    def weights(self) -> dict[str, object]:
        found = weights(self.inner)
        for state in self.optimizer.state_dict()["state"].items():
            found |= {f"{state[0]}.{k}": v.numpy() for k, v in state[1].items() if torch.is_tensor(v)}
        return found


def train(rank: int, cross: bool, name: str, optimizer: str, steps: int) -> dict[str, object]:
    run = Run(rank, cross, name, optimizer)
    for _ in range(steps):
        run.iteration()
    return run.weights()


def train_with(rank: int, cross: bool, what: str) -> dict[str, object]:
    """In each of many ways to write a training loop."""
    unused = what.startswith("unused")
    run = Run(rank, cross, "Branches" if unused else "Plain", "sgd", unused)
    return globals()[f"_train_{what}"](run) or run.weights()


def _train_order(run: Run) -> None:
    """Gradients are cleared in three places, and in three ways."""
    for i in range(12):
        set_to_none = i % 3 == 0
        if i < 6:
            run.backward()
            run.optimizer.step()
            run.optimizer.zero_grad(set_to_none=set_to_none)
        elif i < 9:
            output = run.model(batch_of(run.name, run.data))
            run.optimizer.zero_grad(set_to_none=set_to_none)
            output.square().mean().backward()
            run.optimizer.step()
        else:
            run.backward()
            run.optimizer.step()
            run.inner.zero_grad(set_to_none=True)


def _train_never_cleared(run: Run) -> None:
    for _ in range(8):
        run.backward()
        run.optimizer.step()


def _train_no_sync(run: Run) -> None:
    for _ in range(6):
        run.optimizer.zero_grad()
        with run.model.no_sync():
            run.backward()
            run.backward()
        run.backward()
        run.optimizer.step()


def _train_accumulate(run: Run) -> None:
    """Without no_sync(): every pass is reduced."""
    for _ in range(6):
        run.optimizer.zero_grad()
        run.backward()
        run.backward()
        run.optimizer.step()


def _train_skip(run: Run) -> None:
    """Some batches are thrown away after the backward pass."""
    for i in range(9):
        run.optimizer.zero_grad()
        run.backward()
        if i % 3:
            run.optimizer.step()


def _train_clip_value(run: Run) -> None:
    for _ in range(8):
        run.optimizer.zero_grad()
        run.backward()
        run.model.clip_grad_value_(0.001)
        run.optimizer.step()


def _train_clip_norm(run: Run) -> None:
    for _ in range(8):
        run.optimizer.zero_grad()
        run.backward()
        run.model.clip_grad_norm_(0.01)
        run.optimizer.step()


def _train_wait(run: Run) -> None:
    """Whoever waits may do everything himself."""
    for _ in range(8):
        run.optimizer.zero_grad()
        run.backward()
        run.model.wait_for_gradients()
        for parameter in run.inner.parameters():
            parameter.grad.mul_(0.5)
        run.optimizer.step()


def _train_schedule(run: Run) -> None:
    """The learning rate of an update is the one at step()."""
    schedule = torch.optim.lr_scheduler.StepLR(run.optimizer, 2, gamma=0.5)
    for _ in range(8):
        run.iteration()
        schedule.step()
    assert run.optimizer.param_groups[0]["lr"] == 0.05 * 0.5**4


def _train_eval(run: Run) -> None:
    """What eval() computes is computed with updated weights."""
    seen = []
    for _ in range(4):
        run.iteration()
        run.model.train(False)
        with torch.no_grad():
            seen.append(run.model(torch.ones(4, 8)).sum().item())
        run.model.train()
    return {"seen": torch.tensor(seen).numpy(), **run.weights()}


def _train_inner(run: Run) -> None:
    """Who goes around the wrapper finds updated weights, too."""
    seen = []
    for _ in range(4):
        run.iteration()
        run.inner.eval()
        seen.append(run.inner(torch.ones(4, 8)).sum().item())
        run.inner.train()
        run.iteration()
        seen.append(sum(value.sum().item() for value in run.inner.state_dict().values()))
        run.iteration()
        seen.append(sum(value.sum().item() for value in run.model.parameters()))
    return {"seen": torch.tensor(seen).numpy(), **run.weights()}


def _train_resume(run: Run) -> None:
    """To a checkpoint, on, back to it, and on again."""
    for _ in range(3):
        run.iteration()
    saved = copy.deepcopy((run.inner.state_dict(), run.optimizer.state_dict()))
    for _ in range(3):
        run.iteration()
    run.inner.load_state_dict(saved[0])
    run.optimizer.load_state_dict(saved[1])
    for _ in range(3):
        run.iteration()


def _train_exception(run: Run) -> None:
    """A forward pass ends half-way, at all ranks."""
    for i in range(8):
        run.iteration()
        if i % 3 == 0:
            with contextlib.suppress(ZeroDivisionError):
                hook = run.inner.last.register_forward_pre_hook(lambda *_: 1 // 0)
                run.model(torch.ones(4, 8))
            hook.remove()
            dist.barrier()


def _train_autocast(run: Run) -> None:
    """bfloat16 needs no scaler, and one without a GPU scales nothing."""
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    for _ in range(6):
        run.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = run.model(batch_of(run.name, run.data)).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(run.optimizer)
        scaler.update()


def _train_scaler(run: Run) -> None:
    """PyTorch's own where it has one for the CPU (2.3), or what it does: unscale, look, step."""
    scaler = torch.amp.GradScaler("cpu") if hasattr(torch.amp, "GradScaler") else None
    for i in range(8):
        run.optimizer.zero_grad()
        loss = run.model(batch_of(run.name, run.data)).square().mean()
        (scaler.scale(loss) if scaler else loss * 1024).backward()
        run.model.wait_for_gradients()
        if scaler:
            scaler.step(run.optimizer)
            scaler.update()
            continue
        for parameter in run.inner.parameters():
            parameter.grad.div_(1024)
        if i % 4:  # a step that is left out, as after an infinite gradient
            run.optimizer.step()


def _train_unused(run: Run) -> None:
    """A branch that is taken by no rank, by one, by the other, by both."""
    for i in range(12):
        run.iteration(bool(i & 1 << run.rank))


def _train_unused_zero(run: Run) -> None:
    """A gradient of zero is not none: momentum goes on."""
    for i in range(12):
        run.optimizer.zero_grad(set_to_none=False)
        run.backward(bool(i & 1 << run.rank))
        run.optimizer.step()


def _train_unused_no_sync(run: Run) -> None:
    """
    A branch that is taken in no_sync() only. DDP of torch 1.13 does not reduce that, and its ranks
    go apart; it takes the two batches in the other order here.
    """
    for i in range(8):
        run.optimizer.zero_grad(set_to_none=True)
        batches = [(batch_of(run.name, run.data), bool(i & 1 << run.rank)), (batch_of(run.name, run.data),)]
        if isinstance(run.model, Plain):
            batches.reverse()
        with run.model.no_sync():
            run.model(*batches[0]).square().mean().backward()
        run.model(*batches[1]).square().mean().backward()
        run.optimizer.step()


def _train_detach(run: Run) -> None:
    for _ in range(3):
        run.iteration()
    if isinstance(run.model, CrossIteration):
        run.model.detach()
        for module in run.inner.modules():
            assert not module._forward_pre_hooks
        assert not {"step", "zero_grad", "state_dict"} & vars(run.optimizer).keys()
        run.scheduler.close()
        run.model = Plain(run.inner, run.optimizer, False)
    for _ in range(3):
        run.iteration()


# What is refused, and what happens when somebody dies ---------------------------------------------


def refused(rank: int, what: str) -> None:
    globals()[f"_refused_{what}"](rank)


def _cross(name: str, optimizer: Callable[[nn.Module], torch.optim.Optimizer], **others: object) -> tuple:
    model = make(name)
    scheduler = Scheduler(model, batch_of(name, torch.Generator()), classes=2)
    update = optimizer(model)
    return model, update, CrossIteration(model, update, scheduler, bucket_bytes=0, **others)


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def _refused_closure(rank: int) -> None:
    _, optimizer, _ = _cross("Plain", _sgd)
    optimizer.step(lambda: 0.0)


def _refused_lbfgs(rank: int) -> None:
    _cross("Plain", lambda model: torch.optim.LBFGS(model.parameters()))


def _refused_not_optimized(rank: int) -> None:
    _cross("Plain", lambda model: torch.optim.SGD(model.first.parameters(), lr=0.1))


def _refused_stranger(rank: int) -> None:
    more = nn.Linear(2, 2)
    _cross("Plain", lambda m: torch.optim.SGD([*m.parameters(), *more.parameters()], lr=0.1))


def _refused_add_group(rank: int) -> None:
    _, optimizer, _ = _cross("Plain", _sgd)
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})


def _refused_clip_by_hand(rank: int) -> None:
    inner, _, model = _cross("Plain", _sgd)
    model(torch.ones(4, 8)).sum().backward()
    nn.utils.clip_grad_norm_(inner.parameters(), 1.0)


def _refused_scale_by_hand(rank: int) -> None:
    """As GradScaler.unscale_() does."""
    inner, _, model = _cross("Plain", _sgd)
    model(torch.ones(4, 8)).sum().backward()
    torch._amp_foreach_non_finite_check_and_unscale_(
        [p.grad for p in inner.parameters()], torch.zeros(1), torch.ones(1)
    )


def _refused_twice(rank: int) -> None:
    _, _, model = _cross("Plain", _sgd)
    loss = model(torch.ones(4, 8)).sum()
    loss.backward(retain_graph=True)
    loss.backward()


def _refused_no_gradient(rank: int) -> None:
    _, _, model = _cross("Branches", _sgd)
    model(torch.ones(4, 8), True).sum().backward()


def _refused_other_way(rank: int) -> None:
    """Another code path than the one that was traced."""
    inner, optimizer, model = _cross("Plain", _sgd)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    inner.last.forward = None  # nobody calls it
    inner.forward = lambda x: inner.first(x)[:, :4] @ inner.last.weight[:, :4]
    model(torch.ones(4, 8)).sum().backward()


def _refused_interrupted(rank: int) -> None:
    inner, _, model = _cross("Plain", _sgd)
    hook = inner.first.weight.register_hook(lambda _: 1 // 0)
    with contextlib.suppress(ZeroDivisionError):
        model(torch.ones(4, 8)).sum().backward()
    hook.remove()
    model(torch.ones(4, 8))


def _refused_sparse(rank: int) -> None:
    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        model.embed.sparse = True
        return _sgd(model)

    _, _, model = _cross("Attention", optimizer)
    model(torch.ones(4, 6, dtype=torch.long)).sum().backward()


def _refused_bad_clip(rank: int) -> None:
    _, _, model = _cross("Plain", _sgd)
    model.clip_grad_value_(0)


def train_until_killed(rank: int, way: str) -> None:
    if way == "cross":
        run = Run(rank, True, "Attention", "sgd")
    else:
        run = Run(rank, False, "Attention", "sgd")
        scheduler = Scheduler(run.inner, batch_of("Attention", torch.Generator()))
        run.model.model.register_comm_hook(None, ddp_hook(scheduler))
    for i in range(10**6):
        run.iteration()
        if i == 5:
            say("training")


def train_slowly(rank: int, steps: int) -> tuple[dict[str, object], bool]:
    """Stops after 10 and 20 iterations until it is told to go on."""
    run = Run(rank, True, "Attention", "sgd")
    for i in range(steps):
        if i in (10, 20):
            say(i)
            hear()
        if i == steps - 1:
            _connect(run.scheduler)
        run.iteration()
    return run.weights(), run.scheduler.status().connected


def _connect(scheduler: Scheduler) -> None:
    """Until the daemon is back and has answered: it is asked again after a while only."""
    for _ in range(10_000):
        if scheduler.status().connected:
            return
        scheduler.step()
        time.sleep(0.01)


def train_push_pull(
    rank: int, name: str, optimizer: str, steps: int, servers: list[str]
) -> dict[str, object]:
    run = Run(rank, False, name, optimizer)
    scheduler = Scheduler(run.inner, batch_of(name, torch.Generator()))
    hook = ps_hook(scheduler, run.inner, servers, same_bits=True, join_time=2 if steps == 1 else 60)
    run.model.model.register_comm_hook(None, hook)
    torch.manual_seed(rank)
    for i in range(steps):
        run.iteration()
        if steps == 10**6 and i == 5:
            say("training")
    found = weights(run.inner)
    dist.barrier()
    return found


def shard(rank: int) -> dict[str, object]:
    model = make("Attention")
    scheduler = Scheduler(model, batch_of("Attention", torch.Generator()), classes=3)
    before = set(own_connections())
    asked: list[bool] = []

    class Sharded(nn.Module):
        def set_separate_reduce_scatter_group(self, enable: bool) -> None:
            asked.append(enable)
            self.group = dist.new_group()

    class Mesh:
        @staticmethod
        def from_group(group: object, device: str) -> str:
            return "the first class" if group is scheduler.groups[0] and device == "cpu" else ""

    options: dict[str, object] = {}

    def fully_shard(module: nn.Module, **given: object) -> nn.Module:
        options.update(given)
        return Sharded()

    sharded._pytorch = lambda: (fully_shard, Mesh)
    sharded.fully_shard(model, scheduler)
    new = set(own_connections()) - before
    seen = {
        "mesh": options["mesh"],
        "asked": asked,
        "new": [mark for mark, _, _ in sockets_of(list(new))],
        "classes": len(scheduler.classes),
    }
    dist.barrier()
    return seen
