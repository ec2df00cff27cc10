"""How many statements declare the models of `docs/models-of-others*.md`, here and in the public sources of others.

    python benchmarks/statements.py FOLDER      # with copies of the repositories below, as FOLDER/owner+name

A statement counts if it declares a random variable or something made of random variables, says which data are observed, or makes
the object that is fitted (natgrad's ``Network``, BayesPy's ``VB`` and ``observe``, Infer.NET's engine; a Stan program, a model
function of NumPyro and an ``@model`` of RxInfer are that object, and count once). Two variables in one line count twice. Left
out, on all sides: imports, data, sizes (plates, ranges, headers of loops), starts, inference and what is printed. Facts are
counted, and nothing is copied. Results: ``benchmarks/results/statements.md`` and the table of `docs/models-of-others-shapes.md`.
"""

import argparse
import ast
import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
STAN, NUMPYRO, BAYESPY, RXINFER, INFER = (
    "stan-dev/example-models", "pyro-ppl/numpyro", "bayespy/bayespy", "ReactiveBayes/RxInferExamples.jl", "dotnet/infer",
)  # fmt: skip
NAMES = {STAN: "Stan", NUMPYRO: "NumPyro", BAYESPY: "BayesPy", RXINFER: "RxInfer", INFER: "Infer.NET"}


class Source(NamedTuple):
    """A model in a repository: which lines (from the first that matches to the last), or which function."""

    repository: str
    path: str
    begin: str = ""
    end: str = ""


TABLE = "| model | natgrad | others |"
BUGS, NOTES, TUTORIALS = "bugs_examples/", "doc/source/examples/", "src/Tutorials/"
BASIC, SPECIFIC = "examples/Basic Examples/", "examples/Problem Specific/"
THEIRS = {
    "Logistic mixed model": [Source(STAN, f"{BUGS}vol1/seeds/seeds_stanified.stan")],
    "Robust regression": [Source(STAN, f"{BUGS}vol1/stacks/stacks_c_t4.stan")],
    "Bradley–Terry": [Source(STAN, "knitr/bradley-terry/individual.stan")],
    "Dyes": [Source(STAN, f"{BUGS}vol1/dyes/dyes.stan")],
    "Surgical": [Source(STAN, f"{BUGS}vol1/surgical/surgical_stanified.stan")],
    "Blocker": [Source(STAN, f"{BUGS}vol1/blocker/blocker.stan")],
    "Beetles": [Source(STAN, f"{BUGS}vol2/beetles/beetles_logit.stan")],
    "Golf putts": [Source(STAN, "knitr/golf/golf_logistic.stan")],
    "Pumps, with its shape learned": [Source(STAN, f"{BUGS}vol1/pump/pump.stan")],
    "Annotators": [
        Source(NUMPYRO, "examples/annotation.py", "dawid_skene"),
        Source(STAN, "knitr/noisy-raters/dawid-skene/dawid-skene.stan"),
    ],
    "Batting averages": [Source(NUMPYRO, "examples/baseball.py", "partially_pooled_with_logit")],
    "Admissions": [Source(NUMPYRO, "examples/ucbadmit.py", "glmm")],
    "Horseshoe regression": [Source(NUMPYRO, "examples/horseshoe_regression.py", "model_normal_likelihood")],
    "Gaussian mixture": [
        Source(BAYESPY, f"{NOTES}gmm.rst", r"alpha = Dir", r"Y\.observe"),
        Source(INFER, f"{TUTORIALS}MixtureOfGaussians.cs", r"means = Variable", r"new InferenceEngine"),
        Source(RXINFER, f"{SPECIFIC}Gaussian Mixture/Gaussian Mixture.ipynb", "multivariate"),
    ],
    "Bernoulli mixture": [Source(BAYESPY, f"{NOTES}bmm.rst", r"R = Dir", r"X\.observe")],
    "Principal components": [
        Source(BAYESPY, f"{NOTES}pca.rst", r"X = GaussianARD", r"Q = VB"),
        Source(INFER, f"{TUTORIALS}BayesianPCA.cs", r"data = Variable\.Array", r"new InferenceEngine"),
    ],
    "Hidden Markov model": [
        Source(BAYESPY, f"{NOTES}hmm.rst", r"Z = CategoricalMarkovChain\(a0, A", r"Q = VB\(Y, Z\)")
    ],
    "Linear state-space model": [Source(BAYESPY, f"{NOTES}lssm.rst", r"alpha = Gamma", r"Y\.observe")],
    "Bars": [Source(BAYESPY, f"{NOTES}lda.rst", r"p_topic = nodes\.Dirichlet\(np\.ones", r"Q = VB")],
    "Two coins": [Source(INFER, f"{TUTORIALS}FirstExample.cs", r"firstCoin = ", r"new InferenceEngine")],
    "Clinical trial": [Source(INFER, f"{TUTORIALS}ClinicalTrial.cs", r"isEffective = ", r"new InferenceEngine")],
    "Truncated Gaussian": [Source(INFER, f"{TUTORIALS}TruncatedGaussian.cs", r"x = Variable", r"new InferenceEngine")],
    "Softmax regression": [Source(INFER, f"{TUTORIALS}MultinomialRegression.cs", r"var B = ", r"new InferenceEngine")],
    "Smoothing a rotation": [
        Source(RXINFER, f"{BASIC}Kalman filtering and smoothing/Kalman filtering and smoothing.ipynb", "rotate_ssm")
    ],
}


