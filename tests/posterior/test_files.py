"""Model files: what is written comes back, bit by bit; whatever else there is in a file is refused with one error."""

import json
import math
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from adversary.files import damaged, forged, signed
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import natgrad as ng
from natgrad.posterior.files.container import Decoder, Encoder, read_model, register, write_model

KEYS = st.one_of(st.text(max_size=5), st.integers(), st.tuples(st.integers(0, 9), st.text(max_size=3)))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(),
    st.text(),
    st.binary(max_size=8),
    arrays(st.sampled_from([np.float64, np.float32, np.int64, np.uint8, bool]), array_shapes(min_dims=0, min_side=0)),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple), st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)


def same(first, second) -> bool:
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()
    if type(first) is not type(second):
        return False
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    return first == second or (first != first and second != second)


def round_trip(value):
    encoder = Encoder()
    return Decoder(encoder.arrays).value(json.loads(json.dumps(encoder.tree(value, "value"), allow_nan=False)))


@pytest.fixture
def model_file(tmp_path) -> Path:
    counts = np.random.default_rng(0).poisson(0.5, size=(30, 12))
    path = tmp_path / "model"
    ng.LDA(2, inference="vb", max_passes=2, tol=0).fit(counts, vocabulary=[f"w{n}" for n in range(12)]).save(path)
    return path


@given(TREES)
def test_whatever_can_be_kept_comes_back(value) -> None:
    assert same(round_trip(value), value)


@given(
    arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))), st.permutations([0, 1, 2])
)
def test_the_order_in_memory_is_kept(array, axes) -> None:
    turned = array.transpose(axes)
    back = round_trip(turned)
    assert same(back, turned)
    # Axes of length one have no order.
    long = [axis for axis in range(3) if turned.shape[axis] > 1]
    assert [back.strides[axis] for axis in long] == [turned.strides[axis] for axis in long]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.uint8, bool])
@pytest.mark.parametrize("order", ["C", "F"])
def test_zeros_take_a_bit_each(dtype, order, rng) -> None:
    array = np.asarray(rng.poisson(0.2, (90, 70)), dtype=dtype, order=order)
    encoder = Encoder()
    tree = json.loads(json.dumps(encoder.tree(array, "value")))
    assert sum(kept.nbytes for kept in encoder.arrays.values()) < 0.5 * array.nbytes
    back = Decoder(encoder.arrays).value(tree)
    assert same(back, array)
    assert back.strides == array.strides
    assert back.flags.writeable  # a sampler that goes on counts in it


def test_a_negative_zero_and_what_is_not_a_number_stay() -> None:
    array = np.zeros(5000)
    array[[3, 4, 4999]] = [-0.0, np.nan, -np.inf]
    assert round_trip(array).tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "forgery",
    [{"shape": [2**40]}, {"shape": [-5000]}, {"shape": [70, 71]}, {"mask": "a0"}, {"shape": []}],
    ids=str,
)
def test_a_forged_sparse_array_is_refused_before_it_is_made(forgery) -> None:
    encoder = Encoder()
    tree = {**encoder.tree(np.eye(72), "value"), **forgery}
    with pytest.raises((ValueError, LookupError, TypeError)):
        Decoder(encoder.arrays).value(tree)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["plum", "", "Ω\ud800", "plum"], dtype=object),
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        np.array([1, "one", (1, "one"), 2.5, None, 2**70], dtype=object),
        np.array([[3, 4], [5, 6]], dtype=object),
        np.array([], dtype=object),
        np.array([], dtype=str),
    ],
    ids=str,
)
def test_vocabularies_and_ids_come_back(array) -> None:
    back = round_trip({"words": array})["words"]
    assert back.dtype.kind == array.dtype.kind
    assert back.shape == array.shape
    assert same(back.tolist(), array.tolist())


def test_one_array_in_two_places_is_kept_once_and_stays_one() -> None:
    array = np.arange(4.0)
    encoder = Encoder()
    tree = encoder.tree({"first": array, "second": [array], "other": array.copy()}, "value")
    assert len(encoder.arrays) == 2
    back = Decoder(encoder.arrays).value(tree)
    assert back["first"] is back["second"][0]
    assert back["first"] is not back["other"]
    assert round_trip(np.float32(1.5)) == 1.5
    assert type(round_trip(np.float32(1.5))) is np.float32


@pytest.mark.parametrize("value", [lambda n: n, object(), np.array([1j]), np.array(["2020"], dtype="M8[Y]"), {1, 2}])
def test_what_cannot_be_kept_is_named(value, tmp_path) -> None:
    with pytest.raises(TypeError, match=r"LDA\['method'\]"):
        write_model(tmp_path / "model", "LDA", {"method": value})
    assert list(tmp_path.iterdir()) == []


