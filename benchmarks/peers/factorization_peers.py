"""One peer on the split of `benchmarks/factorization.py`: run inside its own environment, answers through files.

PEER_PYTHON benchmarks/peers/factorization_peers.py NAME split.npz answer.npz
"""

import importlib.metadata
import json
import sys
import time

import numpy as np

RANK = 20


def surprise(train, test, shape):
    import pandas as pd
    from surprise import SVD, Dataset, Reader

    frame = pd.DataFrame({"u": train[0], "i": train[1], "r": train[2]})
    data = Dataset.load_from_df(frame, Reader(rating_scale=(train[2].min(), train[2].max()))).build_full_trainset()
    began = time.perf_counter()
    model = SVD(n_factors=RANK, random_state=0).fit(data)
    seconds = time.perf_counter() - began
    found = np.array([model.predict(u, i).est for u, i in zip(*test, strict=True)])
    return "scikit-surprise", seconds, {"mean": found}


def lenskit(train, test, shape):
    import pandas as pd
    from lenskit.als import BiasedMFScorer
    from lenskit.data import from_interactions_df

    frame = pd.DataFrame({"user_id": train[0], "item_id": train[1], "rating": train[2]})
    data = from_interactions_df(frame)
    began = time.perf_counter()
    model = BiasedMFScorer(embedding_size=RANK)
    model.train(data)
    seconds = time.perf_counter() - began
    # The score of a pair is bias + product of embeddings; as arrays, since one query for each user takes minutes.
    from lenskit.data import ItemList

    mean = np.empty(len(test[0]))
    order = np.argsort(test[0], kind="stable")
    users, starts = np.unique(test[0][order], return_index=True)
    for user, part in zip(users, np.split(order, starts[1:]), strict=True):
        scored = model(query=int(user), items=ItemList(item_ids=test[1][part]))
        mean[part] = scored.scores()
    known = np.isfinite(mean)
    mean[~known] = train[2].mean()
    return "lenskit", seconds, {"mean": mean}


def cornac(train, test, shape):
    from cornac.data import Dataset
    from cornac.models import MF

    data = Dataset.from_uir(list(zip(*(part.tolist() for part in train), strict=True)), seed=0)
    began = time.perf_counter()
    model = MF(k=RANK, seed=0).fit(data)
    seconds = time.perf_counter() - began
    user = {int(k): v for k, v in data.uid_map.items()}
    item = {int(k): v for k, v in data.iid_map.items()}
    rows, columns = np.array([user.get(int(u), -1) for u in test[0]]), np.array([item[int(i)] for i in test[1]])
    mean = model.global_mean + model.u_biases[rows] + model.i_biases[columns]
    mean += np.einsum("nk,nk->n", model.u_factors[rows], model.i_factors[columns])
    return (
        "cornac",
        seconds,
        {"mean": np.where(rows >= 0, np.clip(mean, train[2].min(), train[2].max()), train[2].mean())},
    )


def smurff(train, test, shape):
    import scipy.sparse as sp
    from smurff import AdaptiveNoise, TrainSession

    centre = train[2].mean()
    matrix = sp.coo_matrix((train[2] - centre, (train[0], train[1])), shape=shape)
    # A test rating of exactly zero would not be stored; only the places matter here.
    held = sp.coo_matrix((np.ones(len(test[0])), test), shape=shape)
    began = time.perf_counter()
    session = TrainSession(num_latent=RANK, burnin=20, nsamples=80, priors=["normal", "normal"], verbose=0, seed=0)
    # Noise that adapts: the default is a fixed precision of 5, far above that of these ratings.
    session.addTrainAndTest(matrix, held, AdaptiveNoise(1.0, 10.0), is_scarce=True)
    found = session.run()
    seconds = time.perf_counter() - began
    mean = np.zeros(shape)
    for one in found:
        mean[tuple(one.coords)] = one.pred_avg
    return "smurff", seconds, {"mean": mean[test] + centre}


def myfm(train, test, shape):
    import myfm as library
    import scipy.sparse as sp

    def design(users, items):
        n = len(users)
        columns = np.column_stack([users, items + shape[0]]).ravel()
        return sp.csr_matrix((np.ones(2 * n), (np.repeat(np.arange(n), 2), columns)), shape=(n, sum(shape)))

    began = time.perf_counter()
    model = library.MyFMRegressor(rank=RANK, random_seed=0)
    model.fit(design(*train[:2]), train[2], n_iter=100, n_kept_samples=95, group_shapes=list(shape))
    seconds = time.perf_counter() - began
    return "myfm", seconds, {"mean": model.predict(design(*test))}


def implicit_als(train, test, shape):
    from implicit.als import AlternatingLeastSquares

    return _implicit(AlternatingLeastSquares(random_state=0, use_gpu=False), train, shape)


def implicit_bpr(train, test, shape):
    from implicit.bpr import BayesianPersonalizedRanking

    return _implicit(BayesianPersonalizedRanking(random_state=0, use_gpu=False), train, shape)


