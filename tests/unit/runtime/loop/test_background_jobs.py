"""Slow work beside a loop: which jobs delay which."""

from __future__ import annotations

import threading

from sirocco.runtime.loop.background_jobs import BackgroundJobs
from sirocco.runtime.loop.loop_inbox import LoopInbox


def test_housekeeping_holds_up_neither_transactions_nor_the_end() -> None:
    slow = BackgroundJobs("m", LoopInbox(lambda _event: [], lambda: True))
    answers, done, ended = threading.Event(), threading.Event(), threading.Event()

    def end() -> None:
        slow.finish()
        ended.set()

    try:
        for _ in range(100):
            # An archive that does not answer.
            slow.tidy(lambda: answers.wait(120.0))
        slow.begin(done.set)
        assert done.wait(120.0)
        threading.Thread(target=end, daemon=True).start()
        assert ended.wait(120.0)
    finally:
        answers.set()
        slow.close()
