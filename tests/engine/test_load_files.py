"""Loads over changing files: after every step the table is what one full load would give."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

import pytest

from tests.harness import Play
from velo_dagster.engine.load import Loader
from velo_dagster.engine.progress import Progress
from velo_dagster.engine.report import Outcome
from velo_dagster.engine.source_load import LoadOptions
from velo_dagster.engine.status import table_status
from velo_dagster.sources.contract import Source
from velo_dagster.sources.errors import SchemaRefused
from velo_dagster.sources.files import FileSource
from velo_dagster.sources.meter import noted
from velo_dagster.store.table import Warehouse

ORDERS = """
CREATE TABLE orders AS SELECT * FROM file://data/orders*.csv;
CREATE TABLE latest AS SELECT id PRIMARY KEY, amount FROM file://data/orders*.csv;
CREATE TABLE totals AS SELECT id, COUNT(*) AS n, SUM(amount) AS amount FROM file://data/orders*.csv GROUP BY id;
CREATE TABLE big AS SELECT id, amount FROM orders WHERE amount > 10;
"""
QUERIES = {
    "orders": "SELECT id, amount FROM {input}",
    "latest": "SELECT id, arg_max(amount, (filename, n)) AS amount FROM {input} GROUP BY id",
    "totals": "SELECT id, COUNT(*) AS n, SUM(amount) AS amount FROM {input} GROUP BY id",
    "big": "SELECT id, amount FROM {input} WHERE amount > 10",
}
INPUT = """(SELECT *, row_number() OVER (PARTITION BY filename) AS n FROM read_csv('{data}/data/orders*.csv',
    filename = true, union_by_name = true, types = {'id': 'BIGINT', 'amount': 'DECIMAL(18,2)'}))"""


def check(play: Play) -> None:
    """Each table is what another engine says, and what one full load gives."""
    for name, query in QUERIES.items():
        assert play.rows(name) == play.duckdb(query.replace("{input}", INPUT)), name
    check_reload(play)


def check_reload(play: Play) -> None:
    fresh = play.reloaded()
    for name in QUERIES:
        assert play.rows(name) == fresh.rows(name), name


@pytest.fixture
def orders(play: Play) -> Play:
    play.write("tables.sql", ORDERS)
    play.write("data/orders-1.csv", "id,amount\n1,10.50\n2,20.00\n1,11.25\n")
    reports = play.loaded()
    assert {name: report.outcome for name, report in reports.items()} == dict.fromkeys(QUERIES, Outcome.BULK)
    return play


def test_second_load_without_new_rows_changes_nothing(orders: Play):
    check(orders)
    reports = orders.loaded()
    assert {report.outcome for report in reports.values()} == {Outcome.UNCHANGED}


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes the tasks of each read have noted, in the order of the reads."""
    found: list[int] = []
    reads = Progress.reads

    @contextmanager
    def watched(progress: Progress, source: Source, size: int) -> Iterator[None]:
        with reads(progress, source, size):
            yield
            assert progress.reading is not None
            found.append(noted(progress.reading.folder)[1])

    monkeypatch.setattr(Progress, "reads", watched)
    return found


def test_appended_lines_are_the_only_ones_read(orders: Play, bytes_read: list[int]):
    appended = "3,30.00\n2,5.00\n"
    orders.append("data/orders-1.csv", appended)
    reports = orders.loaded()
    assert bytes_read == [len(appended)] * 3, "by each table that reads the files"
    assert reports["orders"].rows_read == 2
    assert reports["orders"].method == "append"
    assert reports["latest"].rows_changed == 2
    check(orders)


def test_new_files_whatever_their_name(orders: Play):
    orders.write("data/orders-0.csv", "amount,id\n99.00,1\n98.00,7\n")
    orders.loaded()
    assert orders.rows("latest")[(Decimal("11.25"), 1)] == 1, "an earlier file name loses, however late it comes"
    orders.write("data/orders-2.csv", "id,amount\n1,1.00\n")
    orders.loaded()
    check(orders)


def test_rewritten_file_replaces_its_rows_and_an_earlier_row_comes_back(orders: Play):
    orders.write("data/orders-2.csv", "id,amount\n1,77.00\n")
    orders.loaded()
    assert orders.rows("latest")[(Decimal(77), 1)] == 1
    orders.write("data/orders-2.csv", "id,amount\n5,55.00\n")
    orders.loaded()
    check(orders)
    assert orders.rows("latest")[(Decimal("11.25"), 1)] == 1


