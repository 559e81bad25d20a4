"""The room of files knows no torch and starts quickly."""

import subprocess
import sys
from pathlib import Path

import glocal.files


def test_no_module_imports_heavy_libraries():
    room = Path(glocal.files.__path__[0])
    names = sorted(
        ".".join(path.relative_to(room).with_suffix("").parts) for path in room.rglob("*.py") if path.stem != "__init__"
    )
    assert "images.read" in names
    code = "import sys\n" + "".join(f"import glocal.files.{name}\n" for name in names)
    code += "sys.exit(', '.join(m for m in ('torch', 'numba', 'scipy', 'PIL', 'tifffile', 'soundfile') if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
