"""Imported first by every test: the package beside the tests is the one tested, installed or not. Nothing else."""

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PACKAGE))
