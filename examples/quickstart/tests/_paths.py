"""Imported first by every test: the example and the package of this tree are what is tested. Nothing else."""

import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1]
ROOT = EXAMPLE.parents[1]
PATHS = [str(EXAMPLE), str(ROOT / "python")]
sys.path[:0] = [*PATHS, str(ROOT / "python" / "tests")]
