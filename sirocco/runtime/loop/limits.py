"""The limits and intervals of a process's loop, and of the tails of deliveries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """How much a loop takes at once, and how often it tries again.

    Attributes:
        turn_bytes_wanted: registrations are small records, and their cost is per turn: a record for
            each slot, which evaluators take one by one. So a turn polls until it has so many bytes,
            or records; more of both while turns are cheap (`TurnSize`).
        turn_cpu_s_wanted: CPU time of a turn, for which objects and other change requests wait.
        turn_decoding_cpu_s: CPU time of a turn for decoding records; the others wait for the next
            turn. Expressions that clients choose take 7 ms each: 512 of them, read again after a
            restart, would hold up leases and requests for 3.6 s. Larger than what a turn of usual
            records takes.
        gone_ms: for so long a missing offset may turn out to belong to a new owner, which has
            truncated it and whose grant is further on in `control`. Longer than reading that takes.
        save_again_ms: interval between tries of a failed save. The log keeps everything since the
            last saved checkpoint, so a full or unreachable archive costs only room there, and more
            reading for a successor.
        load_again_ms_max: the longest pause between tries of a load. The granted partition waits:
            it resumes soon after the archive is back, and a hundred waiting slots ask at most some
            thirty times a second.
        truncate_interval_ms: truncating is housekeeping by an admin call: the last request for a
            Kafka partition counts, and it is carried out at most this often.
    """

    turn_bytes_wanted: int = 256 << 10
    turn_cpu_s_wanted: float = 0.05
    turn_decoding_cpu_s: float = 0.1
    gone_ms: int = 5_000
    save_again_ms: int = 5_000
    load_again_ms_max: int = 5_000
    truncate_interval_ms: int = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TailLimits:
    """How much of `deliveries` a process keeps in memory.

    Attributes:
        kept_bytes: for each Kafka partition: seconds of a full stream, minutes of a usual one. For
            a stream that is further behind the log is read (`log_readers`): it delays only itself.
        kept_bytes_total: for all Kafka partitions of a process: with hundreds of them each keeps
            less.
        retry_s: between tries to read what cannot be read: alerts resolve soon, and the log gets
            few lines.
    """

    kept_bytes: int = 32 << 20
    kept_bytes_total: int = 256 << 20
    retry_s: float = 1.0


LOOP = LoopLimits()
TAIL = TailLimits()
