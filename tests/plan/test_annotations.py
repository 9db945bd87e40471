"""What comments say to Dagster. A line that is misread puts a table into the wrong team's hands, or drops a check."""

from __future__ import annotations

from pathlib import Path

import pytest
from dagster._utils.schedules import is_valid_cron_string

from velo_dagster import build_velo_definitions
from velo_dagster.engine.checks import checks_of
from velo_dagster.plan.annotations import OWN_CHECKS, Annotations
from velo_dagster.plan.cron import why_no_schedule
from velo_dagster.plan.project import load_project

TABLE = "CREATE TABLE t AS SELECT a FROM file://a.csv;"


def read(folder: Path, *lines: str) -> tuple[Annotations, list[str]]:
    (folder / "t.sql").write_text("".join(f"-- {line}\n" for line in lines) + TABLE)
    project = load_project(folder)
    problems = [f"{p.span.line} {p.code} {p.message}" for p in project.problems]
    return project.table("t").annotations, problems


def test_all_of_it(tmp_path: Path):
    found, problems = read(
        tmp_path,
        "dagster: group=shop owners=team:a,b@c.de tags=tier:gold,reviewed kinds=kafka freshness=15m",
        'dagster: automation="0 3 * * *"',
        "What each user has spent,",
        "to the cent.",
        "velo: allow=W104",
        "check positive (WARN): SELECT * FROM t WHERE a < 0",
        "check: SELECT a",
        "  FROM t WHERE a IS NULL",
        "check must (ERROR, blocking): SELECT 1 FROM t WHERE a = 7",
    )
    assert not problems
    assert (found.group, found.owners, found.kinds) == ("shop", ("team:a", "b@c.de"), ("kafka",))
    assert found.tags == {"tier": "gold", "reviewed": ""}
    assert (found.freshness, found.automation) == (900.0, "0 3 * * *")
    assert found.description == "What each user has spent,\nto the cent."
    assert [(c.name, c.severity, c.blocking) for c in found.checks] == [
        ("positive", "WARN", False),
        ("check_2", "ERROR", False),
        ("must", "ERROR", True),
    ]
    assert found.checks[1].query.text == "SELECT a FROM t WHERE a IS NULL"


def test_comments_inside_the_statement_and_above_a_blank_line_are_not_the_tables(tmp_path: Path):
    (tmp_path / "t.sql").write_text("-- a licence\n\n-- Mine.\nCREATE TABLE t AS -- inner\nSELECT a FROM file://a.csv;")
    assert load_project(tmp_path).table("t").annotations.description == "Mine."


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dagster: gruop=a", "W120 'gruop' says nothing to Dagster. Did you mean 'group'?"),
        ("dagster: group", "E133 'group' is no key with a value"),
        ("dagster: group=", "E133 'group' has no value"),
        ("dagster: group=a-b", "E133 group = 'a-b' is not letters, digits and _"),
        ("dagster: owners=bob", "E133 owners = 'bob' is not an e-mail address or team:name"),
        ("dagster: owners=a@b_c.de", "E133 owners = 'a@b_c.de' is not an e-mail address or team:name"),
        ("dagster: tags=x:y:z", "E133 tags = 'x:y:z' is not name or name:value, of letters, digits and _ - ."),
        ("dagster: tags=reviewed,tier:gold!!", "E133 tags = 'tier:gold!!' is not name or name:value"),
        ('dagster: tags="a b:c"', "E133 tags = 'a b:c' is not name or name:value"),
        ("dagster: tags=a,", "E133 tags = '' is not name or name:value"),
        ("dagster: kinds=a!", "E133 kinds = 'a!' is not letters, digits and _ - ."),
        ("dagster: kinds=a,b,c,d,e,f,g,h,i", "E133 There are 9 kinds."),
        ("dagster: freshness=soon", "E133 freshness = 'soon' is not a duration"),
        ("dagster: automation=sometimes", "E133 automation = 'sometimes' is not eager or off, or a cron schedule"),
        ('dagster: automation="99 * * * *"', "E133 automation = '99 * * * *' is not eager or off, or a cron schedule"),
        ("dagster: automation=@reboot", "E133 automation = '@reboot' is not eager or off, or a cron schedule"),
        ('dagster: description="a', "E133 The line can't be read"),
        ("check x (LOUD): SELECT 1", "E133 'loud' is nothing that a check can be"),
        ("check x (WARN, blocking): SELECT 1", "E133 A check that only warns can't block"),
        ("check x: SELEC 1", "E133 The check 'x' can't be read"),
        ("check x: SELECT * FROM file://b.csv", "E133 The check 'x' reads a source"),
        ("check x: SELECT * FROM nowhere", "E113 There is no table 'nowhere'"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, line: str, said: str):
    _, problems = read(tmp_path, "Words.", line, "More words.")
    (problem,) = problems
    assert problem.startswith(f"2 {said}"), problem


