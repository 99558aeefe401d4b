"""Clients that send piece by piece: what limits them is what a test looks for."""

from __future__ import annotations

import select
import socket

# Less than the limits of what these clients send to, so that each piece arrives before its end.
PAUSE_S = 0.05


def is_cut_off(connection: socket.socket, piece: bytes) -> bool:
    """Sends one more piece after a pause; returns whether the other side had hung up.

    An end of the connection ends the pause.
    """
    select.select([connection], [], [], PAUSE_S)
    try:
        connection.sendall(piece)
    except OSError:
        return True
    return False
