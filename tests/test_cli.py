"""The command line as scripts use it: exit codes, what goes to stdout and what to stderr, and how values look."""

from __future__ import annotations

import csv
import io
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.harness import Play
from velo_dagster.cli import main
from velo_dagster.engine.supported import check_supported
from velo_dagster.plan.project import load_project
from velo_dagster.sql.variables import MissingVariable

GOOD = "CREATE TABLE orders AS SELECT id, amount FROM file://orders.csv;\n"
BROKEN = "CREATE TABLE broken AS SELEC id FROM file://orders.csv;\n"


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("VELO_WAREHOUSE", "VELO_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return int(end.value.code or 0)


def write_project(**files: str) -> str:
    folder = Path("project")
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text)
    return str(folder)


def write_table(name: str, table: pa.Table, warehouse: str = ".velo/warehouse") -> None:
    write_deltalake(f"{warehouse}/{name}", table)


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "nowhere"],
        ["query", "SELECT 1", "nowhere"],
        ["load", "."],
        ["nonsense"],
        ["query"],
        ["query", "SELECT 1", "--format", "xml"],
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """A script tells a typing error from failed data by the exit code."""
    if arguments == ["load", "."]:
        arguments = ["load", ".", "extra"]
        Path("a.sql").write_text(GOOD)
    assert run(*arguments) == 2
    assert capsys.readouterr().out == ""


def test_validate_names_every_error_with_its_place(capsys: pytest.CaptureFixture[str]):
    path = write_project(a=GOOD, b=BROKEN, c="CREATE TABLE c AS SELECT * FROM nowhere;\n")
    assert run("validate", path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" error ")[0] for line in lines if " error " in line] == [
        "project/b.sql:1:24:",
        "project/c.sql:1:33:",
    ]


def test_validate_of_a_good_project_prints_nothing_to_stdout(capsys: pytest.CaptureFixture[str]):
    assert run("validate", write_project(a=GOOD)) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", "1 statement: 0 errors, 0 warnings\n")


def test_plan_says_method_and_reason_in_dependency_order(capsys: pytest.CaptureFixture[str]):
    path = write_project(a="CREATE TABLE totals AS SELECT COUNT(*) AS n FROM orders;\n", b=GOOD)
    assert run("plan", path) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert [line.split(",")[0] for line in lines] == ["orders: append", "totals: groups"]
    assert all(", because " in line for line in lines)


def test_plan_says_what_a_changed_row_of_each_input_touches(capsys: pytest.CaptureFixture[str]):
    sql = """CREATE TABLE orders AS SELECT id PRIMARY KEY, user_id FROM file://orders.csv;
    CREATE TABLE users AS SELECT user_id, city FROM file://users.csv;
    CREATE TABLE cities AS SELECT u.city, count(*) AS n FROM orders o JOIN users u ON o.user_id = u.user_id
    GROUP BY u.city;"""
    assert run("plan", write_project(a=sql)) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  reads")]
    assert lines == [
        "  reads  source file://orders.csv: a changed row touches the row with its id",
        "  reads  source file://users.csv",
        "  reads  table orders: a changed row touches the parts with the u.city of the rows it joins by "
        "o.user_id = u.user_id",
        "  reads  table users: a changed row touches the parts with its u.city",
    ]


def test_plan_of_a_project_with_errors_shows_them_only(capsys: pytest.CaptureFixture[str]):
    assert run("plan", write_project(a=GOOD, b=BROKEN)) == 1
    out, err = capsys.readouterr()
    assert out == "" and "project/b.sql:1:24: error" in err


