"""Section 2 of the paper: equality with convolution, impulse responses, neighbours on a photo.

python examples/section_2.py -o out/section_2
"""

from __future__ import annotations

from glocal.paper import layer
from glocal.paper.example import run

if __name__ == "__main__":
    run(__doc__, layer.section)