def test_truncated_file(orders: Play):
    orders.write("data/orders-1.csv", "id,amount\n1,10.50\n")
    orders.loaded()
    check(orders)


def test_half_written_line_waits_for_its_end(orders: Play):
    orders.append("data/orders-1.csv", "4,4")
    assert orders.loaded()["orders"].outcome is Outcome.UNCHANGED
    orders.append("data/orders-1.csv", "4.00\n")
    orders.loaded()
    check(orders)
    assert orders.rows("orders")[(Decimal(44), 4)] == 1


def test_duplicates_and_nulls(orders: Play):
    orders.append("data/orders-1.csv", "1,10.50\n1,10.50\n,\n,3.00\n9,\n")
    orders.loaded()
    check(orders)


def test_type_that_widens_is_as_if_all_had_come_at_once(orders: Play):
    orders.append("data/orders-1.csv", "1,1.2345\n")
    reports = orders.loaded()
    assert "amount became DECIMAL(18,4)" in reports["orders"].reason.replace("DECIMAL(18, 4)", "DECIMAL(18,4)")
    check_reload(orders)
    orders.append("data/orders-1.csv", "A7,1\n")
    orders.loaded()
    check_reload(orders)
    assert orders.table("orders").schema.field("id").type == "string"


def test_new_column_is_added(orders: Play):
    orders.write("data/orders-2.csv", "id,amount,note\n5,5.00,hello\n")
    orders.loaded("orders")
    assert orders.rows("orders") == orders.reloaded("orders").rows("orders")
    assert orders.table("orders").column_names == ["id", "amount", "note"]


def test_full_refresh_gives_the_same(orders: Play):
    orders.append("data/orders-1.csv", "3,30.00\n")
    orders.loaded(full_refresh=True)
    orders.append("data/orders-1.csv", "4,40.00\n")
    orders.loaded()
    check(orders)


def test_vanished_file_keeps_its_rows_until_a_full_refresh_accepts_the_loss(orders: Play):
    orders.write("data/orders-2.csv", "id,amount\n5,5.00\n")
    orders.loaded("orders")
    before = orders.rows("orders")
    (orders.folder / "data/orders-2.csv").unlink()
    orders.loaded("orders")
    assert orders.rows("orders") == before
    refused = orders.load("orders", full_refresh=True)["orders"]
    assert refused.outcome is Outcome.FAILED
    assert "orders-2.csv" in str(refused.error) and "--accept-loss" in str(refused.error)
    assert orders.rows("orders") == before
    orders.loaded("orders", full_refresh=True, accept_loss=True)
    assert (Decimal(5), Decimal(5)) not in orders.rows("orders")


def test_changed_statement_starts_the_table_over(orders: Play):
    orders.write("tables.sql", "CREATE TABLE orders AS SELECT id, amount * 2 AS twice FROM file://data/orders*.csv;")
    reports = orders.loaded("orders")
    assert "changed" in reports["orders"].reason
    assert orders.rows("orders") == Counter({(1, Decimal(21)): 1, (2, Decimal(40)): 1, (1, Decimal("22.5")): 1})


def test_missing_file_blocks_only_its_table(play: Play):
    play.write("a.sql", "CREATE TABLE here AS SELECT * FROM file://here.jsonl;")
    play.write(
        "b.sql", "CREATE TABLE gone AS SELECT * FROM file://gone.jsonl; CREATE TABLE after AS SELECT * FROM gone;"
    )
    play.write("here.jsonl", '{"a": 1}\n')
    reports = play.load()
    assert {name: report.outcome for name, report in reports.items()} == {
        "here": Outcome.BULK,
        "gone": Outcome.BLOCKED,
        "after": Outcome.BLOCKED,
    }
    assert "gone.jsonl' does not exist" in str(reports["gone"].error)
    assert "'gone', which is not ready" in str(reports["after"].error)
    play.write("gone.jsonl", '{"a": 1}\n')
    play.loaded()
    assert play.rows("after") == Counter({(1,): 1})


