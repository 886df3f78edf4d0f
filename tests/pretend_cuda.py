"""A CUDA device that is none: tensors "on" it compute on the CPU, and mixing devices fails.

It stands in for a GPU in tests of what would go wrong on one: a tensor left on the host, a pass
that asks the host (what a graph cannot hold), a round that waits more than once. Inside
:class:`PretendCuda` tensors made or moved with a CUDA device claim to be there; ``waits`` counts
the times that a value came back to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("cuda:0")
DEVICE_OF = torch.Tensor.device.__get__  # type: ignore[attr-defined]
READ = torch.ops.aten._local_scalar_dense.default
WAITS = {READ, torch.ops.aten.equal.default, torch.ops.aten.nonzero.default}
TAKES_HOST_TENSORS = {
    torch.ops.aten.copy_.default,
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put_.default,
}


class OnDevice(Tensor):
    """A CPU tensor that says it is on a GPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Self:
        wrapper: Self = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="cpu",
        )
        wrapper.inner = inner
        return wrapper

    def __init__(self, inner: Tensor) -> None:
        pass

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"OnDevice({self.inner!r})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        PretendCuda.see(func)
        for leaf in tree_leaves((args, kwargs)):
            on_host = isinstance(leaf, Tensor) and not isinstance(leaf, OnDevice)
            if on_host and leaf.dim() and func not in TAKES_HOST_TENSORS:
                raise RuntimeError(f"{func}: a tensor of shape {list(leaf.shape)} is on the host")
        out = func(*tree_map(inside, args), **tree_map(inside, kwargs))
        in_place = func._schema.name.endswith("_")
        return args[0] if in_place else tree_map(outside, out)


def inside(value: Any) -> Any:
    return value.inner if isinstance(value, OnDevice) else value


def outside(value: Any) -> Any:
    return OnDevice(value) if isinstance(value, Tensor) else value


class PretendCuda(TorchFunctionMode):
    """While it is entered, ``device="cuda"`` means :class:`OnDevice`."""

    active: PretendCuda | None = None

    def __init__(self) -> None:
        super().__init__()
        self.waits, self._captures = 0, False

    @classmethod
    def see(cls, func: Any) -> None:
        """An operation on the device: does it make the host wait?"""
        mode = cls.active
        if mode is not None and func in WAITS:
            assert not mode._captures, f"{func} cannot be captured in a graph"
            mode.waits += 1

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Inside, nothing may ask the host."""
        self._captures = True
        try:
            yield
        finally:
            self._captures = False

    def __enter__(self) -> Self:
        PretendCuda.active = self
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        PretendCuda.active = None
        torch.__future__.set_overwrite_module_params_on_conversion(False)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        with torch.inference_mode(False), torch.no_grad():  # views of wrappers need versions
            return self._called(func, args, dict(kwargs or {}))

    def _called(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        name = getattr(func, "__name__", "")
        if func == DEVICE_OF and isinstance(args[0], OnDevice):
            return DEVICE
        if name == "pin_memory":
            return args[0]
        if name == "tolist" and isinstance(args[0], OnDevice):
            self.see(READ)
            return args[0].inner.tolist()
        if name == "data_ptr" and isinstance(args[0], OnDevice):
            return args[0].inner.data_ptr()
        if name in ("to", "cpu"):
            return self._moved(func, name, args, kwargs)
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            if any(isinstance(leaf, OnDevice) for leaf in tree_leaves(args)):
                return func(*args, **kwargs)
            kwargs["device"] = "cpu"
            return outside(func(*args, **kwargs))
        return func(*args, **kwargs)

    def _moved(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        tensor, *rest = args
        named = [*rest, *kwargs.values()]
        devices = [torch.device(v) for v in named if isinstance(v, str | torch.device)]
        types = [v for v in named if isinstance(v, torch.dtype)]
        if name == "cpu":
            devices = [torch.device("cpu")]
        if not devices:
            return func(*args, **kwargs)
        if (devices[0].type == "cuda") == isinstance(tensor, OnDevice):
            return tensor.to(types[0]) if types else tensor
        if devices[0].type == "cuda":
            moved: Tensor = OnDevice(tensor.detach().clone())
        else:
            self.see(READ)
            moved = tensor.inner.clone()
        return moved.to(types[0]) if types else moved
