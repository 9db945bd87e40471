"""A folder becomes a project: inputs described, properties merged, tables in order, all that is wrong at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from velo_dagster.errors import VeloError
from velo_dagster.plan.project import Project, load_project
from velo_dagster.sources.registry import open_source
from velo_dagster.sql.statements import CreateTable
from velo_dagster.sql.variables import MissingVariable


def project(folder: Path, **files: str) -> Project:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_yaml", ".yaml").replace("_sql", ".sql")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return load_project(folder)


def only_input(made: Project):
    assert not made.errors, [p.render() for p in made.errors]
    return made.tables[0].inputs[0]


def test_tables_of_nested_folders_come_in_dependency_order(tmp_path: Path):
    made = project(
        tmp_path,
        a_sql="CREATE TABLE c AS SELECT * FROM b;",
        deep__er__b_sql="CREATE TABLE b AS SELECT * FROM A; CREATE TABLE a AS SELECT * FROM file://data/x.csv;",
    )
    assert [table.name for table in made.tables] == ["a", "b", "c"]
    assert made.tables[1].inputs[0].table == "a"


def test_one_file_is_a_project(tmp_path: Path):
    (tmp_path / "one.sql").write_text("CREATE TABLE a AS SELECT 1 AS x")
    made = load_project(tmp_path / "one.sql")
    assert (made.root, [t.name for t in made.tables]) == (tmp_path, ["a"])


def test_nothing_to_read_is_an_error_that_helps(tmp_path: Path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(VeloError, match="E142"):
            load_project(path)


def test_select_takes_known_names_and_suggests_others(tmp_path: Path):
    made = project(tmp_path, a_sql="CREATE TABLE orders AS SELECT 1 AS x; CREATE TABLE users AS SELECT 1 AS x;")
    assert [t.name for t in made.select(["Users", "orders"])] == ["orders", "users"]
    with pytest.raises(VeloError, match="Did you mean orders"):
        made.select(["ordrs"])


def test_properties_win_by_nearness(tmp_path: Path):
    made = project(
        tmp_path,
        velo_yaml="defaults: {file: {a: d, b: d, c: d, e: d}}\nsources: {src: {uri: 'file://x.csv', b: s, c: s, e: s}}",
        a_sql="CREATE TABLE t AS SELECT * FROM src WITH ('e' = 'relation') WHERE true "
        "WITH ('c' = 'end', 'e' = 'end', 'table_model' = 'compact')",
    )
    planned = only_input(made)
    assert planned.properties == {"a": "d", "b": "s", "c": "end", "e": "relation"}
    assert (planned.kind, planned.source_type, planned.uri) == ("source", "file", "file://x.csv")


def test_a_named_source_is_described_by_its_type(tmp_path: Path):
    made = project(
        tmp_path,
        base_yaml="retry: {interval: 9s}\nformat: json",
        conf_yaml="extends: base.yaml\nformat: csv\nheader: true",
        a_sql="CREATE TABLE t AS SELECT * FROM src WITH ('src.type' = 'file_source', 'src.path' = 'x.csv', "
        "'src.config_file' = 'conf.yaml', 'src.header' = 'false', 'other' = '1')",
    )
    planned = only_input(made)
    expected = {"retry.interval": "9s", "format": "csv", "header": "false", "path": "x.csv", "other": "1"}
    assert (planned.source_type, planned.uri, dict(planned.properties)) == ("file", None, expected)


def test_a_property_that_only_kafka_knows_makes_a_topic(tmp_path: Path):
    planned = only_input(
        project(tmp_path, a_sql="CREATE TABLE t AS SELECT * FROM clicks WITH ('auto.offset.reset' = 'latest')")
    )
    assert (planned.source_type, planned.uri) == ("kafka", "kafka://clicks")


def test_variables_are_resolved_only_when_used(tmp_path: Path):
    made = project(
        tmp_path,
        a_sql="CREATE TABLE t AS SELECT * FROM file://${DIR:-data}/x.csv WITH ('password' = '${PW:?say the word}')",
    )
    planned = only_input(made)
    assert planned.resolve({"PW": "secret"}) == ("file://data/x.csv", {"password": "secret"})
    with pytest.raises(MissingVariable, match="say the word"):
        planned.resolve({})
    assert "${PW" not in repr(planned)


def test_variables_of_the_table_itself_are_resolved_when_it_is_planned(tmp_path: Path):
    sql = """CREATE TABLE t AS SELECT id, n FROM src WITH ('primary.key' = '${K:-ID}', 'src.type' = 'file_source',
        'src.config_file' = '${CONF:-c.yaml}', 'src.path' = '${DIR:-.}/x.csv', 'compression' = '${CODEC:-zstd}');
    CREATE TABLE u (a INT, b INT) WITH ('primary.key' = '${K2:-b}')"""
    (tmp_path / "c.yaml").write_text("delimiter: ;")
    (tmp_path / "a.sql").write_text(sql)
    (plan,) = load_project(tmp_path, {}).tables
    assert (plan.statement.keys, plan.refresh.method, plan.refresh.keys) == (("id",), "merge", ("id",))
    assert plan.statement.properties["compression"] == "zstd"
    assert dict(plan.inputs[0].properties) == {"delimiter": ";", "path": "${DIR:-.}/x.csv"}
    other = load_project(tmp_path, {"K": "n", "CODEC": "gzip", "K2": "a"})
    assert not other.problems
    assert other.tables[0].refresh.keys == ("n",)
    assert [one.keys for one in other.others if isinstance(one, CreateTable)] == [("a",)]
    assert other.tables[0].fingerprint != plan.fingerprint, "another key is another table"


def test_what_a_variable_of_the_table_stands_for_is_checked_at_its_place(tmp_path: Path):
    sql = """CREATE TABLE t AS SELECT id FROM src WITH ('primary.key' = '${K:?name it}', 'src.type' = 'file_source',
'src.path' = 'a.csv', 'src.config_file' = '${CONF}', 'compression' = '${CODEC:-zip}', 'table_model' = '${M}')"""
    (tmp_path / "a.sql").write_text(sql)
    found = load_project(tmp_path, {}).errors
    told = [f"{p.span.line}:{p.span.column} {p.code}" for p in found]
    assert told == ["1:60 E141", "2:43 E141", "2:70 E305", "2:103 E141"], [p.render() for p in found]
    assert "name it" in found[0].message


@pytest.mark.parametrize(
    "relation", ["${PLACE:-file://data/x.csv}", "'${PLACE:-file://data/x.csv}'", "${PLACE:-file://a b}"]
)
def test_a_variable_may_stand_for_a_whole_uri(tmp_path: Path, relation: str):
    """One statement serves a laptop's file and the topic of production."""
    planned = only_input(project(tmp_path, a_sql=f"CREATE TABLE t AS SELECT o.id FROM {relation} o WHERE o.id > 1;"))
    assert planned.source_type == "file"
    assert planned.label == relation.strip("'")
    assert planned.resolve({"PLACE": "file:///y.csv"})[0] == "file:///y.csv"


