"""One peer on one corpus, in the peer's own environment: its topics and the CPU seconds at several points of its run, to a file.

    /path/to/peer/bin/python benchmarks/lda_peers.py tomotopy --corpus acl --documents 20000 --topics 50 --seed 0 --out run.json

Every peer learns what hyper-parameters it can: tomotopy its asymmetric α (its default), gensim α and η ("auto"); scikit-learn and
Vowpal Wabbit learn none and have their defaults, 1/K for scikit-learn and what their documentation advises for Vowpal Wabbit. One
thread each; seconds are those of the process, without reading the data and without the evaluations.
"""

import argparse
import contextlib
import json
import os
import tempfile
import time

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[threads] = "1"

import numpy as np  # noqa: E402  after the number of threads is set
from lda_evaluator import score, splits  # noqa: E402

SWEEPS = (10, 20, 40, 70, 100, 150, 200, 300, 400, 500, 600)
MOST_PASSES = 30
# A variational peer has converged when so many passes together add less than this to the validation score; it is then far below
# any difference between systems. One pass that adds nothing is not enough: some dip before they rise.
SETTLED, LAST_PASSES = 0.005, 3


class Run:
    """What is recorded of a run: (CPU seconds, topics, α) at each point; the clock stands still in between."""

    def __init__(self, data, out):
        self.data, self.out, self.points = data, out, []
        self.used, self.begun = 0.0, time.process_time()

    def point(self, topics, alpha, label):
        self.used += time.process_time() - self.begun
        topics = np.asarray(topics, np.float64)
        topics = topics / topics.sum(1, keepdims=True)
        alpha = np.broadcast_to(np.asarray(alpha, np.float64), len(topics))
        row = {"label": label, "cpu": self.used}
        for name in ("validation", "test"):
            row[name] = score(topics, alpha, getattr(self.data, name))
        print(row, flush=True)
        self.points.append(row)
        with open(self.out, "w") as file:  # at once: a run that is cut short leaves what it has reached
            json.dump({"points": self.points}, file, indent=1)
        self.begun = time.process_time()

    @property
    def settled(self):
        scores = [point["validation"] for point in self.points]
        return len(scores) > LAST_PASSES and scores[-1] - scores[-1 - LAST_PASSES] < SETTLED


def tomotopy(run, n_topics, seed):
    import tomotopy as tp

    model = tp.LDAModel(k=n_topics, seed=seed + 1)
    train = run.data.train
    for d in range(train.shape[0]):
        row = slice(train.indptr[d], train.indptr[d + 1])
        if row.start < row.stop:
            model.add_doc([str(w) for w in np.repeat(train.indices[row], train.data[row])])
    run.begun = time.process_time()
    done = 0
    for sweeps in SWEEPS:
        model.train(sweeps - done, workers=1)
        done = sweeps
        topics = np.zeros((n_topics, train.shape[1]))
        topics[:, [int(w) for w in model.used_vocabs]] = [model.get_topic_word_dist(k) for k in range(n_topics)]
        run.point(topics, model.alpha, sweeps)


def sklearn(run, n_topics, seed):
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        n_topics, learning_method="online", batch_size=1024, total_samples=run.data.train.shape[0], random_state=seed
    )
    for number in range(1, MOST_PASSES + 1):
        model.partial_fit(run.data.train)
        run.point(model.components_, model.doc_topic_prior_, number)
        if run.settled:
            break


def gensim(run, n_topics, seed):
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaModel
    from gensim.models.callbacks import Metric

    class Stop(Exception):
        pass

    class Point(Metric):
        def __init__(self):
            self.logger, self.title, self.viz_env = "shell", "point", None

        def get_value(self, **kwargs):
            model = kwargs["model"]
            run.point(model.get_topics(), model.alpha, len(run.points) + 1)
            if run.settled:
                raise Stop
            return 0.0

    corpus = list(Sparse2Corpus(run.data.train, documents_columns=False))
    words = {v: str(v) for v in range(run.data.train.shape[1])}
    run.begun = time.process_time()
    with contextlib.suppress(Stop):
        LdaModel(
            corpus, n_topics, words, alpha="auto", eta="auto", chunksize=2000, passes=MOST_PASSES, iterations=100,
            eval_every=None, random_state=seed, callbacks=[Point()],
        )  # fmt: skip


def vw(run, n_topics, seed):
    """Whole runs of several numbers of passes: the driver has no point in between at which to look."""
    from vowpalwabbit import Workspace

    train = run.data.train
    bits = int(np.ceil(np.log2(train.shape[1] + 1)))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/docs.txt"
        with open(path, "w") as file:
            for d in range(train.shape[0]):
                row = slice(train.indptr[d], train.indptr[d + 1])
                pairs = zip(train.indices[row], train.data[row], strict=True)
                file.write("| " + " ".join(f"{w}:{n}" for w, n in pairs) + "\n")
        for passes in (1, 2, 5, 10, 20):
            run.used, run.begun = 0.0, time.process_time()
            model = Workspace(
                f"--lda {n_topics} --lda_alpha 0.1 --lda_rho 0.1 --lda_D {train.shape[0]} --minibatch 256 --power_t 0.5 "
                f"--initial_t 1 -b {bits} --passes {passes} -k --cache_file {folder}/cache -d {path} --random_seed {seed + 1} "
                f"--readable_model {folder}/model.txt --quiet"
            )
            model.finish()
            with open(f"{folder}/model.txt") as file:
                rows = [line.split() for line in file]
            rows = [row for row in rows if len(row) == n_topics + 1 and row[0].isdigit()]
            topics = np.full((n_topics, train.shape[1]), 0.1)
            for row in rows:
                if int(row[0]) < train.shape[1]:
                    topics[:, int(row[0])] = [float(value) for value in row[1:]]
            run.point(topics, 0.1, passes)
            if run.settled:
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=("tomotopy", "sklearn", "gensim", "vw"))
    parser.add_argument("--corpus", default="acl")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    run = Run(splits(options.corpus, options.documents), options.out)
    globals()[options.peer](run, options.topics, options.seed)


if __name__ == "__main__":
    main()
