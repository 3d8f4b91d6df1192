"""Lines of the repository beside their budgets: `python -m tests.weight`.

A line of code is one that is no docstring, no comment and not blank. Rooms may
lend lines to each other within a floor; the sums stand.
"""

import ast
import io
import pathlib
import sys
import tokenize

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "lambdanet_tf"

# Rooms of a floor, which has a sum of its own.
FLOORS = {
    "lower floors": {
        "ops": 1750,
        "layers": 1380,
        "models": 1550,
        "specs": 460,
        "analysis": 650,
        "streaming, keras_hub": 370,
        "arguments, environment, lazy": 190,
    },
    "upper floors": {
        "data": 1000,
        "training": 1750,
        "serving": 1050,
        "garden": 340,
        "cli, config, runs, files, markdown": 560,
    },
}
SUMS = {
    "lower floors": 6_390,
    "upper floors": 4_960,
    "package, code": 11_300,
    "package, docstrings": 4_000,
    "package, all lines": 18_000,
    "tests": 11_000,
    "tests, helpers": 1_500,
    "benchmarks": 5_420,  # 420 of them for the study of long range
    "docs": 4_000,
}
_LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT),
    *(tokenize.DEDENT, tokenize.ENDMARKER),
}


def counted(path):
    """Returns the numbers of lines of code, of docstrings, and of all lines."""
    source, docs, code = path.read_text(encoding="utf-8"), set(), set()
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            first = node.body[0]
            docs.update(range(first.lineno, first.end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docs), len(docs), source.count("\n")


def lines(folder, pattern):
    """Returns the number of lines of all files of a folder."""
    files = (ROOT / folder).rglob(pattern)
    return sum(file.read_text("utf-8").count("\n") for file in files)


def of_room(names):
    """Returns the lines of code of the packages and modules of a room."""
    found = 0
    for name in names.split(", "):
        paths = *(PACKAGE / name).rglob("*.py"), *PACKAGE.glob(f"{name}.py")
        found += sum(counted(path)[0] for path in paths)
    return found


def rows():
    """Yields what is counted, its lines, and its budget."""
    found = {}
    for floor, rooms in FLOORS.items():
        for room, budget in rooms.items():
            yield room, (code := of_room(room)), budget
            found[floor] = found.get(floor, 0) + code
    package = [counted(path) for path in PACKAGE.rglob("*.py")]
    values = [sum(column) for column in zip(*package, strict=True)]
    values += [lines("tests", "*.py"), lines("tests/support", "*.py")]
    values += [lines("benchmarks", "*.py"), lines("docs", "*.md")]
    values = [*found.values(), *values]
    yield from zip(SUMS, values, SUMS.values(), strict=True)


def over_budget():
    """Returns the sums that are over their budgets, each with both numbers."""
    return [row for row in rows() if row[0] in SUMS and row[1] > row[2]]


def main():
    """Prints the table; returns 1 if a sum is over its budget."""
    for name, found, budget in rows():
        over = "  over" if found > budget else ""
        print(f"{name:36}{found:8,}{budget:9,}{over}")
    return int(bool(over_budget()))


if __name__ == "__main__":
    sys.exit(main())
