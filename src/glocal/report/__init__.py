"""The paper, run again: every figure and table on one page. `glocal.report.reproduce` writes it."""