def test_empty_source_is_no_rows_yet_and_comes_up_by_itself(play: Play):
    play.write(
        "a.sql",
        "CREATE TABLE a AS SELECT * FROM file://a.jsonl; CREATE TABLE n AS SELECT COUNT(*) c FROM file://a.jsonl;",
    )
    play.write("a.jsonl", "")
    reports = play.loaded()
    assert {report.outcome for report in reports.values()} == {Outcome.NO_ROWS}
    assert not (play.folder / "warehouse/a").exists()
    play.append("a.jsonl", '{"x": 1}\n')
    play.loaded()
    assert play.rows("a") == Counter({(1,): 1})
    assert play.rows("n") == Counter({(1,): 1})


def test_declared_columns_make_an_empty_table(play: Play):
    play.write("a.sql", "CREATE TABLE a (x BIGINT, y DECIMAL(10,2)) AS SELECT * FROM file://a.jsonl;")
    play.write("a.jsonl", "")
    assert play.loaded()["a"].outcome is Outcome.BULK
    assert play.table("a").column_names == ["x", "y"]
    play.append("a.jsonl", '{"x": 1, "y": 2.5}\n')
    play.loaded()
    assert play.rows("a") == Counter({(1, Decimal("2.5")): 1})


def test_where_applies_to_the_winner(play: Play):
    play.grown(
        "CREATE TABLE open AS SELECT id PRIMARY KEY, state FROM file://a.jsonl WHERE state = 'open';",
        {"a.jsonl": '{"id": 1, "state": "open"}\n{"id": 2, "state": "open"}\n'},
        {"a.jsonl": '{"id": 1, "state": "closed"}\n'},
    )
    assert play.rows("open") == Counter({(2, "open"): 1}) == play.reloaded("open").rows("open")
    play.append("a.jsonl", '{"id": 1, "state": "open"}\n')
    play.loaded()
    assert play.rows("open") == Counter({(1, "open"): 1, (2, "open"): 1}) == play.reloaded("open").rows("open")


def test_bounded_bulk_is_not_ready_until_it_reached_its_first_end(play: Play):
    play.write("a.sql", "CREATE TABLE a AS SELECT * FROM file://a.jsonl; CREATE TABLE b AS SELECT * FROM a;")
    play.write("a.jsonl", "".join(f'{{"x": {n}}}\n' for n in range(5)))
    first = play.load(max_records=2)
    assert not first["a"].ready and first["a"].rows_changed == 2
    assert first["b"].outcome is Outcome.BLOCKED
    play.append("a.jsonl", '{"x": 5}\n')
    assert not play.load(max_records=2)["a"].ready
    assert play.load(max_records=2)["a"].ready
    play.loaded()
    assert play.rows("b") == play.rows("a") == play.reloaded("a").rows("a")


def test_bulk_load_bounded_in_time_goes_on_in_slices(play: Play, monkeypatch: pytest.MonkeyPatch):
    from velo_dagster.engine import source_load

    monkeypatch.setattr(source_load, "SLICE_RECORDS", 2)
    play.write("a.sql", "CREATE TABLE a AS SELECT * FROM file://a.jsonl WITH ('loading.bulk.max_duration' = '0.001s');")
    play.write("b.sql", "CREATE TABLE b AS SELECT * FROM file://a.jsonl WITH ('loading.bulk.max_duration' = '1h');")
    play.write("a.jsonl", "".join(f'{{"x": {n}}}\n' for n in range(5)))
    reports = play.loaded()
    assert not reports["a"].ready and reports["a"].rows_read == 2
    assert reports["b"].ready and reports["b"].rows_read == 5
    assert play.rows("b") == play.reloaded("b").rows("b")


def test_emptied_source_empties_its_tables(play: Play):
    play.write(
        "a.sql",
        "CREATE TABLE a AS SELECT * FROM file://a.jsonl; CREATE TABLE k AS SELECT x PRIMARY KEY FROM file://a.jsonl;",
    )
    play.write("a.jsonl", '{"x": 1}\n{"x": 2}\n')
    play.loaded()
    play.write("a.jsonl", "")
    play.loaded()
    assert play.rows("a") == play.rows("k") == Counter()
    play.write("a.jsonl", '{"x": 3}\n')
    play.loaded()
    assert play.rows("a") == play.rows("k") == Counter({(3,): 1})


def test_removed_files_take_their_rows_along_if_told_to(play: Play):
    play.write("a.sql", "CREATE TABLE a AS SELECT * FROM file://d/*.jsonl WITH ('file.deleted' = 'remove');")
    play.write("d/1.jsonl", '{"x": 1}\n')
    play.write("d/2.jsonl", '{"x": 2}\n')
    play.loaded()
    (play.folder / "d/1.jsonl").unlink()
    play.loaded()
    assert play.rows("a") == Counter({(2,): 1})
    (play.folder / "d/2.jsonl").unlink()
    play.loaded()
    assert play.rows("a") == Counter()