def test_dagster_takes_what_is_taken_here(tmp_path: Path):
    """What passes here and breaks there takes the whole code location away."""
    longest = "x" * 63
    _, problems = read(
        tmp_path,
        f"dagster: tags={longest}/{longest}:{longest},a.b-c_d:,dagster/priority:1 kinds=a,b,c,d,e,f,g,h-._",
        'dagster: owners=team:a!b,a.b+c%d@e-f.gh.de group=a_1 automation="0 6 * * 1-5"',
        f"dagster: description='{longest} !' freshness=1s verify=3",
    )
    assert not problems
    build_velo_definitions(tmp_path).get_repository_def()


def test_schedules_are_those_that_dagster_takes():
    numbers = [
        "*",
        "*/5",
        "0",
        "7",
        "12",
        "31",
        "32",
        "60",
        "1-5",
        "5-1",
        "5-5",
        "7/2",
        "1,12",
        "1,",
        "*/0",
        "-1",
        "1-",
    ]
    words = ["?", "L", "1-L", "L,5", "feb", "Mon", "fri-mon", "fri#2", "5#6", "L5", "x", "2#1,3"]
    parts = [*numbers, *words]
    texts = [" ".join(["*"] * place + [part] + ["*"] * (4 - place)) for place in range(5) for part in parts]
    texts += [f"0 0 {day} {month} *" for day in ("29", "30", "31", "30,31") for month in ("2", "feb", "1-3")]
    texts += ["@daily", "@reboot", "* * * *", "* * * * * *", "", "*"]
    taken = [text for text in texts if why_no_schedule(text) is None]
    assert [text for text in taken if not is_valid_cron_string(text)] == []
    only_there = {text for text in texts if text not in taken and is_valid_cron_string(text)}
    assert only_there == {"0 0 30,31 2 *", "0 0 30,31 feb *"}, "February never has these"


def test_two_checks_of_one_name(tmp_path: Path):
    _, problems = read(tmp_path, "check x: SELECT 1", "check x: SELECT 2")
    assert problems == ["2 E133 There are two checks 'x'."]


def test_a_check_does_not_take_the_name_of_one_that_tables_have(tmp_path: Path):
    """Two checks of one name end the run in Dagster, whatever they find."""
    (tmp_path / "t.sql").write_text(
        "-- dagster: freshness=1h verify=all\nCREATE TABLE t AS SELECT a PRIMARY KEY FROM file://a.csv;"
    )
    own = [check.name for check in checks_of(load_project(tmp_path).table("t"))]
    assert sorted(own) == sorted(OWN_CHECKS)
    found, problems = read(tmp_path, *(f"check {name}: SELECT * FROM t" for name in own))
    assert not found.checks
    assert problems == [
        f"{number} E133 '{name}' is a check that tables have already." for number, name in enumerate(own, 1)
    ]


def places(folder: Path, text: str) -> list[str]:
    (folder / "t.sql").write_text(text)
    return [f"{p.span.line}:{p.span.column} {p.code} {p.message}" for p in load_project(folder).problems]


def test_all_that_is_wrong_in_a_line_is_told_with_its_place(tmp_path: Path):
    assert places(tmp_path, f"-- dagster: group=my shop owner=a@b.de freshness=soon\n{TABLE}") == [
        "1:22 E133 'shop' is no key with a value.",
        "1:27 W120 'owner' says nothing to Dagster. Did you mean 'owners'?",
        "1:40 E133 freshness = 'soon' is not a duration such as 15m.",
    ]


def test_a_check_is_looked_at_like_a_statement(tmp_path: Path):
    text = f"""-- check one: SELECT * FROM t WHERE b > 1
-- check two (WARN): SELECT t.a
--   FROM t JOIN other ON t.a = other.a
--   WHERE t.c < 0
-- check three: SELECT a FROM
--     nowhere
-- check four: SELECT a FROM t
--   WHERE a >
{TABLE}
CREATE TABLE other AS SELECT a FROM file://b.csv;"""
    assert places(tmp_path, text) == [
        "1:37 E114 There is no column 'b'.",
        "4:14 E114 There is no column 'c'.",
        "6:8 E113 There is no table 'nowhere', which the check 'three' reads.",
        "8:15 E133 The check 'four' can't be read: The statement ends too early.",
    ]


