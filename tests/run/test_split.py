"""Folds and test shares: everything once, labels evenly, copies together."""

from collections import Counter

import pytest

from weft.errors import UserError
from weft.run.data import Data, Source
from weft.run.split import Holdout, digest, folded, folds, from_files, holdout, key, with_test
from weft.text.example import Example


def examples(count: int) -> list[Example]:
    return [Example(f"text {i}", ("a", "b", "b")[i % 3]) for i in range(count)]


def texts(source: Source | None) -> list[str]:
    assert source is not None
    return [example.text for example in source()]


def test_folds_stratify_and_cover():
    data = examples(91)
    owner = folds(data, 7)
    assert Counter(owner) == dict.fromkeys(range(7), 13)
    for label, count in Counter(e.label for e in data).items():
        per_fold = Counter(k for e, k in zip(data, owner, strict=True) if e.label == label)
        assert all(abs(per_fold[k] - count / 7) < 1 for k in range(7))
    assert owner == folds(data, 7)
    assert owner != folds(data, 7, seed=1)


def test_copies_of_a_text_stay_together():
    data = examples(23) + examples(11) + [Example("text 5", "a")] * 3
    owner = folds(data, 5)
    where: dict[str, set[int]] = {}
    for example, fold in zip(data, owner, strict=True):
        where.setdefault(example.text, set()).add(fold)
    assert all(len(found) == 1 for found in where.values())
    assert max(Counter(owner).values()) - min(Counter(owner).values()) <= 3


def test_numbers_are_spread_over_the_scale():
    data = [Example(f"text {i}", str(i * 0.5)) for i in range(100)]
    owner = folds(data, 5, numbers=True)
    lowest = [k for e, k in zip(data, owner, strict=True) if float(str(e.label)) < 10]
    assert Counter(lowest) == dict.fromkeys(range(5), 4)


def test_too_few_texts_for_the_folds():
    with pytest.raises(UserError, match="5 folds need at least 5 different texts; 3 found"):
        folds(examples(3) * 2, 5)


def test_folded_splits_hold_every_example_once(tmp_path):
    path = tmp_path / "all.tsv"
    path.write_text("text\tlabel\n" + "".join(f"word {i}\t{'ab'[i % 2]}\n" for i in range(53)))
    tests: list[str] = []
    for part in folded(Data(train=str(path), share=0.3), 5):
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
    part = with_test(data, holdout(data))
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
    part = with_test(data, holdout(data))
    sides = [{key(t) for t in texts(side)} for side in (part.train, part.dev, part.test)]
    assert all(sides)
    assert sum(map(len, sides)) == 211


def test_numbers_are_held_out_over_the_whole_scale(tmp_path):
    rows = [(f"text {i}", str(i / 7)) for i in range(500)]
    data = Data(train=rows_file(tmp_path, rows))
    part = with_test(data, holdout(data, numbers=True))
    low = [t for t in texts(part.test) if int(t.split()[1]) < 50]
    assert 9 <= len(low) <= 11


def test_what_has_a_file_is_not_cut_from_train(tmp_path):
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(101)]
    data = Data(train=rows_file(tmp_path, rows))
    both = Data(train=data.train, dev=data.train, test=data.train)
    assert holdout(both) == Holdout()
    assert len(texts(with_test(both, Holdout()).train)) == 101
    chosen = holdout(Data(train=data.train, test=data.train))
    assert not chosen.test
    assert len(chosen.dev) == 10


def test_a_holdout_is_saved_and_read_back(tmp_path):
    chosen = Holdout(frozenset({1, 2**64 - 1}), frozenset({7}))
    chosen.save(tmp_path / "split.npz")
    assert Holdout.load(tmp_path / "split.npz") == chosen


def test_phrases_go_where_their_sentence_goes(tmp_path):
    path = tmp_path / "trees.txt"
    rows = [f"(1 (0 (0 bad{i}) (1 film{i})) (1 end{i}))\n" for i in range(40)]
    path.write_text("".join(rows))
    data = Data(train=str(path), phrases=True, share=0.3, format="trees")
    for part in (with_test(data, holdout(data)), *folded(data, 3)):
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
    before = digest(str(file)), digest(str(folder))
    assert before == (digest(str(file)), digest(str(folder)))
    file.write_text("abd")
    (folder / "x").rename(folder / "y")
    assert digest(str(file)) != before[0]
    assert digest(str(folder)) != before[1]


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


def test_a_missing_side_of_the_test_file_is_told_before_anything_is_read(tmp_path):
    for name in ("a.en", "a.de", "t.en"):
        (tmp_path / name).write_text("a b\n", "utf-8")
    pair = f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}"
    assert from_files(Data(train=pair, test=pair)).test is not None
    with pytest.raises(UserError, match=r"t\.de: no such file"):
        from_files(Data(train=pair, test=f"{tmp_path / 't.en'},{tmp_path / 't.de'}"))
    with pytest.raises(UserError, match=r"t\.de: no such file"):
        from_files(Data(train=str(tmp_path / "a.en"), test=str(tmp_path / "t.en"), target="de"))
