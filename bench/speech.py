"""How well are spoken digits transcribed? One JSON line a training.

    python bench/speech.py --data DATA --parts takes,strings,speakers --record speech

DATA has the recordings of FSDD (DIGIT_SPEAKER_TAKE.wav). `takes`: takes 0 to 4 are test, 5 to 9
dev. `speakers`: one is test, the others are split by takes. `strings`: 3 to 5 digits of one
speaker joined, drawn from the takes of each part. `accuracy` is the share of exact transcripts.
`--changes` (JSON) tries other settings; with `--unseen-dev`, dev is the next speaker, who is not in
training either, and test is not looked at.
"""

import json
import random
import tempfile
import time
from pathlib import Path

import numpy as np
from record import Record, options

import weft
from weft.text.audio.wav import read_wav, write_wav

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
STRINGS = {"train": 2000, "dev": 200, "test": 300}
Rows = dict[str, list[tuple[Path, str, str]]]  # recording, digit, speaker


def split(data: str, held_out: str = "", unseen_dev: str = "") -> Rows:
    """The recordings of each part, by takes or with one speaker held out, or two."""
    rows: Rows = {"train": [], "dev": [], "test": []}
    for path in sorted(Path(data).glob("*.wav")):
        digit, speaker, take = path.stem.split("_")
        early, test = int(take) < 5, int(take) < 5
        part = "test" if test else "dev" if int(take) < 10 else "train"
        if held_out:
            part = "test" if speaker == held_out else "dev" if early else "train"
        if unseen_dev and speaker != held_out:
            part = "dev" if speaker == unseen_dev else "train"
        rows[part].append((path, DIGITS[int(digit)], speaker))
    return rows


def join(rows: Rows, seed: int = 0) -> dict[str, list[tuple[np.ndarray, int, str]]]:
    """Strings of 3 to 5 digits of one speaker, each part from its own recordings."""
    draw, out = random.Random(seed), {}
    for part, some in rows.items():
        out[part] = []
        for _ in range(STRINGS[part]):
            speaker = draw.choice(sorted({who for _, _, who in some}))
            own = [row for row in some if row[2] == speaker]
            chosen = [draw.choice(own) for _ in range(draw.randint(3, 5))]
            waves, rates = zip(*(read_wav(path) for path, _, _ in chosen), strict=True)
            text = " ".join(word for _, word, _ in chosen)
            out[part].append((np.concatenate(waves), rates[0], text))
    return out


def measure(
    folder: Path,
    parts: dict[str, list[tuple[np.ndarray, int, str]]],
    recipe: str,
    changes: dict[str, object],
) -> dict[str, float]:
    """Write the recordings, train, and return the metrics of dev, and of test if there is one."""
    values: dict[str, object] = {**changes, "data.text": "audio", "data.label": "text"}
    for part, rows in parts.items():
        (folder / part).mkdir()
        lines = ["audio\ttext"]
        for i, (wave, rate, text) in enumerate(rows):
            write_wav(folder / part / f"{i}.wav", wave, rate)
            lines.append(f"{part}/{i}.wav\t{text}")
        (folder / f"{part}.tsv").write_text("\n".join(lines) + "\n", "utf-8")
        values[f"data.{part}"] = str(folder / f"{part}.tsv")
    began = time.perf_counter()
    run = weft.train(weft.recipe(recipe).with_values(values, "bench"), folder / "run", quiet=True)
    found = {"dev_accuracy": round(run.figures["dev"]["exact_match"].value, 4)}
    if test := run.figures.get("test"):
        found |= {name: round(test[name].value, 4) for name in ("wer", "cer")}
        found |= {"accuracy": round(test["exact_match"].value, 4), "n": test["wer"].n}
    return {**found, "seconds": round(time.perf_counter() - began, 1)}


def main() -> None:
    parser = options(__doc__, 1)
    parser.add_argument("--data", required=True)
    parser.add_argument("--parts", default="takes,strings,speakers")
    parser.add_argument("--recipe", default="ctc-speech")
    parser.add_argument("--speakers", default="", help="held out, by comma; default: each in turn")
    parser.add_argument("--changes", default="{}", help="settings of the recipe, as JSON")
    parser.add_argument("--unseen-dev", action="store_true", help="to choose settings")
    given = parser.parse_args()
    record = Record(given.record)
    everyone = sorted({path.stem.split("_")[1] for path in Path(given.data).glob("*.wav")})
    changes = {"train.seed": 1, **json.loads(given.changes)}
    speakers = given.speakers.split(",") if given.speakers else everyone
    for part in given.parts.split(","):
        for name in speakers if part == "speakers" else [""]:
            dev = everyone[(everyone.index(name) + 1) % len(everyone)] if name else ""
            rows = split(given.data, name, dev if given.unseen_dev else "")
            if given.unseen_dev:
                del rows["test"]
            if part == "strings":
                audio = join(rows)
            else:
                audio = {k: [(*read_wav(p), w) for p, w, _ in v] for k, v in rows.items()}
            with tempfile.TemporaryDirectory() as folder:
                figures = measure(Path(folder), audio, given.recipe, changes)
            more = {"speaker": name} if name else {}
            if given.unseen_dev:
                more |= {"dev": dev}
            if given.changes != "{}":
                more |= {"changes": given.changes}
            record.line(f"speech, {part}", recipe=given.recipe, seed=1, **more, **figures)


if __name__ == "__main__":
    main()
