"""What holds for all tests.

torch's waiting threads sleep: those of several test processes would otherwise spin on each other's cores. Where there is
no GPU, Triton's interpreter runs its kernels. Both are asked for before the import.
"""

import importlib.util
import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
collect_ignore_glob = ["docs/*.py"]  # they belong to the documentation site, whose libraries tests do not need
if importlib.util.find_spec("triton") is None:  # as on systems for which there is none; the tests say so when skipped
    collect_ignore_glob += ["src/glocal/kernels/cuda/*.py"]


def pytest_collection_modifyitems(items):
    """Begin with the tests that wait for a browser or other processes: at the end, one worker alone would wait for them."""
    items.sort(key=lambda item: not item.nodeid.startswith(("tests/studio/", "tests/training/", "tests/cluster/")))
