"""Cut a line of slots into segments at least cost, each paying its maximum over its width and a price per cut.

With F(j) the least cost of the first j slots and W the prefix sums of the widths,

    F(j) = min over i < j of  F(i) + change + m(i, j) * (W_j - W_i),     m(i, j) = max of the slots i .. j-1.

A monotone stack groups the cut points i by m(i, j). Within a group the best cut minimises F(i) - m * W_i: the
tangent of slope m to the lower convex hull of the points (W_i, F(i)). Across groups, group g offers the line
B_g + m_g * W_j, and a second hull finds the lowest one. Groups merge smaller into larger, so that n slots take
O(n log n). Only +, -, * and comparisons are used: integers and fractions give exact answers.
"""

from __future__ import annotations

from collections import deque
from typing import Any

__all__ = ["least_cost_segments"]

# The arithmetic is the same for int, float and Fraction; one alias keeps the signatures readable.
Number = Any


def least_cost_segments(
    heights: list[Number], widths: list[Number], change: Number
) -> tuple[Number, list[tuple[int, Number]]]:
    """The least cost, and the segments as (index of the first slot, level).

    Every segment is as high as its highest slot. A leading segment of height 0 is free; every other pays `change`.
    heights, widths: not negative, of one length.
    """
    count = len(heights)
    prefix: list[Number] = [0]
    for width in widths:
        prefix.append(prefix[-1] + width)
    cost: list[Number] = [0] * (count + 1)
    segment: list[tuple[int, Number]] = [(0, 0)] * (count + 1)  # (cut, level) of the last segment of F(j)
    groups = _Groups()
    leading = True
    for slot, height in enumerate(heights):
        cuts = deque([slot])
        while groups.levels and groups.levels[-1] <= height:
            cuts = _merge(groups.pop(), cuts, prefix, cost)
        # `height` only rises for this group, so the tangent point only moves to the right.
        while len(cuts) >= 2 and _offer(cuts[1], height, prefix, cost) <= _offer(cuts[0], height, prefix, cost):
            cuts.popleft()
        groups.push(height, _offer(cuts[0], height, prefix, cost), cuts)
        leading = leading and height == 0
        if not leading:
            best, cut, level = groups.lowest(prefix[slot + 1])
            cost[slot + 1] = best + change
            segment[slot + 1] = (cut, level)
    return cost[count], _walk_back(segment)


def _walk_back(segment: list[tuple[int, Number]]) -> list[tuple[int, Number]]:
    found = []
    end = len(segment) - 1
    while end > 0:
        found.append(segment[end])
        end = segment[end][0]
    return found[::-1]


def _offer(cut: int, level: Number, prefix: list[Number], cost: list[Number]) -> Number:
    return cost[cut] - level * prefix[cut]


def _merge(older: deque[int], newer: deque[int], prefix: list[Number], cost: list[Number]) -> deque[int]:
    """One lower hull from two neighbouring ones; the shorter is pushed onto the longer."""
    if len(older) >= len(newer):
        for cut in newer:
            # F never falls, so of two points at the same W the older one is the lower.
            if prefix[cut] == prefix[older[-1]]:
                continue
            while len(older) >= 2 and not _convex(older[-2], older[-1], cut, prefix, cost):
                older.pop()
            older.append(cut)
        return older
    for cut in reversed(older):
        if prefix[cut] == prefix[newer[0]]:
            newer.popleft()
        while len(newer) >= 2 and not _convex(cut, newer[0], newer[1], prefix, cost):
            newer.popleft()
        newer.appendleft(cut)
    return newer


def _convex(left: int, middle: int, right: int, prefix: list[Number], cost: list[Number]) -> bool:
    """Whether `middle` lies strictly below the line from `left` to `right`."""
    rise = (cost[middle] - cost[left]) * (prefix[right] - prefix[left])
    return bool(rise < (cost[right] - cost[left]) * (prefix[middle] - prefix[left]))


class _Groups:
    """The stack of groups, levels falling from bottom to top, and the lower hull of their lines.

    Lines come and go at the top only. A push overwrites one place of the hull and cuts off what lies beyond;
    both are remembered, so that a pop restores the hull of before in O(1).
    """

    def __init__(self) -> None:
        self.levels: list[Number] = []
        self._offers: list[Number] = []
        self._cuts: list[deque[int]] = []
        self._hull: list[int] = []  # indices of groups; only the first _size entries are alive
        self._size = 0
        self._undo: list[tuple[int, int, int]] = []  # (place, what stood there, size before)

    def push(self, level: Number, offer: Number, cuts: deque[int]) -> None:
        levels, offers, hull = self.levels, self._offers, self._hull
        # The first place whose line the new one overtakes before that line would have overtaken its neighbour.
        low, high = 1, self._size
        while low < high:
            middle = (low + high) // 2
            before, at = hull[middle - 1], hull[middle]
            useless = (offer - offers[before]) * (levels[before] - levels[at]) <= (offers[at] - offers[before]) * (
                levels[before] - level
            )
            if useless:
                high = middle
            else:
                low = middle + 1
        place = low if self._size else 0
        if place == len(hull):
            hull.append(-1)
        self._undo.append((place, hull[place], self._size))
        hull[place] = len(levels)
        self._size = place + 1
        levels.append(level)
        offers.append(offer)
        self._cuts.append(cuts)

    def pop(self) -> deque[int]:
        place, stood, self._size = self._undo.pop()
        self._hull[place] = stood
        self.levels.pop()
        self._offers.pop()
        return self._cuts.pop()

    def lowest(self, at: Number) -> tuple[Number, int, Number]:
        """(value, cut, level) of the lowest line at the prefix `at`."""
        low, high = 0, self._size - 1
        while low < high:
            middle = (low + high) // 2
            if self._value(middle, at) <= self._value(middle + 1, at):
                high = middle
            else:
                low = middle + 1
        group = self._hull[low]
        return self._value(low, at), self._cuts[group][0], self.levels[group]

    def _value(self, place: int, at: Number) -> Number:
        group = self._hull[place]
        return self._offers[group] + self.levels[group] * at
