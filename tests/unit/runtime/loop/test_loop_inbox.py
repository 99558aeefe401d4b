"""What other threads ask of a loop: a turn takes a part of it, and its own events come first."""

from __future__ import annotations

from sirocco.protocol.contract.effects import ChangeRequests, Effect, Event, FlushRequest
from sirocco.runtime.loop.loop_inbox import ASKED_CPU_S, LoopInbox


class Loop:
    """Runs turns; each request of a client takes two fifths of a turn's time for them."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.cpu_s = 0.0
        self.inbox = LoopInbox(self.step, lambda: True, lambda: self.cpu_s)

    def step(self, event: Event) -> list[Effect]:
        if isinstance(event, ChangeRequests):
            self.cpu_s += 0.4 * ASKED_CPU_S
            self.done.append("asked")
            if len(self.done) == 1:
                self.ask()
        else:
            self.done.append("own")
        return []

    def ask(self) -> None:
        self.inbox.ask(lambda token: ChangeRequests(token, 0, ()), None)

    def turn(self) -> list[str]:
        self.done.clear()
        for _ in self.inbox.take_up():
            pass
        return self.done.copy()


def test_a_turn_takes_up_a_part_of_what_clients_ask() -> None:
    loop = Loop()
    for _ in range(7):
        loop.ask()
    assert loop.turn() == ["asked"] * 3
    assert loop.inbox.has_more
    # One more was asked in each turn.
    assert [len(loop.turn()) for _ in range(2)] == [3, 3]


def test_what_is_asked_during_a_turn_waits_for_the_next_one() -> None:
    loop = Loop()
    loop.ask()
    assert [loop.turn() for _ in range(3)] == [["asked"]] * 3


def test_events_of_the_process_do_not_wait_for_clients() -> None:
    loop = Loop()
    for _ in range(5):
        loop.ask()
    loop.turn()
    loop.inbox.post(FlushRequest())
    assert loop.turn()[0] == "own"
