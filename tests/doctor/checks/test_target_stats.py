"""Texts beside what they should become: what the doctor says of such pairs, and of plain text."""

import json

import pytest

from tests.fixtures.examinations import found, kinds
from weft.doctor import examine
from weft.doctor.checks.target_stats import are_free_text
from weft.doctor.diagnose import diagnose
from weft.doctor.formats.files import open_files
from weft.doctor.survey import survey_sources
from weft.errors import UserError
from weft.text.example import Example
from weft.text.read import GUESSED_HEADER, Columns

WORDS = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op", "qr", "st", "uv", "wx"]


def sentence(i: int, size: int = 7) -> str:
    return " ".join(WORDS[(i * 5 + k * (i + 1)) % len(WORDS)] for k in range(size)) + f" n{i}"


def pairs(count: int = 23) -> list[Example]:
    return [Example(sentence(i), f"le {sentence(i).upper()}", "", "f", i + 1) for i in range(count)]


def examined(*splits: list[Example], **options):
    names = ("train", "dev", "test")
    sources = {name: (lambda rows=rows: iter(rows)) for name, rows in zip(names, splits)}  # noqa: B905
    return examine(sources, near=False, **options)


def test_free_text_targets_are_distinguished_from_classes():
    assert are_free_text(pairs())
    assert not are_free_text([Example("a", f"label {i % 3}") for i in range(23)])
    assert not are_free_text([Example("a", str(i)) for i in range(23)])
    assert not are_free_text([Example("a")] * 23)


def test_a_clean_parallel_text_has_nothing_wrong():
    diagnosis = examined(pairs())
    assert diagnosis.findings == ()
    assert diagnosis.labels == {}
    assert diagnosis.targets is not None
    assert diagnosis.targets.lengths["train"]["median"] == 9
    assert sum(diagnosis.targets.histogram.counts["train"]) == 23
    assert diagnosis.words["target"]["train"][0] == 23 * 9


def test_copies_lengths_and_missing_targets_are_found():
    rows = pairs(41)
    rows[3] = Example(rows[3].text, rows[3].text.upper(), "", "f", 4)
    rows[9] = Example(rows[9].text, rows[9].text, "", "f", 10)
    rows[5] = Example(rows[5].text, "le " * 60, "", "f", 6)
    rows[7] = Example(rows[7].text, None, "", "f", 8)
    rows[11] = Example(rows[11].text, "le Ð´Ð° Ð´Ð° Ð´Ð° Ð´Ð° Ð´Ð° Ð´Ð°", "", "f", 12)
    rows[13] = Example(rows[13].text, "да нет да нет да нет да нет", "", "f", 14)
    diagnosis = examined(rows)
    copy = found(diagnosis, "copy")
    assert copy.title == "2 rows of train (4.9 %) have the source as target."
    assert copy.places[0].where == "f:4"
    long = found(diagnosis, "length ratio")
    assert long.count == 1
    assert "60 for 8 words" in long.places[0].detail
    missing = found(diagnosis, "no target")
    assert (missing.level, missing.places[0].where) == ("error", "f:8")
    assert "1 target of train has mojibake" in found(diagnosis, "mojibake").title
    assert "1 target has mostly Cyrillic letters" in found(diagnosis, "target script").title


def test_a_pair_that_comes_again_is_not_a_text_with_two_targets():
    rows = pairs()
    rows += [rows[2], Example(rows[4].text, "le autre chose", "", "f", 25)]
    diagnosis = examined(rows)
    again = found(diagnosis, "duplicate")
    assert again.count == 1
    assert "repeats an earlier pair" in again.title
    several = found(diagnosis, "conflict")
    assert (several.level, several.title) == ("note", "1 text has more than one target.")
    assert "“le autre chose”" in several.places[0].detail


def test_leaks_and_unseen_words_are_found_on_both_sides():
    train, test = pairs(), [Example(pairs()[1].text, "le zz yy XX", "", "g", 1)]
    test += [Example("ab cd neverseen", "le AB CD EF", "", "g", 2)]
    diagnosis = examined(train, test)
    assert found(diagnosis, "leak").count == 1
    unseen = found(diagnosis, "unseen words")
    assert unseen.count == 3
    assert unseen.level == "warning"
    assert "37.5 % of the target words of dev" in unseen.title
    assert "“zz”" in unseen.title
    assert diagnosis.words["text"]["dev"][2] == pytest.approx(1 / 11)


def test_plain_text_is_no_labelled_text():
    rows = [Example(sentence(i)) for i in range(7)] + [Example("")] * 2
    diagnosis = examined(rows, [Example("quite new words here")])
    empty = found(diagnosis, "empty")
    assert empty.level == "note"
    assert "task.lines" in empty.fix
    assert "unseen words" in kinds(diagnosis)
    assert "unlabelled" not in kinds(diagnosis)
    assert diagnosis.targets is None


def test_labels_stay_labels():
    rows = [Example(sentence(i), "good" if i % 2 else "bad") for i in range(12)]
    diagnosis = examined(rows)
    assert diagnosis.labels["good"] == {"train": 6}
    assert diagnosis.words == {}


def test_two_files_side_by_side(tmp_path):
    rows = pairs()
    (tmp_path / "a.en").write_text("".join(f"{e.text}\n" for e in rows))
    said = [f"{e.label}\n" for e in rows]
    (tmp_path / "a.de").write_text("".join([*said[:4], "\n", *said[5:]]))
    files = open_files([str(tmp_path / "a.en")], Columns(), target="de")
    seen = survey_sources(files.sources)
    assert seen.pairs is not None
    assert seen.rows == 22
    assert sum(files.tallies["data"].counts.values()) == 1
    (tmp_path / "a.de").write_text("".join(said[:9]))
    short = open_files([str(tmp_path / "a.en")], Columns(), target="de")
    assert survey_sources(short.sources).rows == 9
    assert any("continues" in p for places in short.tallies["data"].places.values() for p in places)
    joined = open_files([f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}"] * 4, Columns())
    assert set(joined.formats.values()) == {"parallel"}
    assert all(sum(1 for _ in source()) == 9 for source in joined.sources.values())
    for bad in ("a.fr", "a.en,{}/a.fr"):
        with pytest.raises(UserError, match=r"a\.fr: no such file"):
            open_files([f"{tmp_path}/{bad.format(tmp_path)}"], Columns())
    with pytest.raises(UserError, match=r"a\.fr"):
        open_files([str(tmp_path / "a.en")], Columns(), target="fr")


def test_a_header_that_was_guessed_is_noted(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("english\tfrench\n" + "".join(f"{e.text}\t{e.label}\n" for e in pairs()))
    files = open_files([str(path)], Columns())
    seen = survey_sources(files.sources)
    assert seen.rows == 23
    noted = found(diagnose(seen, files.paths, 512, False, files.tallies)[0], GUESSED_HEADER)
    assert (noted.level, noted.places[0].where) == ("note", f"{path}:1")
    assert noted.title.startswith("The first line of data is read as a header: single words")


def test_a_diagnosis_of_pairs_is_plain_json():
    made = json.loads(json.dumps(examined(pairs(), pairs(5)).to_json()))
    assert made["targets"]["lengths"]["dev"]["max"] == 9
