"""Folds and test shares: everything once, labels evenly, copies together."""

import json
from collections import Counter

import pytest

from weft.errors import UserError
from weft.run.data import Data, Source
from weft.run.split import (
    Holdout,
    apply_holdout,
    assign_folds,
    choose_holdout,
    cross_validation_splits,
    file_digest,
    from_files,
    text_hash,
)
from weft.text import read as reading
from weft.text.example import Example


def examples(count: int) -> list[Example]:
    return [Example(f"text {i}", ("a", "b", "b")[i % 3]) for i in range(count)]


def texts(source: Source | None) -> list[str]:
    assert source is not None
    return [example.text for example in source()]


def test_folds_stratify_and_cover():
    data = examples(91)
    owner = assign_folds(data, 7)
    assert Counter(owner) == dict.fromkeys(range(7), 13)
    for label, count in Counter(e.label for e in data).items():
        per_fold = Counter(k for e, k in zip(data, owner, strict=True) if e.label == label)
        assert all(abs(per_fold[k] - count / 7) < 1 for k in range(7))
    assert owner == assign_folds(data, 7)
    assert owner != assign_folds(data, 7, seed=1)


def test_copies_of_a_text_stay_together():
    data = examples(23) + examples(11) + [Example("text 5", "a")] * 3
    owner = assign_folds(data, 5)
    where: dict[str, set[int]] = {}
    for example, fold in zip(data, owner, strict=True):
        where.setdefault(example.text, set()).add(fold)
    assert all(len(found) == 1 for found in where.values())
    assert max(Counter(owner).values()) - min(Counter(owner).values()) <= 3


def test_numbers_are_spread_over_the_scale():
    data = [Example(f"text {i}", str(i * 0.5)) for i in range(100)]
    owner = assign_folds(data, 5, numbers=True)
    lowest = [k for e, k in zip(data, owner, strict=True) if float(str(e.label)) < 10]
    assert Counter(lowest) == dict.fromkeys(range(5), 4)


def test_too_few_texts_for_the_folds():
    with pytest.raises(UserError, match="5 folds need at least 5 different texts; 3 found"):
        assign_folds(examples(3) * 2, 5)


def test_folded_splits_hold_every_example_once(tmp_path):
    path = tmp_path / "all.tsv"
    path.write_text("text\tlabel\n" + "".join(f"word {i}\t{'ab'[i % 2]}\n" for i in range(53)))
    tests: list[str] = []
    for part in cross_validation_splits(Data(train=str(path), dev_fraction=0.3), 5):
        sides = [set(texts(side)) for side in (part.train, part.dev, part.test)]
        assert sum(map(len, sides)) == 53
        assert len(set().union(*sides)) == 53
        assert all(sides)
        tests += texts(part.test)
    assert sorted(tests) == sorted(f"word {i}" for i in range(53))


def rows_file(tmp_path, rows: list[tuple[str, str]]) -> str:
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{t}\t{label}\n" for t, label in rows))
    return str(path)


def test_every_label_gives_its_share_to_dev_and_test(tmp_path):
    rows = [(f"text {i}", "rare" if i % 31 == 0 else "ab"[i % 2]) for i in range(1009)]
    data = Data(train=rows_file(tmp_path, rows))
    part = apply_holdout(data, choose_holdout(data))
    labels = dict(rows)
    sides = {"train": part.train, "dev": part.dev, "test": part.test}
    found = {name: Counter(labels[t] for t in texts(side)) for name, side in sides.items()}
    for label, total in Counter(labels.values()).items():
        assert abs(found["test"][label] - 0.2 * total) <= 1
        assert abs(found["dev"][label] - 0.1 * 0.8 * total) <= 1.2
        assert sum(side[label] for side in found.values()) == total


def test_copies_stay_on_one_side_whatever_their_case_and_spaces(tmp_path):
    rows = [(f"Some text {i}", "ab"[i % 2]) for i in range(211)]
    rows += [(f"some  TEXT {i}", "ab"[i % 3 % 2]) for i in range(211)]
    data = Data(train=rows_file(tmp_path, rows))
    part = apply_holdout(data, choose_holdout(data))
    sides = [{text_hash(t) for t in texts(side)} for side in (part.train, part.dev, part.test)]
    assert all(sides)
    assert sum(map(len, sides)) == 211


