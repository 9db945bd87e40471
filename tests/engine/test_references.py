"""Tables that are joined with others which are late, fail, or change: what a load waits for, and what it does without.

Expected rows are DuckDB's over the same files, or written out where rows stay as they once were.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from tests.harness import Play
from velo_dagster.engine.checks import EQUALS_RELOAD, BlockingChecks, Standing, checks_of, run_check
from velo_dagster.engine.errors import JoinedOnce, NotReady, UnfitDefault, UnknownColumns
from velo_dagster.engine.exempt import rows_without_reference
from velo_dagster.engine.load import Loader
from velo_dagster.engine.report import LoadReport, Outcome
from velo_dagster.engine.source_load import LoadOptions
from velo_dagster.store.table import Warehouse

ORDERS = "CREATE TABLE orders AS SELECT id, user_id, amount FROM file://orders*.csv;\n"
USERS = "CREATE TABLE users AS SELECT user_id, tier, credit FROM file://users.csv;\n"
LIMITS = "CREATE TABLE limits AS SELECT user_id, top FROM file://limits.csv;\n"
INNER = "SELECT o.id, o.amount, u.tier, u.credit FROM orders o JOIN users u ON o.user_id = u.user_id"
LEFT = INNER.replace("JOIN", "LEFT JOIN")
FILES = """
WITH orders AS (SELECT * FROM read_csv('{data}/orders*.csv')), users AS (SELECT * FROM read_csv('{data}/users.csv'))
"""


def told(play: Play, name: str) -> Any:
    record = Warehouse(str(play.folder / play.warehouse)).table(name).record()
    assert record is not None
    return record


def start(play: Play, select: str, properties: str, *others: str) -> None:
    verified = "-- dagster: verify=all\n"
    play.write("t.sql", "".join([ORDERS, USERS, *others, f"{verified}CREATE TABLE e AS {select} WITH ({properties});"]))
    play.write("orders-1.csv", "id,user_id,amount\n1,1,10.5\n2,2,3.25\n3,9,1\n")


def verdict(play: Play) -> str:
    """What the check says that compares the table with a full reload."""
    project, warehouse = play.project(), Warehouse(str(play.folder / play.warehouse))
    standing = Standing(project, warehouse, project.table("e"), play.engine)
    check = next(one for one in checks_of(standing.plan) if one.name == EQUALS_RELOAD)
    return run_check(check, standing).message


def waiting(play: Play) -> int | None:
    """Rows that were joined without a reference, and wait for it."""
    warehouse = Warehouse(str(play.folder / play.warehouse))
    return rows_without_reference(warehouse, play.project().table("e"), told(play, "e"))


def rows(*given: tuple[Any, ...]) -> Counter[tuple]:
    """Rows of (amount, credit, id, tier), the order in which the harness shows them."""
    return Counter(
        (Decimal(a).normalize(), c if c is None else Decimal(c).normalize(), Decimal(i), t) for a, c, i, t in given
    )


# -- readiness -------------------------------------------------------------------------------------------------------


def test_a_load_begins_only_when_every_reference_is_ready(play: Play):
    start(play, INNER, "'missing.reference' = 'wait'")
    reports = play.load()
    assert reports["orders"].well and reports["users"].outcome is Outcome.BLOCKED
    assert isinstance(reports["e"].error, NotReady) and "'users', which is not ready: it was never loaded" in str(
        reports["e"].error
    )
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.loaded()
    assert play.rows("e") == play.duckdb(FILES + INNER)


def test_a_bulk_load_that_goes_on_is_not_ready(play: Play):
    start(play, INNER, "'missing.reference' = 'wait'")
    play.write(
        "t.sql",
        (play.folder / "t.sql").read_text().replace("users.csv;", "users.csv WITH ('loading.bulk.max_records' = '1');"),
    )
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    first = play.load()
    assert "its first load is not complete" in str(first["e"].error)
    play.loaded()
    assert play.rows("e") == play.duckdb(FILES + INNER)


def test_a_reference_whose_newest_load_failed_is_read_as_it_was_committed(play: Play):
    """Its failed load changed nothing; new orders need not wait, and the report says which load was read."""
    start(play, INNER, "'missing.reference' = 'wait'")
    play.write("t.sql", (play.folder / "t.sql").read_text().replace("users AS", "users (user_id BIGINT) AS"))
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.loaded()
    expected = play.duckdb(FILES + INNER)
    play.append("users.csv", "nobody,tin,7\n")
    play.write("orders-2.csv", "id,user_id,amount\n4,1,2.5\n")
    reports = play.load()
    assert reports["users"].outcome is Outcome.FAILED and reports["e"].well
    assert any("users is read as of its load 1; the newest one is failed" in note for note in reports["e"].notes)
    assert play.rows("e") == expected + rows(("2.5", "100.5", 4, "gold"))


def test_on_the_command_line_a_failing_blocking_check_keeps_readers_away(play: Play):
    start(play, INNER, "'missing.reference' = 'wait'")
    check = "-- check known_tier (ERROR, blocking): SELECT * FROM users WHERE tier IS NULL\n"
    play.write("t.sql", (play.folder / "t.sql").read_text().replace("CREATE TABLE users", f"{check}CREATE TABLE users"))
    play.write("users.csv", "user_id,tier,credit\n1,,100.5\n2,tin,7\n")
    reports = checked(play)
    assert reports["users"].well and isinstance(reports["e"].error, NotReady)
    assert "its check known_tier fails: 1 row, such as: user_id = 1" in str(reports["e"].error)
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    assert all(report.well for report in checked(play).values())
    assert play.rows("e") == play.duckdb(FILES + INNER)


def checked(play: Play) -> dict[str, LoadReport]:
    """A load as the command makes it."""
    project, warehouse = play.project(), Warehouse(str(play.folder / play.warehouse))
    loader = Loader(project, warehouse, play.engine, gate=BlockingChecks(project, warehouse, play.engine))
    return {one.table: one for one in loader.load_all(project.tables, LoadOptions(), lambda report: None)}


def test_waiting_says_which_tables_are_ready(play: Play):
    properties = "'wait.timeout' = '0.3s', 'retry.interval' = '0.1s', 'retry.strategy' = 'fixed'"
    select = f"{INNER} JOIN limits l ON l.user_id = u.user_id"
    start(play, select, properties, LIMITS)
    play.write("limits.csv", "user_id,top\n1,5\n")
    play.loaded("orders", "limits")
    said: list[str] = []
    project = play.project()
    loader = Loader(project, Warehouse(str(play.folder / play.warehouse)), play.engine, said.append)
    report = loader.load(project.table("e"), LoadOptions())
    assert isinstance(report.error, NotReady)
    assert any("2 of 3 tables ready (orders, limits), waiting for users since " in line for line in said)
    assert loader.progress.line().startswith("e: 2 of 3 tables ready (orders, limits), waiting for users since ")


# -- skip ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("select", [INNER, LEFT], ids=["inner", "left"])
@pytest.mark.parametrize("how", ["all", "by name", "at the relation"])
def test_a_skipped_reference_is_empty_and_heals_by_itself(play: Play, select: str, how: str):
    properties = {"all": "'missing.reference' = 'skip'", "by name": "'users.missing.reference' = 'skip'"}
    at = (
        select.replace("users u ON", "users u WITH ('missing.reference' = 'skip') ON")
        if how not in properties
        else select
    )
    start(play, at, properties.get(how, "'compression' = 'zstd'"))
    reports = play.load()
    assert reports["users"].outcome is Outcome.BLOCKED and reports["e"].well
    assert any("users not ready: taken as empty for 3 rows of orders" in note for note in reports["e"].notes)
    expected = (
        rows() if select == INNER else rows(("10.5", None, 1, None), ("3.25", None, 2, None), ("1", None, 3, None))
    )
    assert play.rows("e") == expected
    assert told(play, "e").missing == {"users": "skip"} and waiting(play) == 3
    assert "as a full reload gives them" in verdict(play)
    assert play.load("e")["e"].outcome is Outcome.UNCHANGED
    play.write("orders-2.csv", "id,user_id,amount\n4,1,2.5\n")
    play.load()
    assert waiting(play) == 4
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    reports = play.loaded()
    assert "users was missing before" in reports["e"].reason or reports["e"].method == "full"
    assert play.rows("e") == play.duckdb(FILES + select)
    assert not told(play, "e").missing and "as a full reload gives them" in verdict(play)
    assert waiting(play) == 0


SKIPPED = {
    "exists": "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM users u WHERE u.user_id = o.user_id)",
    "not exists": "SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM users u WHERE u.user_id = o.user_id)",
    "not in": "SELECT id FROM orders WHERE user_id NOT IN (SELECT user_id FROM users)",
    "scalar": "SELECT o.id, (SELECT MAX(credit) FROM users) AS most FROM orders o",
    "count": "SELECT o.user_id, COUNT(u.tier) AS n, SUM(o.amount) AS s FROM orders o LEFT JOIN users u "
    "ON o.user_id = u.user_id GROUP BY o.user_id",
    "expression": "SELECT o.id, COALESCE(u.credit * 2, 0) AS c, UPPER(u.tier) AS t "
    "FROM orders o LEFT JOIN users u USING (user_id)",
    "anti": "SELECT o.id FROM orders o LEFT ANTI JOIN users u ON o.user_id = u.user_id",
    "star": "SELECT o.id, u.* FROM orders o LEFT JOIN users u ON o.user_id = u.user_id",
}


@pytest.mark.parametrize("select", SKIPPED.values(), ids=SKIPPED)
def test_a_skipped_reference_is_what_sql_says_of_an_empty_table(play: Play, select: str):
    start(play, select, "'missing.reference' = 'skip'")
    assert play.load()["e"].error is None
    other = select.replace("LEFT ANTI", "ANTI")
    empty = FILES.replace(
        "SELECT * FROM read_csv('{data}/users.csv')", "SELECT 1 AS user_id, 'x' AS tier, 1.5 AS credit LIMIT 0"
    )
    assert play.rows("e") == play.duckdb(empty + other)
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.loaded()
    assert play.rows("e") == play.duckdb(FILES + other)


def test_where_the_columns_of_a_skipped_reference_are_not_known(play: Play):
    """Those that the statement names by its alias are enough; `*` is not; what Spark can't type needs a declaration."""
    start(play, LEFT, "'missing.reference' = 'skip'")
    text = (
        (play.folder / "t.sql")
        .read_text()
        .replace("SELECT user_id, tier, credit FROM file://users.csv", "SELECT * FROM file://users.csv")
    )
    play.write("t.sql", text)
    assert play.load()["e"].error is None
    assert sum(play.rows("e").values()) == 3
    play.write("t.sql", text.replace("SELECT o.id, o.amount, u.tier, u.credit", "SELECT o.id, u.*"))
    error = play.load()["e"].error
    assert isinstance(error, UnknownColumns) and "no statement names them" in str(error)
    play.write("t.sql", text.replace("u.credit", "transform(u.credit, x -> x + 1) AS more"))
    error = play.load()["e"].error
    assert isinstance(error, UnknownColumns) and "Declare them: CREATE TABLE users" in str(error)
    declared = (
        text.replace("u.credit", "transform(u.credit, x -> x + 1) AS more")
        .replace("CREATE TABLE users AS", "CREATE TABLE users (user_id BIGINT, tier STRING, credit ARRAY<BIGINT>) AS")
        .replace("SELECT * FROM file://users.csv", "SELECT user_id, tier, credit FROM file://users.csv")
    )
    play.write("t.sql", declared)
    assert play.load()["e"].error is None


