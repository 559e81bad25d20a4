"""The paper, run again: every figure and table on one page. `glocal.paper.reproduce` writes it."""
