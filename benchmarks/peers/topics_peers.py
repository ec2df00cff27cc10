"""A topic model of tomotopy or gensim on data in a file, in the peer's own environment: its topics and CPU seconds, to a file.

    /path/to/peer/bin/python benchmarks/peers/topics_peers.py data.npz found.npz

tomotopy takes 1,000 sweeps and learns its hyper-parameters, as its documentation has it; gensim 100 passes. DTModel has
lr_a = 0.1, with which it found generated topics best of 0.01 (its default; error 0.69) and 0.1 (0.32), and of other priors of its
variances with each (0.67, 0.46); three times the sweeps changed little (0.31).
"""

import sys
import time

import numpy as np

SWEEPS, PASSES = 1000, 100


def main() -> None:
    with np.load(sys.argv[1], allow_pickle=False) as file:
        data = {name: file[name] for name in file.files}
    kind = str(data["kind"])
    found = {"supervised": supervised, "correlated": correlated, "dynamic": dynamic, "authors": authors}[kind](data)
    np.savez(sys.argv[2], **found)


def tokens(row: np.ndarray) -> list[str]:
    return [str(v) for v in np.repeat(np.arange(len(row)), row)]


def spread(model, n_topics: int, n_words: int, rows) -> np.ndarray:
    topics = np.zeros((n_topics, n_words))
    topics[:, [int(word) for word in model.used_vocabs]] = rows
    return topics


def supervised(data: dict) -> dict:
    import tomotopy as tp

    k, binary = int(data["k"]), str(data["response"]) == "bernoulli"
    model = tp.SLDAModel(k=k, vars="b" if binary else "l", seed=1)
    for row, value in zip(data["train"], data["y"], strict=True):
        if row.sum():
            model.add_doc(tokens(row), y=[float(value)])
    begun = time.process_time()
    model.train(SWEEPS, workers=1)
    used = time.process_time() - begun
    predicted = np.zeros(len(data["test"]))
    for number, row in enumerate(data["test"]):
        if row.sum():
            document = model.make_doc(tokens(row))
            model.infer(document)
            predicted[number] = model.estimate(document)[0]
    rows = [model.get_topic_word_dist(topic) for topic in range(k)]
    return {"topics": spread(model, k, data["train"].shape[1], rows), "cpu": used, "predicted": predicted}


def correlated(data: dict) -> dict:
    import tomotopy as tp

    k = int(data["k"])
    model = tp.CTModel(k=k, seed=1)
    for row in data["train"]:
        if row.sum():
            model.add_doc(tokens(row))
    begun = time.process_time()
    model.train(SWEEPS, workers=1)
    used = time.process_time() - begun
    rows = [model.get_topic_word_dist(topic) for topic in range(k)]
    return {"topics": spread(model, k, data["train"].shape[1], rows), "cpu": used}


def dynamic(data: dict) -> dict:
    import tomotopy as tp

    k, n_times = int(data["k"]), int(data["times"].max()) + 1
    model = tp.DTModel(k=k, t=n_times, lr_a=0.1, seed=1)
    for row, t in zip(data["train"], data["times"], strict=True):
        model.add_doc(tokens(row), timepoint=int(t))
    begun = time.process_time()
    model.train(SWEEPS, workers=1)
    used = time.process_time() - begun
    n_words = data["train"].shape[1]
    topics = [
        spread(model, k, n_words, [model.get_topic_word_dist(topic, timepoint=t) for topic in range(k)])
        for t in range(n_times)
    ]
    return {"topics": np.array(topics), "cpu": used}


def authors(data: dict) -> dict:
    from gensim.matutils import Dense2Corpus
    from gensim.models import AuthorTopicModel

    k, member = int(data["k"]), data["authors"]
    corpus = list(Dense2Corpus(data["train"], documents_columns=False))
    corpus = [[(int(v), int(n)) for v, n in document] for document in corpus]
    documents = {str(a): np.flatnonzero(member[:, a]).tolist() for a in range(member.shape[1])}
    words = {v: str(v) for v in range(data["train"].shape[1])}
    begun = time.process_time()
    model = AuthorTopicModel(
        corpus, num_topics=k, id2word=words, author2doc=documents, passes=PASSES, alpha="auto", eta="auto",
        chunksize=len(corpus), eval_every=0, random_state=1, iterations=100,
    )  # fmt: skip
    used = time.process_time() - begun
    shares = np.zeros((member.shape[1], k))
    for a in range(member.shape[1]):
        for topic, share in model.get_author_topics(str(a), minimum_probability=0.0):
            shares[a, topic] = share
    return {"topics": model.get_topics(), "cpu": used, "shares": shares / shares.sum(1, keepdims=True)}


if __name__ == "__main__":
    main()