@pytest.mark.parametrize(
    ("line", "said", "step"),
    [
        ("check neg SELECT * FROM t", "W121 This looks like a check", "Write -- check neg: SELECT * FROM t"),
        ("Check neg (WARN) SELECT * FROM t", "W121 This looks", "Write -- check neg (WARN): SELECT * FROM t"),
        ("chek neg: SELECT * FROM t", "W121 This looks like a check", "Write -- check neg: SELECT * FROM t"),
        ("check it is so: SELECT * FROM t", "W121 This looks", "Write -- check it_is_so: SELECT * FROM t"),
        ("check my-name: SELECT 1", "E133 'my-name' can't name a check.", "Write -- check my_name: SELECT 1"),
        ("check 1st: SELECT 1", "E133 '1st' can't name a check.", "Write -- check _1st: SELECT 1"),
        ("check größe: SELECT 1", "E133 'größe' can't name a check.", "Write -- check gr_e: SELECT 1"),
        ("checks x: SELECT 1", "E133 A check begins with 'check', not 'checks'.", "Write -- check x: SELECT 1"),
        ("checks: SELECT 1", "E133 A check begins with 'check', not 'checks'.", "Write -- check name: SELECT 1"),
        ("dagster group=shop", "W121 This looks like a line for Dagster", "Write -- dagster: group=shop"),
        ("dagstr: owners=team:a x", "W121 This looks like a line for", "Write -- dagster: owners=team:a x"),
        ("@dagster group=shop", "W121 This looks like a line for Dagster", "Write -- dagster: group=shop"),
    ],
)
def test_what_was_likely_meant_is_told(tmp_path: Path, line: str, said: str, step: str):
    (tmp_path / "t.sql").write_text(f"-- Words.\n-- {line}\n{TABLE}")
    (problem,) = load_project(tmp_path).problems
    assert f"{problem.span.line}:{problem.span.column} {problem.code} {problem.message}".startswith(f"2:4 {said}")
    assert problem.steps == (step,)
    (tmp_path / "t.sql").write_text(f"-- velo: allow=W121\n-- {line}\n{TABLE}")
    assert [p.code for p in load_project(tmp_path).problems] == (["E133"] if problem.code == "E133" else [])


def test_a_check_without_a_colon_over_several_lines(tmp_path: Path):
    found = places(tmp_path, f"-- check neg\n--   SELECT *\n--   FROM t\n{TABLE}")
    assert found == ["1:4 W121 This looks like a check, and is none."]


@pytest.mark.parametrize(
    "line",
    [
        "check the totals by hand",
        "check with the team",
        "Check the select list",
        "checks that a select from a works",
        "checked: with care",
        "dagster runs this nightly",
        "Dagster group and owners are set in velo.yaml",
        "each group=1 is a shop",
        "select * from t",
    ],
)
def test_prose_is_prose(tmp_path: Path, line: str):
    found, problems = read(tmp_path, line)
    assert (found.description, problems) == (line, [])
    assert not places(tmp_path, f"-- {line}\n\n{TABLE}\n-- {line}\n")


def test_case_does_not_count(tmp_path: Path):
    found, problems = read(tmp_path, "Dagster: Group=shop", "CHECK x: select * from t")
    assert (found.group, [check.name for check in found.checks], problems) == ("shop", ["x"], [])


def test_what_is_indented_below_prose_still_counts(tmp_path: Path):
    found, problems = read(tmp_path, "Checks of the shop", "  dagster: group=shop", "  check x: SELECT * FROM t")
    assert (found.group, [check.name for check in found.checks], problems) == ("shop", ["x"], [])


@pytest.mark.parametrize(
    "text",
    [
        "-- {}\n\n{table}",
        "{table}\n-- {}\n",
        "CREATE TABLE t -- {}\nAS SELECT a FROM file://a.csv;",
        "{table}\n-- {}\nCREATE TABLE other (a INT);",
        "{table} CREATE TABLE other (a INT); BEGIN;\n-- {}\nINSERT INTO other SELECT a FROM t; COMMIT;",
    ],
)
@pytest.mark.parametrize(
    "line", ["dagster: group=shop", "dagster group=shop", "check x: SELECT * FROM t", "check x SELECT * FROM t"]
)
def test_what_belongs_to_no_table_is_told(tmp_path: Path, text: str, line: str):
    text = text.format(line, table=TABLE)
    (found,) = places(tmp_path, text)
    before = text[: text.index(line)]
    assert found.startswith(f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))} W121 This comment says")