def test_a_reference_that_was_read_never_counts_as_missing(play: Play):
    """Its check fails now: taking it as empty would take rows away that are right."""
    start(play, INNER, "'missing.reference' = 'skip'")
    check = "-- check known_tier (ERROR, blocking): SELECT * FROM users WHERE tier IS NULL\n"
    play.write("t.sql", (play.folder / "t.sql").read_text().replace("CREATE TABLE users", f"{check}CREATE TABLE users"))
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    assert all(report.well for report in checked(play).values())
    before = play.rows("e")
    play.append("users.csv", "3,,1\n")
    assert isinstance(checked(play)["e"].error, NotReady)
    assert play.rows("e") == before


# -- null and default ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("select", [INNER, LEFT], ids=["inner", "left"])
def test_rows_filled_with_nulls_stay_and_later_ones_are_joined(play: Play, select: str):
    start(play, select, "'missing.reference' = 'null'")
    reports = play.load()
    filled = rows(("10.5", None, 1, None), ("3.25", None, 2, None), ("1", None, 3, None))
    assert play.rows("e") == filled
    assert any(
        "3 rows filled in for missing references; they stay so (exempt by choice)" in one for one in reports["e"].notes
    )
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.write("orders-2.csv", "id,user_id,amount\n4,1,2.5\n5,2,2\n")
    play.loaded()
    joined = rows(("2.5", "100.5", 4, "gold"), ("2", "7", 5, "tin"))
    assert play.rows("e") == filled + joined
    assert (told(play, "e").filled, told(play, "e").missing) == (3, {})
    assert verdict(play).startswith("Cannot tell: exempt by choice (3 rows filled in")
    play.write("users.csv", "user_id,tier,credit\n1,lead,0\n2,tin,7\n")
    assert play.loaded()["e"].outcome is Outcome.UNCHANGED
    assert play.loaded("e", full_refresh=True)["e"].method == "full"
    assert play.rows("e") == play.duckdb(FILES + select), "a full refresh joins all rows anew"
    assert told(play, "e").filled == 0 and "as a full reload gives them" in verdict(play)