def test_the_kind_of_a_source_follows_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = "CREATE TABLE t AS SELECT * FROM ${PLACE}"
    assert only_input(project(tmp_path, a_sql=text)).source_type is None, "unknown before a load, which says E141"
    monkeypatch.setenv("PLACE", "kafka://host:9092/orders")
    assert only_input(load_project(tmp_path)).source_type == "kafka"
    monkeypatch.setenv("PLACE", "kafak://bob:secret@host/orders")
    (problem,) = load_project(tmp_path).errors
    assert (problem.code, problem.span.column) == ("E306", 33)
    assert "Did you mean 'kafka'?" in problem.message and "secret" not in problem.render()


def test_a_source_without_its_variable_says_so_at_load(tmp_path: Path):
    planned = only_input(project(tmp_path, a_sql="CREATE TABLE t AS SELECT * FROM '${NO_SUCH_PLACE:?say where}'"))
    with pytest.raises(MissingVariable, match="say where"):
        open_source(planned, tmp_path, {})


def test_system_columns_are_asked_of_sources(tmp_path: Path):
    planned = only_input(project(tmp_path, a_sql="CREATE TABLE t AS SELECT *, _FILE, x._line AS l FROM file://x.csv x"))
    assert planned.system_columns == ("_file", "_line")


@pytest.mark.parametrize(
    ("select", "asked"),
    [
        ("SELECT v, _offset, _key FROM file://x.csv", ()),
        ("SELECT q._file FROM (SELECT k AS _file FROM file://x.csv) q", ()),
        ("WITH q AS (SELECT k AS _file FROM file://x.csv) SELECT _file FROM q", ()),
        ("SELECT k AS _file, count(*) AS n FROM file://x.csv GROUP BY _file", ()),
        ("SELECT k AS _file FROM file://x.csv ORDER BY _file", ()),
        ("SELECT k AS _file, upper(_file) AS u FROM file://x.csv", ()),
        ("SELECT k AS _file FROM file://x.csv WHERE _file > ''", ("_file",)),
        ("SELECT upper(_file) AS u, k AS _file FROM file://x.csv", ("_file",)),
        ("SELECT q.f FROM (SELECT _file AS f FROM file://x.csv) q", ("_file",)),
        (
            "SELECT x.k FROM file://x.csv x WHERE EXISTS (SELECT 1 FROM VALUES (1) AS y(a) WHERE x._line = a)",
            ("_line",),
        ),
        ("SELECT _line FROM (file://x.csv x CROSS JOIN VALUES (1) AS y(a))", ("_line",)),
    ],
)
def test_names_of_system_columns_that_mean_something_else_are_not_asked_for(
    tmp_path: Path, select: str, asked: tuple[str, ...]
):
    planned = only_input(project(tmp_path, a_sql=f"CREATE TABLE t AS {select}"))
    assert planned.system_columns == asked


