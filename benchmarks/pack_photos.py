"""Pack photos for the training of the deep denoisers into one file of at most a given size.

    python benchmarks/pack_photos.py PHOTOS OUT.npz --mebibytes 41 [--rest REST.npz]

PHOTOS contains the folders BSDS500/train, BSDS500/test, imagenet1000_256 and extra. The JPEG files are stored unchanged, or
recompressed without loss if `mozjpeg_lossless_optimization` is installed. All of BSDS500 train and test is included. The
other two folders share the remaining space, with photos drawn at random. BSDS500 val is never read, because it contains BSD68.
Some photos of each source are held out for validation. `--rest` packs the photos that found no space into a second file of
at most the same size, all of them for training.

The file has `data` (bytes of all files, one after the other), `ends` (where each one ends), `names`, `sources`, `parts`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

SOURCES = {"bsds": ("BSDS500/train", "BSDS500/test"), "imagenet": ("imagenet1000_256",), "extra": ("extra",)}
HELD_OUT = {"bsds": 24, "imagenet": 12, "extra": 12}
SHARE = {"imagenet": 0.4, "extra": 0.6}  # share of the bytes that remain after BSDS500
SMALLEST = 144  # shorter side


def main() -> None:
    """Read, choose and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mebibytes", type=float, default=41)
    parser.add_argument("--rest", type=Path, help="a second file, with photos that did not fit into the first")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    left = options.mebibytes * 2**20
    packed: list[tuple[str, str, bytes]] = []
    rest: list[tuple[str, str, bytes]] = []
    for source, folders in SOURCES.items():
        files = sorted(path for folder in folders for path in (options.photos / folder).glob("*.[jJ]*"))
        budget = left * SHARE.get(source, 1) if source == "imagenet" else left
        for number in rng.permutation(len(files)):
            data = _coded(files[number])
            if data is None:
                continue
            if len(data) > budget or budget < 4096:
                rest.append((source, files[number].name, data))
                budget = min(budget, 4095)  # the rest begins here
                continue
            packed.append((source, files[number].name, data))
            budget -= len(data)
            left -= len(data)
    parts, seen = [], dict.fromkeys(SOURCES, 0)
    for source, _, _ in packed:
        parts.append("validation" if seen[source] < HELD_OUT[source] else "train")
        seen[source] += 1
    _write(options.out, packed, parts)
    if options.rest is not None:
        order = rng.permutation(len(rest))
        ends = np.cumsum([len(rest[i][2]) for i in order])
        chosen = [rest[i] for i in order[ends <= options.mebibytes * 2**20]]
        _write(options.rest, chosen, ["train"] * len(chosen))


def _write(path: Path, packed: list[tuple[str, str, bytes]], parts: list[str]) -> None:
    np.savez(
        path,
        data=np.frombuffer(b"".join(data for _, _, data in packed), np.uint8),
        ends=np.cumsum([len(data) for _, _, data in packed]),
        names=np.array([name for _, name, _ in packed]),
        sources=np.array([source for source, _, _ in packed]),
        parts=np.array(parts),
    )
    print(f"{path}: {len(packed)} photos, {path.stat().st_size / 2**20:.1f} MiB")


def _coded(path: Path) -> bytes | None:
    from PIL import Image

    with Image.open(path) as image:
        if min(image.size) < SMALLEST or image.mode not in ("RGB", "L"):
            return None
    data = path.read_bytes()
    try:
        from mozjpeg_lossless_optimization import optimize
    except ImportError:
        return data
    return min(data, optimize(data), key=len)


if __name__ == "__main__":
    main()