def test_bad_rows_are_counted_and_skipped_if_told_to(play: Play):
    play.write("a.sql", "CREATE TABLE a AS SELECT * FROM file://a.csv WITH ('failure_strategy' = 'LogAndContinue');")
    play.write("a.csv", "x,y\n1,2\nshort\n3,4,5,6\n5,six\n7,8\n")
    play.loaded()
    assert play.rows("a") == Counter({(1, "2"): 1, (5, "six"): 1, (7, "8"): 1})


def test_first_and_last_follow_the_files(play: Play):
    play.grown(
        "CREATE TABLE f AS SELECT sku, FIRST(n) AS f, LAST(n) AS l FROM file://d/*.csv GROUP BY sku;",
        {"d/b.csv": "sku,n\nA,100\nA,101\n"},
        {"d/a.csv": "sku,n\nA,95\n"},
    )
    assert play.rows("f") == Counter({(95, 101, "A"): 1})


def test_rows_share_a_key_in_its_declared_type(play: Play):
    sql = "CREATE TABLE t (k INT, v INT) AS SELECT substr(id, 2) AS k PRIMARY KEY, v FROM file://a.csv;"
    play.grown(sql, {"a.csv": 'id,v\n"x7",1\n"x07",2\n'})
    assert play.rows("t") == Counter({(7, 2): 1})
    play.append("a.csv", "x007,3\n")
    play.loaded()
    assert play.rows("t") == Counter({(7, 3): 1})


def test_key_named_in_another_case(play: Play):
    sql = "CREATE TABLE t AS SELECT * FROM file://a.csv WITH ('primary.key' = 'ID');"
    play.grown(sql, {"a.csv": "id,v\n1,1\n"}, {"a.csv": "1,2\n2,1\n"})
    assert play.rows("t") == Counter({(1, 2): 1, (2, 1): 1})


def test_another_value_of_a_variable_is_another_source(play: Play, monkeypatch: pytest.MonkeyPatch):
    play.write("t.sql", "CREATE TABLE t AS SELECT * FROM file://a.csv WITH ('delimiter' = '${MARK}');")
    play.write("a.csv", "a,b;c\n1,2;3\n")
    monkeypatch.setenv("MARK", ";")
    play.loaded()
    monkeypatch.setenv("MARK", ",")
    reports = play.loaded()
    assert "changed" in reports["t"].reason
    assert play.table("t").column_names == ["a", "b_c"]


def test_files_name_and_line_on_request(play: Play):
    sql = "CREATE TABLE t AS SELECT *, _line, _file FROM file://a.csv;"
    play.grown(sql, {"a.csv": "id\n1\n2\n"}, {"a.csv": "3\n"})
    path = str(play.folder / "a.csv")
    assert play.rows("t") == Counter({(path, 2, 1): 1, (path, 3, 2): 1, (path, 4, 3): 1})


def test_a_new_column_stands_before_system_columns_as_in_a_reload(play: Play):
    play.write("t.sql", "CREATE TABLE t AS SELECT *, _line FROM file://data/*.csv;")
    play.write("data/a.csv", "id\n1\n")
    play.loaded()
    play.write("data/b.csv", "id,v\n2,7\n")
    play.loaded()
    assert play.table("t").column_names == play.reloaded().table("t").column_names == ["id", "v", "_line"]


def test_an_order_within_a_subquery_is_completed_where_its_columns_can_be_sorted(play: Play):
    """Which rows a LIMIT takes is the same after a reload; where a MAP stands in the way, the load says so."""
    play.write(
        "t.sql",
        """
        CREATE TABLE few AS SELECT id, amount FROM (SELECT * FROM file://data/*.csv ORDER BY id LIMIT 2);
        CREATE TABLE maps AS SELECT * FROM (SELECT id, map(id, amount) AS m FROM file://data/*.csv ORDER BY id LIMIT 1);
        CREATE TABLE sums AS SELECT id, sum(amount) AS s FROM file://data/*.csv GROUP BY id;
        -- velo: allow=W112
        CREATE TABLE firsts AS SELECT first(s) AS s FROM sums;
        """,
    )
    play.write("data/b.csv", "id,amount\n1,9\n1,7\n")
    play.write("data/a.csv", "id,amount\n1,8\n2,1\n")
    reports = play.loaded()
    assert play.rows("few") == Counter({(7, 1): 1, (8, 1): 1})
    assert play.rows("firsts") == Counter({(24,): 1}), "rows without a place in a source go by all their columns"
    assert "in a subquery" in reports["maps"].reason
    assert "in a subquery" not in reports["few"].reason