def test_methods_and_steps_come_back() -> None:
    for value in (ng.VB("b"), ng.Children(0.5, "b"), ng.GlobalBatch(7), ng.RobbinsMonro(first=0.1), ng.Constant(0.5),
                  ng.HoldThenDecay(3), ng.PerNode(0.7), ng.Auto(memory=1e6), ng.families.Dirichlet()):  # fmt: skip
        assert round_trip(value) == value
    svi = round_trip(ng.SVI({ng.Plate("doc", 100): 5}, local_steps=3))
    assert (svi.plate, svi.size, svi.local_steps) == ("doc", 5, 3)


def test_a_class_joins_by_its_name_and_no_other_takes_it() -> None:
    from typing import NamedTuple

    class Kernel(NamedTuple):
        scale: float
        power: int = 2

    register(Kernel, "test.Kernel")
    assert round_trip(Kernel(1.5, 3)) == Kernel(1.5, 3)
    assert Decoder({}).value({"$record": "test.Kernel", "fields": {"scale": 2.0}}) == Kernel(2.0)
    with pytest.raises(ValueError, match=r"test\.Kernel"):
        register(type("Other", (), {}), "test.Kernel")


# -- writing --


def test_the_file_is_a_safetensors_file(tmp_path) -> None:
    write_model(tmp_path / "f", "thing", {"x": np.arange(3.0), "n": 4})
    assert safetensors.numpy.load_file(tmp_path / "f")["a0"].tolist() == [0.0, 1.0, 2.0]
    again = tmp_path / "again"
    write_model(again, "thing", {"x": np.arange(3.0), "n": 4})
    assert again.read_bytes() == (tmp_path / "f").read_bytes()


def test_a_file_is_replaced_only_if_asked(tmp_path) -> None:
    path = tmp_path / "f"
    write_model(path, "thing", 1)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_model(path, "thing", 2)
    assert read_model(path).value == 1
    write_model(path, "thing", 2, overwrite=True)
    assert read_model(path).value == 2
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch) -> None:
    path = tmp_path / "f"
    write_model(path, "thing", 1)

    def full(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_model(path, "thing", np.arange(9), overwrite=True)
    monkeypatch.undo()
    assert read_model(path).value == 1
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


# -- refusing --


def test_every_damaged_file_is_refused(model_file, rng) -> None:
    data = model_file.read_bytes()
    target = model_file.with_name("damaged")
    for _ in range(1500):
        target.write_bytes(damaged(data, rng))
        with pytest.raises(ng.ModelFileError):
            ng.load(target)


def test_every_single_bit_counts(model_file) -> None:
    data = model_file.read_bytes()
    target = model_file.with_name("damaged")
    for place in range(0, len(data), 13):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        target.write_bytes(flipped)
        with pytest.raises(ng.ModelFileError):
            ng.load(target)


def test_a_forged_file_loads_or_is_refused(model_file, rng) -> None:
    data = model_file.read_bytes()
    target = model_file.with_name("forged")
    loaded = 0
    for _ in range(500):
        target.write_bytes(forged(data, rng))
        try:
            ng.load(target)
            loaded += 1
        except ng.ModelFileError:
            pass
    assert 0 < loaded < 500


def test_refusals_say_what_is_wrong(model_file, tmp_path) -> None:
    data = model_file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, payload = json.loads(data[8 : 8 + length]), data[8 + length :]

    def refused(content: bytes) -> str:
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ng.ModelFileError, match="cannot load") as error:
            ng.load(tmp_path / "bad")
        return str(error.value)

    def changed(**metadata: str) -> bytes:
        return signed({**header, "__metadata__": {**header["__metadata__"], **metadata}}, payload)

    ng.load(model_file)
    assert "not a model file" in refused(b"")
    assert "not a model file" in refused(b"PK\x03\x04" + bytes(1000))
    assert "checksum" in refused(data[:-1] + bytes([data[-1] ^ 1]))
    assert "cut" in refused(data[:-5])
    assert "newer natgrad" in refused(changed(schema="7", version="9.9"))
    assert "'Pickle'" in refused(changed(kind="Pickle"))
    assert "nested" in refused(changed(content="[" * 100_000))
    assert "header" in refused((2**62).to_bytes(8, "little") + data[8:])
    with pytest.raises(ng.ModelFileError, match="regular"):
        ng.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        ng.load(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ng.ModelFileError, match="regular"):
        ng.load(tmp_path / "pipe")


def test_a_huge_foreign_file_is_refused_at_once_without_reading_it(tmp_path, model_file) -> None:
    for number, start in enumerate((b"", model_file.read_bytes())):
        path = tmp_path / f"huge{number}"
        with open(path, "wb") as file:
            file.write(start)
            file.truncate(50 * 2**30)
        tracemalloc.start()
        try:
            with pytest.raises(ng.ModelFileError):
                ng.load(path)
            assert tracemalloc.get_traced_memory()[1] < 5e7
        finally:
            tracemalloc.stop()


def test_floats_survive_as_they_are() -> None:
    values = [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf]
    back = round_trip(values)
    assert [v.hex() for v in back] == [v.hex() for v in values]
