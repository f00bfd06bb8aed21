"""``python -m dagnn``: the command line."""

from dagnn.cli import main

if __name__ == "__main__":
    main()
