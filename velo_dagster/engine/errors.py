"""What can go wrong in a load itself."""

from __future__ import annotations

from collections.abc import Sequence

from velo_dagster.errors import Span, Terminal, Transient, VeloError
from velo_dagster.plan.defaults import ADVICE


class WouldLose(Terminal, VeloError):
    """A table must be loaded anew, but its source no longer has all that was delivered."""

    code = "L401"

    def __init__(self, table: str, source: str, reason: str, lost: Sequence[str], project: str) -> None:
        shown = ", ".join(lost[:10]) + (f" and {len(lost) - 10} more" if len(lost) > 10 else "")
        super().__init__(
            f"Table '{table}' must be loaded anew ({reason}), but {source} no longer has all that was loaded. "
            f"These rows would go: {shown}. Nothing was changed.",
            steps=[
                "Put the missing data back, then load again.",
                f"Or give those rows up: velo-dagster load {project} --select {table} --full-refresh --accept-loss",
            ],
        )


class NotReady(Transient, VeloError):
    """A table that this one reads has not been loaded to its end yet."""

    code = "L402"

    def __init__(self, table: str, needs: str, why: str, where: Span | None, *steps: str) -> None:
        self.table, self.needs = table, needs
        super().__init__(f"Table '{table}' needs table '{needs}', which is not ready: {why}.", where=where, steps=steps)


class UnknownColumns(Terminal, VeloError):
    """A reference that the load is to do without, and whose columns nobody knows."""

    code = "L411"

    def __init__(self, table: str, needs: str, why: str, where: Span | None) -> None:
        super().__init__(
            f"Table '{table}' can't be loaded without '{needs}', because its columns are not known: {why}.",
            where=where,
            steps=[
                f"Declare them: CREATE TABLE {needs} (column type, …) AS SELECT …",
                f"Or wait for it: 'missing.reference' = 'wait' for '{needs}'.",
            ],
        )


class UnfitDefault(Terminal, VeloError):
    """A value that is given for a column of a missing reference, and that the column can't hold."""

    code = "L413"

    def __init__(self, table: str, needs: str, why: str, where: Span) -> None:
        super().__init__(
            f"Table '{table}' can't be loaded with defaults for '{needs}'. {why} Nothing was changed.",
            where=where,
            steps=[ADVICE],
        )


class JoinedOnce(Terminal, VeloError):
    """Rows that were joined once are no longer what they were: nobody says what becomes of what was made of them."""

    code = "L412"

    def __init__(self, table: str, driving: str, why: str, where: Span | None, project: str) -> None:
        super().__init__(
            f"Rows of table '{table}' are joined once, but {why}, so what was made of rows of '{driving}' may be "
            "wrong by now. Nothing was changed.",
            where=where,
            steps=[
                f"Join all rows anew, with the tables as they are now: velo-dagster load {project} --select {table} "
                "--full-refresh",
                "Or let the table follow its inputs: leave 'join.time' = 'load' out.",
            ],
        )


class DuplicateKey(Terminal, VeloError):
    """A PRIMARY KEY that several rows of the result share, where nothing says which of them wins."""

    code = "L403"

    def __init__(self, table: str, keys: Sequence[str], examples: Sequence[str], where: Span) -> None:
        super().__init__(
            f"PRIMARY KEY ({', '.join(keys)}) of table '{table}' is not unique: {'; '.join(examples)}. "
            "The table is as it was.",
            where=where,
            steps=["Aggregate to one row per key, make the join match one row, or choose other key columns."],
        )


class InexactCast(Terminal, VeloError):
    """A declared column whose type does not hold a value of the SELECT."""

    code = "L404"


class StatementFailed(Terminal, VeloError):
    """Spark refused or could not finish the SELECT."""

    code = "L405"


class WrongStatement(Terminal, VeloError):
    """The statement of a table, or of one that it reads, has errors: nothing is loaded by it."""

    code = "L407"

    def __init__(self, table: str, why: str, where: Span, project: str) -> None:
        super().__init__(
            f"Table '{table}' is blocked, and is as it was: {why}.",
            where=where,
            steps=[f"Mend the statement; velo-dagster validate {project} shows all errors."],
        )
