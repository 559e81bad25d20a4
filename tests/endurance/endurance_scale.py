"""How long the endurance tests run: GLOCAL_ENDURANCE is a fraction of the full length, 1 by default."""

import os


def scaled(full: int) -> int:
    """The full number times GLOCAL_ENDURANCE, at least 1."""
    return max(1, round(full * float(os.environ.get("GLOCAL_ENDURANCE", "1"))))
