"""The tabs of the page, one job or idea each."""