def test_a_half_written_file_is_read_again_until_it_is_whole(play: Play):
    """RetryWithBackoff: a load that meets a writer in the middle of a file waits for it, and loads all of it once."""
    properties = '"failure_strategy" = "RetryWithBackoff", "wait.timeout" = "5m", "retry.interval" = "100ms"'
    play.write("t.sql", f"CREATE TABLE t AS SELECT * FROM file://data/*.csv WITH ({properties});")
    play.write("data/a.csv", "id,amount\n1,10\n2\n")
    said: list[str] = []

    def mend(message: str) -> None:
        said.append(message)
        if "Reading again" in message:
            play.write("data/a.csv", "id,amount\n1,10\n2,20\n")

    loader = Loader(play.project(), Warehouse(str(play.folder / play.warehouse)), play.engine, say=mend)
    report = loader.load(loader.project.tables[0], LoadOptions())
    assert report.error is None, report.error
    assert play.rows("t") == Counter({(10, 1): 1, (20, 2): 1})
    assert ["1 row can't be read." in message for message in said] == [True], said


def test_a_bare_decimal_keeps_all_digits_however_they_come(play: Play):
    """A value with more digits than the first ones would be called bad, though the declaration takes any."""
    sql = "CREATE TABLE a (x DECIMAL, y STRING) AS SELECT * FROM file://a.csv;"
    play.grown(sql, {"a.csv": "x,y\n1,a\n2.5,b\n"}, {"a.csv": "3.125,c\n"})
    rows = [(Decimal("1.000"), "a"), (Decimal("2.500"), "b"), (Decimal("3.125"), "c")]
    assert play.rows("a") == Counter(rows)
    play.append("a.csv", "none,d\n")
    error = play.load()["a"].error
    assert error is not None and "a.csv:5: 'none' in column 'x' is not a DECIMAL(38,18)" in str(error)
    assert sum(play.rows("a").values()) == 3, "the table is as it was"


@pytest.mark.parametrize("file", ["a.csv", "a.jsonl"])
def test_a_bad_row_says_nothing_about_types(play: Play, file: str):
    """A row that is left out would make a column text for all others, if it stands where a sample is taken."""
    with_ = "WITH ('failure_strategy' = 'LogAndContinue')"
    play.write("a.sql", f"CREATE TABLE a (x INT) AS SELECT * FROM file://{file} {with_};")
    rows = [("1", "10"), ('"none"', '"text"'), ("2", "20")]
    play.write("a.csv", "x,z\n" + "".join(f"{x},{z}\n" for x, z in rows))
    play.write("a.jsonl", "".join(f'{{"x": {x}, "z": {z}}}\n' for x, z in rows))
    play.loaded()
    assert play.rows("a") == Counter({(1, 10): 1, (2, 20): 1})
    assert play.rows("a") == play.reloaded().rows("a")


@pytest.mark.parametrize("added", ["007", "1.5", "n/a"])
def test_a_column_spelled_anew_widens_all_the_same(play: Play, added: str):
    """A file that sorts first and writes ID for id would hide that a type became wider: 007 would be kept as 7."""
    play.grown(
        "CREATE TABLE t AS SELECT * FROM file://d/*.csv; "
        "CREATE TABLE k AS SELECT id PRIMARY KEY, x FROM file://d/*.csv; "
        "CREATE TABLE s AS SELECT max(x) AS m FROM file://d/*.csv;",
        {"d/m.csv": "id,x\n1,12\n2,3\n"},
        {"d/a.csv": f"ID,X\n3,{added}\n"},
    )
    fresh = play.reloaded()
    for name in "tks":
        assert play.rows(name) == fresh.rows(name), name
        assert play.table(name).schema == fresh.table(name).schema, name


