"""How many lines of code there are: by folder, or in some files; docstrings, comments and blank lines aside.

    python tools/lines.py                                        every folder of src/natgrad
    python tools/lines.py src/natgrad/models/mixture/*.py        some files, and their sum

Lines are counted as the formatter leaves them. A line counts if it holds a token of the program: a statement over three lines is
three.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "natgrad"
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Lines of a program that are no docstring, no comment and not blank."""
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            first = node.body[0]
            prose.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - prose)


def by_folder(source: Path = SOURCE) -> Counter[str]:
    """Code lines of each folder of a tree; files at its top are the ground floor."""
    found: Counter[str] = Counter()
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).parts
        found[
            "/".join(parts[:2]) if parts[0] == "models" and len(parts) > 2 else parts[0] if len(parts) > 1 else "."
        ] += code_lines(path.read_text())
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--source", type=Path, default=SOURCE, help="another tree, of an earlier version say")
    given = parser.parse_args()
    found = Counter({str(path): code_lines(path.read_text()) for path in given.files}) or by_folder(given.source)
    for name, count in sorted(found.items()):
        print(f"{count:7,d}  {name}")
    print(f"{sum(found.values()):7,d}  in all")


if __name__ == "__main__":
    main()
