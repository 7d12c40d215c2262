"""`python -m vflpriv` is `vflpriv`."""

from vflpriv.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
