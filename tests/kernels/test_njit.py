"""What is compiled and kept belongs to the sources as they are, whichever file changed."""

import shutil
from pathlib import Path

import natgrad.kernels
from natgrad.kernels._njit import stamp, stamp_of


def test_any_changed_kernel_makes_all_of_them_stale(tmp_path):
    folder = tmp_path / "kernels"
    shutil.copytree(Path(natgrad.kernels.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    assert stamp_of(folder) == stamp()
    for file in sorted(folder.rglob("*.py")):
        before = file.read_bytes()
        file.write_bytes(before + b"#")
        assert stamp_of(folder) != stamp()
        file.write_bytes(before)
