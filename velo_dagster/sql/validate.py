"""Every rule that needs no data. One rule, one function."""

from __future__ import annotations

import re
from collections.abc import Mapping

from velo_dagster.sql.problems import Problem
from velo_dagster.sql.statements import Statement

_ALLOW = re.compile(r"--\s*velo:\s*allow\s*=\s*([A-Z0-9, ]+)")


def silenced(text: str) -> frozenset[str]:
    return frozenset(code for match in _ALLOW.finditer(text) for code in re.split(r"[, ]+", match[1].strip()) if code)


def validate_statement(statement: Statement) -> list[Problem]:
    return []


def validate_tables(tables: Mapping[str, Statement]) -> list[Problem]:
    return []
