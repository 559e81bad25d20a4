"""Mutated files for every reader, tried in a process of its own so that even a crash of a decoder is only a finding.

Run as `python fuzzing.py FIRST COUNT FOLDER [even]`: tries the cases FIRST to FIRST + COUNT - 1, writing the number of each
to FOLDER/case before it starts. The kinds of files take turns; with `even` the readers do, so that each gets as many as
the reader of pictures, which has half of the kinds. Leaves with 0 if only `GlocalError`s came out, and prints what else did, and at its end how
many files each reader was given.
"""

import contextlib
import faulthandler
import io
import json
import os
import resource
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import imagecodecs
import numpy as np
import soundfile
import tifffile
import torch
from PIL import Image

from glocal.apps.color.look import ColorMap
from glocal.apps.color.lut import read_lut, write_lut
from glocal.apps.color.options import ColorOptions
from glocal.apps.denoise.data import load_photos
from glocal.apps.denoise.deep import DeepDenoiser, DeepShape
from glocal.apps.denoise.models import load_deep, load_model, save_deep, save_model
from glocal.apps.denoise.networks import ImageDenoiser
from glocal.apps.denoise.options import Architecture
from glocal.apps.speech.frames import FrameNet, FrameShape
from glocal.apps.speech.models import load_frames, save_trained
from glocal.apps.style.checkpoint import load_checkpoint, save_checkpoint
from glocal.apps.style.solve import Checkpoint
from glocal.errors import GlocalError
from glocal.files.audio.audio_file import open_audio, read_audio_recipe
from glocal.files.images.colors import to_srgb
from glocal.files.images.picture import Picture
from glocal.files.images.read import image_size, read_image, read_recipe
from glocal.files.images.write import write_image
from glocal.files.metadata import exif
from glocal.files.model_files import read_model, write_model
from glocal.files.provenance import build_recipe, from_json, to_json
from glocal.graph import Graph
from glocal.training.loop import Record, Stage, fit, read_log

SECONDS = 5.0  # of the processor, for a file of some kilobytes on a busy machine; an honest one takes milliseconds
MEMORY = 3 << 30
NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x10000, 1000)


def pillow_bytes(image: Image.Image, name: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format=name, **options)
    return stream.getvalue()


def tiff_bytes(array: np.ndarray, **options: object) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, array, **options)
    return stream.getvalue()


def sound_bytes(name: str, subtype: str | None = None, channels: int = 2) -> bytes:
    stream = io.BytesIO()
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, (3000, channels))
    soundfile.write(stream, samples, 16000, format=name, subtype=subtype)
    return stream.getvalue()


