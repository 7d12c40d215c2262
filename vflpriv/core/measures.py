"""What a training is compared by with a published one: the name of each measure, and how tables call it."""

from __future__ import annotations

__all__ = ["MEASURES", "SHARES"]

MEASURES = {
    "accuracy": "test accuracy, %",
    "auc": "test AUC, %",
    "megabytes": "MB on the wire until the target",
    "seconds": "simulated seconds until the target",
}
SHARES = ("accuracy", "auc")
"""Those that are shares, in percent, and read at the end of a training; the others are costs until a target."""
