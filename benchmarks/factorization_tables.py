"""The results of `benchmarks/factorization.py` as tables."""

COMMAND = "python benchmarks/factorization.py"
PAIRS = {
    "Jester": "The jokes that users rated above zero.",
    "popularity alone": "The pairs of the generated million as likes alone: who rated what was drawn by popularity, whatever the "
    "taste of the user, so that popularity is the best order there is.",
    "films": "A million likes of 6,000 users and 3,500 items: popularity · exp(taste · trait + series).",
    "crowd": "A quarter of a million likes of 4,000 users and 1,500 items, drawn by popularity alone.",
    "half and half": "Two hundred thousand likes of 3,000 users and 2,000 items: a third of the users have a taste, weaker than "
    "above, the others take what is popular.",
    "taste": "Two hundred thousand likes of 2,000 users and 3,000 items, drawn in proportion to popularity · exp(taste · trait).",
}


def write(found, folder):
    for name, lines in (
        ("small", _small),
        ("quality", _quality),
        ("growth", _growth),
        ("ranking", _ranking),
        ("files", _files),
    ):
        text = lines(found)
        if text:
            (folder / f"factorization-{name}.md").write_text("\n".join(text) + "\n")


def _small(found):
    rows = found.get("small", {})
    if not rows:
        return []
    lines = [
        "| model | test RMSE | log likelihood | CPU seconds | sweeps | noise | version |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(rows.items(), key=lambda pair: pair[1]["rmse"]):
        density = f"{row['log_likelihood']:.4f}" if "log_likelihood" in row else "–"
        rest = f"{row.get('sweeps', 100)} | {row.get('noise') or '–'} | {row['version']}"
        lines.append(f"| {name} | {row['rmse']:.4f} | {density} | {row['cpu']:.1f} | {rest} |")
    return [
        *lines,
        "",
        f"The ratings of 1,380 users of Jester (100,000), rank 20 unless said, one thread. `{COMMAND} small`",
    ]


def _quality(found):
    rows = found.get("quality", {})
    if not rows:
        return []
    lines = [
        "| model | test RMSE | 95 % intervals cover | log likelihood | seconds | version |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in sorted(rows.items(), key=lambda pair: pair[1]["rmse"]):
        cover = f"{100 * row['coverage']:.1f} %" if "coverage" in row else "–"
        density = f"{row['log_likelihood']:.4f}" if "log_likelihood" in row else "–"
        lines.append(f"| {name} | {row['rmse']:.4f} | {cover} | {density} | {row['seconds']:.1f} | {row['version']} |")
    chunks = found.get("chunks")
    if chunks:
        lines += ["", f"`partial_fit` over ten chunks ends at {chunks['rmse']:.4f}, after {chunks['seconds']:.0f} s."]
    return [*lines, "", f"Jester, 90/10 split, rank 20, two cores. `{COMMAND} quality`"]


def _growth(found):
    rows = found.get("growth", {}).get("passes", [])
    if not rows:
        return []
    lines = ["| ratings | K | seconds for a pass, median of three |", "|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['ratings']} | {row['factors']} | {row['seconds']:.3f} |")
    peak = found.get("memory")
    if peak:
        lines += [
            "",
            f"Ten million ratings, K = 20, `Auto()`: {peak['peak_gb']:.2f} GB at most, data and imports included.",
        ]
    return [*lines, "", f"Generated ratings, two cores. `{COMMAND} growth`, `{COMMAND} memory`"]


def _ranking(found):
    lines = []
    for what, rows in found.get("likes", {}).items():
        lines += ["| model | NDCG@10 | recall@20 | CPU seconds, recommending to all included | chosen | version |"]
        lines += ["|---|---|---|---|---|---|"]
        for name, row in sorted(rows.items(), key=lambda pair: -pair[1]["ndcg@10"]):
            scores = " | ".join(f"{row[key]:.4f}" for key in ("ndcg@10", "recall@20"))
            lines.append(f"| {name} | {scores} | {row['cpu']:.1f} | {row['chosen']} | {row.get('version', '')} |")
        grids = "; ".join(f"{name}: {row['grid']}" for name, row in rows.items() if "grid" in row)
        lines += ["", f"{PAIRS[what]} A fifth of each user's likes held out. Grids of the peers, tuned on a fifth of the rest: "
                  f"{grids}. "
                  f"`{COMMAND} likes --peer \"{what}\"`", ""]  # fmt: skip
    speed = found.get("recommend")
    if speed:
        lines += [
            f"Ten items for each of 4,805 users out of 16,015, seen ones left out, equal factors: natgrad "
            f"{speed['natgrad']:.3f} s, {speed['version']} {speed['implicit']:.3f} s; "
            f"{100 * speed['same_scores']:.1f} % of the scores agree to 0.1 %. "
            f"`{COMMAND} recommend`",
        ]
    return lines


def _files(found):
    sets = found.get("files", {})
    if not sets:
        return []
    lines = [
        "| likes | users, items, likes | model | NDCG@10 | recall@20 | CPU seconds, recommending to all included |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in sets.items():
        size = ", ".join(f"{n:,}" for n in (*one["shape"], one["likes"]))
        for model, row in sorted(one["rows"].items(), key=lambda pair: -pair[1]["ndcg@10"]):
            scores = f"{row['ndcg@10']:.4f} | {row['recall@20']:.4f} | {row['cpu']:.1f}"
            lines.append(f"| {name} | {size} | {model} | {scores} |")
    return [
        *lines,
        "",
        "Likes of files that do not come with natgrad; a fifth of each user's likes held out, peers tuned as above, EASE up to "
        "6,000 items. "
        f"`{COMMAND} files --file likes.tsv`",
    ]