def test_a_table_that_had_to_fill_nothing_follows_its_references(play: Play):
    start(play, INNER, "'missing.reference' = 'null'")
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.loaded()
    play.write("users.csv", "user_id,tier,credit\n1,lead,0\n2,tin,7\n")
    play.loaded()
    assert play.rows("e") == play.duckdb(FILES + INNER)
    assert "as a full reload gives them" in verdict(play)


def test_rows_are_filled_with_defaults(play: Play):
    defaults = """'missing.reference.defaults' = '{"tier": "none", "credit": 12.50}'"""
    start(play, INNER, f"'missing.reference' = 'default', {defaults}")
    play.load()
    filled = rows(("10.5", "12.5", 1, "none"), ("3.25", "12.5", 2, "none"), ("1", "12.5", 3, "none"))
    assert play.rows("e") == filled
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.555\n2,tin,7\n")
    play.write("orders-2.csv", "id,user_id,amount\n4,1,2.5\n")
    play.loaded()
    assert play.rows("e") == filled + rows(("2.5", "100.555", 4, "gold"))
    assert told(play, "e").filled == 3


def test_a_default_that_a_column_cannot_hold_is_refused(play: Play):
    """Else numbers would become texts, or a value would be rounded, and nobody is told."""
    defaults = """'missing.reference.defaults' = '{"tier": "none", "credit": "none"}'"""
    start(play, INNER, f"'missing.reference' = 'default', {defaults}")
    play.load()
    filled = play.rows("e")
    assert sum(filled.values()) == 3
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.write("orders-2.csv", "id,user_id,amount\n4,1,2.5\n")
    error = play.load()["e"].error
    assert isinstance(error, UnfitDefault) and play.rows("e") == filled
    assert "The default of 'credit' is 'none', which is no DECIMAL(18,1)." in str(error)
    text = (play.folder / "t.sql").read_text()
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "defaults" in one)
    column = text.splitlines()[line - 1].index("'{") + 1
    assert str(error).startswith(f"{play.folder / 't.sql'}:{line}:{column}: ")