def test_status_shows_what_it_can_although_a_statement_is_wrong(capsys: pytest.CaptureFixture[str]):
    """Whoever looks why a table is stale must not be sent away because of another one."""
    path = write_project(
        a=GOOD, b=BROKEN, c="CREATE TABLE c AS SELECT n FROM orders;\n", d="CREATE TABLE d AS SELECT n FROM c;\n"
    )
    assert run("status", path, "--json") == 1
    out, err = capsys.readouterr()
    found = {line["table"]: line["health"] for line in map(json.loads, out.splitlines())}
    assert set(found) == {"orders", "c", "d"}
    assert found["c"].startswith("blocked: its statement has an error: E114 at project/c.sql:1:26")
    assert found["d"].startswith("blocked: it reads table 'c', which is blocked")
    assert "blocked" not in found["orders"]
    assert "project/b.sql:1:24: error E106" in err and "project/c.sql:1:26: error E114" in err
    assert run("status", path, "--select", "orders") == 0
    assert "These errors are in statements that were not selected:" in capsys.readouterr().err
    assert run("status", path, "--select", "BROKEN") == 1
    assert "not selected" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("texts", "counted"),
    [
        ([BROKEN], "1 statement: 1 error, 0 warnings"),
        ([GOOD + BROKEN, "SELEC;"], "3 statements: 2 errors, 0 warnings"),
        ([GOOD, GOOD], "2 statements: 1 error, 0 warnings"),
    ],
)
def test_statements_that_cannot_be_read_are_counted(texts: list[str], counted: str, capsys: pytest.CaptureFixture[str]):
    path = write_project(**{f"a{number}": text for number, text in enumerate(texts)})
    assert run("validate", path) == 1
    assert capsys.readouterr().err.splitlines()[-1] == counted


def test_a_table_that_reads_a_broken_statement_is_not_blamed(capsys: pytest.CaptureFixture[str]):
    """One error, not two: the table is there, only its statement can't be read."""
    path = write_project(b=BROKEN, c="CREATE STREAM c AS SELECT id FROM broken;\n")
    assert run("validate", path) == 1
    out, _ = capsys.readouterr()
    assert [line.partition(": ")[0] for line in out.splitlines() if " error " in line] == ["project/b.sql:1:24"]


def test_a_data_file_is_not_a_project(capsys: pytest.CaptureFixture[str]):
    Path("my orders.csv").write_text("id\n1\n")
    assert run("load", "my orders.csv") == 1
    err = capsys.readouterr().err
    assert "error E142 'my orders.csv' is not a .sql file." in err
    assert "CREATE TABLE my_orders AS SELECT * FROM 'file://my orders.csv';" in err


@pytest.mark.parametrize("given", [["--select", "orders,totals"], ["--select", "orders,", "totals"]])
def test_a_selection_may_be_a_list(given: list[str], capsys: pytest.CaptureFixture[str]):
    path = write_project(
        a=GOOD, b="CREATE TABLE totals AS SELECT COUNT(*) AS n FROM orders;\n", c=GOOD.replace("orders AS", "x AS")
    )
    assert run("status", path, *given) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line[0] != " "]
    assert [line.partition(":")[0] for line in lines] == ["orders", "totals"]


def test_help_says_whole_sentences(capsys: pytest.CaptureFixture[str]):
    assert run("--help") == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_the_warehouse_lies_in_the_project_wherever_the_command_is_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """A second warehouse made by accident would load everything again, and answer queries from stale tables."""
    path = write_project(a=GOOD)
    write_table("orders", pa.table({"id": [1]}), warehouse="project/.velo/warehouse")
    Path("elsewhere").mkdir()
    for folder, given, shown in (
        (".", path, "project/.velo/warehouse"),
        ("project", ".", ".velo/warehouse"),
        ("elsewhere", "../project", "../project/.velo/warehouse"),
        ("project", "a.sql", ".velo/warehouse"),
    ):
        with monkeypatch.context() as inside:
            inside.chdir(folder)
            assert run("status", given, "--json") == 1
        out, err = capsys.readouterr()
        assert err.splitlines()[0] == f"warehouse: {shown}"
        assert json.loads(out)["state"] == "broken", "the table there is not ours, but it was found"


def test_a_project_is_the_current_folder_unless_another_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """All commands alike: one that wants PATH where the others do not is a stumbling block."""
    write_project(a=GOOD)
    Path("project/velo.yaml").write_text("warehouse: tables\n")
    write_table("orders", pa.table({"id": [1]}), warehouse="project/tables")
    for given in ("project", "project/a.sql"):
        assert run("query", "SELECT id FROM orders", given, "--format", "csv") == 0
        assert capsys.readouterr().out == "id\n1\n"
    monkeypatch.chdir("project")
    assert run("validate") == 0
    assert run("plan") == 0
    assert run("query", "SELECT id FROM orders", "--format", "csv") == 0
    assert capsys.readouterr().out.endswith("id\n1\n")
    assert run("status", "--select", "orders") == 1
    assert "warehouse: tables" in capsys.readouterr().err


def test_names_of_tables_are_not_taken_for_the_project(capsys: pytest.CaptureFixture[str]):
    assert run("load", "--select", "orders", "users") == 2
    assert "--select a,b, or by --select a b after PATH" in capsys.readouterr().err


