"""Mutated data files: does every reader either read them, or refuse them with the documented error?

    python benchmarks/reliability_readers.py                  # 20,000 files for each reader; some minutes
    python benchmarks/reliability_readers.py --files 500      # to try it

A small right file of each kind is damaged as in `tools.inputs` and read. A reader may give data, or raise a ValueError
that names the file. Anything else (another error, a warning, a number that is not finite among counts and ratings)
is a failure, and is shown. Memory is capped at 4 GB, so that a size that a file claims cannot be allocated unnoticed. Results:
``benchmarks/results/reliability-readers.md`` and ``.json``.
"""

import argparse
import gzip
import io
import json
import platform
import resource
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sparse
from adversary.inputs import mutated

import natgrad as ng
from natgrad.data.io.documents import read_documents
from natgrad.data.io.docword import DocwordSource, read_docword
from natgrad.data.io.lda_c import LdacSource, read_ldac
from natgrad.data.io.matrix_market import read_matrix_market
from natgrad.data.io.numbers import read_numbers
from natgrad.data.io.open import open_source
from natgrad.data.io.ratings import read_ratings
from natgrad.data.io.svmlight import SvmlightSource
from natgrad.data.rating_forms import as_ratings

RESULTS = Path(__file__).resolve().parent / "results"
CAP = 4 << 30
WORDS = [f"w{v}" for v in range(20)]


def chunks_of(source):
    return list(source.chunks())


def npz(**arrays):
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def parquet(**columns):
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def plink(genotypes):
    """The bytes of a .bed, .bim and .fam."""
    from bed_reader import to_bed

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.bed"
        to_bed(path, genotypes)
        return {suffix: path.with_suffix(suffix).read_bytes() for suffix in (".bed", ".bim", ".fam")}


def beside(parts, path):
    """The .bed of a file of PLINK, with those that belong to it as they should be."""
    for suffix in parts.keys() - {path.suffix}:
        path.with_suffix(suffix).write_bytes(parts[suffix])
    return path.with_suffix(".bed")


