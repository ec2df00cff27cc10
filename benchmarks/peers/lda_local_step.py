"""The local step of scikit-learn's or gensim's LDA: counts and λ in an .npz file come in, γ and seconds go out.

Run by ``benchmarks/lda_speed.py`` inside the peers' own environment, where natgrad is not installed:

    peers/bin/python benchmarks/peers/lda_local_step.py sklearn arrays.npz result.npz --threads 1 --repeats 3

The step is the documents given λ, with expected counts of topics by word: ``_e_step`` of scikit-learn, ``inference`` of gensim.
With two threads scikit-learn gets ``n_jobs=2``; gensim's step is serial, as in its `LdaMulticore` two processes take a half each.
"""

import argparse
import time
from multiprocessing import get_context

import numpy as np
import scipy.sparse as sparse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=("sklearn", "gensim"))
    parser.add_argument("arrays")
    parser.add_argument("result")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    arrays = np.load(options.arrays)
    X = sparse.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
    step, version = {"sklearn": scikit_learn, "gensim": gensim}[options.peer](arrays, X, options.threads)
    seconds = []
    for _ in range(options.repeats + 1):
        began = time.perf_counter()
        gamma = step()
        seconds.append(time.perf_counter() - began)
    np.savez(options.result, gamma=gamma, seconds=seconds[1:], version=version)


def scikit_learn(arrays, X, threads):
    import sklearn
    from sklearn.decomposition import LatentDirichletAllocation
    from sklearn.decomposition._online_lda_fast import _dirichlet_expectation_2d

    lam = arrays["lam"]
    model = LatentDirichletAllocation(
        len(lam), doc_topic_prior=float(arrays["alpha"]), topic_word_prior=float(arrays["beta"]),
        mean_change_tol=float(arrays["tol"]), max_doc_update_iter=int(arrays["limit"]), n_jobs=threads,
    )  # fmt: skip
    model._init_latent_vars(X.shape[1], np.float64)
    model.components_, model.exp_dirichlet_component_ = lam, np.exp(_dirichlet_expectation_2d(lam))
    if threads == 1:
        return lambda: model._e_step(X, cal_sstats=True, random_init=False)[0], sklearn.__version__
    from joblib import Parallel

    workers = Parallel(n_jobs=threads)
    workers.__enter__()  # as `fit` does: workers are started once
    return lambda: model._e_step(X, cal_sstats=True, random_init=False, parallel=workers)[0], sklearn.__version__


def gensim(arrays, X, threads):
    import gensim as package
    from gensim.models import LdaModel

    lam, beta = arrays["lam"], float(arrays["beta"])
    model = LdaModel(
        num_topics=len(lam), id2word={v: str(v) for v in range(X.shape[1])}, alpha=[float(arrays["alpha"])] * len(lam), eta=beta,
        gamma_threshold=float(arrays["tol"]), iterations=int(arrays["limit"]), dtype=np.float32, random_state=0,
    )  # fmt: skip
    model.state.sstats[...] = lam - beta
    model.sync_state()
    documents = [
        [(int(v), float(n)) for v, n in zip(X.indices[a:b], X.data[a:b], strict=True)]
        for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]
    if threads == 1:
        return lambda: model.inference(documents, collect_sstats=True)[0], package.__version__
    parts = [documents[i * len(documents) // threads : (i + 1) * len(documents) // threads] for i in range(threads)]
    pool = get_context("fork").Pool(threads, initializer=_share, initargs=(model, parts))
    pool.map(_part, range(threads), chunksize=1)
    return lambda: np.vstack(pool.map(_part, range(threads), chunksize=1)), package.__version__


def _share(model, parts):
    global SHARED
    SHARED = (model, parts)


def _part(number):
    model, parts = SHARED
    return model.inference(parts[number], collect_sstats=True)[0]


if __name__ == "__main__":
    main()
