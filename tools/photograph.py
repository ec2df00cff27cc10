"""A photograph of every fit: trace and saved arrays of each model, method and step rule on small data, bit by bit.

    PYTHONPATH=tests python tools/photograph.py take before.json        write it down
    PYTHONPATH=tests python tools/photograph.py compare before.json     say which fits have changed since, and where first

For those who move code without changing a number. Bits depend on the machine and on the versions of the libraries, so a
photograph is compared on the machine that took it and is not kept in the repository.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from promises.runs import RUNS
from safetensors.numpy import load_file


def photographed(result: Any) -> dict[str, Any]:
    """Digests of the trace, column by column, and of every array that a model file has; the last bound to be read by people."""
    trace = getattr(result, "trace_", None) or result.trace
    columns = {name: trace[name] for name in trace.columns if name != "seconds"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.natgrad"
        result.save(path)
        arrays = load_file(path)
    bounds = columns["elbo"][~np.isnan(columns["elbo"])]
    return {
        "steps": len(trace),
        "elbo": float(bounds[-1]) if len(bounds) else None,
        "trace": {name: digest(values) for name, values in columns.items()},
        "arrays": {name: digest(values) for name, values in arrays.items() if not name.startswith("trace")},
    }


def digest(values: Any) -> str:
    """Hash an array, its type and its shape."""
    array = np.ascontiguousarray(values)
    return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()[:16]


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs between two photographs of one fit."""
    found = [f"{key}: {before[key]} → {now[key]}" for key in ("steps", "elbo") if before[key] != now[key]]
    for part in ("trace", "arrays"):
        names = sorted(set(before[part]) | set(now[part]))
        changed = [name for name in names if before[part].get(name) != now[part].get(name)]
        found += [f"{part}: {', '.join(changed)}"] if changed else []
    return found


def main() -> int:
    """Take a photograph, or compare with one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["take", "compare"])
    parser.add_argument("path", type=Path)
    options = parser.parse_args()
    now = {}
    for name, fit in RUNS.items():
        now[name] = photographed(fit())
        print(f"{name}: {now[name]['steps']} steps, {now[name]['elbo']}", file=sys.stderr)
    if options.action == "take":
        options.path.write_text(json.dumps(now, indent=1, ensure_ascii=False))
        return 0
    before = json.loads(options.path.read_text())
    changed = {
        name: differences(before[name], now[name])
        for name in now
        if name in before and differences(before[name], now[name])
    }
    for name, lines in changed.items():
        print(name, *lines, sep="\n  ")
    print(f"{len(changed)} of {len(now)} fits changed; {len(set(now) - set(before))} are new")
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