def image_seeds(folder: Path) -> dict[str, bytes]:
    """One small file for each format, coding and depth that is read."""
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 255, (19, 23, 3), np.uint8)
    deep = rng.integers(0, 65535, (19, 23, 3), np.uint16)
    image = Image.fromarray(rgb)
    block = exif.pack(
        {
            274: exif.Tag(3, b"\x06\0"),
            271: exif.Tag(2, b"Maker\0"),
            exif.EXIF_DIRECTORY: {37500: exif.Tag(7, b"x" * 20)},
        }
    )
    whole = Picture(rgb, alpha=rgb[:, :, 0], icc=bytes(imagecodecs.cms_profile("adobergb")), exif=block, xmp=b"<x/>")
    seeds = {}
    for name in ("png", "tif", "jpg", "webp", "bmp", "avif", "heic"):
        write_image(folder / f"seed.{name}", whole, recipe=build_recipe("style", {}), overwrite=True)
        seeds[name] = (folder / f"seed.{name}").read_bytes()
    for suffix, bits in (("avif", 10), ("avif", 12), ("heic", 10)):
        write_image(folder / f"deep.{suffix}", Picture(deep, icc=whole.icc, bits=bits), overwrite=True)
        seeds[f"{suffix}-{bits}"] = (folder / f"deep.{suffix}").read_bytes()
    seeds["avif-frames"] = pillow_bytes(image, "AVIF", save_all=True, append_images=[image.rotate(180)])
    seeds["png16"] = bytes(imagecodecs.png_encode(deep))
    seeds["png-palette"] = pillow_bytes(image.quantize(8), "PNG", transparency=3)
    seeds["png-1"] = pillow_bytes(image.convert("1"), "PNG")
    seeds["bmp-rle"] = pillow_bytes(image.quantize(8), "BMP")
    seeds["jpg-progressive"] = pillow_bytes(image, "JPEG", progressive=True)
    seeds["jpg-cmyk"] = pillow_bytes(image.convert("CMYK"), "JPEG")
    seeds["webp-lossy"] = pillow_bytes(image, "WEBP")
    for compression in (None, "lzw", "zlib", "packbits", "zstd", "jpeg"):
        array = rgb if compression in ("jpeg", "packbits") else deep
        seeds[f"tif-{compression}"] = tiff_bytes(array, photometric="rgb", compression=compression)
    seeds["tif-tiles"] = tiff_bytes(np.zeros((64, 64), np.float32), tile=(32, 32), compression="zlib")
    seeds["tif-planar"] = tiff_bytes(np.moveaxis(deep, -1, 0), photometric="rgb", planarconfig="separate")
    seeds["tif-big"] = tiff_bytes(rgb, bigtiff=True, photometric="rgb")
    seeds["tif-pages"] = tiff_bytes(np.zeros((3, 20, 20), np.uint8), photometric="minisblack")
    seeds["tif-palette"] = pillow_bytes(image.quantize(8), "TIFF")
    seeds["tif-cmyk"] = pillow_bytes(image.convert("CMYK"), "TIFF")
    inks = np.concatenate([deep, deep[:, :, :1]], axis=2)
    seeds["tif-cmyk16"] = tiff_bytes(inks, photometric="separated", compression="zlib")
    seeds["tif-12"] = tiff_bytes(deep[:, :, 0] >> 4, photometric="minisblack", bitspersample=12)
    seeds["tif-fax"] = pillow_bytes(image.convert("1"), "TIFF", compression="group4")
    return seeds


def audio_seeds() -> dict[str, bytes]:
    """One short file for each format and sample type that is read."""
    kinds = [
        ("WAV", "PCM_16"),
        ("WAV", "PCM_24"),
        ("WAV", "FLOAT"),
        ("WAV", "ULAW"),
        ("WAV", "IMA_ADPCM"),
        ("WAVEX", None),
    ]
    kinds += [("FLAC", None), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None), ("AIFF", None), ("AU", None)]
    kinds += [("CAF", None), ("W64", None), ("RF64", None)]
    return {f"{name}-{subtype}": sound_bytes(name, subtype) for name, subtype in kinds}


RECIPE = build_recipe("style", {"tv": 0.1}, seed=3, inputs=[__file__], arguments={"positional": [__file__]})