def test_a_default_is_compared_with_the_columns_of_a_table_that_is_not_ready(play: Play):
    defaults = """'missing.reference.defaults' = '{"credit": 1.234}'"""
    start(play, INNER, f"'missing.reference' = 'default', {defaults}")
    check = "-- check known_tier (ERROR, blocking): SELECT * FROM users WHERE tier IS NULL\n"
    play.write("t.sql", (play.folder / "t.sql").read_text().replace("CREATE TABLE users", f"{check}CREATE TABLE users"))
    play.write("users.csv", "user_id,tier,credit\n1,,100.5\n2,tin,7\n")
    error = checked(play)["e"].error
    assert isinstance(error, UnfitDefault)
    assert "The default of 'credit' is 1.234, which is no DECIMAL(18,1)." in str(error)


def test_one_of_two_references_is_filled(play: Play):
    """The other one is joined as SQL says; several loads are filled, and counted together."""
    select = (
        "SELECT o.id, o.amount, u.tier, l.top AS credit FROM orders o JOIN users u ON o.user_id = u.user_id "
        "JOIN limits l ON l.user_id = o.user_id AND l.top > 0"
    )
    start(play, select, "'limits.missing.reference' = 'null'", LIMITS)
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.load()
    filled = rows(("10.5", None, 1, "gold"), ("3.25", None, 2, "tin"))
    assert play.rows("e") == filled
    play.write("orders-2.csv", "id,user_id,amount\n4,1,2.5\n")
    play.load()
    filled += rows(("2.5", None, 4, "gold"))
    assert play.rows("e") == filled and told(play, "e").filled == 3
    play.write("limits.csv", "user_id,top\n1,5\n2,0\n")
    play.write("orders-3.csv", "id,user_id,amount\n5,1,2.5\n6,2,1\n")
    play.loaded()
    assert play.rows("e") == filled + rows(("2.5", "5", 5, "gold"))


