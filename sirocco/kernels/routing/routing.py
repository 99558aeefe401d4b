"""Routes by the routing arrays: points to leaves, boxes to leaves, text nodes to children.

A *frame* is a box tiled by leaves and text nodes. Frame 0 is the world; every child of a text
node is a frame of its own. Within a frame the tile borders form a grid of uneven cells. A bucket
table over each axis gives the few borders near a coordinate, so that a point is located in
constant time even if the tiling is uneven.

An *item* is the content of a cell: a leaf (numbers below the number of leaves), a text node, or,
with higher numbers, a keyword node, whose children are leaves without a frame.

Columns of `frame_ints` i8[frames, 9]: first x border, columns, first x bucket, x buckets, first
y border, rows, first y bucket, y buckets, first cell. Columns of `frame_reals` f8[frames, 4]:
x origin, x buckets per degree, y origin, y buckets per degree. The borders of one axis exclude
the last one, so that the frame's far border belongs to the last tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.routing.increment import covered, least_increment, mix64


def _in(dtype: Any, dimensions: int = 1) -> Any:
    return types.Array(dtype, dimensions, "C", readonly=True)


def _signature(result: Any, *arguments: Any) -> Any:
    return result(*arguments)


# Columns of `frame_ints`, `frame_reals`, `text_ints` and `word_ints`.
_FIRST_X, _COLUMNS, _FIRST_X_BUCKET, _X_BUCKETS = range(4)
_FIRST_Y, _ROWS, _FIRST_Y_BUCKET, _Y_BUCKETS, _FIRST_CELL = range(4, 9)
_X_ORIGIN, _X_SCALE, _Y_ORIGIN, _Y_SCALE = range(4)
_CHILD_FRAME, _TABLE, _TABLE_MASK, _NODE = range(4)
_WORD_LEAVES, _WORD_CHILDREN, _WORD_TABLE, _WORD_MASK, _WORD_NODE, _BY_TERM = range(6)

_F8 = _in(types.float64)
_F8_2 = _in(types.float64, 2)
_F8_3 = _in(types.float64, 3)
_I4 = _in(types.int32)
_I4_2 = _in(types.int32, 2)
_I8 = _in(types.int64)
_I8_2 = _in(types.int64, 2)
_U1 = _in(types.uint8)
_U8 = _in(types.uint64)


@kernel(inline=True)
def _locate(value, borders, border_at, buckets, bucket_at, bucket_count, origin, scale):  # type: ignore[no-untyped-def]
    """Returns the column whose half-open range holds the value, clipped to the frame.

    The bucket number never decreases as the coordinate grows, also after rounding, and the table
    was filled with the same expression. So a border in a lower bucket is not greater than the
    value, one in a higher bucket is greater, and only the value's own bucket is searched.
    """
    position = (value - origin) * scale
    bucket = np.int64(0)
    if position >= bucket_count:
        bucket = bucket_count - 1
    elif position > 0.0:
        bucket = np.int64(position)
    low = max(buckets[bucket_at + bucket] - 1, 0)
    high = max(buckets[bucket_at + bucket + 1] - 1, 0)
    while low < high:
        middle = (low + high + 1) >> 1
        if borders[border_at + middle] <= value:
            low = middle
        else:
            high = middle - 1
    return low


@kernel(inline=True)
def _column(frame, value, frame_ints, frame_reals, borders, buckets):  # type: ignore[no-untyped-def]
    return _locate(
        value,
        borders,
        frame_ints[frame, _FIRST_X],
        buckets,
        frame_ints[frame, _FIRST_X_BUCKET],
        frame_ints[frame, _X_BUCKETS],
        frame_reals[frame, _X_ORIGIN],
        frame_reals[frame, _X_SCALE],
    )


@kernel(inline=True)
def _row(frame, value, frame_ints, frame_reals, borders, buckets):  # type: ignore[no-untyped-def]
    return _locate(
        value,
        borders,
        frame_ints[frame, _FIRST_Y],
        buckets,
        frame_ints[frame, _FIRST_Y_BUCKET],
        frame_ints[frame, _Y_BUCKETS],
        frame_reals[frame, _Y_ORIGIN],
        frame_reals[frame, _Y_SCALE],
    )


@kernel(
    _signature(
        types.void,
        *(_F8, _F8, _I8, _U8, _U8),
        *(_I8_2, _F8_2, _F8, _I4, _F8, _I4, _I4),
        types.int64,
        *(_I8_2, _F8_2, _F8_3, _F8_3, _F8_3, _F8_2),
        *(_U8, _U1, _F8_2, _U1),
        *(types.uint64, types.uint64, types.int32[::1]),
    )
)
def route_points(  # type: ignore[no-untyped-def]
    lon,
    lat,
    term_offsets,
    terms,
    event_keys,
    frame_ints,
    frame_reals,
    x_borders,
    x_buckets,
    y_borders,
    y_buckets,
    cells,
    leaf_count,
    text_ints,
    text_weights,
    text_lengths,
    text_held_share,
    text_covers,
    text_objects,
    table_terms,
    table_filled,
    table_share,
    table_held,
    secret_first,
    secret_second,
    leaf_out,
):
    """Finds the one leaf of each object.

    Args:
        lon, lat: f8[n], degrees.
        term_offsets: i8[n + 1], into `terms`.
        terms: u8[t], distinct term hashes of each object.
        event_keys: u8[n], break ties.
        frame_ints, frame_reals: The frames, see the module.
        x_borders, x_buckets, y_borders, y_buckets: f8, i4; all frames' borders and buckets.
        cells: i4, item of each cell, row after row, frame after frame.
        leaf_count: Items from this number on are text nodes, then keyword nodes.
        text_ints: i8[text nodes, 4]: first child's frame, first table entry, table size - 1, id.
        text_weights: f8[text nodes, 3]; text_lengths: f8[text nodes, 3, l];
        text_held_share, text_covers: f8[text nodes, children, 3];
        text_objects: f8[text nodes, children]: see `least_increment`.
        table_terms: u8[entries], open-addressing tables of the text nodes' keywords.
        table_filled: u1[entries], 0 where the entry is free.
        table_share: f8[entries, 3], probability that a query keyword is this one, per kind.
        table_held: u1[entries], bit c: child c holds the keyword.
        secret_first, secret_second: u8, the tables' secret, see `hash_placement`.
        leaf_out: i4[n], position of the leaf in the map's list, or the item of a keyword node;
            overwritten.
    """
    children = text_objects.shape[1]
    gain = np.zeros((children, 3))
    for i in range(lon.shape[0]):
        frame = np.int64(0)
        while True:
            column = _column(frame, lon[i], frame_ints, frame_reals, x_borders, x_buckets)
            row = _row(frame, lat[i], frame_ints, frame_reals, y_borders, y_buckets)
            in_frame = row * frame_ints[frame, _COLUMNS] + column
            item = cells[frame_ints[frame, _FIRST_CELL] + in_frame]
            if item < leaf_count or item >= leaf_count + text_ints.shape[0]:
                leaf_out[i] = item
                break
            node = item - leaf_count
            gain[:] = 0.0
            first = text_ints[node, _TABLE]
            mask = np.uint64(text_ints[node, _TABLE_MASK])
            for j in range(term_offsets[i], term_offsets[i + 1]):
                term = terms[j]
                slot = mix(term, secret_first, secret_second) & mask
                for _ in range(text_ints[node, _TABLE_MASK] + 1):
                    entry = first + np.int64(slot)
                    if table_filled[entry] == 0:
                        break
                    if table_terms[entry] == term:
                        held = table_held[entry]
                        for child in range(children):
                            if (held >> child) & 1 == 0:
                                for kind in range(3):
                                    gain[child, kind] += table_share[entry, kind]
                        break
                    slot = (slot + np.uint64(1)) & mask
            child = least_increment(
                gain,
                text_weights[node],
                text_lengths[node],
                text_held_share[node],
                text_covers[node],
                text_objects[node],
                event_keys[i],
                text_ints[node, _NODE],
            )
            frame = text_ints[node, _CHILD_FRAME] + child


@kernel(inline=True)
def _child_of_term(  # type: ignore[no-untyped-def]
    node, term, word_ints, word_terms, word_children, secret_first, secret_second
):
    """Returns the child of a keyword node that a term belongs to."""
    first = word_ints[node, _WORD_TABLE]
    mask = np.uint64(word_ints[node, _WORD_MASK])
    entry = mix(term, secret_first, secret_second) & mask
    for _ in range(word_ints[node, _WORD_MASK] + 1):
        if word_children[first + np.int64(entry)] < 0:
            break
        if word_terms[first + np.int64(entry)] == term:
            return np.int64(word_children[first + np.int64(entry)])
        entry = (entry + np.uint64(1)) & mask
    salt = mix64(np.uint64(word_ints[node, _WORD_NODE] + 1))
    return np.int64(mix64(term ^ salt) % np.uint64(word_ints[node, _WORD_CHILDREN]))


@kernel(
    _signature(
        types.void,
        *(_I8, _U8, _U8, types.int64, _I8_2, _I4, _U8, _I4, types.uint64, types.uint64),
        *(types.int32[::1], types.int32[::1]),
    )
)
def route_keywords(  # type: ignore[no-untyped-def]
    term_offsets,
    terms,
    event_keys,
    first_node,
    word_ints,
    word_leaves,
    word_terms,
    word_children,
    secret_first,
    secret_second,
    leaf_out,
    term_leaves_out,
):
    """Routes objects of keyword nodes to the nodes' leaves, by each of their terms.

    Args:
        term_offsets: i8[n + 1], into `terms`.
        terms: u8[t].
        event_keys: u8[n].
        first_node: Items from this number on are keyword nodes.
        word_ints: i8[keyword nodes, 6]: first entry of `word_leaves`, children, first table
            entry, table size - 1, id, whether by term.
        word_leaves: i4, position of the leaf of each child.
        word_terms: u8[entries], open-addressing tables of terms with an assigned child.
        word_children: i4[entries], child of the term; -1 where the entry is free.
        secret_first, secret_second: u8, the tables' secret, see `hash_placement`.
        leaf_out: i4[n], from `route_points`; a keyword node's item is replaced by the home leaf.
        term_leaves_out: i4[t], overwritten with the leaf of each term: that of the object for an
            object of a leaf; -1 where a node does not route by terms.
    """
    for i in range(event_keys.shape[0]):
        item = leaf_out[i]
        if item < first_node:
            for j in range(term_offsets[i], term_offsets[i + 1]):
                term_leaves_out[j] = item
            continue
        node = item - first_node
        leaves = word_ints[node, _WORD_LEAVES]
        salt = mix64(np.uint64(word_ints[node, _WORD_NODE] + 1))
        home = mix64(event_keys[i] ^ salt) % np.uint64(word_ints[node, _WORD_CHILDREN])
        leaf_out[i] = word_leaves[leaves + np.int64(home)]
        for j in range(term_offsets[i], term_offsets[i + 1]):
            leaf = np.int32(-1)
            if word_ints[node, _BY_TERM] != 0:
                child = _child_of_term(
                    node, terms[j], word_ints, word_terms, word_children, secret_first,
                    secret_second,
                )  # fmt: skip
                leaf = word_leaves[leaves + child]
            term_leaves_out[j] = leaf


@kernel(
    _signature(
        types.int64,
        *(_I8, _I4, _I4, _I4, types.int64),
        *(types.int32[::1], types.int32[::1], types.boolean[::1]),
    )
)
def distinct_routes(  # type: ignore[no-untyped-def]
    term_offsets, leaf, term_leaves, slot_of_leaf, slots, rows_out, leaves_out, homes_out
):
    """Writes one route for each distinct slot of an object, its home first.

    Args:
        term_offsets: i8[n + 1], into `term_leaves`.
        leaf: i4[n], home leaf of each object.
        term_leaves: i4[t], see `route_keywords`.
        slot_of_leaf: i4[leaves].
        slots: Number of slots.
        rows_out, leaves_out, homes_out: i4[n + t], i4[n + t], bool[n + t]; overwritten from the
            start: row of the object, the leaf, whether the leaf is its home.

    Returns:
        The number of routes.
    """
    reported = np.full(slots, -1, np.int64)
    total = np.int64(0)
    for i in range(leaf.shape[0]):
        reported[slot_of_leaf[leaf[i]]] = i
        rows_out[total] = i
        leaves_out[total] = leaf[i]
        homes_out[total] = True
        total += 1
        for j in range(term_offsets[i], term_offsets[i + 1]):
            other = term_leaves[j]
            if other >= 0 and reported[slot_of_leaf[other]] != i:
                reported[slot_of_leaf[other]] = i
                rows_out[total] = i
                leaves_out[total] = other
                homes_out[total] = False
                total += 1
    return total


@kernel(_signature(types.void, _F8_3, _F8_3, types.float64[:, :, ::1]))
def fill_covers(held_share, lengths, covers_out):  # type: ignore[no-untyped-def]
    """Fills the `text_covers` of `route_points`, f8[text nodes, children, 3]."""
    for node in range(held_share.shape[0]):
        for child in range(held_share.shape[1]):
            for kind in range(held_share.shape[2]):
                covers_out[node, child, kind] = covered(
                    kind, held_share[node, child, kind], lengths[node, kind]
                )


@kernel(
    _signature(
        types.int64,
        *(_U8, _I4, types.uint64, types.uint64, types.uint64[::1], types.int32[::1]),
    )
)
def fill_child_table(  # type: ignore[no-untyped-def]
    terms, children, secret_first, secret_second, terms_out, children_out
):
    """Fills one table of `route_keywords`.

    Args:
        terms: u8[m], distinct.
        children: i4[m], not negative.
        secret_first, secret_second: See `route_keywords`.
        terms_out, children_out: The table, zeros and -1 before; its size is a power of two
            over m.

    Returns:
        0; -1 if the table is too short.
    """
    if terms.shape[0] >= min(terms_out.shape[0], children_out.shape[0]):
        return -1
    mask = np.uint64(terms_out.shape[0] - 1)
    for i in range(terms.shape[0]):
        entry = mix(terms[i], secret_first, secret_second) & mask
        while children_out[np.int64(entry)] >= 0:
            entry = (entry + np.uint64(1)) & mask
        terms_out[np.int64(entry)] = terms[i]
        children_out[np.int64(entry)] = children[i]
    return 0


@kernel(
    _signature(
        types.int64,
        *(_U8, _F8_2, _U1, types.uint64, types.uint64),
        *(types.uint64[::1], types.uint8[::1], types.float64[:, ::1], types.uint8[::1]),
    )
)
def fill_keyword_table(  # type: ignore[no-untyped-def]
    terms, share, held, secret_first, secret_second, terms_out, filled_out, share_out, held_out
):
    """Fills one keyword table of `route_points`.

    Args:
        terms: u8[m], distinct.
        share: f8[m, 3].
        held: u1[m].
        secret_first, secret_second: See `route_points`.
        terms_out, filled_out, share_out, held_out: The table, all zero before; its size is a
            power of two over m.

    Returns:
        0; -1 if the table is too short.
    """
    if terms.shape[0] >= min(terms_out.shape[0], filled_out.shape[0]):
        return -1
    mask = np.uint64(terms_out.shape[0] - 1)
    for i in range(terms.shape[0]):
        entry = mix(terms[i], secret_first, secret_second) & mask
        while filled_out[np.int64(entry)] != 0:
            entry = (entry + np.uint64(1)) & mask
        at = np.int64(entry)
        terms_out[at] = terms[i]
        filled_out[at] = 1
        share_out[at] = share[i]
        held_out[at] = held[i]
    return 0


@kernel(inline=True)
def _neighbour_search(  # type: ignore[no-untyped-def]
    frame,
    box,
    frame_ints,
    frame_reals,
    x_borders,
    x_buckets,
    y_borders,
    y_buckets,
    cells,
    tiles,
    seen,
    stamp,
    stack,
    found,
):
    """Writes the items of one frame that a closed box touches to `found`; returns how many.

    Tornado 3.1, Algorithm 1: from the corner of the range it jumps to the neighbour on the right
    and the one below (here: above, since rows count northwards), each time to that tile's dominant
    cell, its least cell inside the range. Every tile is expanded once: O(tiles hit).
    """
    x0 = _column(frame, box[0], frame_ints, frame_reals, x_borders, x_buckets)
    x1 = _column(frame, box[2], frame_ints, frame_reals, x_borders, x_buckets)
    y0 = _row(frame, box[1], frame_ints, frame_reals, y_borders, y_buckets)
    y1 = _row(frame, box[3], frame_ints, frame_reals, y_borders, y_buckets)
    columns = frame_ints[frame, _COLUMNS]
    first_cell = frame_ints[frame, _FIRST_CELL]
    count = 0
    depth = 1
    item = cells[first_cell + y0 * columns + x0]
    stack[0] = item
    seen[item] = stamp
    while depth > 0:
        depth -= 1
        item = stack[depth]
        found[count] = item
        count += 1
        # The dominant cell of this tile is (max(tile west, x0), max(tile south, y0)).
        right = tiles[item, 2]
        if right <= x1:
            other = cells[first_cell + max(tiles[item, 1], y0) * columns + right]
            if seen[other] != stamp:
                seen[other] = stamp
                stack[depth] = other
                depth += 1
        above = tiles[item, 3]
        if above <= y1:
            other = cells[first_cell + above * columns + max(tiles[item, 0], x0)]
            if seen[other] != stamp:
                seen[other] = stamp
                stack[depth] = other
                depth += 1
    return count


@kernel(
    _signature(
        types.int64,
        *(_F8_2, _I8, _I8, _U8),
        *(_I8_2, _F8_2, _F8, _I4, _F8, _I4, _I4, _I4_2),
        *(types.int64, types.int64, _I8_2),
        *(_I8_2, _I4, _U8, _I4, types.uint64, types.uint64),
        types.int64[::1],
        types.int32[::1],
    )
)
def route_boxes(  # type: ignore[no-untyped-def]
    boxes,
    box_offsets,
    key_offsets,
    keys,
    frame_ints,
    frame_reals,
    x_borders,
    x_buckets,
    y_borders,
    y_buckets,
    cells,
    tiles,
    leaf_count,
    children,
    text_ints,
    word_ints,
    word_leaves,
    word_terms,
    word_children,
    secret_first,
    secret_second,
    leaf_offsets_out,
    leaves_out,
):
    """Finds the distinct leaves that each query's closed boxes touch, in all text children.

    Of the leaves of a keyword node, a query with keys gets those of its keys.

    A box with west > east crosses the antimeridian. A box that touches longitude 180 or -180
    also reaches the tiles at the other, since the two are the same meridian.

    Args:
        boxes: f8[b, 4], rows (west, south, east, north), degrees.
        box_offsets: i8[n + 1], into `boxes`.
        key_offsets: i8[n + 1], into `keys`.
        keys: u8, one term for each conjunction; a query without keys goes to all children.
        frame_ints, frame_reals: The frames, see the module.
        x_borders, x_buckets, y_borders, y_buckets: f8, i4; all frames' borders and buckets.
        cells: i4, item of each cell, row after row, frame after frame.
        tiles: i4[items, 4], the cells of each item in its frame: first column, first row, last
            column + 1, last row + 1.
        leaf_count: Items from this number on are text nodes.
        children: Frames of each text node.
        text_ints: i8[text nodes, 4], the first column is the first child's frame.
        word_ints, word_leaves, word_terms, word_children, secret_first, secret_second: See
            `route_keywords`.
        leaf_offsets_out: i8[n + 1], overwritten.
        leaves_out: i4[capacity], positions of leaves in the map's list, ascending for each query.

    Returns:
        The number of leaves found; if it exceeds the capacity, `leaves_out` is incomplete and the
        caller repeats with room for that number.
    """
    items = tiles.shape[0]
    seen = np.zeros(items, np.int64)
    reported = np.zeros(leaf_count, np.int64)
    stack = np.empty(items + 1, np.int32)
    found = np.empty(items + 1, np.int32)
    frames = np.empty(frame_ints.shape[0] + 1, np.int64)
    parts = np.empty((4, 4))
    capacity = leaves_out.shape[0]
    stamp = np.int64(0)
    total = np.int64(0)
    leaf_offsets_out[0] = 0
    for query in range(box_offsets.shape[0] - 1):
        first = total
        for b in range(box_offsets[query], box_offsets[query + 1]):
            west = boxes[b, 0]
            east = boxes[b, 2]
            parts[:, 1] = boxes[b, 1]
            parts[:, 3] = boxes[b, 3]
            part_count = 1
            parts[0, 0] = west
            parts[0, 2] = east
            if west > east:
                parts[0, 2] = 180.0
                parts[1, 0] = -180.0
                parts[1, 2] = east
                part_count = 2
            elif east >= 180.0 or west <= -180.0:
                parts[1, 0] = -180.0
                parts[1, 2] = -180.0
                parts[2, 0] = 180.0
                parts[2, 2] = 180.0
                part_count = 3
            for part in range(part_count):
                stamp += 1
                frames[0] = 0
                waiting = 1
                while waiting > 0:
                    waiting -= 1
                    count = _neighbour_search(
                        frames[waiting],
                        parts[part],
                        frame_ints,
                        frame_reals,
                        x_borders,
                        x_buckets,
                        y_borders,
                        y_buckets,
                        cells,
                        tiles,
                        seen,
                        stamp,
                        stack,
                        found,
                    )
                    for i in range(count):
                        item = found[i]
                        if item >= leaf_count + text_ints.shape[0]:
                            node = item - leaf_count - text_ints.shape[0]
                            first_key = key_offsets[query]
                            wanted = key_offsets[query + 1] - first_key
                            is_keyed = wanted > 0 and word_ints[node, _BY_TERM] != 0
                            if not is_keyed:
                                wanted = word_ints[node, _WORD_CHILDREN]
                            for each in range(wanted):
                                child = each
                                if is_keyed:
                                    key = keys[first_key + each]
                                    child = _child_of_term(
                                        node, key, word_ints, word_terms, word_children,
                                        secret_first, secret_second,
                                    )  # fmt: skip
                                leaf = word_leaves[word_ints[node, _WORD_LEAVES] + child]
                                if reported[leaf] != query + 1:
                                    reported[leaf] = query + 1
                                    if total < capacity:
                                        leaves_out[total] = leaf
                                    total += 1
                        elif item >= leaf_count:
                            for child in range(children):
                                frames[waiting] = text_ints[item - leaf_count, _CHILD_FRAME] + child
                                waiting += 1
                        elif reported[item] != query + 1:
                            reported[item] = query + 1
                            if total < capacity:
                                leaves_out[total] = item
                            total += 1
        leaf_offsets_out[query + 1] = total
        if total <= capacity and total - first > 1:
            leaves_out[first:total].sort()
    return total


@kernel(
    _signature(
        types.int64,
        *(_I8, _I4, _I4, types.int64, types.int64[::1], types.int32[::1]),
    )
)
def distinct_slots(leaf_offsets, leaves, slot_of_leaf, slots, slot_offsets_out, slots_out):  # type: ignore[no-untyped-def]
    """Writes the distinct slots of each query's leaves, ascending; returns their number.

    Args:
        leaf_offsets: i8[n + 1], into `leaves`.
        leaves: i4[m], positions of leaves.
        slot_of_leaf: i4[leaves].
        slots: Number of slots.
        slot_offsets_out: i8[n + 1], overwritten.
        slots_out: i4[m], overwritten from the start.
    """
    reported = np.zeros(slots, np.int64)
    total = np.int64(0)
    slot_offsets_out[0] = 0
    for query in range(leaf_offsets.shape[0] - 1):
        first = total
        for i in range(leaf_offsets[query], leaf_offsets[query + 1]):
            slot = slot_of_leaf[leaves[i]]
            if reported[slot] != query + 1:
                reported[slot] = query + 1
                slots_out[total] = slot
                total += 1
        if total - first > 1:
            slots_out[first:total].sort()
        slot_offsets_out[query + 1] = total
    return total