def other_seeds(folder: Path) -> dict[str, tuple[bytes, Callable[[Path], object]]]:
    """One small file for each reader of graphs, networks, maps, recipes, logs and checkpoints, with that reader."""
    write_model("weights", {"a": np.ones((3, 4), np.float32), "b": np.ones(2)}, folder=folder)
    save_model(ImageDenoiser(Architecture("nonlocal"), seed=0), "image", folder, info={"model": "nonlocal"})
    tiny = DeepShape(widths=(2, 4, 4), blocks=(1, 1, 1, 1), graph_blocks=1, radius=3, neighbors=3, embedding=4)
    save_deep(DeepDenoiser(tiny), "deep", folder, info={"model": "mine"})
    small = FrameShape(window=32, hop=8, hidden=4, layers=1, maps=2, grid_layers=1, neighbors=2, bands=4)
    save_trained(FrameNet(small), "speech", folder, info={"model": "frames"})
    Graph(torch.arange(12).reshape(6, 2) % 6, torch.ones(6, 2), torch.ones(6, 2)).save(folder / "graph.safetensors")
    palette = torch.rand(8, 2, generator=torch.Generator().manual_seed(0)).double()
    look = ColorMap(palette, palette + 1, ColorOptions(), torch.linspace(0, 100, 101))
    look.save(folder / "look.glocal", overwrite=True)
    (folder / "look.cube").unlink(missing_ok=True)
    write_lut(folder / "look.cube", lambda rgb: rgb, size=3)
    write_image(folder / "hald.png", Picture(np.zeros((8, 8, 3), np.uint16)), overwrite=True)
    save_checkpoint(folder / "a.checkpoint", Checkpoint(1, 5, torch.rand(6, 3)), RECIPE)
    (folder / "stage.checkpoint.safetensors").unlink(missing_ok=True)
    continue_training(folder / "stage.checkpoint.safetensors")
    (folder / "recipe.json").write_text(to_json(RECIPE))
    (folder / "log.jsonl").write_text(
        "".join(f"{json.dumps(asdict(Record('s', i, 0.5, 30.1, 1.5)))}\n" for i in range(3))
    )
    np.savez_compressed(folder / "photos.npz", images=np.zeros((2, 4, 4)), parts=np.array(["a", "b"]), names=["x", "y"])
    (folder / "list.csv").write_text("file,split\nlook.cube,train\nhald.png,test\n")
    readers: dict[str, Callable[[Path], object]] = {
        "weights.safetensors": read_model,
        "image.safetensors": lambda path: load_model(str(path), 0.1),
        "deep.safetensors": lambda path: load_deep(str(path), 1),
        "speech.safetensors": load_frames.__wrapped__,
        "graph.safetensors": Graph.load,
        "look.glocal": ColorMap.load,
        "look.cube": read_lut,
        "hald.png": read_lut,
        "a.checkpoint": lambda path: load_checkpoint(path, RECIPE),
        "stage.checkpoint.safetensors": continue_training,
        "recipe.json": lambda path: from_json(path.read_text(encoding="utf-8", errors="replace"), str(path)),
        "log.jsonl": read_log,
        "photos.npz": load_photos,
        "list.csv": load_photos,
    }
    return {name: ((folder / name).read_bytes(), read) for name, read in readers.items()}


def continue_training(path: Path) -> None:
    """Go on from the checkpoint `path` of a training whose last step it is."""
    path.with_name("stage.jsonl").write_text("")
    model = torch.nn.Linear(2, 1)
    fit(
        model, lambda _: model(torch.ones(2)).sum(), Stage("stage", 1, 0.1, 1), validate=lambda: 0.0, folder=path.parent
    )