def _implicit(model, train, shape):
    import scipy.sparse as sp

    matrix = sp.csr_matrix((np.ones(len(train[0]), dtype=np.float32), train[:2]), shape=shape)
    began = time.perf_counter()
    model.fit(matrix, show_progress=False)
    seconds = time.perf_counter() - began
    best = model.recommend(np.arange(shape[0]), matrix, N=20, filter_already_liked_items=True)[0]
    return "implicit", seconds, {"best": best}


def implicit_tuned(train, test, shape):
    """Each of implicit's models: tuned by NDCG@10 on held-out likes, fitted anew, and everybody's best items."""
    import scipy.sparse as sp
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking
    from implicit.nearest_neighbours import BM25Recommender

    users, items, tuning = train[0], train[1], train[-1]
    ones = np.ones(len(users), dtype=np.float32)
    whole = sp.csr_matrix((ones, (users, items)), shape=shape)
    part = sp.csr_matrix((ones[~tuning], (users[~tuning], items[~tuning])), shape=shape)
    wanted = sp.csr_matrix((ones[tuning], (users[tuning], items[tuning])), shape=shape)
    one = {"num_threads": 1}
    grids = {
        "ALS": (AlternatingLeastSquares, {"factors": (16, 64, 128), "alpha": (1, 5, 20), "regularization": (0.1, 3, 30)},
                {"use_gpu": False, "random_state": 0, **one}),
        "BPR": (BayesianPersonalizedRanking, {"factors": (16,), "learning_rate": (0.02, 0.05), "regularization": (0.01, 0.1)},
                {"use_gpu": False, "random_state": 0, "iterations": 300, **one}),
        "BM25": (BM25Recommender, {"K": (20, 100, 500), "K1": (1.2,), "B": (0.0, 0.4, 0.75)}, one),
    }  # fmt: skip
    rows, best = {}, {}
    for name, (make, grid, fixed) in grids.items():
        # Each number in turn, from the middle of its grid.
        chosen, known = {key: values[len(values) // 2] for key, values in grid.items()}, {}
        for key, values in grid.items():
            for value in values:
                if (tried := tuple({**chosen, key: value}.items())) not in known:
                    known[tried] = _ndcg(_best_of(make(**dict(tried), **fixed), part), wanted)
            chosen = dict(max(known, key=known.get))
        began = time.process_time()
        best[name] = _best_of(make(**chosen, **fixed), whole)
        rows[name] = {"cpu": time.process_time() - began, "chosen": str(chosen), "grid": f"{grid}, in turn"}
    return "implicit", 0.0, {"rows": json.dumps(rows), **best}


def _best_of(model, matrix):
    model.fit(matrix, show_progress=False)
    return model.recommend(np.arange(matrix.shape[0]), matrix, N=20, filter_already_liked_items=True)[0]


def _ndcg(best, wanted):
    discount = 1.0 / np.log2(np.arange(10) + 2.0)
    n_wanted = np.diff(wanted.indptr)
    known = best[:, :10] >= 0
    rows = np.repeat(np.arange(len(best)), 10).reshape(len(best), 10)
    hits = np.asarray(wanted[rows.ravel(), np.where(known, best[:, :10], 0).ravel()]).reshape(known.shape) * known
    able = n_wanted > 0
    return float(np.mean((hits @ discount)[able] / np.cumsum(discount)[np.minimum(n_wanted[able], 10) - 1]))


def implicit_recommend(train, test, shape):
    """The time that recommending takes, on factors that are given."""
    import scipy.sparse as sp
    from implicit.cpu.matrix_factorization_base import MatrixFactorizationBase

    class Given(MatrixFactorizationBase):
        def fit(self, *_, **__):
            return None

        def save(self, *_):
            return None

    model = Given(num_threads=0)
    model.user_factors, model.item_factors = train[3], train[4]
    matrix = sp.csr_matrix((np.ones(len(train[0]), dtype=np.float32), train[:2]), shape=shape)
    times = []
    for _ in range(4):
        began = time.perf_counter()
        best, scores = model.recommend(np.arange(shape[0]), matrix, N=10, filter_already_liked_items=True)
        times.append(time.perf_counter() - began)
    return "implicit", float(np.median(times[1:])), {"best": best, "scores": scores}


def main():
    name, source, target = sys.argv[1:]
    data = np.load(source)
    train = [data[key] for key in ("train_user", "train_item", "train_value")]
    train += [data[key] for key in ("user_factors", "item_factors", "tuning") if key in data]
    test = data["test_user"], data["test_item"]
    began = time.process_time()
    package, seconds, found = globals()[name](train, test, tuple(int(n) for n in data["shape"]))
    cpu = time.process_time() - began  # imports and predictions included
    facts = {
        "peer": name,
        "version": f"{package} {importlib.metadata.version(package)}",
        "seconds": seconds,
        "cpu": cpu,
    }
    facts |= {"rows": found.pop("rows")} if "rows" in found else {}
    np.savez(target, facts=json.dumps(facts), **found)


if __name__ == "__main__":
    main()
