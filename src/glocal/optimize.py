"""The old name of `glocal.optim`. Kept for one release."""

from glocal.optim.lbfgs import *  # noqa: F403
