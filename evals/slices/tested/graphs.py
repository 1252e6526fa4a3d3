"""Searches in directed graphs, given as each node's successors."""

from __future__ import annotations

import heapq
from collections import deque

Graph = dict[str, list[str]]


def reachable(graph: Graph, start: str) -> list[str]:
    """All nodes that a path from the start leads to, the start too, in order of their names."""
    seen = {start}
    waiting = [start]
    while waiting:
        node = waiting.pop()
        for successor in graph.get(node, []):
            if successor not in seen:
                seen.add(successor)
                waiting.append(successor)
    return sorted(seen)


def shortest_path(graph: Graph, start: str, end: str) -> list[str]:
    """A path with the fewest steps; empty: there is none."""
    previous: dict[str, str] = {start: ""}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == end:
            break
        for successor in graph.get(node, []):
            if successor not in previous:
                previous[successor] = node
                waiting.append(successor)
    if end not in previous:
        return []
    path = [end]
    while path[-1] != start:
        path.append(previous[path[-1]])
    return path[::-1]


def in_order(graph: Graph) -> list[str]:
    """Every node before its successors, else by name. Raises ValueError for a graph with a cycle."""
    before = dict.fromkeys(graph, 0)
    for successors in graph.values():
        for node in successors:
            before[node] = before.get(node, 0) + 1
    ready = [node for node, number in before.items() if number == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for successor in graph.get(node, []):
            before[successor] -= 1
            if before[successor] == 0:
                heapq.heappush(ready, successor)
    if len(order) < len(before):
        raise ValueError("the graph has a cycle")
    return order


def reversed_edges(graph: Graph) -> Graph:
    """Each node's predecessors, in order of their names."""
    found: Graph = {node: [] for node in graph}
    for node in sorted(graph):
        for successor in graph[node]:
            found.setdefault(successor, []).append(node)
    return found


def components(graph: Graph) -> list[list[str]]:
    """The nodes that edges connect in either direction, each group and all groups in order of their names."""
    back = reversed_edges(graph)
    both = {node: [*graph.get(node, []), *predecessors] for node, predecessors in back.items()}
    left = set(both)
    groups = []
    for node in sorted(both):
        if node in left:
            group = reachable(both, node)
            left.difference_update(group)
            groups.append(group)
    return groups


def cheapest(costs: dict[str, dict[str, int]], start: str) -> dict[str, int]:
    """The least cost of a path from the start to every node that one leads to."""
    least = {start: 0}
    waiting = [(0, start)]
    while waiting:
        cost, node = heapq.heappop(waiting)
        if cost > least[node]:
            continue
        for successor, step in costs.get(node, {}).items():
            total = cost + step
            if successor not in least or total < least[successor]:
                least[successor] = total
                heapq.heappush(waiting, (total, successor))
    return least