# -- join.time = load ------------------------------------------------------------------------------------------------


def test_each_row_is_joined_once_with_the_reference_as_it_is_then(play: Play):
    start(play, INNER, "'join.time' = 'load'")
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.loaded()
    expected = play.duckdb(FILES + INNER)
    assert play.rows("e") == expected
    play.write("users.csv", "user_id,tier,credit\n1,lead,0\n9,tin,7\n")
    assert play.loaded()["e"].outcome is Outcome.UNCHANGED
    play.write("orders-2.csv", "id,user_id,amount\n4,1,2.555\n5,2,1\n6,9,1\n")
    report = play.loaded()["e"]
    assert report.rows_read == 3 and any("join.time = load, exempt by choice" in note for note in report.notes)
    expected += rows(("2.555", "0", 4, "lead"), ("1", "7", 6, "tin"))
    assert play.rows("e") == expected, "a type that widened writes the table anew, and changes no value"
    play.append("orders-2.csv", "7,9,3\n")
    assert play.loaded()["e"].method == "once"
    assert play.rows("e") == expected + rows(("3", "7", 7, "tin"))
    assert verdict(play).startswith("Cannot tell: exempt by choice")


def test_rows_of_a_source_are_joined_once(play: Play):
    """A source that is read by the join itself, through its landing, also when its types widen."""
    play.write(
        "t.sql",
        USERS + "CREATE TABLE e AS SELECT o.id PRIMARY KEY, o.amount, u.tier, u.credit FROM file://orders*.csv o "
        "JOIN users u ON o.user_id = u.user_id WITH ('join.time' = 'load');",
    )
    play.write("orders-1.csv", "id,user_id,amount\n1,1,10\n2,2,3\n")
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.loaded()
    play.write("users.csv", "user_id,tier,credit\n1,lead,0\n2,tin,7\n")
    play.append("orders-1.csv", "3,1,2.5\n")
    play.loaded()
    assert play.rows("e") == rows(("10", "100.5", 1, "gold"), ("3", "7", 2, "tin"), ("2.5", "0", 3, "lead"))
    play.append("orders-1.csv", "3,1,2.5\n")
    assert "is not unique" in str(play.load()["e"].error)


def test_rows_that_went_or_changed_fail_the_load(play: Play):
    start(play, INNER, "'join.time' = 'load'")
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.loaded()
    before = play.rows("e")
    play.write("orders-1.csv", "id,user_id,amount\n1,1,99\n")
    error = play.load()["e"].error
    assert isinstance(error, JoinedOnce) and "Nothing was changed" in str(error) and "--full-refresh" in str(error)
    assert play.rows("e") == before
    play.loaded("e", full_refresh=True)
    assert play.rows("e") == play.duckdb(FILES + INNER)


def test_an_unfinished_load_changes_nothing_of_what_was_joined(play: Play):
    """Nothing new in the driving input is no commit: what reads the table is not loaded again."""
    start(play, INNER, "'join.time' = 'load'")
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.loaded()
    version = told(play, "e").version
    play.append("users.csv", "3,tin,1\n")
    play.loaded()
    assert told(play, "e").version == version


def test_a_type_that_the_table_holds_already_is_appended_not_written_anew(play: Play):
    """Else one narrow column of a reference would cost all of the table at every load."""
    start(play, INNER, "'join.time' = 'load'")
    play.write("users.csv", "user_id,tier,credit\n1,gold,100.5\n2,tin,7\n")
    play.loaded()
    expected = play.duckdb(FILES + INNER)
    play.write("users.csv", "user_id,tier,credit\n1,gold,3\n2,tin,7\n")
    for number, amount in ((4, "2"), (5, "3")):
        play.write(f"orders-{number}.csv", f"id,user_id,amount\n{number},1,{amount}\n")
        report = play.loaded()["e"]
        expected += rows((amount, "3", number, "gold"))
        assert play.rows("e") == expected
    assert report.method == "once"
