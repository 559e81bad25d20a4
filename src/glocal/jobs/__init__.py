"""Jobs: what can be done to a file, in one shape for the command line and everything else that drives them."""
