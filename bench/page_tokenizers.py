"""Are the JavaScript tokenizers of a page those of the `tokenizers` library?

    python bench/page_tokenizers.py --data $WEFT_DATA

10,000 lines in ten scripts, 1,000 of each: words of random letters with combining marks, emoji,
ligatures, spaces of all kinds and spelled special tokens; with --data, half of the lines in Latin
letters are English, German, French and Turkish sentences, and half of those in kana Japanese ones.
Weft's own tokenizers are trained on a tenth of the lines; others are built as BERT, RoBERTa and
Llama have them. Counted are lines whose ids, character offsets or words differ, before and after
Weft's own alignment. It needs node.
"""

import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from record import Record, options

import weft

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.fixtures import scripts

LINES_PER_SCRIPT = 1000
MODULES = Path(weft.__file__).parent / "export" / "page" / "js"
REAL_TEXT = {  # by script: files of sentences
    "Latin with accents": (
        "seq2seq/multi30k/val.en.gz", "seq2seq/multi30k/val.de.gz", "seq2seq/multi30k/val.fr.gz",
        "parsing/ud_turkish_imst/tr_imst-ud-dev.conllu.gz",
    ),
    "kana": ("seq2seq/small_parallel_enja/dev.ja.gz",),
}  # fmt: skip
COMPARE = """
import fs from "node:fs";
import { isDeepStrictEqual as same } from "node:util";
const { modules, lines, one } = JSON.parse(fs.readFileSync(process.argv[1], "utf8"));
const { Tokenizer } = await import(modules + "/tokens/tokenizer.js");
const tokenizer = new Tokenizer(one.settings);
const began = performance.now();
const raw = lines.map((line) => tokenizer.encodeRaw(line));
const seconds = (performance.now() - began) / 1000;
const differ = lines.map((line, i) =>
  !same(raw[i], one.raw[i]) || !same(tokenizer.encode(line), one.aligned[i]));
console.log(JSON.stringify({
  lines: lines.length,
  tokens: raw.reduce((sum, { ids }) => sum + ids.length, 0),
  lines_that_differ: differ.filter(Boolean).length,
  first: differ.indexOf(true) < 0 ? null : lines[differ.indexOf(true)],
  lines_per_second: Math.round(lines.length / seconds),
}));
"""


def sentences(folder: Path, file: str) -> Iterator[str]:
    """The sentences of a file of lines or of a treebank."""
    path = folder / file
    if not path.is_file():
        return
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if not file.endswith(".conllu.gz"):
                yield line
            elif line.startswith("# text = "):
                yield line.removeprefix("# text = ")


def build_lines(folder: Path | None) -> list[str]:
    """Ten scripts of lines each, mixed."""
    rng = random.Random(11)
    out = []
    for script in scripts.TEN_SCRIPTS:
        own: list[str] = []
        files = REAL_TEXT.get(script, ()) if folder else ()
        for file in files:
            found = list(sentences(folder, file)) if folder else []
            own += rng.sample(found, min(len(found), LINES_PER_SCRIPT // 2 // len(files)))
        while len(own) < LINES_PER_SCRIPT:
            own.append(scripts.random_line(rng, (script,)))
        out += own
    rng.shuffle(out)
    return out


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA", ""))
    arguments = parser.parse_args()
    record = Record(arguments.record)
    lines = build_lines(Path(arguments.data) if arguments.data else None)
    trained = scripts.trained_tokenizers(lines[: len(lines) // 10], size=4000)
    failed = 0
    for name, tokenizer in {**trained, **scripts.foreign_tokenizers(trained)}.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.json"
            one = scripts.tokenizer_case(name, tokenizer, lines)
            path.write_text(json.dumps({"modules": MODULES.as_uri(), "lines": lines, "one": one}))
            done = subprocess.run(
                ["node", "--input-type=module", "-e", COMPARE, str(path)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        if done.returncode:
            raise SystemExit(done.stderr)
        found = json.loads(done.stdout)
        failed += found["lines_that_differ"]
        record.line(f"tokenizer '{name}' in JavaScript and in the library", **found)
    record.line("all tokenizers", lines=len(lines), lines_that_differ=failed)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
