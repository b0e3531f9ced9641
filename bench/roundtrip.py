"""Does every CoNLL-U file come back byte for byte when it is read and written?

    python bench/roundtrip.py --data FOLDER --record roundtrip

Takes every .conllu file below the folder, packed ones too. A line a file: words, faults that
`validate` finds, sentences whose `# text =` disagrees with the forms, whether the bytes are the
same after writing, and whether a change of one column changed only its cells.
"""

import gzip
import lzma
import os
import tempfile
import time
from pathlib import Path

import record

from weft.errors import UserError
from weft.text.formats.conllu import Sentence, format, read_conllu, validate, write_conllu
from weft.text.formats.conllu_offsets import locate_words

UNPACK = {".gz": gzip.decompress, ".xz": lzma.decompress}


def main() -> None:
    parser = record.options(__doc__, repeats=1)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA", ""))
    given = parser.parse_args()
    if not given.data:
        parser.error("give the folder: --data FOLDER, or WEFT_DATA")
    keep = record.Record(given.record)
    folder = Path(given.data)
    files = sorted(path for path in folder.rglob("*") if ".conllu" in path.suffixes)
    same = [one(keep, path, path.relative_to(folder)) for path in files]
    keep.line("round trip", files=len(same), identical=sum(same), bar="all")


def one(keep: record.Record, path: Path, name: Path) -> bool:
    """One file there and back."""
    raw = path.read_bytes()
    plain = UNPACK.get(path.suffix, bytes)(raw)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        back = Path(folder) / "back.conllu"
        write_conllu(read_conllu(path, check=False), back)
        seconds = time.perf_counter() - started
        same = back.read_bytes() == plain
    words = faults = astray = 0
    only = True
    for sentence in read_conllu(path, check=False):
        words += len(sentence.words)
        faults += len(validate(sentence))
        astray += not agrees(sentence)
        only &= changes_only(sentence)
    keep.line(
        "round trip of a file",
        file=str(name),
        words=words,
        identical=same,
        only_changed_cells=only,
        faults=faults,
        text_disagrees=astray,
        seconds=round(seconds, 2),
    )
    return same and only


def agrees(sentence: Sentence) -> bool:
    """Whether the text and the forms say the same."""
    try:
        text, places = locate_words(sentence)
    except UserError:
        return False
    return len(places) == len(sentence.words) and all(text[a:b].strip() for a, b in places)


def changes_only(sentence: Sentence) -> bool:
    """Whether new heads change the head cells of words, and nothing else."""
    changed = sentence.with_column("head", [f"{word.head}x" for word in sentence.words])
    pairs = zip(format(sentence).split("\n"), format(changed).split("\n"), strict=True)
    told = [(old.split("\t"), new.split("\t")) for old, new in pairs if old != new]
    heads = all(
        [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b] == [6]
        for old, new in told
    )
    return heads and len(told) == len(sentence.words)


if __name__ == "__main__":
    main()