# -- counting --


def names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def counted(statements: list[ast.stmt], makers: set[str], last: str | None = None) -> int:
    """Statements that call a maker of random variables, or read what such a statement made; up to one that calls ``last``."""
    made: set[str] = set(makers)
    total = 0
    for statement in statements:
        if isinstance(statement, (ast.With, ast.For, ast.If)):
            inner = [*statement.body, *getattr(statement, "orelse", [])]
            part = counted(inner, made)
            total += part
            made |= {name for s in inner for name in assigned(s)} if part else set()
            continue
        text = ast.unparse(statement)
        if not names_in(statement) & made or (isinstance(statement, ast.Return) and ".sample(" not in text):
            continue
        if (
            ("ng.Plate(" in text and not re.search(r"ng\.(?!Plate)", text))
            or ".initialize" in text
            or ".random()" in text
        ):
            continue
        if isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Call):
            continue  # something is looked at
        value = getattr(statement, "value", None)
        total += len(value.elts) if isinstance(value, ast.Tuple) else 1
        made |= assigned(statement)
        if last is not None and last in text:
            break
    return total


def assigned(statement: ast.stmt) -> set[str]:
    targets = getattr(statement, "targets", [])
    return {name for target in targets for name in names_in(target)}


def sections() -> dict[str, str]:
    """The text below each heading of the pages."""
    pages = sorted((ROOT / "docs").glob("models-of-others*.md"))
    return {
        t: body
        for page in pages
        for t, body in re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", page.read_text(), re.M | re.S)
    }


def ours() -> dict[str, int]:
    """Statements of each model of the pages, by its heading."""
    blocks = {title: re.search(r"```python\n(.*?)```", body, re.S) for title, body in sections().items()}
    return {
        title: counted(ast.parse(block[1]).body, {"ng"}, "ng.Network")
        for title, block in blocks.items()
        if block and "ng.Network" in block[1]
    }


def said() -> dict[str, int]:
    """What the pages themselves say."""
    found = {title: re.search(r"(\d+) statements", body) for title, body in sections().items()}
    return {title: int(number[1]) for title, number in found.items() if number}


def count(source: Source, text: str) -> int:
    """Statements of a model of others."""
    if source.repository == STAN:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
        blocks = re.findall(r"^(?:transformed )?(?:parameters|model)\s*\{(.*?)^\}", text, re.M | re.S)
        return 1 + sum(block.count(";") for block in blocks)
    if source.repository == NUMPYRO:
        function = next(
            n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == source.begin
        )
        return 1 + counted(function.body, {"numpyro", "dist"})
    if source.repository == RXINFER:
        cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
        joined = "\n".join("".join(cell["source"]) for cell in cells)
        model = re.search(rf"@model function \w*{source.begin}\w*\(.*?\n(.*?)^end", joined, re.M | re.S)
        assert model is not None, source
        return 1 + len(re.findall(r"^[^#\n]*(?:~|:=|[^=!<>]=[^=])", model[1], re.M))
    lines = text.splitlines()
    begin = next(n for n, line in enumerate(lines) if re.search(source.begin, line))
    end = next(n for n, line in enumerate(lines[begin:], begin) if re.search(source.end, line))
    if source.repository == INFER:
        kept = [line for line in lines[begin : end + 1] if not re.match(r"\s*//", line)]
        return sum(
            line.rstrip().endswith(";") and not re.search(r"new Range|InitialiseTo|[iI]nit\w* = |Init\.", line)
            for line in kept
        )
    code = [line.strip()[4:] for line in lines[begin : end + 1] if re.match(r"\s*(>>>|\.\.\.) ", line)]
    makers = set(re.findall(r"\b(?:nodes|VB|[A-Z][A-Za-z]+)(?=[.(])", "\n".join(code))) - {"CategoricalMoments"}
    return counted(ast.parse("\n".join(code)).body, makers)


def read(folder: Path, source: Source) -> str:
    """A file of a copied repository, checked out or bare."""
    place = folder / source.repository.replace("/", "+")
    if (place / source.path).exists():
        return (place / source.path).read_text()
    bare = place / "repo" if (place / "repo").exists() else place
    command = ["git", "-C", str(bare), "show", f"HEAD:{source.path}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    own = ours()
    lines = [TABLE, "|---|---|---|"]
    for title, sources in THEIRS.items():
        others = ", ".join(f"{count(s, read(folder, s))} ({NAMES[s.repository]})" for s in sources)
        lines.append(f"| {title} | {own[title]} | {others} |")
    print("\n".join(lines))
    (ROOT / "benchmarks" / "results" / "statements.md").write_text("\n".join(lines) + "\n")
    page = ROOT / "docs" / "models-of-others-shapes.md"
    head, _ = page.read_text().split(TABLE)
    page.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