def readers():
    """Name: (file name, right bytes, reader)."""
    rng = np.random.default_rng(0)
    counts = sparse.csr_array(rng.poisson(0.5, (12, 20)))
    rows = [counts[[d]] for d in range(12)]
    ldac = "".join(
        f"{r.nnz} " + " ".join(f"{v}:{c}" for v, c in zip(r.indices, r.data, strict=True)) + "\n" for r in rows
    ).encode()
    triples = counts.tocoo()
    lines = [f"{d + 1} {v + 1} {c}" for d, v, c in zip(*triples.coords, triples.data, strict=True)]
    docword = ("\n".join(["12", "20", str(len(lines)), *lines]) + "\n").encode()
    svm = "".join(
        f"1 {' '.join(f'{v + 1}:{c}' for v, c in zip(r.indices, r.data, strict=True))}\n" for r in rows
    ).encode()
    market = io.BytesIO()
    scipy.io.mmwrite(market, counts)
    n = 40
    users, items, stars = np.arange(n) // 4, np.arange(n) % 4 + np.arange(n) // 4 % 3, rng.integers(1, 6, n)
    ratings = "".join(f"u{u},i{i},{s}\n" for u, i, s in zip(users, items, stars, strict=True))
    lens = ratings.replace(",", "::").encode()
    table = "x,y,text\n" + "".join(
        f"{a:.3f},{b:.3f},some words {k}\n" for k, (a, b) in enumerate(rng.normal(size=(15, 2)))
    )
    objects = "".join(json.dumps({"x": float(k), "text": f"some words {k}"}) + "\n" for k in range(15))
    columns = {"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items], "rating": stars.astype(float)}
    packed = io.BytesIO()
    sparse.save_npz(packed, sparse.csr_matrix(counts))
    people = plink(rng.integers(0, 3, (12, 20)).astype(np.float32))
    return {
        "lda-c": ("f.ldac", ldac, lambda p: read_ldac(p)),
        "lda-c, in chunks": ("f.ldac", ldac, lambda p: chunks_of(LdacSource(p, vocabulary=WORDS, size=5))),
        "lda-c, gzipped": ("f.ldac.gz", gzip.compress(ldac), lambda p: chunks_of(LdacSource(p, vocabulary=WORDS, size=5))),
        "docword": ("docword.f.txt", docword, lambda p: read_docword(p)),
        "docword, in chunks": ("docword.f.txt", docword, lambda p: chunks_of(DocwordSource(p, size=5))),
        "SVMlight": ("f.svm", svm, lambda p: chunks_of(SvmlightSource(p, n_features=20, size=5))),
        "Matrix Market": ("f.mtx", market.getvalue(), lambda p: read_matrix_market(p)),
        "ratings, CSV": ("f.csv", ("user,item,rating\n" + ratings).encode(), read_ratings),
        "ratings, ::": ("f.dat", lens, read_ratings),
        "ratings, .npz": ("f.npz", npz(user=users, item=items, rating=stars.astype(float)), read_ratings),
        "ratings, Parquet": ("f.parquet", parquet(**columns), as_ratings),
        "numbers, CSV": ("f.csv", table.encode(), lambda p: read_numbers(p, ["x", "y"])),
        "numbers, JSON lines": ("f.jsonl", objects.encode(), lambda p: read_numbers(p, ["x"])),
        "numbers, .npy": ("f.npy", npy(rng.normal(size=(15, 3))), read_numbers),
        "texts, CSV": ("f.csv", table.encode(), lambda p: read_documents(p, column="text")),
        "texts, JSON lines": ("f.jsonl", objects.encode(), lambda p: read_documents(p, column="text")),
        "texts, lines": ("f.txt", "".join(f"some words {k}\n" for k in range(15)).encode(), read_documents),
        "counts, .npz": ("f.npz", packed.getvalue(), lambda p: read_documents(p)),
        "rows, Parquet": ("f.parquet", parquet(x=rng.normal(size=15)), lambda p: chunks_of(open_source(str(p)))),
        "PLINK, .bed": ("f.bed", people[".bed"], lambda p: chunks_of(open_source(beside(people, p)))),
        "PLINK, .bim": ("f.bim", people[".bim"], lambda p: chunks_of(open_source(beside(people, p)))),
    }  # fmt: skip


def not_finite(found) -> bool:
    """Whether counts or ratings hold what is no number; numbers of a table may be missing."""
    if isinstance(found, ng.data.Ratings):
        return not np.isfinite(found.values).all()
    counts = getattr(getattr(found, "corpus", None) or found, "counts", None)
    return counts is not None and not np.isfinite(counts).all()


def measure(folder, file, data, read, n_files, seed):
    path, rng = folder / file, np.random.default_rng(seed)
    path.write_bytes(data)
    read(path)
    given = refused = 0
    failures, slowest = Counter(), 0.0
    for _ in range(n_files):
        path.write_bytes(mutated(data, rng))
        begin = time.perf_counter()
        try:
            bad = not_finite(read(path))
            given += 1
            failures["a value that is not finite"] += bad
        except ValueError as error:
            refused += 1
            failures[f"an error that does not name the file: {str(error)[:80]}"] += not (
                path.name in str(error) or path.with_suffix(".bed").name in str(error)
            )
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            failures[f"{type(error).__name__}: {str(error)[:80]}"] += 1
        slowest = max(slowest, time.perf_counter() - begin)
    failures = {name: count for name, count in failures.items() if count}
    return {"files": n_files, "read": given, "refused": refused, "slowest_s": slowest, "failures": failures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--only", nargs="*")
    chosen = parser.parse_args()
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (CAP, CAP))
    file = RESULTS / "reliability-readers.json"
    kept = json.loads(file.read_text())["results"] if file.exists() and chosen.only else {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (path, data, read)) in enumerate(readers().items()):
            if chosen.only and name not in chosen.only:
                continue
            kept[name] = measure(Path(folder), path, data, read, chosen.files, number)
            print(name, kept[name], flush=True)
    RESULTS.mkdir(exist_ok=True)
    versions = {"natgrad": ng.__version__, "numpy": np.__version__, "python": platform.python_version()}
    file.write_text(json.dumps({"versions": versions, "results": kept}, indent=1) + "\n")
    table = ["| reader | mutated | read | refused | slowest, ms | other errors |", "|---|--:|--:|--:|--:|--:|"]
    for name, r in kept.items():
        times, others = f"{1000 * r['slowest_s']:.0f}", sum(r["failures"].values())
        table.append(f"| {name} | {r['files']:,} | {r['read']:,} | {r['refused']:,} | {times} | {others} |")
    (RESULTS / "reliability-readers.md").write_text("\n".join(table) + "\n")
    print("\n".join(table))
    if any(r["failures"] for r in kept.values()):
        raise SystemExit("some readers failed")


if __name__ == "__main__":
    main()
