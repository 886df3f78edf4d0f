"""Copies to the device that wait for nothing, and passes timed without stopping the device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def sent(tensor: Tensor, device: torch.device | str) -> Tensor:
    """``tensor`` on ``device``; from the host to a GPU without waiting for the GPU.

    Page-locked memory is what makes that possible; its allocator keeps it until the copy is done.
    """
    device = torch.device(device)
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class Inlet:
    """A tensor at a fixed place on the device, as graphs need their inputs.

    What has not changed since the last time is not copied again: masks and gates of a layout stay.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)
        self._last: Tensor | None = None  # on the host; None: what is there came from the device

    def put(self, value: Tensor) -> None:
        """Fill it from the host or the device; ``value`` may need broadcasting."""
        value = value.expand(self.tensor.shape)
        if value.device == self.tensor.device:
            self._last = None
            self.tensor.copy_(value)
        elif self._last is None or not torch.equal(self._last, value):
            self._last = value.contiguous().clone()
            self.tensor.copy_(sent(self._last, self.tensor.device))


def timed(device: torch.device, work: Callable[[], None]) -> Callable[[], float]:
    """Do ``work`` on a GPU; the result tells its seconds, once the GPU has been waited for."""
    with torch.cuda.device(device):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
    return lambda: first.elapsed_time(last) / 1e3
