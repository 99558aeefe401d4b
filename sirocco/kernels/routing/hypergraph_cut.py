"""Cuts a hypergraph in two: greedy growing, then Fiduccia-Mattheyses passes (1982)."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel


def _in(dtype: Any, dimensions: int = 1) -> Any:
    return types.Array(dtype, dimensions, "C", readonly=True)


def _signature(result: Any, *arguments: Any) -> Any:
    return result(*arguments)


@kernel
def _fill_gains(offsets, nets, weights, side, counts, gain_out):  # type: ignore[no-untyped-def]
    """Writes for each vertex by how much the cut shrinks if it changes its side."""
    for vertex in range(side.shape[0]):
        gain = 0.0
        for i in range(offsets[vertex], offsets[vertex + 1]):
            net = nets[i]
            if counts[net, side[vertex]] == 1:
                gain += weights[net]
            if counts[net, 1 - side[vertex]] == 0:
                gain -= weights[net]
        gain_out[vertex] = gain


@kernel
def _move(vertex, graph, side, counts, gain, is_locked, heap):  # type: ignore[no-untyped-def]
    """Moves a vertex to the other side, and updates the gains of its neighbours."""
    net_offsets, pins, weights, offsets, nets = graph
    source = side[vertex]
    target = 1 - source
    side[vertex] = target
    is_locked[vertex] = True
    for i in range(offsets[vertex], offsets[vertex + 1]):
        net = nets[i]
        weight = weights[net]
        before = counts[net, target]
        counts[net, source] -= 1
        counts[net, target] += 1
        after = counts[net, source]
        if before > 1 and after > 1:
            continue
        for j in range(net_offsets[net], net_offsets[net + 1]):
            pin = pins[j]
            if is_locked[pin]:
                continue
            change = 0.0
            if before == 0:
                change += weight
            elif before == 1 and side[pin] == target:
                change -= weight
            if after == 0:
                change -= weight
            elif after == 1 and side[pin] == source:
                change += weight
            if change != 0.0:
                gain[pin] += change
                heapq.heappush(heap, (-gain[pin], np.int64(pin)))


@kernel
def _grow(graph, loads, wanted, side, counts, gain, is_locked):  # type: ignore[no-untyped-def]
    """Moves vertices to side 0, the best connected first, until it has the wanted load."""
    offsets = graph[3]
    degrees = offsets[1:] - offsets[:-1]
    seed = np.argmax(degrees)
    heap = [(-np.inf, np.int64(seed))]
    for each in range(side.shape[0]):
        heapq.heappush(heap, (-gain[each], np.int64(each)))
    load = 0.0
    while len(heap) > 0 and load < wanted:
        key, vertex = heapq.heappop(heap)
        if is_locked[vertex] or (key != -gain[vertex] and key != -np.inf):
            continue
        if load + loads[vertex] - wanted > wanted - load:
            is_locked[vertex] = True
            continue
        load += loads[vertex]
        _move(vertex, graph, side, counts, gain, is_locked, heap)
    return load


@kernel
def _refine(graph, loads, wanted, slack, load, side, counts, gain, is_locked, moved):  # type: ignore[no-untyped-def]
    """Runs one pass; returns (load of side 0, by how much the cut shrank)."""
    stall_max = 64 + side.shape[0] // 4
    heap = [(-gain[0], np.int64(0))]
    for each in range(1, side.shape[0]):
        heapq.heappush(heap, (-gain[each], np.int64(each)))
    moves = 0
    best_moves = 0
    total = 0.0
    best_total = 0.0
    best_load = load
    while len(heap) > 0 and moves - best_moves < stall_max:
        key, vertex = heapq.heappop(heap)
        if is_locked[vertex] or key != -gain[vertex]:
            continue
        after = load + (loads[vertex] if side[vertex] == 1 else -loads[vertex])
        if abs(after - wanted) > max(slack, abs(load - wanted)):
            continue
        load = after
        total += gain[vertex]
        moved[moves] = vertex
        moves += 1
        _move(vertex, graph, side, counts, gain, is_locked, heap)
        nearer = abs(load - wanted) < abs(best_load - wanted)
        tied = abs(total - best_total) <= 1e-9 * (1.0 + abs(best_total))
        is_evener = abs(best_load - wanted) > slack and nearer
        if is_evener or (not tied and total > best_total) or (tied and nearer):
            best_total = total
            best_moves = moves
            best_load = load
    for i in range(best_moves, moves):
        vertex = moved[i]
        for j in range(graph[3][vertex], graph[3][vertex + 1]):
            counts[graph[4][j], side[vertex]] -= 1
            counts[graph[4][j], 1 - side[vertex]] += 1
        side[vertex] = 1 - side[vertex]
    return best_load, best_total


@kernel(
    _signature(
        types.float64,
        *(_in(types.int64), _in(types.int32), _in(types.float64)),
        *(_in(types.int64), _in(types.int32), _in(types.float64)),
        *(types.float64, types.float64, types.int64, types.uint8[::1]),
    )
)
def cut_in_two(  # type: ignore[no-untyped-def]
    net_offsets, pins, net_weights, offsets, nets, loads, wanted, slack, passes_max, side_out
):
    """Gives each vertex a side so that few nets are cut and side 0 has about the wanted load.

    Args:
        net_offsets: i8[e + 1], into `pins`.
        pins: i4, distinct vertices of each net.
        net_weights: f8[e].
        offsets: i8[v + 1], into `nets`; v > 0.
        nets: i4, the nets of each vertex.
        loads: f8[v], not negative.
        wanted: Load of side 0.
        slack: How far a pass may move away from that load, if it was nearer before.
        passes_max: Greatest number of passes after the growing; they end when one gains nothing.
        side_out: u1[v], overwritten with 0 or 1.

    Returns:
        The total weight of the nets that are cut.
    """
    graph = (net_offsets, pins, net_weights, offsets, nets)
    vertices = loads.shape[0]
    side_out[:] = 1
    counts = np.zeros((net_weights.shape[0], 2), np.int64)
    for net in range(net_weights.shape[0]):
        counts[net, 1] = net_offsets[net + 1] - net_offsets[net]
    gain = np.zeros(vertices)
    is_locked = np.zeros(vertices, np.bool_)
    moved = np.empty(vertices, np.int64)
    _fill_gains(offsets, nets, net_weights, side_out, counts, gain)
    load = _grow(graph, loads, wanted, side_out, counts, gain, is_locked)
    for _ in range(passes_max):
        is_locked[:] = False
        _fill_gains(offsets, nets, net_weights, side_out, counts, gain)
        before = abs(load - wanted)
        load, gained = _refine(
            graph, loads, wanted, slack, load, side_out, counts, gain, is_locked, moved
        )
        if gained <= 0.0 and abs(load - wanted) >= before:
            break
    cut = 0.0
    for net in range(net_weights.shape[0]):
        if counts[net, 0] > 0 and counts[net, 1] > 0:
            cut += net_weights[net]
    return cut
