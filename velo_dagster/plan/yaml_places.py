"""Where in a YAML file a key stands, so that what is wrong with it can be told there."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from velo_dagster.errors import Span

Path = tuple[str, ...]


def key_places(text: str, file: str) -> dict[Path, Span]:
    """The place of every key, by the keys that lead to it.

    >>> {".".join(path): (span.line, span.column) for path, span in key_places("a:\\n  b: 1\\nc.d: 2", "x").items()}
    {'a': (1, 1), 'a.b': (2, 3), 'c.d': (3, 1)}
    """
    return dict(_walk(yaml.compose(text, Loader=yaml.SafeLoader), file, ()))


def _walk(node: yaml.Node | None, file: str, above: Path) -> Iterator[tuple[Path, Span]]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        path = (*above, str(key.value))
        yield path, Span(file, key.start_mark.line + 1, key.start_mark.column + 1)
        yield from _walk(value, file, path)
