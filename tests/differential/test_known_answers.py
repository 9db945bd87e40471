"""Statements whose answers are known by hand. If one fails, a user's simplest numbers are wrong."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from tests.differential.cases import read_cases
from tests.differential.oracle import Oracle, difference
from tests.harness import Play

MANY = """
CREATE TABLE many AS SELECT * FROM file://many.csv;
CREATE TABLE active AS SELECT COUNT(*) AS n FROM many WHERE status = 'active';
CREATE TABLE category_five AS SELECT COUNT(*) AS n FROM many WHERE category = 'CAT_5';
CREATE TABLE total AS SELECT SUM(amount) AS n FROM many;
CREATE TABLE completed AS SELECT SUM(amount) AS n FROM many WHERE status = 'completed';
CREATE TABLE above AS SELECT COUNT(*) AS n FROM many WHERE amount > 5000.00;
CREATE TABLE accounts AS SELECT COUNT(DISTINCT account) AS n FROM many;
"""
ANSWERS = {
    "active": 25_000,
    "category_five": 10_000,
    "total": Decimal("494891500.00"),
    "completed": Decimal("123720000.00"),
    "above": 49_270,
    "accounts": 1000,
}


def test_known_answers(play: Play):
    """All in one project, each with files of its own."""
    cases = read_cases("known_answers.sql")
    for case in cases:
        text = case.statement().replace("file://", f"file://{case.name}/")
        play.write(f"{case.name}.sql", text)
        for name, lines in case.files.items():
            play.write(f"{case.name}/{name}", lines)
    reports = play.load()
    problems = [f"{name}: {report.error}" for name, report in reports.items() if report.error is not None]
    with Oracle(play.folder) as oracle:
        for case in cases:
            if reports[case.name].error is not None:
                continue
            rows, expected = play.rows(case.name), oracle.rows(case.mirror)
            if rows != expected:
                problems.append(f"{case.place}: {case.name}: {difference(rows, expected)}")
    assert not problems, "\n".join(problems)


def test_a_cent_ten_thousand_times_is_exactly_a_hundred(play: Play):
    play.write("cents.sql", "CREATE TABLE cents AS SELECT SUM(x) AS total FROM file://cents.csv;")
    play.write("cents.csv", "x\n" + "0.01\n" * 9_000)
    play.loaded()
    play.append("cents.csv", "0.01\n" * 1_000)
    play.loaded()
    assert play.rows("cents") == Counter({(Decimal(100),): 1})


def test_division_by_zero_is_never_a_number(play: Play):
    """An error that leaves no table behind, or NULL."""
    play.write("zero.sql", "CREATE TABLE zero AS SELECT a / b AS x FROM file://zero.csv;")
    play.write("zero.csv", "a,b\n1.00,0.00\n")
    report = play.load()["zero"]
    assert report.error is not None or play.rows("zero") == Counter({(None,): 1})


def test_hundred_thousand_rows_in_two_loads(play: Play):
    states = ("active", "pending", "completed", "cancelled")
    lines = []
    for i in range(100_000):
        cents = (137 * i + 50_000) % 1_000_000
        lines.append(f"{i},{cents // 100}.{cents % 100:02},{states[i % 4]},CAT_{i % 10},ACC{i % 1000}\n")
    play.write("many.sql", MANY)
    play.write("many.csv", "id,amount,status,category,account\n" + "".join(lines[:60_000]))
    play.loaded()
    play.append("many.csv", "".join(lines[60_000:]))
    play.loaded()
    assert {name: play.table(name).column("n").to_pylist()[0] for name in ANSWERS} == ANSWERS
