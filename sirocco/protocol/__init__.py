"""The services' decisions as state machines without I/O: `step(event, now_ms) -> effects`."""
