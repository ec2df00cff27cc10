"""Write the notebooks of the tutorials: the examples cell by cell, executed, with what they print and their pictures.

    python tools/notebooks.py                       writes docs/tutorials/notebooks/*.ipynb
    python tools/notebooks.py --only nile           one of them

A program of `examples/` is a module with a `main(figure)`. Its notebook has the tutorial's text, the definitions, and the body of
`main` at top level, a cell for each paragraph. Nothing is written by hand, so a notebook cannot differ from its program.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
TUTORIALS = ROOT / "docs" / "tutorials"
NOTEBOOKS = TUTORIALS / "notebooks"
# Which page explains which program.
PAGES = {
    "ancestry": "ancestry",
    "cell_types": "cells",
    "chromatin": "chromatin",
    "flight_delays": "flights",
    "isotopes": "isotopes",
    "nile": "nile",
    "own_network": "own-network",
    "ratings": "ratings",
    "switching": "switching",
    "topics_of_text": "topics",
    "tracking": "tracking",
}


def cells_of(program: str) -> list[str]:
    """The code of a program, cell by cell: imports and names, functions, paragraphs of `main`, the picture."""
    lines = program.splitlines()
    tree = ast.parse(program)
    before: list[str] = []
    functions: list[str] = []
    body: list[str] = []
    for node in tree.body:
        text = "\n".join(lines[_first(node) - 1 : node.end_lineno])
        if isinstance(node, ast.Expr) and node is tree.body[0]:
            continue  # the docstring is the first cell of text
        if isinstance(node, ast.If):
            continue  # the command line
        if isinstance(node, ast.FunctionDef) and node.name == "main":
            body = _paragraphs(lines, node)
        elif isinstance(node, ast.FunctionDef):
            functions.append(_shown(text))
        elif text != "import argparse":
            before.append(text)
    start = "%matplotlib inline\n"
    if any(text.startswith("from generated.") for text in before):
        start += 'import sys\n\nsys.path.append("../../../examples")  # where generated/ is\n'
    return [start + "\n".join(before), *functions, *body]


def _first(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def _paragraphs(lines: list[str], main: ast.FunctionDef) -> list[str]:
    """The statements of `main`, split at blank lines; the block that draws is a cell, what it returns is left out."""
    found: list[str] = []
    kept = [node for node in main.body if not isinstance(node, ast.Return)]
    start = kept[0].lineno
    while lines[start - 2].strip().startswith("#"):
        start -= 1
    drawing = kept[-1] if isinstance(kept[-1], ast.If) else None
    end = (drawing.lineno - 1) if drawing else kept[-1].end_lineno
    text = textwrap.dedent("\n".join(lines[start - 1 : end])).strip()
    for paragraph in re.split(r"\n\n(?=\S)", text):
        found.append(paragraph)
    if drawing is not None:
        inside = lines[drawing.body[0].lineno - 1 : drawing.end_lineno]
        found.append(_shown(textwrap.dedent("\n".join(inside))))
    return found


def _shown(code: str) -> str:
    """A picture is shown instead of saved."""
    code = re.sub(r"^( *)picture\.savefig\((?:figure|path), dpi=\d+\)$", r"\1display(picture)", code, flags=re.M)
    code = re.sub(r", path: str\) -> None:", ") -> None:", code)
    return re.sub(r"^(draw\(.*), figure\)$", r"\1)", code, flags=re.M)


def text_of(page: str) -> tuple[str, str]:
    """The tutorial's introduction and its notes, with links that lead to the pages."""
    text = (TUTORIALS / f"{page}.md").read_text()
    text = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n\n?", "", text, flags=re.M)
    text = re.sub(r"^\[[^\n]*\.ipynb\)[^\n]*\n\n?", "", text, flags=re.M)
    text = re.sub(r"\]\((?:\.\./)+([\w/-]+)\.md", r"](../../\1.md", text)
    text = re.sub(r"\]\((?!\.\.|http)([\w-]+)\.md", r"](../\1.md", text)
    before, _, after = text.partition("```")
    notes = after.rpartition("```\n")[2]
    return before.strip(), notes.strip()


def notebook_of(name: str) -> Any:
    """The notebook of a program, not yet executed."""
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    program = (EXAMPLES / f"{name}.py").read_text()
    before, notes = text_of(PAGES[name])
    says = ast.get_docstring(ast.parse(program)) or ""
    cells = [new_markdown_cell(before), new_markdown_cell(says)]
    cells += [new_code_cell(code) for code in cells_of(program)]
    if notes:
        cells.append(new_markdown_cell(notes))
    for number, cell in enumerate(cells):
        cell["id"] = f"{name}-{number}"  # the same at every writing
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def executed(notebook: Any, folder: Path) -> Any:
    """The same with outputs; an error in a cell is raised."""
    from nbclient import NotebookClient

    os.environ["PYTHONPATH"] = str(EXAMPLES)  # the notebook is run elsewhere than where it will be

    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("text/plain", None) if "image/png" in output.get("data", {}) else None
            if output.get("name") == "stderr":  # where a warning was raised: in a file that is gone
                output["text"] = re.sub(r"\S*ipykernel_\d+/\d+\.py", "cell", output["text"])
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def main() -> None:
    """Write all, or one."""
    import nbformat

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(PAGES), help="one program")
    only = parser.parse_args().only
    NOTEBOOKS.mkdir(exist_ok=True)
    for name in [only] if only else PAGES:
        path = NOTEBOOKS / f"{name}.ipynb"
        nbformat.write(executed(notebook_of(name), ROOT), path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
