"""Imported first by every test that needs PyTorch: the package and the fake server of the other tests. Nothing else."""

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PACKAGE), str(PACKAGE / "tests")]
