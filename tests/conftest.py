"""What every test gets: one thread, hypothesis without deadlines, no network, and a fixed width."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in background
settings.register_profile("breakeven", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("breakeven")


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Help and errors as a wide terminal without colours would show them."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
