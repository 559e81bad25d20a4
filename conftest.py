"""What holds for all tests: Triton's interpreter runs the GPU's kernels on the CPU. It must be asked for before import."""

import importlib.util
import os

os.environ.setdefault("TRITON_INTERPRET", "1")
if importlib.util.find_spec("triton") is None:  # as on systems for which there is none; the tests say so when skipped
    collect_ignore_glob = ["src/glocal/kernels/triton_*.py", "src/glocal/kernels/cuda*.py"]
