"""The name of a .npy file in; its array out: never by pickle, and what is wrong with it in words that name the file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from natgrad.data.io.file_errors import raises_file_error

__all__ = ["load_array"]


@raises_file_error
def load_array(path: str | Path, mmap_mode: Literal["r"] | None = None) -> npt.NDArray[Any]:
    """The array in a file, in memory or mapped from it."""
    with warnings.catch_warnings():
        # NumPy remarks that a header was written by Python 2, and reads it all the same.
        warnings.filterwarnings("ignore", "Reading `.npy`", UserWarning)
        found = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    if not isinstance(found, np.ndarray):
        found.close()
        raise ValueError(f"{path}: expected one array, got an archive of several")
    return found