def test_a_bad_row_of_a_bare_decimal_says_nothing_about_types(play: Play):
    """The sample would take its text for a column's type, and its field for a column, and an increment would not."""
    with_ = "WITH ('failure_strategy' = 'LogAndContinue')"
    play.grown(
        f"CREATE TABLE t (a DECIMAL) AS SELECT * FROM file://d/*.jsonl {with_};",
        {"d/a.jsonl": '{"id":1,"a":1.5,"c":2}\n'},
        {"d/a.jsonl": '{"id":2,"a":"n/a","c":"text","new":1}\n'},
    )
    fresh = play.reloaded()
    assert play.rows("t") == fresh.rows("t") and play.table("t").schema == fresh.table("t").schema
    assert "new" not in play.table("t").column_names


def test_names_that_others_hide_are_read(play: Play):
    """Spark passes over _x.parquet without a word; fields may be called what we call things, or have a backtick."""
    import pyarrow as pa
    from pyarrow import parquet

    play.write(
        "t.sql",
        "CREATE TABLE t AS SELECT * FROM file://d/{_x,y}.parquet; CREATE TABLE n AS SELECT * FROM file://a.csv;",
    )
    play.write("a.csv", "_at,_error,_text,a`b\n1,2,3,4\n")
    (play.folder / "d").mkdir()
    parquet.write_table(pa.table({"v": [1, 2]}), play.folder / "d" / "_x.parquet")
    parquet.write_table(pa.table({"v": [3]}), play.folder / "d" / "y.parquet")
    play.loaded()
    assert play.rows("t") == Counter([(1,), (2,), (3,)])
    assert play.rows("n") == Counter([(1, 2, 3, 4)])


def test_a_file_of_nothing_but_bad_rows_is_told(play: Play):
    """It would pass for a file without rows, and nobody would look at it."""
    play.write("t.sql", "CREATE TABLE t AS SELECT * FROM file://a.jsonl;")
    play.write("a.jsonl", '{"id":1,"na\n')
    report = play.load()["t"]
    assert report.outcome is Outcome.FAILED and "a.jsonl:1" in str(report.error)
    play.append("a.jsonl", '{"id":2}\n')
    assert "1 row can't be read" in str(play.load()["t"].error)


@pytest.mark.parametrize("word", ["left", "semi", "on"])
def test_a_file_may_be_called_like_a_word_of_sql(play: Play, word: str):
    play.write(
        "t.sql", f"CREATE TABLE t AS SELECT id FROM file://{word}.csv; CREATE TABLE n AS SELECT count(*) AS n FROM t;"
    )
    play.write(f"{word}.csv", "id\n1\n")
    play.loaded()
    assert play.rows("t") == Counter([(1,)])


def test_another_place_to_read_from_is_read_anew_and_loses_nothing_that_is_asked_for(play: Play):
    play.write("t.sql", "CREATE TABLE t AS SELECT * FROM file://old/*.csv")
    play.write("old/a.csv", "id\n1\n")
    play.write("new/b.csv", "id\n2\n")
    play.loaded()
    play.write("t.sql", "CREATE TABLE t AS SELECT * FROM file://new/*.csv")
    report = play.loaded()["t"]
    assert (report.method, play.rows("t")) == ("full", Counter({(2,): 1}))
    assert "changed" in report.reason


def test_two_sources_that_change_places_are_both_read_anew(play: Play):
    statement = "CREATE TABLE t AS SELECT a.id, b.v FROM file://{}.csv a JOIN file://{}.csv b ON a.id = b.id"
    play.write("x.csv", "id,v\n1,10\n")
    play.write("y.csv", "id,v\n1,20\n")
    play.write("t.sql", statement.format("x", "y"))
    play.loaded()
    play.write("t.sql", statement.format("y", "x"))
    play.loaded()
    assert play.rows("t") == Counter({(1, 10): 1})


def test_rows_of_files_that_are_gone_are_still_not_given_up_when_only_the_select_changes(play: Play):
    play.write("t.sql", "CREATE TABLE t AS SELECT * FROM file://d/*.csv")
    play.write("d/a.csv", "id\n1\n")
    play.write("d/b.csv", "id\n2\n")
    play.loaded()
    (play.folder / "d/a.csv").unlink()
    play.write("t.sql", "CREATE TABLE t AS SELECT id, id AS again FROM file://d/*.csv")
    assert "a.csv" in str(play.load()["t"].error)


