"""DuckDB's answers over the same files. Each case becomes a table there, in the order of the cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from tests.differential.cases import Case
from tests.harness import Rows, plain

Columns = Mapping[str, str]

# Spark sorts NULLs first when ascending and last when descending; DuckDB last in both unless told. One thread keeps the
# lines of a file in their order, which decides the winner of a key.
SETTINGS = """
SET TimeZone = 'UTC';
SET threads = 1;
SET default_null_order = 'nulls_first_on_asc_last_on_desc';
"""
# Spark divides decimals, and averages them, into a decimal with a few more digits, rounded half away from zero; DuckDB
# into a DOUBLE. These count in whole units of the last digit, so they are exact: two digits in (six for quotient6,
# whose divisor is not negative), six digits out.
DIVISIONS = """
CREATE MACRO exact_ratio(units, n) AS
    sign(units) * ((2 * abs(units) + n) // (2 * n));
CREATE MACRO ratio2(x, n) AS
    CAST(exact_ratio(CAST(x * 100 AS HUGEINT) * 10000, n) AS DECIMAL(30, 0)) * CAST('0.000001' AS DECIMAL(7, 6));
CREATE MACRO quotient6(x, y) AS CASE WHEN y > 0 THEN
    CAST(exact_ratio(CAST(x * 1000000 AS HUGEINT) * 1000000, CAST(y * 1000000 AS HUGEINT)) AS DECIMAL(30, 0))
    * CAST('0.000001' AS DECIMAL(7, 6)) END;
CREATE MACRO average2(x) AS ratio2(sum(x), count(x));
"""


class Oracle:
    """One connection over one project's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._connection = duckdb.connect()
        self._connection.execute(SETTINGS + DIVISIONS)

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def execute(self, statement: str) -> None:
        self._connection.execute(statement)

    def files(self, name: str, columns: Columns, extension: str) -> None:
        """`files_NAME` with the columns by header name, and `lines_NAME`, where each row has `_file` and `_line`, too.

        All is read as text and cast: what DuckDB guesses about types is no part of the comparison.
        """
        glob = self._folder / "data" / name / f"*.{extension}"
        text = ", ".join(f"'{column}': 'VARCHAR'" for column in columns)
        reader = {
            "csv": f"read_csv('{glob}', all_varchar = true, header = true, union_by_name = true, filename = true)",
            "jsonl": f"read_json('{glob}', columns = {{{text}}}, format = 'newline_delimited', filename = true)",
        }[extension]
        cast = ", ".join(f"CAST({column} AS {type_}) AS {column}" for column, type_ in columns.items())
        self.execute(
            f"CREATE TABLE lines_{name} AS "
            f"SELECT {cast}, filename AS _file, row_number() OVER () AS _line FROM {reader}"
        )
        self.execute(f"CREATE TABLE files_{name} AS SELECT {', '.join(columns)} FROM lines_{name}")

    def answers(self, cases: Sequence[Case]) -> dict[str, Rows]:
        """The rows of every case."""
        return {case.name: self._answer(case) for case in cases}

    def _answer(self, case: Case) -> Rows:
        try:
            self.execute(f"CREATE TABLE {case.name} AS {case.for_duckdb}")
        except duckdb.Error as error:
            raise AssertionError(f"{case.place}: DuckDB does not take {case.name}: {error}") from error
        return self.rows(f"SELECT * FROM {case.name}")

    def rows(self, query: str) -> Rows:
        """A multiset; columns by name, as the project's tables are compared."""
        result = self._connection.execute(query)
        names = [column[0] for column in result.description or ()]
        order = sorted(range(len(names)), key=names.__getitem__)
        return Counter(tuple(plain(row[place]) for place in order) for row in result.fetchall())


def difference(ours: Rows, theirs: Rows, limit: int = 5) -> str:
    """Some of the rows that only one of the two has."""
    only_ours, only_theirs = ours - theirs, theirs - ours
    sample = [sorted(map(str, rows))[:limit] for rows in (only_ours, only_theirs)]
    return f"only ours ({only_ours.total()}): {sample[0]}; only DuckDB ({only_theirs.total()}): {sample[1]}"
