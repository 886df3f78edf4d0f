"""The processes of one run: one, or as many as ``accelerate launch`` or ``torchrun`` started.

Each process holds the whole frozen verifier and takes its share of every step's rows. The
trainable weights are either repeated in all (DDP) or split among them together with the
optimizer's state (FSDP2, ``train.shard`` or ``accelerate launch --use_fsdp``). Whatever the
spread, gradients are those of the mean over all labels of the step.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from breakeven.counting import counted
from breakeven.errors import TrainingError
from breakeven.train.objective import Objective

T = TypeVar("T")
FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Processes:
    """This process among the others; with one process everything here does nothing."""

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self._state = PartialState(cpu=torch.device(device).type == "cpu")
        if self.count == 1 and _meant_for_several(os.environ):
            raise TrainingError(
                "accelerate launch starts one process on CPUs whatever --num_processes says "
                "(unless by MPI); start several with: torchrun --nproc-per-node N -m breakeven "
                "train ..."
            )

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self._state.num_processes)

    @property
    def main(self) -> bool:
        """Whether this is the one that writes files and speaks."""
        return bool(self._state.is_main_process)

    @property
    def device(self) -> torch.device:
        """Where this process's verifier belongs, e.g. ``cuda:1``."""
        return torch.device(self._state.device)

    def share(self, items: Sequence[T]) -> list[T]:
        """Every ``count``-th item, from this process's own place on."""
        return list(items[self._state.process_index :: self.count])

    def gather(self, value: T) -> list[T]:
        """Everybody's value, the same list in all processes."""
        return list(gather_object([value]))

    def agree(self, value: T) -> T:
        """The main process's value."""
        return broadcast_object_list([value])[0]  # type: ignore[no-any-return]

    @contextmanager
    def main_first(self) -> Iterator[bool]:
        """All arrive, the main process goes ahead (it gets True), then the others."""
        self.wait()
        if not self.main:
            self.wait()
        yield self.main
        if self.main:
            self.wait()

    def wait(self) -> None:
        """Until all are here."""
        self._state.wait_for_everyone()

    @contextmanager
    def one_voice(self) -> Iterator[None]:
        """Only the main process writes on standard error while this lasts."""
        with nullcontext() if self.main else redirect_stderr(io.StringIO()):
            yield


def _meant_for_several(environment: Mapping[str, str]) -> bool:
    """Whether ``accelerate launch`` was asked for several processes on CPUs.

    >>> _meant_for_several({"ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1"})
    True
    >>> _meant_for_several({"ACCELERATE_USE_CPU": "True"})
    False
    """
    on_cpu = environment.get("ACCELERATE_USE_CPU", "false").lower() == "true"
    return on_cpu and "MASTER_ADDR" in environment


class Replicas:
    """The trainable weights in all processes: gradients, clipping, and whole states to save."""

    def __init__(self, processes: Processes, objective: Objective, *, shard: bool = False) -> None:
        self._processes, self._objective = processes, objective
        shard = shard or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
        device = next(objective.parameters()).device
        self.module: nn.Module = objective
        if processes.count > 1 and shard:
            mesh = init_device_mesh(device.type, (processes.count,))
            fully_shard(objective, mesh=mesh)  # changes the class of the objective in place
        elif processes.count > 1:
            places = [device] if device.type == "cuda" else None
            self.module = DistributedDataParallel(objective, places)

    @property
    def kind(self) -> str:
        """``single``, ``ddp`` or ``fsdp``."""
        if isinstance(self.module, FSDPModule):
            return "fsdp"
        return "ddp" if isinstance(self.module, DistributedDataParallel) else "single"

    @contextmanager
    def exchanging(self, last: bool) -> Iterator[None]:
        """Gradients of the passes inside are summed over processes after the last one only."""
        if isinstance(self.module, FSDPModule):
            self.module.set_requires_gradient_sync(last)
            self.module.set_reshard_after_backward(last)  # processes may differ in passes
        quiet = not last and isinstance(self.module, DistributedDataParallel)
        with self.module.no_sync() if quiet else nullcontext():  # type: ignore[operator]
            yield

    def normalise(self, weight: float, largest: float) -> float:
        """Turn gradients of sums into those of the mean over ``weight``, then clip.

        DDP and FSDP average over processes, which is undone here. Returns the norm before
        clipping.
        """
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, self._processes.count / weight)
        norm = nn.utils.clip_grad_norm_(self.module.parameters(), largest)
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """The objective's weights are complete in every process while this lasts."""
        if not isinstance(self.module, FSDPModule):
            yield
            return
        self.module.unshard()
        try:
            yield
        finally:
            self.module.reshard()

    def weights(self) -> dict[str, Tensor]:
        """All weights by the objective's names (empty except in the main process of FSDP)."""
        return dict(get_model_state_dict(self.module, options=FULL))  # type: ignore[arg-type]

    def state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Weights and optimizer state, independent of how many processes there are."""
        moments = get_optimizer_state_dict(self.module, optimizer, options=FULL)
        return {"objective": self.weights(), "optimizer": moments}

    def restore(
        self, content: dict[str, Any], optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """Put back what :meth:`state` gave, in every process."""
        set_model_state_dict(self.module, content["objective"], options=FULL)
        if optimizer is not None:
            set_optimizer_state_dict(self.module, optimizer, content["optimizer"], options=FULL)
            for group in optimizer.param_groups:
                group["betas"] = tuple(group["betas"])  # PyTorch gives them back as a list


def check_share(rows_per_step: int, processes: Processes) -> None:
    """Raise :class:`TrainingError` when a process would have nothing to do."""
    if rows_per_step < processes.count:
        raise TrainingError(
            f"train.rows_per_step={rows_per_step} for "
            f"{counted(processes.count, 'process', 'processes')}: every process "
            f"needs a row of each step; give train.rows_per_step={processes.count} or more, or "
            "start fewer processes"
        )