def test_a_source_that_cannot_load_increments_is_read_in_full_each_time_and_says_so(play: Play, monkeypatch):
    monkeypatch.setattr(FileSource, "increments", False)
    play.write(
        "t.sql", "CREATE TABLE t AS SELECT * FROM file://d/*.csv; CREATE TABLE k AS SELECT id PRIMARY KEY FROM t"
    )
    # Older than the moment in which a time of change proves nothing: that would be part of the position.
    os.utime(play.write("d/a.csv", "id\n1\n"), (1_700_000_000, 1_700_000_000))
    assert play.loaded()["t"].outcome is Outcome.BULK
    assert play.loaded()["t"].outcome is Outcome.UNCHANGED
    play.write("d/b.csv", "id\n2\n")
    report = play.loaded()["t"]
    assert (report.outcome, report.method, report.rows_read) == (Outcome.BULK, "full", 2)
    assert report.reason == "its source can't load increments"
    assert play.rows("t") == play.rows("k") == Counter({(1,): 1, (2,): 1})


@pytest.mark.parametrize("bound", ["loading.bulk.max_records", "loading.incremental.max_records"])
def test_properties_bound_what_one_load_takes(play: Play, bound: str):
    play.write("t.sql", f"CREATE TABLE t AS SELECT * FROM file://d/*.csv WITH ('{bound}' = '2')")
    play.write("d/a.csv", "id\n1\n2\n3\n")
    first = play.loaded()["t"]
    bulk = bound == "loading.bulk.max_records"
    assert (first.rows_read, first.ready) == ((2, False) if bulk else (3, True))
    play.loaded()
    assert sum(play.rows("t").values()) == 3
    play.write("d/b.csv", "id\n4\n5\n6\n")
    assert play.loaded()["t"].rows_read == (3 if bulk else 2)


def test_how_files_are_written_is_as_the_table_says(play: Play):
    from pyarrow import parquet

    asked = {
        "plain": ("", "SNAPPY"),
        "compact": ("WITH ('table_model' = 'compact')", "ZSTD"),
        "packed": ("WITH ('compression' = 'gzip')", "GZIP"),
    }
    for name, (properties, _) in asked.items():
        play.write(f"{name}.sql", f"CREATE TABLE {name} AS SELECT * FROM file://d.csv {properties}")
    play.write("d.csv", "id\n1\n")
    play.loaded()
    for name, (_, codec) in asked.items():
        (file,) = (play.folder / "warehouse" / name).rglob("*.parquet")
        assert parquet.ParquetFile(file).metadata.row_group(0).column(0).compression == codec, name


def test_a_load_with_nothing_new_starts_no_spark(orders: Play):
    class NoEngine:
        def session(self):
            raise AssertionError("Spark was asked for")

        def stop(self) -> None: ...

    quiet = Play(orders.folder, NoEngine())
    assert {report.outcome for report in quiet.loaded().values()} == {Outcome.UNCHANGED}


def test_a_look_at_the_status_changes_nothing_outside(play: Play):
    play.write("t.sql", "CREATE TABLE t (id INT) AS SELECT * FROM file://new/a.csv WITH ('file.create.empty' = 'true')")
    table_status(play.project(), Warehouse(str(play.folder / "warehouse")), play.project().table("t"))
    assert not (play.folder / "new").exists()


@pytest.mark.parametrize("key", ["", "PRIMARY KEY"], ids=["plain", "keyed"])
def test_bad_rows_go_with_the_file_that_had_them(play: Play, key: str):
    """Also where the table can't be read anew, because another file is gone: else a mended file is told as bad."""
    for name in ("1", "2", "3"):
        play.write(f"d/{name}.csv", f"id,x\n{name},10\nbad,{name}\n")
    select = f"SELECT id {key}, x FROM file://d/*.csv WITH ('failure_strategy' = 'SendToDLQ')"
    play.write("t.sql", f"CREATE TABLE t (id BIGINT, x BIGINT) AS {select};")
    assert play.loaded()["t"].rejected == 3
    (play.folder / "d/2.csv").unlink()
    play.loaded()
    play.write("d/1.csv", "id,x\n1,10\n7,1\n")
    report = play.loaded()["t"]
    assert report.rejected == 2
    assert {(place, text) for place, _, text in play.rejected("t")} == {("2.csv:3", "bad,2"), ("3.csv:3", "bad,3")}
    play.write("d/3.csv", "id,x\nworse,1\n")
    assert play.loaded()["t"].rejected == 2
    assert {text for _, _, text in play.rejected("t")} == {"bad,2", "worse,1"}


