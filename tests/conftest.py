"""What every test can ask for: reproducible randomness and exact results."""

import os
from collections.abc import Callable
from importlib.metadata import version
from itertools import compress
from operator import not_
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from reference import exact

# Small fitted models and a folder of files, for the tests of pages, commands and papers.
pytest_plugins = ["promises.pages"]

ROOT = Path(__file__).resolve().parents[1]
SEED = int(os.environ.get("NATGRAD_TEST_SEED", "0"))

# JAX keeps what it compiled from run to run, a folder for each worker: its files do not appear as a whole.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(ROOT / ".pytest_cache" / "jax" / os.environ.get("PYTEST_XDIST_WORKER", "main")),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# The gate compiles hundreds of tiny programs and runs each a few times: two thirds of the time where XLA does not try hard.
# What is computed is the same to rounding; `make slow` runs what users run.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Version 1.6 of scikit-learn cannot import its estimator checks beside a newer SciPy without this.
if version("scikit-learn").startswith("1.6."):
    os.environ.setdefault("SCIPY_ARRAY_API", "1")

# The first example of a test pays for a compilation: neither a deadline nor "too slow" means anything.
# The gate tries the same examples every time, so that a change is never blamed for another draw; `make slow` explores
# (--hypothesis-profile=explore) and tries four times as many, and what it finds becomes an @example.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("gate", derandomize=True, database=None, max_examples=25, **_COMMON)
settings.register_profile("explore", print_blob=True, **_COMMON)
settings.load_profile("gate")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one part of the tests, chosen by their names: NATGRAD_TEST_PART=2/8 is the second of eight."""
    if not (part := os.environ.get("NATGRAD_TEST_PART")):
        return
    number, n_parts = (int(word) for word in part.split("/"))
    own = [crc32(item.nodeid.encode()) % n_parts == number - 1 for item in items]
    config.hook.pytest_deselected(items=list(compress(items, map(not_, own))))
    items[:] = compress(items, own)


def pytest_report_header() -> str:
    return f"natgrad: NATGRAD_TEST_SEED={SEED}"


@pytest.fixture
def seed() -> int:
    """The seed of this run, shown in the header; set NATGRAD_TEST_SEED to vary it."""
    return SEED


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def reference() -> Callable[[str], dict[str, Any]]:
    """A function that works out exact results by their name (`tests/reference/exact.py`)."""
    return exact.reference
