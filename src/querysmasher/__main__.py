"""`python -m querysmasher` is the command `querysmasher`."""

from querysmasher.cli import main

if __name__ == "__main__":
    main()