REFILLED = [
    ("emp", "CREATE TABLE emp AS SELECT * FROM file://x.csv;"),
    ("emp", "CREATE TABLE emp AS SELECT * FROM file://*.csv WITH ('file.deleted' = 'remove');"),
    ("keyed", "CREATE TABLE keyed AS SELECT n PRIMARY KEY FROM file://x.csv;"),
]


@pytest.mark.parametrize(("table", "statement"), REFILLED, ids=["emptied", "removed", "keyed"])
def test_a_source_that_was_emptied_and_filled_again_has_the_types_of_what_is_there(
    play: Play, table: str, statement: str
):
    """Otherwise values that are long gone decide how those that came are read, and numbers stay texts."""
    play.write("t.sql", statement)
    play.write("x.csv", "n,old\nabc,1\n")
    play.loaded()
    play.write("x.csv", "")
    if "remove" in statement:
        (play.folder / "x.csv").unlink()
    play.loaded()
    assert play.rows(table) == Counter()
    play.write("x.csv", "n\n9007199254740993\n1\n")
    play.loaded()
    fresh = play.reloaded()
    assert play.table(table).schema == fresh.table(table).schema
    assert play.rows(table) == fresh.rows(table)
    play.append("x.csv", "5\n")
    assert play.loaded()[table].outcome is Outcome.INCREMENT
    assert play.rows(table) == play.reloaded().rows(table)


def test_strict_and_ignored_columns_stay_so_when_rows_are_read_anew(play: Play):
    """A rewritten file, or a type that widens, has all rows read again: no reason to let in what was kept out."""
    play.write(
        "t.sql",
        "CREATE TABLE s AS SELECT * FROM file://s*.csv WITH ('schema.evolution' = 'strict');"
        "CREATE TABLE i AS SELECT * FROM file://i*.csv WITH ('schema.evolution' = 'ignore');",
    )
    for name in ("s", "i"):
        play.write(f"{name}1.csv", "id,v\n1,x\n")
    play.loaded()
    for name in ("s", "i"):
        play.write(f"{name}1.csv", "id,v,extra\n1.5,y,9\n")
    reports = play.load()
    assert isinstance(reports["s"].error, SchemaRefused) and "extra" in str(reports["s"].error)
    assert play.rows("s") == {(1, "x"): 1}
    assert play.table("i").to_pylist() == [{"id": Decimal("1.5"), "v": "y"}]
    again = play.load(full_refresh=True)
    assert again["s"].error is None and play.table("s").column_names == ["id", "v", "extra"]


def test_columns_that_the_change_feed_has_itself(play: Play):
    """Delta refuses to write them: exports of other change feeds could not be loaded under any SELECT."""
    play.write("x.csv", "id,_change_type,_commit_version\n1,insert,7\n")
    play.write(
        "t.sql",
        "CREATE TABLE a AS SELECT * FROM file://x.csv;"
        "CREATE TABLE k AS SELECT id PRIMARY KEY, `_change_type` AS c, _commit_version FROM file://x.csv;",
    )
    play.loaded()
    assert play.table("a").to_pylist() == [{"id": 1, "change_type": "insert", "commit_version": 7}]
    assert play.table("k").to_pylist() == [{"id": 1, "c": "insert", "commit_version": 7}]


@pytest.mark.parametrize("key", ["", " PRIMARY KEY"], ids=["plain", "keyed"])
def test_a_renamed_file_has_its_rows_once(play: Play, key: str):
    play.write("t.sql", f"CREATE TABLE t AS SELECT id{key}, v FROM file://d/*.csv;")
    play.write("d/b.csv", "id,v\n1,x\n2,y\n")
    play.loaded()
    (play.folder / "d/b.csv").rename(play.folder / "d/a.csv")
    report = play.loaded()["t"]
    assert any("b.csv: renamed to" in note for note in report.notes), report.notes
    assert play.rows("t") == play.reloaded().rows("t") and play.rows("t").total() == 2
    play.loaded(full_refresh=True)
    assert play.rows("t").total() == 2


def test_a_file_like_one_that_vanished_is_another(play: Play):
    """A folder that is emptied by an archive: each hour's file says the same, and each counts."""
    play.write("t.sql", "CREATE TABLE t AS SELECT status FROM file://d/*.csv;")
    for hour in (1, 2):
        file = play.write(f"d/{hour}.csv", "status\nfine\n")
        os.utime(file, (hour * 10**9, hour * 10**9))
        play.loaded()
        file.unlink()
    assert play.rows("t") == {("fine",): 2}
