"""Settings of the interpreter, where they may go wrong."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sirocco.runtime.process import process_tuning

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities on Linux")


def nice_of_thread() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_threads_step_back_from_where_the_process_stands() -> None:
    """A process started with `nice` may not go below that."""

    def stepped() -> int:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 7)
        process_tuning.step_back()
        return nice_of_thread()

    own = nice_of_thread()
    with ThreadPoolExecutor(1) as threads:
        nice = threads.submit(stepped).result(120.0)
    assert nice == 7 + process_tuning.BACKGROUND_NICE
    assert nice_of_thread() == own


def test_threads_work_where_they_may_not_step_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError("setpriority")

    monkeypatch.setattr(os, "setpriority", refuse)
    with ThreadPoolExecutor(1, initializer=process_tuning.step_back) as threads:
        assert threads.submit(lambda: "worked").result(120.0) == "worked"