def test_a_query_says_where_it_looked_for_the_warehouse(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    write_project(a=GOOD)
    assert run("query", "SELECT id FROM orders", "project") == 1
    missing = tmp_path / "project/.velo/warehouse"
    assert f"There is no table 'orders', because the warehouse {missing} does not exist." in capsys.readouterr().err
    missing.mkdir(parents=True)
    assert run("query", "SELECT id FROM orders", "project") == 1
    assert f"in the warehouse {missing}. It is empty." in capsys.readouterr().err


def test_unknown_selection_names_the_nearest(capsys: pytest.CaptureFixture[str]):
    assert run("load", write_project(a=GOOD), "--select", "order") == 1
    assert "Did you mean orders?" in capsys.readouterr().err


def test_status_before_any_load(capsys: pytest.CaptureFixture[str]):
    path = write_project(a=GOOD, b="CREATE TABLE totals AS SELECT COUNT(*) AS n FROM orders;\n")
    assert run("status", path, "--json") == 0
    orders, totals = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (orders["state"], orders["rows"], totals["state"]) == ("not loaded", None, "not loaded")
    assert orders["health"] == "never loaded; waits for file://orders.csv: error E301 File 'orders.csv' does not exist."
    assert totals["health"] == "never loaded; waits for orders: never loaded"
    assert orders["well"] and totals["well"]
    Path("project/orders.csv").write_text("id,amount\n1,2\n")
    assert run("status", path, "--select", "orders") == 0
    first, reads = capsys.readouterr().out.splitlines()
    assert first == "orders: not loaded; health: never loaded"
    assert reads.endswith("nothing read, 14 bytes waiting")


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ('id,name\n1,"x\n2,y\n', "nothing read; orders.csv: 9 bytes wait after byte 8 {}"),
        ("id,name\n1", "nothing read; orders.csv: 1 byte waits after byte 8 {}"),
        ("id,name\n1,x\n2", "nothing read, 12 bytes waiting; orders.csv: 1 byte waits after byte 12 {}"),
    ],
)
def test_status_says_once_what_waits_for_its_end(text: str, reads: str, capsys: pytest.CaptureFixture[str]):
    """'Nothing waits' beside bytes that wait leaves whoever looks for missing rows with nothing."""
    path = write_project(a="CREATE TABLE orders AS SELECT * FROM file://orders.csv;\n")
    Path("project/orders.csv").write_text(text)
    assert run("status", path) == 0
    said = reads.format("for the end of the line, or of an open quote")
    assert capsys.readouterr().out.splitlines()[1] == f"  reads  source file://orders.csv: {said}"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("file://broken.csv.gz", "can't be read"),
        ("file://circle.csv", "can't be read as a file"),
        ("file://${NOT_SET_HERE}/a.csv", "NOT_SET_HERE"),
        ("kafka://orders", "not supported yet"),
    ],
)
def test_status_ends_with_1_where_a_source_cannot_be_read(source: str, why: str, capsys: pytest.CaptureFixture[str]):
    """A monitor that looks at the exit code would never notice."""
    path = write_project(a=f"CREATE TABLE orders AS SELECT * FROM {source};\n")
    Path("project/broken.csv.gz").write_bytes(b"this is not gzip")
    Path("project/circle.csv").symlink_to("circle.csv")
    assert run("status", path, "--json") == 1
    orders = json.loads(capsys.readouterr().out)
    assert orders["health"].startswith("never loaded; ") and why in orders["health"]
    assert not orders["well"] and not orders["inputs"][0]["waits"]