def fingerprint(folder: Path, sql: str, yaml: str = "") -> str:
    folder.mkdir(exist_ok=True)
    return project(folder, a_sql=sql, velo_yaml=yaml).tables[0].fingerprint


def test_the_fingerprint_follows_what_rows_depend_on(tmp_path: Path):
    base = fingerprint(tmp_path / "a", "CREATE TABLE t AS SELECT a FROM file://x.csv WITH ('format' = 'csv')")
    same = [
        "-- said\nCREATE TABLE t AS\n  SELECT a -- why\n FROM file://x.csv WITH ('format'='csv')",
        "CREATE TABLE t AS SELECT a FROM file://x.csv WITH ('format' = 'csv', 'wait.timeout' = '5m', 'watch' = '1')",
    ]
    other = [
        "CREATE TABLE t AS SELECT a, b FROM file://x.csv WITH ('format' = 'csv')",
        "CREATE TABLE t AS SELECT a FROM file://y.csv WITH ('format' = 'csv')",
        "CREATE TABLE t AS SELECT a FROM file://x.csv WITH ('format' = 'json')",
        "CREATE TABLE t AS SELECT a PRIMARY KEY FROM file://x.csv WITH ('format' = 'csv')",
        "CREATE TABLE t (a INT) AS SELECT a FROM file://x.csv WITH ('format' = 'csv')",
        "CREATE TABLE t AS SELECT a FROM file://x.csv WITH ('format' = 'csv', 'delimiter' = ';')",
    ]
    assert {fingerprint(tmp_path / "a", sql) for sql in same} == {base}
    assert base not in {fingerprint(tmp_path / "a", sql) for sql in other}
    assert len({fingerprint(tmp_path / "a", sql) for sql in other}) == len(other)