def mutated(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """A few changes of the kinds that break readers: wrong bytes, wrong numbers, missing, doubled and foreign parts."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        if not out:
            break
        # Headers decide more than samples do, so half of the changes fall into the first 200 bytes.
        reach = min(len(out), 200) if rng.random() < 0.5 else len(out)
        at = int(rng.integers(0, reach))
        kind = int(rng.integers(0, 7))
        if kind == 0:
            out[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            out[at] = int(rng.integers(0, 256))
        elif kind == 2:
            size = int(rng.choice([1, 2, 4, 8]))
            number = NUMBERS[int(rng.integers(0, len(NUMBERS)))] % (1 << (8 * size))
            out[at : at + size] = number.to_bytes(size, "little" if rng.random() < 0.5 else "big")
        elif kind == 3:
            del out[at : at + int(rng.integers(1, 64))]
        elif kind == 4:
            part = out[at : at + int(rng.integers(1, 64))]
            out[at:at] = part
        elif kind == 5:
            del out[at + len(out) // 4 :]
        else:
            start = int(rng.integers(0, len(other)))
            out[at : at + 32] = other[start : start + 32]
    return bytes(out)


def with_sums(data: bytes) -> bytes:
    """Put the check sums of PNG chunks and OGG pages right, so that the damage gets past them to the decoders."""
    out = bytearray(data)
    at = 8
    while data.startswith(b"\x89PNG") and at + 12 <= len(out):
        end = at + 8 + int.from_bytes(out[at : at + 4], "big")
        if end + 4 > len(out):
            break
        out[end : end + 4] = zlib.crc32(out[at + 4 : end]).to_bytes(4, "big")
        at = end + 4
    at = 0
    while data.startswith(b"OggS") and at + 27 <= len(out):
        segments = out[at + 26]
        end = at + 27 + segments + sum(out[at + 27 : at + 27 + segments])
        out[at + 22 : at + 26] = bytes(4)
        out[at + 22 : at + 26] = ogg_sum(out[at:end]).to_bytes(4, "little")
        at = end
    return bytes(out)


def ogg_sum(page: bytes) -> int:
    total = 0
    for byte in page:
        total = (total << 8 & 0xFFFFFFFF) ^ OGG_TABLE[(total >> 24) ^ byte]
    return total


def ogg_entry(value: int) -> int:
    value <<= 24
    for _ in range(8):
        value = (value << 1) ^ 0x104C11DB7 if value & 0x80000000 else value << 1
    return value & 0xFFFFFFFF


OGG_TABLE = [ogg_entry(value) for value in range(256)]


def read_picture(path: Path) -> None:
    image_size(path)
    to_srgb(read_image(path))
    read_recipe(path)


def read_sound(path: Path) -> None:
    with open_audio(path) as sound:
        for block in sound.blocks(1000):
            assert block.shape[1] == sound.info.channels
    read_audio_recipe(path)


def readers(folder: Path) -> list[tuple[str, bytes, Callable[[Path], object]]]:
    out: list[tuple[str, bytes, Callable[[Path], object]]] = []
    out += [(name, data, read_picture) for name, data in image_seeds(folder).items()]
    out += [(name, data, read_sound) for name, data in audio_seeds().items()]
    return out + [(name, data, read) for name, (data, read) in other_seeds(folder).items()]


def main(first: int, count: int, folder: Path, *, even: bool = False) -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])  # many with the libraries of CUDA
    used = pages * resource.getpagesize()
    limit = max(MEMORY, used + (1 << 30))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    cases = readers(folder)
    for name, data, read in cases:  # what is mutated must be readable before
        path = folder / name
        path.write_bytes(data)
        try:
            read(path)
        except GlocalError as error:
            if "carries no recipe" not in str(error):
                raise
    groups: dict[object, list[tuple[str, bytes, Callable[[Path], object]]]] = {}
    for one in cases:
        groups.setdefault(one[2], []).append(one)
    turns = list(groups.values()) if even else [[one] for one in cases]
    findings, tried = 0, Counter[str]()
    for case in range(first, first + count):
        rng = np.random.default_rng(case)
        turn = turns[case % len(turns)]
        name, data, read = turn[case // len(turns) % len(turn)]
        other = cases[int(rng.integers(0, len(cases)))][1]
        tried[name] += 1
        path = folder / name
        broken = mutated(data, other, rng)
        path.write_bytes(with_sums(broken) if case % 3 else broken)
        (folder / "case").write_text(f"{case} {name}")
        faulthandler.dump_traceback_later(30, exit=True)
        started = time.process_time()
        try:
            with contextlib.suppress(GlocalError):
                read(path)
        except Exception:
            findings += 1
            sys.stdout.write(f"case {case} {name}: {traceback.format_exc()}\n")
        spent = time.process_time() - started
        if spent > SECONDS:
            findings += 1
            sys.stdout.write(f"case {case} {name}: took {spent:.1f} s\n")
    faulthandler.cancel_dump_traceback_later()
    sys.stdout.write(f"tried {sum(tried.values()):,} files of {len(tried)} kinds: {' '.join(sorted(tried))}\n")
    return min(findings, 100)


if __name__ == "__main__":
    # Decoders complain on stderr in their own words, which is of no interest here.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), even=sys.argv[4:] == ["even"]))