VALUES = pa.table(
    {
        "id": [1, 2],
        "text": ['a,"b"\nc', None],
        "amount": pa.array([Decimal("12.50"), None], pa.decimal128(18, 2)),
        "ratio": [0.1, float("nan")],
        "flag": [True, False],
        "day": [date(2025, 6, 15), None],
        "moment": pa.array([datetime(2025, 6, 15, 14, 30, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "tags": pa.array([["x", None], []], pa.list_(pa.string())),
        "_velo_id": [7, 8],
    }
)
SELECT = "SELECT * FROM things ORDER BY id"


def test_a_query_says_that_double_quotes_are_no_column(capsys: pytest.CaptureFixture[str]):
    """The answer would be the column's own name, row by row."""
    write_table("things", VALUES)
    assert run("query", 'SELECT "id" FROM things', "--format", "csv") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1:] == ["id", "id"]
    assert 'query:1:8: warning W114 "id" is a text here, as in Spark; a column\'s name goes in backticks.' in err
    assert "Write `id` for the column. If a text is meant, write 'id' in single quotes." in err


def test_query_as_json_keeps_every_digit(capsys: pytest.CaptureFixture[str]):
    """12.50 that comes out as 12.5 or 12.500000001 is not what the table holds."""
    write_table("things", VALUES)
    assert run("query", SELECT, "--format", "jsonl") == 0
    out = capsys.readouterr().out
    assert '"amount": 12.50,' in out
    first, second = (json.loads(line, parse_float=Decimal) for line in out.splitlines())
    assert first == {
        "id": 1,
        "text": 'a,"b"\nc',
        "amount": Decimal("12.50"),
        "ratio": Decimal("0.1"),
        "flag": True,
        "day": "2025-06-15",
        "moment": "2025-06-15T14:30:00Z",
        "tags": ["x", None],
    }
    assert (second["text"], second["ratio"], second["tags"]) == (None, "NaN", [])
    assert run("query", SELECT, "--format", "json") == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert run("query", "SELECT * FROM things WHERE id > 5", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_query_as_csv_can_be_read_back(capsys: pytest.CaptureFixture[str]):
    write_table("things", VALUES)
    assert run("query", SELECT, "--format", "csv") == 0
    header, first, second = csv.reader(io.StringIO(capsys.readouterr().out))
    assert header == ["id", "text", "amount", "ratio", "flag", "day", "moment", "tags"]
    assert first == ["1", 'a,"b"\nc', "12.50", "0.1", "true", "2025-06-15", "2025-06-15 14:30:00", '["x", null]']
    assert second[1] == ""


def test_query_as_table_cuts_nothing_off_in_a_pipe(capsys: pytest.CaptureFixture[str]):
    long = "x" * 500
    write_table("things", pa.table({"id": [1], "text": [f"[b]{long}"]}))
    assert run("query", "SELECT * FROM things") == 0
    out, err = capsys.readouterr()
    assert f"[b]{long}" in out and "\x1b" not in out
    assert err == "1 row\n"


def test_two_columns_of_one_name_are_not_merged_in_json(capsys: pytest.CaptureFixture[str]):
    write_table("things", VALUES)
    assert run("query", "SELECT id, id FROM things", "--format", "json") == 1
    assert "error Q603" in capsys.readouterr().err
    assert run("query", "SELECT id, id FROM things WHERE id = 1", "--format", "csv") == 0
    assert capsys.readouterr().out == "id,id\n1,1\n"


@pytest.mark.parametrize("way", ["option", "variable", "velo.yaml"])
def test_warehouse_is_found(way: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    write_table("things", pa.table({"id": [1]}))
    write_table("things", pa.table({"id": [2]}), warehouse="other")
    if way == "variable":
        monkeypatch.setenv("VELO_WAREHOUSE", "other")
    if way == "velo.yaml":
        Path("velo.yaml").write_text("warehouse: other\n")
    more = ["--warehouse", "other"] if way == "option" else []
    assert run("query", "SELECT id FROM things", "--format", "csv", *more) == 0
    assert capsys.readouterr().out == "id\n2\n"


def test_a_query_takes_the_engine_settings_of_its_folder(monkeypatch: pytest.MonkeyPatch):
    given: list[object] = []

    def engine(settings: object, starting: object) -> None:
        given.append(settings)
        sys.exit(3)

    monkeypatch.setattr("velo_dagster.engine.session.EmbeddedEngine", engine)
    Path("velo.yaml").write_text("engine: {spark.driver.memory: 2g}\n")
    write_table("things", pa.table({"id": [1]}))
    assert run("query", "SELECT percentile(id, 0.5) FROM things") == 3
    assert given == [{"spark.driver.memory": "2g"}]


@pytest.mark.parametrize(
    ("settings", "place"), [("warehouse: [a", "1:"), ("engine:\n  spark.sql.ansi.enabled: false", "2:3: error E143")]
)
def test_a_query_does_not_guess_past_wrong_settings(settings: str, place: str, capsys: pytest.CaptureFixture[str]):
    write_table("things", pa.table({"id": [1]}))
    Path("velo.yaml").write_text(settings)
    assert run("query", "SELECT id FROM things") == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"velo.yaml:{place}"), err


def test_wrong_settings_block_every_table(capsys: pytest.CaptureFixture[str]):
    path = write_project(a=GOOD)
    Path(path, "velo.yaml").write_text("engine: {spark.sql.session.timeZone: Asia/Tokyo}")
    assert run("load", path) == 1
    out, err = capsys.readouterr()
    assert out.startswith("orders: blocked") and "velo.yaml:1:10: error E143" in err and "Starting Spark" not in err


def test_statements_that_are_not_run_are_named(capsys: pytest.CaptureFixture[str]):
    """Exit 0 would let somebody believe that the rows were inserted."""
    changes = """INSERT INTO stock VALUES (1);
UPDATE stock SET id = 2 WHERE true;
DELETE FROM stock WHERE true;
UPSERT INTO stock SELECT id FROM stock s ON stock.id = s.id;
BEGIN; INSERT INTO stock VALUES (1); COMMIT;"""
    path = write_project(a="CREATE TABLE stock (id INT);\n" + changes)
    assert run("validate", path) == 0
    capsys.readouterr()
    assert run("load", path) == 1
    err = capsys.readouterr().err
    kinds = ("CreateTable", "Insert", "Update", "Delete", "Upsert", "Transaction")
    for line, kind in enumerate(kinds, 1):
        assert (
            f"a.sql:{line}:1: error E201 {kind} statements are not supported yet; this one was not run.\n  1. " in err
        )


@pytest.mark.parametrize(
    ("closing", "told", "step"),
    [
        ("INTO kafka://broker:9092/out", "INTO a sink", "Leave INTO out"),
        ("WITH ('extension' = 'redis')", "The property 'extension' = 'redis'", "Leave it out"),
        ("WITH ('extension' = '${WHERE:-redis}')", "The property 'extension' = 'redis'", "Leave it out"),
    ],
)
def test_what_a_load_would_have_to_ignore_is_refused(
    closing: str, told: str, step: str, capsys: pytest.CaptureFixture[str]
):
    """Before Spark is started, and before anything is stored."""
    path = write_project(a=f"CREATE TABLE a AS SELECT id FROM file://a.csv {closing};")
    Path(path, "a.csv").write_text("id\n1\n")
    assert run("load", path) == 1
    out, err = capsys.readouterr()
    assert out.startswith("a: failed")
    assert f"a.sql:1:1: error E210 {told} is not supported yet, so table 'a' is not loaded.\n  1. {step}" in err
    assert "Starting Spark" not in err and not list(Path(path, ".velo", "warehouse").iterdir())


@pytest.mark.parametrize(
    ("select", "code"),
    [
        (
            "SELECT SUM(id) OVER (ROWS WINDOW BUFFER 3 ROWS ORDER BY ts RANGE 3 PRECEDING) AS s FROM file://a.csv",
            "E203",
        ),
        ("SELECT SUM(doc.**.x) OVER (ORDER BY id) AS x FROM file://a.csv", "E204"),
    ],
)
def test_a_select_that_cannot_be_run_yet_is_refused_before_its_source_is_read(
    select: str, code: str, capsys: pytest.CaptureFixture[str]
):
    """Else somebody waits for Spark and for a copy of all his rows, to be told what was known from the start."""
    path = write_project(a=f"CREATE TABLE a AS {select};")
    Path(path, "a.csv").write_text("id,ts,doc\n1,2025-01-01T00:00:00,x\n")
    assert run("load", path) == 1
    out, err = capsys.readouterr()
    assert out.startswith("a: failed") and f": error {code} " in err and "\n  1. " in err
    assert "Starting Spark" not in err and not list(Path(path, ".velo", "warehouse").iterdir())


def test_a_variable_that_stands_for_something_supported_is_no_reason_to_refuse(monkeypatch: pytest.MonkeyPatch):
    """A value that works when it is written out must work when it comes from the environment."""
    path = write_project(
        a="CREATE TABLE a AS SELECT id FROM file://a.csv WITH ('event.time.format' = '${F:-iso8601}');"
    )
    (plan,) = load_project(path).tables
    check_supported(plan)
    monkeypatch.setenv("F", "ISO8601")
    check_supported(plan)


def test_a_variable_that_is_missing_is_told_before_what_it_might_stand_for(monkeypatch: pytest.MonkeyPatch):
    path = write_project(a="CREATE TABLE a AS SELECT id FROM file://a.csv WITH ('event.time.format' = '${F}');")
    monkeypatch.setenv("F", "iso8601")
    (plan,) = load_project(path).tables
    monkeypatch.delenv("F")
    with pytest.raises(MissingVariable, match=r"a\.sql:1:\d+: error E141 The environment variable F is not set"):
        check_supported(plan)


@pytest.mark.parametrize(("place", "code"), [("s3a://bucket/x", "T504"), ("a_file/warehouse", "T505")])
def test_a_warehouse_that_cannot_be_is_told_before_a_load(place: str, code: str, capsys: pytest.CaptureFixture[str]):
    Path("a_file").touch()
    assert run("load", write_project(a=GOOD), "--warehouse", place) == 1
    out, err = capsys.readouterr()
    assert out == "" and f"error {code} " in err and "Starting Spark" not in err


def test_error_is_told_without_a_traceback(capsys: pytest.CaptureFixture[str]):
    assert run("query", "SELECT * FROM nothing") == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error Q601 There is no table 'nothing'") and "Traceback" not in err


def test_unexpected_error_says_how_to_see_more(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("velo_dagster.plan.project.load_project", fail)
    assert run("validate", ".") == 1
    err = capsys.readouterr().err
    assert err.startswith("error V999 Unexpected ZeroDivisionError: by zero\n") and "VELO_DEBUG=1" in err
    assert "Traceback" not in err
    assert run("--debug", "validate", ".") == 1
    assert "Traceback" in capsys.readouterr().err


def test_load_goes_on_past_a_wrong_statement(play: Play):
    """One typing error must not keep the rest of a project stale, and must not pass unnoticed."""
    play.write("orders.csv", "id,amount\n1,12.50\n")
    play.write("a.sql", GOOD + "CREATE TABLE totals AS SELECT SUM(amont) AS s FROM orders GROUP BY id;\n")
    play.write("b.sql", "CREATE TABLE later AS SELECT s FROM totals;\n" + BROKEN)
    done = play.command("load", ".")
    assert done.returncode == 1, done.stderr
    orders, *others = done.stdout.splitlines()
    assert orders.startswith("orders: bulk by append, 1 row read, 1 row changed, version 0, ")
    assert sorted(line.split(",")[0] for line in others) == ["later: blocked", "totals: blocked"]
    assert "a.sql:2:35: error E114 There is no column 'amont'." in done.stderr
    assert done.stderr.splitlines()[-1] == (
        "3 of 4 tables not loaded: totals (blocked), later (blocked), broken (blocked)"
    )
    chosen = play.command("load", ".", "--select", "orders")
    assert (chosen.returncode, chosen.stdout.split(",")[0]) == (0, "orders: unchanged"), chosen.stderr
    assert "These errors are in statements that were not selected:" in chosen.stderr
    assert play.command("load", ".", "--select", "later").returncode == 1


def test_load_with_a_blocked_table_loads_the_others(play: Play):
    """One missing file must not keep the rest of a project stale, and must not pass unnoticed."""
    play.write("orders.csv", "id,amount\n1,12.50\n2,3.00\n")
    play.write("a.sql", GOOD + "CREATE TABLE waits AS SELECT * FROM file://missing.csv;\n")
    done = play.command("load", ".", "--warehouse", "warehouse")
    assert done.returncode == 1, done.stderr
    orders, waits = done.stdout.splitlines()
    assert orders.startswith("orders: bulk by append, 2 rows read, 2 rows changed, version 0, ")
    assert waits.startswith("waits: blocked, ")
    assert "missing.csv' does not exist" in done.stderr
    assert done.stderr.splitlines()[-1] == "1 of 2 tables not loaded: waits (blocked)"
    asked = play.command(
        "query", "SELECT AVG(amount) AS mean FROM orders", "--warehouse", "warehouse", "--format", "csv"
    )
    assert (asked.returncode, asked.stdout) == (0, "mean\n7.750000\n"), asked.stderr
    state = play.command("status", ".", "--warehouse", "warehouse", "--json", "--select", "orders")
    found = json.loads(state.stdout)
    assert (found["state"], found["rows"], found["inputs"][0]["lag"], found["health"]) == ("ready", 2, 0, "ok")


def test_an_unknown_column_of_a_query_is_told_at_its_place(capsys: pytest.CaptureFixture[str]):
    write_table("things", VALUES)
    assert run("query", "SELECT id,\n  t.`amuont` FROM things t") == 1
    assert capsys.readouterr().err.splitlines()[:2] == [
        "query:2:5: error Q602 There is no column 'amuont'.",
        "  1. Did you mean amount or moment?",
    ]
