"""`python -m glocal` is the `glocal` command."""

from glocal.cli.main import main

if __name__ == "__main__":
    main()