def test_numbers_are_held_out_over_the_whole_scale(tmp_path):
    rows = [(f"text {i}", str(i / 7)) for i in range(500)]
    data = Data(train=rows_file(tmp_path, rows))
    part = apply_holdout(data, choose_holdout(data, numbers=True))
    low = [t for t in texts(part.test) if int(t.split()[1]) < 50]
    assert 9 <= len(low) <= 11


def test_splits_with_a_file_are_not_cut_from_train(tmp_path):
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(101)]
    data = Data(train=rows_file(tmp_path, rows))
    both = Data(train=data.train, dev=data.train, test=data.train)
    assert choose_holdout(both) == Holdout()
    assert len(texts(apply_holdout(both, Holdout()).train)) == 101
    chosen = choose_holdout(Data(train=data.train, test=data.train))
    assert not chosen.test
    assert len(chosen.dev) == 10


@pytest.mark.parametrize("known", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("files", [(), ("dev",), ("dev", "test")], ids=["train", "dev", "test"])
def test_all_parts_are_read_in_one_pass(tmp_path, monkeypatch, files, known):
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(101)]
    train = rows_file(tmp_path, rows)
    data = Data(train=train, **dict.fromkeys(files, train))
    part = apply_holdout(data, choose_holdout(data))
    if known:
        texts(part.train)
    opened = []
    real = reading.LineSource
    monkeypatch.setattr(reading, "LineSource", lambda path: opened.append(path) or real(path))
    together = [(name, example.text) for name, example in part.read_together()]
    assert len(opened) == 1 + len(files)
    for name in ("train", "dev", "test"):
        assert [text for side, text in together if side == name] == texts(getattr(part, name))


def test_a_holdout_is_saved_and_read_back(tmp_path):
    chosen = Holdout(frozenset({1, 2**64 - 1}), frozenset({7}))
    chosen.save(tmp_path / "split.npz")
    assert Holdout.load(tmp_path / "split.npz") == chosen


def test_phrases_go_where_their_sentence_goes(tmp_path):
    path = tmp_path / "trees.txt"
    rows = [f"(1 (0 (0 bad{i}) (1 film{i})) (1 end{i}))\n" for i in range(40)]
    path.write_text("".join(rows))
    data = Data(train=str(path), phrases=True, dev_fraction=0.3, format="trees")
    for part in (apply_holdout(data, choose_holdout(data)), *cross_validation_splits(data, 3)):
        outside = {w for side in (part.dev, part.test) for t in texts(side) for w in t.split()}
        inside = {word for e in part.train() for word in e.text.split()}
        assert outside
        assert inside
        assert not outside & inside
        assert len(inside) * 5 // 3 == sum(1 for _ in part.train())


def test_digest_reads_contents(tmp_path):
    file, folder = tmp_path / "a.tsv", tmp_path / "b"
    folder.mkdir()
    file.write_text("abc")
    (folder / "x").write_text("abc")
    before = file_digest(str(file)), file_digest(str(folder))
    assert before == (file_digest(str(file)), file_digest(str(folder)))
    file.write_text("abd")
    (folder / "x").rename(folder / "y")
    assert file_digest(str(file)) != before[0]
    assert file_digest(str(folder)) != before[1]


def test_a_short_sister_file_is_read_like_the_training_file(tmp_path):
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text(
        "".join(f"{'good' if i % 2 else 'poor'}\ta film of {i} words\n" for i in range(40))
    )
    dev.write_text("good\ta b\npoor\tc\n")  # by itself, the first column would be the text
    part = from_files(Data(train=str(train), dev=str(dev), test=str(dev)))
    assert part.dev is not None
    assert [(e.text, e.label) for e in part.dev()] == [("a b", "good"), ("c", "poor")]
    assert texts(part.test) == ["a b", "c"]


def test_a_sister_file_of_another_layout_is_looked_at_by_itself(tmp_path):
    train, test = tmp_path / "train.tsv", tmp_path / "test.jsonl"
    train.write_text("".join(f"{'ab'[i % 2]}\ta film of {i} words\n" for i in range(40)))
    test.write_text('{"label": "a", "text": "some words"}\n{"label": "b", "text": "more"}\n')
    part = from_files(Data(train=str(train), test=str(test)))
    assert texts(part.test) == ["some words", "more"]


