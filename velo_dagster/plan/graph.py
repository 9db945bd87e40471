"""Dependency order, and circles named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def dependency_order(reads: Mapping[str, Sequence[str]]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Every name after the names it reads, else in the order given; and each circle once, from its first name.

    >>> dependency_order({"b": ["a"], "a": [], "c": ["d"], "d": ["c"]})
    (['a', 'b', 'd', 'c'], [('c', 'd')])
    """
    order: list[str] = []
    circles: list[tuple[str, ...]] = []
    done: set[str] = set()
    for start in reads:
        path: list[str] = []
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                path.pop()
                done.add(name)
                order.append(name)
            elif name in path:
                circles.append(_from_first(path[path.index(name) :], list(reads)))
            elif name not in done:
                path.append(name)
                stack.append((name, True))
                stack += [(other, False) for other in reversed(reads[name]) if other in reads and other not in done]
    return order, list(dict.fromkeys(circles))


def _from_first(circle: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    start = min(range(len(circle)), key=lambda i: names.index(circle[i]))
    return (*circle[start:], *circle[:start])
