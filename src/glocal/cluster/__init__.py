"""Work on many machines, through Dask's `distributed` (the extra `cluster`): folders of files, and pictures cut into tiles."""