def test_broken_settings_are_problems_with_places(tmp_path: Path):
    made = project(tmp_path, velo_yaml="warehouse: [unclosed", a_sql="CREATE TABLE a AS SELECT 1 AS x")
    assert [p.code for p in made.errors] == ["E124"]
    made = project(tmp_path, velo_yaml="warehose: x\nsources: 3", a_sql="CREATE TABLE a AS SELECT 1 AS x")
    assert [p.code for p in made.problems] == ["W109", "E124"]


def test_settings(tmp_path: Path):
    made = project(
        tmp_path,
        velo_yaml="warehouse: '${W:-w}'\n"
        "engine: {spark.driver.memory: '${M:-2g}', spark: {sql: {shuffle.partitions: 8}}}",
        a_sql="CREATE TABLE a AS SELECT 1 AS x",
    )
    engine = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "8"}
    assert (made.settings.warehouse, made.settings.engine, made.problems) == ("w", engine, ())


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (b"warehouse: \xff\xfe", "1:1 E124"),
        (b"- a\n- b", "1:1 E124"),
        (b"defaults: {file: 3}", "1:12 E124"),
        (b"sources:\n  x: [1, 2]", "2:3 E124"),
        (b"engine: 5", "1:1 E124"),
        (b"sources: {}\nwarehouse: [a]", "2:1 E124"),
        (b"engine:\n  memory: 2g", "2:3 W109"),
        (b"defaults:\n  fil: {delimiter: ';'}\n  postgresql:\n    x: 1", "2:3 W109, 3:3 W109"),
        (b"engine:\n  spark.sql.ansi.enabled: false", "2:3 E143"),
        (b"engine:\n  spark:\n    sql: {session: {timeZone: Asia/Tokyo}, ansi: {enabled: true}}", "3:21 E143"),
        (b"engine: {spark.sql.legacy.timeParserPolicy: LEGACY, spark.sql.extensions: a.B}", "1:10 E143, 1:53 E143"),
        (b"engine: {spark.databricks.delta.snapshotPartitions: 4, spark.sql.shuffle.partitions: 4}", ""),
    ],
)
def test_settings_that_cannot_be_right_are_told_at_their_place(tmp_path: Path, written: bytes, found: str):
    (tmp_path / "velo.yaml").write_bytes(written)
    made = project(tmp_path, a_sql="CREATE TABLE a AS SELECT 1 AS x")
    told = [f"{p.span.line}:{p.span.column} {p.code}" for p in made.problems]
    assert ", ".join(told) == found, [p.render() for p in made.problems]


def test_settings_name_the_nearest_one(tmp_path: Path):
    made = project(
        tmp_path, velo_yaml="engine: {memory: 2g}\ndefaults: {fil: {}}", a_sql="CREATE TABLE a AS SELECT 1 AS x"
    )
    assert ["'spark.driver.memory'" in made.problems[0].message, "'file'" in made.problems[1].message] == [True, True]


def test_a_missing_variable_of_the_settings_is_told_at_its_place(tmp_path: Path):
    with pytest.raises(MissingVariable, match=r"velo.yaml:2:1: error E141"):
        project(tmp_path, velo_yaml="engine: {}\nwarehouse: ${NO_SUCH}/w", a_sql="CREATE TABLE a AS SELECT 1 AS x")


def test_a_file_that_is_not_text_does_not_hide_the_others(tmp_path: Path):
    (tmp_path / "b.sql").write_bytes(b"CREATE TABLE \xff")
    made = project(tmp_path, a_sql="\ufeffCREATE TABLE a AS SELECT 1 AS x;")
    assert [t.name for t in made.tables] == ["a"]
    assert [p.code for p in made.errors] == ["E101"]


def test_other_statements_are_kept_for_later(tmp_path: Path):
    made = project(
        tmp_path,
        a_sql="CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); CREATE TABLE u AS SELECT id FROM t;",
    )
    assert not made.problems
    assert [type(s).__name__ for s in made.others] == ["CreateTable", "Insert"]
    assert made.tables[0].inputs[0].kind == "table"
