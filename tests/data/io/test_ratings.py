"""Ratings on disk: chunks of whole users, every rating once; a file that is broken is named with its line."""

import gzip

import pytest

from natgrad.data.io.ratings import RatingsSource


def lines(rng, n_users=9, names=False):
    rows = []
    for user in range(n_users):
        who = f"u{user}" if names else user
        rows += [f"{who},{item},{rng.integers(1, 6)}" for item in rng.choice(20, rng.integers(1, 7), replace=False)]
    return rows


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_chunks_of_ratings_are_whole_users(suffix, names, tmp_path, rng):
    rows, path = lines(rng, names=names), tmp_path / f"ratings{suffix}"
    if suffix == ".parquet":
        pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
        columns = zip(*(row.split(",") for row in rows), strict=True)
        frame = pandas.DataFrame(dict(zip(("user", "item", "rating"), columns, strict=True)))
        frame = frame.astype({"item": int, "rating": float, **({} if names else {"user": int})})
        frame.to_parquet(path)
    else:
        text = ("user,item,rating\n" + "\n".join(rows) + "\n").encode()
        path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    chunks = list(RatingsSource(path, size=7).chunks())
    assert len(chunks) > 2
    users = [who for chunk in chunks for who in chunk.user_ids.tolist()]
    assert len(users) == len(set(users)) == 9
    found = {
        f"{chunk.user_ids[u]},{chunk.item_ids[i]},{v:g}"
        for chunk in chunks
        for u, i, v in zip(chunk.users, chunk.items, chunk.values, strict=True)
    }
    assert found == set(rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2,3\n1,3,x\n", r"line 2, column 3: the rating must be a finite number, got 'x'"),
        ("1,2,3\n1\n", r"line 2: 1 column, but at least 3 are needed"),
        ("1,2,3\n2,2,3\n1,3,4\n3,1,1\n", r"ratings of user '1' do not stand together; sort the file by user"),
        ("1,2,3\n1,2,4\n2,1,1\n", r"line 2: user 1 rates item 2 a second time, after line 1"),
        ("who,what,when\n1,2,3\n", r"line 1: cannot tell which column is the user or the item or the value"),
        ("user,item,rating\n", "there are no ratings in it"),
    ],
)
def test_broken_ratings_name_their_place(text, words, tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        list(RatingsSource(path, size=2).chunks())


def test_cut_off_compression_is_named(tmp_path):
    path = tmp_path / "ratings.csv.gz"
    path.write_bytes(gzip.compress(b"1,2,3\n" * 3)[:-9])
    with pytest.raises(ValueError, match="the compressed data are damaged or cut off"):
        list(RatingsSource(path).chunks())
