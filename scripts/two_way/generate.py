"""The data job of the starving category: makes fresh sums, as rows of the experiment's vocabulary.

Started by antiphon for `[augment.sums]`, and told what to make and where to by `ANTIPHON_AUGMENT_*`. It loads no model.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from corpus import encoded, kept_as, paired, sums

LINES_A_ROW = 8


def main(cache: Path) -> None:
    """Writes one row a line, and the file only once it is whole."""
    from tokenizers import Tokenizer

    count, out = int(os.environ["ANTIPHON_AUGMENT_COUNT"]), Path(os.environ["ANTIPHON_AUGMENT_OUT"])
    tokenizer = Tokenizer.from_file(str(kept_as(cache, "vocabulary", "json")))
    # Another seed than the corpus: none of its lines is copied, and none of the held-out ones.
    rows = paired(encoded(tokenizer, sums(count * LINES_A_ROW, seed=1)))[:count]
    new = out.with_suffix(".new")
    new.write_text("".join(f"{json.dumps(row.tolist())}\n" for row in rows), encoding="utf-8")
    new.rename(out)
    print(f"{len(rows)} rows of {os.environ['ANTIPHON_AUGMENT_CATEGORY']} in {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
