"""Which column is the user, the item and the rating: one answer for every way that a table of ratings comes in."""

import gzip

import pandas as pd
import pytest

import natgrad as ng
from natgrad.data.io.ratings import RatingsSource
from natgrad.data.rating_columns import NAMES, rating_columns
from natgrad.data.rating_forms import as_ratings

TRIPLES = [("ann", "up", 5.0), ("ann", "jaws", 3.0), ("bob", "up", 1.0)]
EXTRA = [111, 222, 333]
KNOWN = {
    "stars,customer,movie": "vui",
    "movie_id,customer,score": "iuv",
    "when,film,viewer,stars": "-iuv",
    "date,customer_id,product_id,stars": "-uiv",
    "Rating,User ID,ISBN": "vui",
    "user_id:token,item_id:token,rating:float,timestamp:float": "uiv-",
}
UNKNOWN = {
    "date,who,what,points": "user or the item or the value",
    "user,date,rating": "item",
    "date,movie,rating": "user",
    "user,item,when": "value",
}
TWO = {"user,customer,item,rating": "user", "film,book,user,rating": "item", "user,item,score,count": "value"}


def frame_of(header, order):
    columns = {
        "u": [who for who, _, _ in TRIPLES],
        "i": [what for _, what, _ in TRIPLES],
        "v": [v for *_, v in TRIPLES],
    }
    columns["-"] = EXTRA
    return pd.DataFrame({name: columns[key] for name, key in zip(header.split(","), order, strict=True)})


def written(path, frame):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        text = frame.to_csv(index=False, sep={".tsv": "\t"}.get(path.suffix, ",")).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def streamed(path, **options):
    return as_ratings(RatingsSource(path, **options).chunks())


WAYS = {
    "frame": lambda frame, folder: as_ratings(frame),
    "arrow": lambda frame, folder: as_ratings(pytest.importorskip("pyarrow").Table.from_pandas(frame)),
    "record batch": lambda frame, folder: as_ratings(pytest.importorskip("pyarrow").RecordBatch.from_pandas(frame)),
    "csv": lambda frame, folder: as_ratings(written(folder / "r.csv", frame)),
    "tsv": lambda frame, folder: as_ratings(str(written(folder / "r.tsv", frame))),
    "csv.gz": lambda frame, folder: as_ratings(written(folder / "r.csv.gz", frame)),
    "parquet": lambda frame, folder: as_ratings(written(folder / "r.parquet", frame)),
    "stream of csv": lambda frame, folder: streamed(written(folder / "r.csv", frame)),
    "stream of parquet": lambda frame, folder: streamed(written(folder / "r.parquet", frame)),
    "iterator": lambda frame, folder: as_ratings(iter([frame])),
}


def triples_of(ratings):
    ids = ratings.user_ids[ratings.users].tolist(), ratings.item_ids[ratings.items].tolist()
    return sorted(zip(*ids, ratings.values.tolist(), strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_the_same_columns_mean_the_same_everywhere(way, tmp_path):
    for header, order in KNOWN.items():
        assert triples_of(WAYS[way](frame_of(header, order), tmp_path)) == sorted(TRIPLES), header
    likes = WAYS[way](frame_of("film,viewer", "iu"), tmp_path)
    assert triples_of(likes) == sorted((who, what, 1.0) for who, what, _ in TRIPLES)


@pytest.mark.parametrize("way", WAYS)
def test_names_that_say_nothing_or_the_same_twice_are_asked_about(way, tmp_path):
    for header, roles in UNKNOWN.items():
        frame = frame_of(header, "-uiv"[: header.count(",") + 1] if header.startswith("date,w") else "ui-")
        with pytest.raises(
            ValueError, match=rf"cannot tell which column is the {roles} among .*user=…, item=…, value=…"
        ):
            WAYS[way](frame, tmp_path)
    for header, role in TWO.items():
        with pytest.raises(ValueError, match=rf"may both be the {role} among .* --user, --item and --value"):
            WAYS[way](frame_of(header, "u-iv"), tmp_path)


def test_the_caller_names_the_columns(tmp_path):
    frame = frame_of("when,what,who,points", "-iuv")
    named = {"user": "who", "item": "what", "value": "points"}
    for name in ("r.csv", "r.csv.gz", "r.parquet"):
        path = written(tmp_path / name, frame)
        assert triples_of(ng.data.read_ratings(path, **named)) == sorted(TRIPLES)
        assert triples_of(streamed(path, columns=("who", "what", "points"))) == sorted(TRIPLES)
        with pytest.raises(ValueError, match=r"user='whom' is not a column; there are 'when', 'what', 'who', 'points'"):
            ng.data.read_ratings(path, user="whom", item="what", value="points")
    assert triples_of(ng.Ratings.from_frame(frame, **named)) == sorted(TRIPLES)
    chosen = rating_columns(["user", "customer", "item", "rating"], user="customer")
    assert chosen == ("customer", "item", "rating")


def test_a_file_without_names_is_user_item_rating(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("ann,up,5,111\nann,jaws,3,222\nbob,up,1,333\n")
    assert triples_of(as_ratings(path)) == triples_of(streamed(path)) == sorted(TRIPLES)
    unnamed = frame_of("a,b,c,d", "uiv-").set_axis(range(4), axis=1)
    assert triples_of(as_ratings(unnamed)) == sorted(TRIPLES)


@pytest.mark.parametrize("read", [as_ratings, streamed])
def test_ids_of_a_text_are_text(read, tmp_path):
    path = tmp_path / "r.csv"
    ids = ["007", "1_0", "10", "+7", "7", "7.0", "07"]
    path.write_text("user,item,rating\n" + "".join(f"{who},{who},{n}\n" for n, who in enumerate(ids)))
    ratings = read(path)
    assert sorted(ratings.user_ids.tolist()) == sorted(ratings.item_ids.tolist()) == sorted(ids)
    assert triples_of(ratings) == sorted((who, who, float(n)) for n, who in enumerate(ids))
    with pytest.raises(ValueError, match=r"users\[0\] = 7 is not among .*; ids that come from text are text, '7'"):
        ratings.find_users([7])


@pytest.mark.parametrize("read", [as_ratings, streamed])
def test_a_name_that_comes_twice_is_refused(read, tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating,rating\nann,up,5,1\n")
    with pytest.raises(ValueError, match=r"line 1: the column 'rating' is there 2 times among"):
        read(path)


def test_no_name_means_two_things():
    meanings = [name for names in NAMES.values() for name in names]
    assert len(meanings) == len(set(meanings))


def test_three_columns_are_not_taken_for_three_users():
    with pytest.raises(TypeError, match=r"X is a tuple of 3: pass Ratings\(users, items, ratings\), or np.array\(X\)"):
        as_ratings(([0, 1, 1], [0, 0, 1], [3.0, 4.0, 5.0]))