def test_missing_side_of_the_test_file_fails_before_reading(tmp_path):
    for name in ("a.en", "a.de", "t.en"):
        (tmp_path / name).write_text("a b\n", "utf-8")
    pair = f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}"
    assert from_files(Data(train=pair, test=pair)).test is not None
    with pytest.raises(UserError, match=r"t\.de: no such file"):
        from_files(Data(train=pair, test=f"{tmp_path / 't.en'},{tmp_path / 't.de'}"))
    with pytest.raises(UserError, match=r"t\.de: no such file"):
        from_files(Data(train=str(tmp_path / "a.en"), test=str(tmp_path / "t.en"), target="de"))


def singles(path) -> list[tuple[str, str]]:
    """Rows of two large classes, and classes of one row each, some of which dev would take."""
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(97)]
    return rows + [(f"only {i}", f"rare{i}") for i in range(41)]


def test_a_class_with_one_row_stays_in_train(tmp_path):
    data = Data(train=rows_file(tmp_path, singles(tmp_path)), dev_fraction=0.3)
    assert any(t.startswith("only") for t in texts(from_files(data).dev))
    part = from_files(data, classes=True)
    dev, train = texts(part.dev), texts(part.train)
    assert dev
    assert not any(t.startswith("only") for t in dev)
    assert sorted(dev + train) == sorted(t for t, _ in singles(tmp_path))
    # Everything else falls as it did.
    assert set(dev) == {t for t in texts(from_files(data).dev) if t.startswith("text")}
    note = part.note()
    assert note.startswith("kept in train, as dev would have taken every row of them: 'rare")
    assert "more)" in note
    assert from_files(Data(train=data.train, dev_fraction=0), classes=True).note() == ""


def test_copies_of_an_only_row_stay_in_train_with_it(tmp_path):
    rows = singles(tmp_path)
    chosen = texts(from_files(Data(train=rows_file(tmp_path, rows), dev_fraction=0.3)).dev)
    only = next(t for t in chosen if t.startswith("only"))
    data = Data(
        train=rows_file(tmp_path, [*rows, (only, "a"), (only.upper(), "b")]), dev_fraction=0.3
    )
    part = from_files(data, classes=True)
    assert not {only, only.upper()} & set(texts(part.dev))


def test_a_label_that_stands_beside_others_stays_in_train(tmp_path):
    path = tmp_path / "several.jsonl"
    rows = [{"text": f"text {i}", "label": ["a", "b"][: 1 + i % 2]} for i in range(97)]
    rows += [{"text": f"only {i}", "label": ["a", f"rare{i}"]} for i in range(41)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = Data(train=str(path), dev_fraction=0.3)
    part = from_files(data, classes=True)
    assert texts(part.dev)
    assert not any(t.startswith("only") for t in texts(part.dev))
    data = Data(train=str(path), dev_fraction=0.6)  # more than half of every set of labels
    chosen = choose_holdout(data)
    part = apply_holdout(data, chosen)
    for side in (part.dev, part.test):
        assert texts(side)
        assert not any(t.startswith("only") for t in texts(side))
    assert "rare" in chosen.note


def test_every_fold_trains_on_every_class(tmp_path):
    data = Data(train=rows_file(tmp_path, singles(tmp_path)), dev_fraction=0.3)
    tested: list[str] = []
    for part in cross_validation_splits(data, 5):
        train, dev, test = ({e.label for e in s()} for s in (part.train, part.dev, part.test))
        assert dev | test <= train
        tested += texts(part.test)
        assert "rare" in part.note()
    assert sorted(tested) == sorted(f"text {i}" for i in range(97))
    numbers = Data(train=rows_file(tmp_path, [(f"text {i}", str(i)) for i in range(53)]))
    assert (
        sum(len(texts(part.test)) for part in cross_validation_splits(numbers, 5, numbers=True))
        == 53
    )
    assert cross_validation_splits(numbers, 5, numbers=True)[0].note() == ""
