"""Joins of a FROM clause: which of their rows may have changed. See `velo_dagster.plan.deltas` for the rules."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from velo_dagster.plan.written import sql
from velo_dagster.sql.names import quote

VERSIONS = ("old", "new")


@dataclass(frozen=True)
class Joined:
    """One step of a FROM clause: all rows and changed rows of what stands left of it, by version, and right of it."""

    join: exp.Join
    left: dict[str, str]
    left_changed: dict[str, list[str]]
    right: dict[str, str]
    right_changed: dict[str, list[str]]

    @property
    def on(self) -> str:
        on = self.join.args.get("on")
        return f" ON {sql(on)}" if on is not None else ""

    @property
    def side(self) -> str:
        kind = self.join.kind
        return kind if kind in ("SEMI", "ANTI") else self.join.side

    @property
    def word(self) -> str:
        kinds = {"SEMI": "LEFT SEMI JOIN", "ANTI": "LEFT ANTI JOIN", "LEFT": "LEFT JOIN", "RIGHT": "RIGHT JOIN"}
        inner = "JOIN" if self.on else "CROSS JOIN"
        return kinds.get(self.side) or ("FULL JOIN" if self.side == "FULL" else inner)

    def all_rows(self, v: str) -> str:
        return f"{self.left[v]} {self.word} {self.right[v]}{self.on}"

    def changed_rows(self, v: str) -> list[str]:
        side = self.side
        if side in ("SEMI", "ANTI"):
            return [
                *(f"{one} {self.word} {self.right[v]}{self.on}" for one in self.left_changed[v]),
                *self._matching(v),
            ]
        found: list[str] = []
        if side in ("LEFT", "FULL"):
            found += [f"{one} LEFT JOIN {self.right[v]}{self.on}" for one in self.left_changed[v]]
            found += [f"{one} LEFT JOIN {self.right[v]}{self.on}" for one in self._matching(v)]
        if side in ("RIGHT", "FULL"):
            found += [f"{self.left[v]} RIGHT JOIN {one}{self.on}" for one in self.right_changed[v]]
            found += [f"{self.left[v]} RIGHT JOIN {one}{self.on}" for one in self._matched(v)]
        if not side:
            found += [f"{one} {self.word} {self.right[v]}{self.on}" for one in self.left_changed[v]]
            found += [f"{self.left[v]} {self.word} {one}{self.on}" for one in self.right_changed[v]]
        return found

    def _matching(self, v: str) -> list[str]:
        """Rows of the left side that match, or matched, changed rows of the right one."""
        changed = [one for version in VERSIONS for one in self.right_changed[version]]
        return [f"{self.left[v]} LEFT SEMI JOIN {one}{self.on or ' ON true'}" for one in changed]

    def _matched(self, v: str) -> list[str]:
        """Rows of the right side that match, or matched, changed rows of the left one."""
        alias = quote(self.join.this.alias_or_name)
        changed = [one for version in VERSIONS for one in self.left_changed[version]]
        rows = f"SELECT {alias}.* FROM {self.right[v]} LEFT SEMI JOIN"
        return [f"({rows} ({one}){self.on or ' ON true'}) AS {alias}" for one in changed]
