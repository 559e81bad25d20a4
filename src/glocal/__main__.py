"""`python -m glocal` is `glocal`."""

from glocal.cli.main import main

if __name__ == "__main__":
    main()
