"""Parts of a statement in the words of messages."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from velo_dagster.sql.marks import Deep, Each, Index, Name, VeloPath


def listed(names: Sequence[str]) -> str:
    """
    >>> listed([]), listed(["a", "b", "c"])
    ('nothing', 'a, b and c')
    """
    if not names:
        return "nothing"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def shown(node: exp.Expr) -> str:
    """An expression as it is written."""
    return node.transform(lambda one: exp.var(_path(one)) if isinstance(one, VeloPath) else one).sql("spark")


def shown_key(block: exp.Select, key: exp.Expr) -> str:
    """A key of a block as it is written; a number means an item."""
    return shown(block.expressions[int(key.name) - 1].unalias() if isinstance(key, exp.Literal) and key.is_int else key)


def _path(path: VeloPath) -> str:
    """The path as it is written; `this` is a star where it starts from the row."""
    words = {Each: ".*", Deep: ".**"}
    steps = "".join(
        f".{step.name}" if isinstance(step, Name) else f"[{step.at}]" if isinstance(step, Index) else words[type(step)]
        for step in path.steps
    )
    return f"{'' if isinstance(path.this, exp.Star) else path.this.sql('spark')}{steps}".lstrip(".")
