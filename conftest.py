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
    """Run the tests that wait for a browser or other processes early: at the end, one worker alone would wait for them.

    The apps come first. They compile the kernels, for which a page would have to wait.
    """
    order = ("tests/apps/", "tests/studio/", "tests/training/", "tests/cluster/")
    items.sort(key=lambda item: next((k for k, place in enumerate(order) if item.nodeid.startswith(place)), len(order)))
