"""Write the tables of benchmarks into Markdown files, between `<!-- bench:NAME -->` and `<!-- /bench -->`.

python benchmarks/table.py README.md docs/*.md           rewrite them from benchmarks/results/NAME.json
python benchmarks/table.py --check README.md docs/*.md   list those that differ; exit code 1 if any does
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

RESULTS = Path(__file__).parent / "results"
_UNMEASURED = "Not measured yet: `make bench`."
BLOCK = re.compile(r"<!-- bench:(\w+) -->\n.*?<!-- /bench -->", re.DOTALL)


def denoising(rows: list[dict[str, Any]]) -> list[str]:
    """One row per method, one column per set with its levels, and the time."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    levels = sorted({row["level"] for row in rows})
    heads = [f"{name} {' / '.join(map(str, levels))}" for name in sets]
    lines = [f"| method | {' | '.join(heads)} | s per megapixel |", "|---" * (len(sets) + 2) + "|"]
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = {(row["set"], row["level"]): row for row in rows if row["method"] == method}
        cells = [
            " / ".join(f"{mine[name, level]['psnr']:.2f}" if (name, level) in mine else "-" for level in levels)
            for name in sets
        ]
        seconds = sorted(row["seconds_per_megapixel"] for row in mine.values())[len(mine) // 2]
        lines.append(f"| {method} | {' | '.join(cells)} | {seconds:.2g} |")
    return lines


def speech(rows: list[dict[str, Any]]) -> list[str]:
    """One row per method, one column per set with SI-SDR, PESQ and STOI, and the real-time factor."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    lines = [f"| method | {' | '.join(sets)} | real-time factor |", "|---" * (len(sets) + 2) + "|"]
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = {row["set"]: row for row in rows if row["method"] == method}
        cells = []
        for name in sets:
            if name not in mine:
                cells.append("-")
                continue
            found = ((mine[name][measure], digits) for measure, digits in (("si_sdr", 1), ("pesq", 2), ("stoi", 3)))
            cells.append(" / ".join("-" if value is None else f"{value:.{digits}f}" for value, digits in found))
        factor = sum(row["real_time"] for row in mine.values()) / len(mine)
        lines.append(f"| {method} | {' | '.join(cells)} | {f'{factor:.2g}' if factor >= 1e-3 else ''} |")
    return lines


def speech_leads(elsewhere: list[dict[str, Any]]) -> list[str]:
    """One row per method: what it gains over RNNoise, for `voice` in our run, for the others where RNNoise was measured with them."""
    here = json.loads((RESULTS / "speech_noise.json").read_text(encoding="utf-8"))["rows"]
    runs = [[row for row in here if row["method"] in ("voice", "RNNoise")], elsewhere]
    sets = list(dict.fromkeys(row["set"] for row in elsewhere))
    lines = [f"| method | {' | '.join(sets)} |", "|---" * (len(sets) + 1) + "|"]
    for rows in runs:
        found = {(row["method"], row["set"]): row for row in rows}
        for method in (name for name in dict.fromkeys(row["method"] for row in rows) if name != "RNNoise"):
            pairs = [(found[method, name], found["RNNoise", name]) for name in sets]
            cells = (
                " / ".join(f"{a[key] - b[key]:+.{n}f}" for key, n in (("si_sdr", 1), ("pesq", 2), ("stoi", 3)))
                for a, b in pairs
            )
            lines.append(f"| {f'`{method}`' if rows is runs[0] else method} | {' | '.join(cells)} |")
    return lines


def speech_length(rows: list[dict[str, Any]]) -> list[str]:
    """One row per file and model: time, processor time, speed and memory of the whole command."""
    lines = ["| file | model | seconds | processor seconds | faster than real time | peak memory |", "|---" * 6 + "|"]
    for row in rows:
        file = f"{row['minutes']:g} min, {row['rate'] / 1000:g} kHz, {'mono' if row['channels'] == 1 else 'stereo'}"
        speed = 60 * row["minutes"] / row["seconds"]
        times = f"{row['seconds']:.1f} | {row['cpu_seconds']:.1f} | {speed:.0f}x"
        lines.append(f"| {file} | `{row['model']}` | {times} | {row['peak_mib']:.0f} MiB |")
    return lines


def voice_graph(rows: list[dict[str, Any]]) -> list[str]:
    """One row per kind of graph and length of the excerpts: the gain in SI-SDR of each seed."""
    lines = ["| graph | excerpts | parameters added | real noise | white noise |", "|---|---|---|---|---|"]
    for row in rows:
        cells = [" / ".join(f"{gain:+.3f}" for gain in row[name]) for name in ("real", "white")]
        lines.append(f"| {row['kind']} | {row['seconds']} s | {row['parameters']:,} | {' | '.join(cells)} |")
    return lines


def graph_controls(rows: list[dict[str, Any]]) -> list[str]:
    """One row per set, one column per graph: PSNR in dB."""
    arms = ["noisy", "learned", "clean", "fixed", "random 0", "random 1", "none"]
    lines = [f"| set | noise | pictures | {' | '.join(arms)} |", "|---" * (len(arms) + 3) + "|"]
    for row in rows:
        cells = [f"{row[arm]:.2f}" for arm in arms]
        about = f"{row['pictures']} of {row['crop']} x {row['crop']}"
        lines.append(f"| {row['set']} | {row['level']} | {about} | {' | '.join(cells)} |")
    return lines


def deep_scores(kept: dict[str, Any]) -> list[str]:
    """One row per model: PSNR at each level on each set, and below them published figures of others."""
    sets = list(dict.fromkeys(row["set"] for row in kept["rows"]))
    lines = [f"| PSNR at 15 / 25 / 50 | {' | '.join(sets)} |", "|---" * (len(sets) + 1) + "|"]
    found: dict[str, dict[str, list[float]]] = {}
    for row in kept["rows"]:
        found.setdefault(f"`{row['model']}`", {})[row["set"]] = row["psnr"]
    for other in kept["published"]:
        found[f"{other['model']} ({other['source']})"] = {name: other[name] for name in sets if name in other}
    for model, scores in found.items():
        cells = (" / ".join(f"{value:.2f}" for value in scores[name]) if name in scores else "" for name in sets)
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return lines


def train_controls(rows: list[dict[str, Any]]) -> list[str]:
    """One row per graph: the mean PSNR of each seed on each set, and on how many pictures it exceeds fixed neighbours."""
    sets = list(rows[0]["psnr"])
    found = {(row["arm"], row["seed"]): row["psnr"] for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    lines = [f"| graph | {' | '.join(sets)} | better than fixed |", "|---" * (len(sets) + 2) + "|"]
    for arm in dict.fromkeys(row["arm"] for row in rows):
        cells = [" / ".join(f"{fmean(found[arm, seed][name]):.3f}" for seed in seeds) for name in sets]
        pairs = [
            (mine, fixed)
            for seed in seeds
            for name in sets
            for mine, fixed in zip(found[arm, seed][name], found["fixed", seed][name], strict=True)
        ]
        wins = "" if arm == "fixed" else f"{sum(mine > fixed for mine, fixed in pairs)} of {len(pairs)} pictures"
        lines.append(f"| {arm} | {' | '.join(cells)} | {wins} |")
    return lines


def style_quality(lines: list[dict[str, Any]]) -> list[str]:
    """One row per variant, one column per measure; rows in the order of `style_variants.py`.

    Where several seeds ran, the number in brackets says how far their means lie apart.
    """
    names = {
        "alex_style": "style", "alex_content": "content", "gradients": "gradients", "coarse": "coarse", "ssim": "SSIM",
        "wide": "wide", "deep": "deep", "vgg_style": "VGG style", "vgg_content": "VGG content",
    }  # fmt: skip
    names = {key: name for key, name in names.items() if any(key in line for line in lines)}
    table = [f"| variant | {' | '.join(names.values())} |", "|---" * (len(names) + 1) + "|"]
    for line in lines:
        apart = {key: f" ({line[f'{key} spread']:.2f})" for key in names if f"{key} spread" in line}
        cells = [f"{line[key]:.2f}{apart.get(key, '')}" if key in line else "-" for key in names]
        table.append(f"| {line['about']} | {' | '.join(cells)} |")
    return table


def style_agreement(rows: list[dict[str, Any]]) -> list[str]:
    """One row per level: the number of runs below 1e-3, the median and the largest difference, for ours and plain float32."""
    heads = ["below 1e-3", "median", "largest"]
    lines = [f"| level | runs | ours: {' | '.join(heads)} | plain float32: {' | '.join(heads)} |", "|---" * 8 + "|"]
    for side in dict.fromkeys(row["side"] for row in rows):
        cells = []
        for kind in ("ours", "plain"):
            values = sorted(row[kind] for row in rows if row["side"] == side)
            cells += [str(sum(v < 1e-3 for v in values)), f"{values[len(values) // 2]:.0e}", f"{values[-1]:.0e}"]
        lines.append(f"| {side} x {side} | {len(values)} | {' | '.join(cells)} |")
    return lines


def cluster(rows: list[dict[str, Any]]) -> list[str]:
    """One row per work: two processes of a local cluster, what they are compared with, the ratio and the memory."""
    lines = ["| work | local:2 | compared with | efficiency | memory, all processes | load |", "|---" * 6 + "|"]
    for row in rows:
        other, ratio, memory = "", "", ""
        if "jobs_seconds" in row:
            other, ratio = f"`--jobs 2`: {row['jobs_seconds']:.0f} s", f"{row['efficiency']:.2f}"
            ratio += f" ({row['running_efficiency']:.2f} without the start)"
        if "one_seconds" in row:
            other, ratio = f"one process, one thread: {row['one_seconds']:.0f} s", f"{row['efficiency']:.2f}"
            memory = f"{row['peak_mib']:.0f} MiB (one process: {row['one_peak_mib']:.0f})"
            if "cpu_efficiency" in row:
                ratio += f" ({row['cpu_efficiency']:.2f} of processor time)"
        rate = f", {row['megapixels'] / row['seconds']:.2f} Mpixel/s" if "megapixels" in row else ""
        if "worker_cpu_seconds" in row:
            other = f"processor time {row['client_cpu_seconds']:.0f} s (command), {row['worker_cpu_seconds']:.0f} s (workers)"
            memory = f"{row['peak_mib']:.0f} MiB"
        lines.append(f"| {row['work']} | {row['seconds']:.0f} s{rate} | {other} | {ratio} | {memory} | {row['load']} |")
    return lines


def studio(rows: list[dict[str, Any]]) -> list[str]:
    """One row for each measure: seconds, processor seconds, and for many jobs the memory before and after."""
    lines = [f"| {row['work']} | {row['seconds']:.2f} | {row['cpu']:.2f} |" for row in rows if "cpu" in row]
    if lines:
        lines = ["| work | seconds | processor seconds |", "|---|---|---|", *lines, ""]
    for row in rows:
        if row["kind"] == "jobs":
            before, after = (f"{row[when] / 2**20:.0f} MiB" for when in ("before", "after"))
            lines += [
                f"{row['work']}: {before} before, {after} after, the processes of the studio and of the test together."
            ]
    return lines


def presets(rows: list[dict[str, Any]]) -> list[str]:
    """One row per preset, one column per size: the time and, on a GPU, the memory that it takes there."""
    sizes = sorted({row["size"] for row in rows})
    heads = [f"{size} pixels" for size in sizes]
    lines = [f"| preset | {' | '.join(heads)} |", "|---" * (len(sizes) + 1) + "|"]
    for preset in dict.fromkeys(row["preset"] for row in rows):
        mine = {row["size"]: row for row in rows if row["preset"] == preset}
        cells = []
        for row in (mine[size] for size in sizes):
            memory = "" if row["gpu_mib"] is None else f", {row['gpu_mib']:.0f} MiB"
            cells.append(amount(row["seconds"], "s") + memory)
        lines.append(f"| `{preset}` | {' | '.join(cells)} |")
    return lines


def deep_throughput(rows: list[dict[str, Any]]) -> list[str]:
    """One row per network: megapixels a second, the memory, and what bfloat16 costs."""
    lines = [
        "| network | in the GPU's memory | from array to array | GPU memory | PSNR in bfloat16 / float32 |",
        "|---" * 5 + "|",
    ]
    for row in rows:
        speeds = " | ".join(f"{row[key]:.0f} Mpixel/s" for key in ("network", "array"))
        quality = f"{row['psnr']:.3f} / {row['psnr_float32']:.3f} dB"
        lines.append(f"| `{row['model']}` | {speeds} | {row['memory'] / 2**30:.1f} GiB | {quality} |")
    return lines


def commands(rows: list[dict[str, Any]]) -> list[str]:
    """One row per command: its time, processor time and memory, and what the first run spends on compiling kernels."""
    lines = ["| command | seconds | processor seconds | peak memory | first run, seconds more |", "|---" * 5 + "|"]
    for row in rows:
        compiling = max(0.0, row["first_seconds"] - row["seconds"])
        times = f"{row['seconds']:.1f} | {row['cpu_seconds']:.1f}"
        lines.append(f"| {row['work']} | {times} | {row['peak_mib']:.0f} MiB | {compiling:.1f} |")
    return lines


def compared(rows: list[dict[str, Any]]) -> list[str]:
    """One row per work and peer: both times or sizes, their ratio and the target."""
    lines = ["| work | peer | ours | peer's | ratio | at least |", "|---|---|---|---|---|---|"]
    for row in rows:
        theirs = "missing" if row["theirs"] is None else amount(row["theirs"], row["unit"])
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.1f}x"
        target = "" if row["target"] is None else f"{row['target']:g}x"
        lines.append(
            f"| {row['work']} | {row['peer']} | {amount(row['ours'], row['unit'])} | {theirs} | {ratio} | {target} |"
        )
    return lines


TIMED = {  # these state the machine below the table
    "cluster": cluster,
    "commands": commands,
    "deep_throughput": deep_throughput,
    "denoise": denoising,
    "presets": presets,
    "speech": speech,
    "speech_length": speech_length,
    "studio": studio,
    "style_agreement": style_agreement,
}
SCORED = {
    "graph_controls": graph_controls,
    "speech_leads": speech_leads,
    "train_controls": train_controls,
    "voice_graph": voice_graph,
}


def table(kept: dict[str, Any]) -> str:
    """Format the results of one benchmark as Markdown, wins and losses alike."""
    name = kept["benchmark"]
    if name == "style_quality":
        return "\n".join(style_quality(kept["summary"]))
    if name == "deep_scores":
        return "\n".join(deep_scores(kept))
    if name in SCORED:
        return "\n".join(SCORED[name](kept["rows"]))
    return "\n".join(TIMED.get(name, compared)(kept["rows"]) + _machine(kept["machine"]))


def _machine(machine: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version != "missing")
    where = machine.get("gpu") or f"{machine['processor']}, {machine['threads']} threads"
    return ["", f"{where}, {machine['date']}; {versions}."]


def amount(value: float, unit: str) -> str:
    """Format a measured value with three digits, seconds below one as milliseconds."""
    if unit == "s" and value < 1:
        value, unit = value * 1000, "ms"
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def headlines(results: Path) -> str:
    """Three lines for the README: search, layer and whole style transfer, from the stored runs."""
    kept = {
        name: json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("graph", "conv", "style", "presets")
    }
    rows = {name: document["rows"] for name, document in kept.items()}

    def ratios(name: str, work: str, peer: str) -> list[float]:
        return [
            row["ratio"] for row in rows[name] if work in row["work"] and row["peer"] == peer and row["unit"] == "s"
        ]

    tree, flat = ratios("graph", "style graph", "scipy cKDTree"), ratios("graph", "", "FAISS IndexFlatL2")
    grid, index = (
        ratios("conv", "256x256 grid", "torch conv2d"),
        ratios("conv", "GraphConv 3->50, n=65536", "torch indexing"),
    )
    if not (tree and flat and grid and index):
        return _UNMEASURED
    whole = next(row for row in rows["style"] if row["work"].startswith("style transfer"))
    gpu = next(row for row in rows["presets"] if (row["preset"], row["size"]) == ("paper", 256))
    lines = [
        f"**Exact neighbours**: {tree[0]:.0f} times as fast as SciPy's cKDTree, "
        f"{min(flat):.0f} to {max(flat):.0f} times as fast as FAISS flat.",
        f"**The layer**, forward and backward on two cores: on a grid {min(grid):.1f} to {max(grid):.1f} times as fast as `conv2d`; "
        f"on graphs of similar patches {min(index):.1f} to {max(index):.1f} times as fast as torch indexing (3 to 50 channels).",
        f"**Style transfer** at 256 x 256, 300 iterations a level: {amount(whole['ours'], 's')} on two cores, "
        f"{whole['ratio']:.1f} times as fast as plain PyTorch; {amount(gpu['seconds'], 's')} on an H200 "
        f"({' and '.join(sorted({kept[name]['machine']['date'] for name in ('style', 'presets')}))}).",
    ]
    return "\n".join(f"- {line}" for line in lines)


def filled(text: str, results: Path = RESULTS) -> str:
    """Return the text with every block rewritten; a block without a result says so."""

    def block(match: re.Match[str]) -> str:
        if match[1] == "headlines":
            return f"<!-- bench:headlines -->\n{headlines(results)}\n<!-- /bench -->"
        path = results / f"{match[1]}.json"
        known = path.is_file()
        content = table(json.loads(path.read_text(encoding="utf-8"))) if known else _UNMEASURED
        return f"<!-- bench:{match[1]} -->\n{content}\n<!-- /bench -->"

    return BLOCK.sub(block, text)


def main(arguments: list[str]) -> int:
    """Rewrite the named files, or with --check compare them."""
    check = "--check" in arguments
    stale = []
    for path in (Path(argument) for argument in arguments if argument != "--check"):
        text = path.read_text(encoding="utf-8")
        new = filled(text)
        if new != text:
            stale.append(path)
            if not check:
                path.write_text(new, encoding="utf-8")
    for path in stale:
        print(f"{path}: {'differs from benchmarks/results' if check else 'written'}", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
