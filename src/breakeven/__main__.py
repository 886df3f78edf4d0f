"""``python -m breakeven`` is ``breakeven``."""

from breakeven.cli.app import main

if __name__ == "__main__":
    main()
