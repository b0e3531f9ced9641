"""Bad input is refused in one line that names the row; good input of any container is taken."""

import warnings

import numpy as np
import pandas
import pytest
from sklearn.exceptions import DataConversionWarning

import weft
from tests.fixtures.estimator_data import LABELS, NEW, PAIRS, SENTENCES, TAGS, TEXTS
from weft.errors import UserError, UserNote
from weft.estimators.inputs import (
    check_labels,
    check_numbers,
    check_order,
    check_pairs,
    check_texts,
    check_weights,
)

NAN = float("nan")


def bad_texts():
    return {
        "NaN": (["a", NAN], r"X\[1\] is missing \(nan\)\. Fill it in, or leave out the row"),
        "None": (["a", "b", None], r"X\[2\] is missing \(None\)"),
        "number": (["a", 3], r"X\[1\] is 3 \(int\), not a text"),
        "bytes": ([b"a"], r"X\[0\] is b'a' \(bytes\), not a text\. Decode it"),
        "list": ([["a"], ["b"]], r"X\[0\] is \['a'\] \(list\), not a text"),
        "text": ("a text", r"X is 'a text' \(str\); it should be a list or array"),
        "nothing": (None, r"X is None; it should be a list"),
        "empty": ([], r"X has no rows: 0 samples found"),
        "empty array": (np.array([], object), r"X has no rows"),
        "2-D": (np.array([["a"], ["b"]]), r"X has the shape \(2, 1\); it should be one-dim"),
        "0-D": (np.array("a"), r"X has the shape \(\); it should be one-dimensional"),
        "numbers": (np.arange(4.0), r"X\[0\] is .*0\.0.*, not a text"),
    }


@pytest.mark.parametrize("name", bad_texts())
def test_bad_texts(name, classifier):
    X, message = bad_texts()[name]
    for call in (check_texts, lambda X: weft.Classifier().fit(X, ["a", "b"]), classifier.predict):
        with pytest.raises(UserError, match=message):
            call(X)


def test_blank_texts_cannot_be_learned_but_answered(classifier):
    with pytest.raises(UserError, match=r"X\[1\]: the text is empty"):
        weft.Classifier().fit(["good", " ", "bad"], ["a", "b", "b"])
    skipped = weft.Classifier(data__on_bad_row="skip").fit([*TEXTS, " "], [*LABELS, "positive"])
    assert any("empty text" in note for note in skipped.record_["notes"])
    assert len(classifier.predict([""])) == 1


def bad_labels():
    return {
        "missing": (["a", None, "b"], r"y\[1\] is missing \(None\)"),
        "NaN": ([0.0, 1.0, NAN], r"y\[2\] is missing \(nan\): Input y contains NaN"),
        "NaN among texts": (["a", "b", NAN], r"y\[2\] is missing"),
        "infinite": ([0.0, 1.0, np.inf], r"y\[2\] is inf"),
        "mixed": (["a", 1, "b"], r"y\[1\] is 1 \(int\), but y\[0\] is 'a' \(str\)"),
        "ragged": ([["a"], ["a", "b"], []], r"y has rows of different lengths"),
        "empty": (["a", "", "b"], r"the labels \('', 'a', 'b'\) are empty or not distinct"),
        "continuous": ([0.1, 0.2, 0.3], r"Unknown label type: continuous"),
        "no matrix": ([[1, 2], [0, 1], [1, 1]], r"y\[0\] has 2 in column 1: a matrix of several"),
        "3-D": (np.zeros((3, 1, 1)), r"y has the shape \(3, 1, 1\)"),
        "text": ("abc", r"y is 'abc' \(str\)"),
        "nothing": (None, r"requires y to be passed, but the target y is None"),
        "one": (["a", "a", "a"], r"y has one class only: every row has the label 'a'"),
        "short": (["a", "b"], r"X has 3 rows, but y has 2"),
    }


@pytest.mark.parametrize("name", bad_labels())
def test_bad_labels(name):
    y, message = bad_labels()[name]
    with pytest.raises(ValueError, match=message):
        weft.Classifier().fit(["a text", "b text", "c text"], y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, NAN], r"y\[1\] is nan"),
        ([1.0, "2"], r"y\[1\] is '2' \(str\), not a number"),
        ([1.0, True], r"y\[1\] is True"),
        ([[1.0, 2.0], [np.inf, 1.0]], r"y\[1\] is inf"),
        ([1.0], r"X has 2 rows, but y has 1"),
    ],
)
def test_bad_numbers(y, message):
    with pytest.raises(UserError, match=message):
        weft.Regressor().fit(["a", "b"], y)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([("a", "b"), "c"], r"X\[1\] is 'c' \(str\), not a pair"),
        ([("a", "b"), ("c", None)], r"X\[1\]\[1\] is missing"),
        ([("a", "b", "c")], r"X\[0\] is \('a', 'b', 'c'\) \(tuple\), not a pair"),
        ([NAN], r"X\[0\] is missing"),
        (np.array([["a", "b", "c"]]), r"X has 3 columns; it should have 2"),
    ],
)
def test_bad_pairs(X, message):
    with pytest.raises(UserError, match=message):
        check_pairs(X)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (["a b"], [["X", "X"]], r"X\[0\] is 'a b' \(str\), not a list"),
        ([["a", "b"]], [["X"]], r"y\[0\] has 1 tags, but X\[0\] has 2 words"),
        ([["a", "b"]], [["X", NAN]], r"y\[0\]\[1\] is missing"),
        ([["a"], []], [["X"], []], r"X\[1\] is empty"),
        ([["a", " "]], [["X", "X"]], r"X\[0\]\[1\] is empty"),
        ([["a"], ["b"]], [["X"]], r"X has 2 rows, but y has 1"),
    ],
)
def test_bad_words_and_tags(X, y, message):
    with pytest.raises(UserError, match=message):
        weft.Tagger("crf").fit(X, y)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -1.0, 1.0], r"sample_weight\[1\] is -1"),
        ([1.0, NAN, 1.0], r"sample_weight\[1\] is nan"),
        ([1.0, 1.0], r"X has 3 rows, but sample_weight has 2"),
        ([0, 0, 0], r"Every sample_weight is zero"),
        ([[1, 2], [1, 2], [1, 2]], r"sample_weight has the shape \(3, 2\)"),
        ([0, 1, 1], r"y has one class only: every row has the label 'b'"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(UserError, match=message):
        weft.Classifier().fit(["a text", "b text", "c text"], ["a", "b", "b"], weights)


def test_bad_dev_data():
    fit = weft.Classifier().fit
    with pytest.raises(UserError, match=r"dev should be a pair, dev=\(X_dev, y_dev\)"):
        fit(TEXTS, LABELS, dev=TEXTS)
    with pytest.raises(UserError, match=r"dev X\[1\] is missing"):
        fit(TEXTS, LABELS, dev=(["a", None], ["positive", "negative"]))
    with pytest.raises(UserError, match=r"dev\[1\]: label 'neutral' was not seen in training"):
        fit(TEXTS, LABELS, dev=(["a", "b"], ["positive", "neutral"]))


def test_labels_of_another_type_are_refused_and_unseen_ones_reported(classifier):
    texts = [*NEW, "a new film"]
    with pytest.raises(UserError, match="but the classes are of type"):
        classifier.score(texts, [1, 0, 1, 0])
    right = [str(label) for label in classifier.predict(texts)]
    with pytest.warns(UserWarning, match=r"y\[2\]: the label 'neutral' was not seen in training"):
        assert classifier.score(texts, [*right[:2], "neutral", right[3]]) == 0.75


def test_containers_of_texts_and_labels():
    class Series:
        """Like one of pandas: positions are not its index."""

        iloc = object()
        shape = (2,)
        array = ("a", "b")

        def __len__(self):
            return 2

        def __iter__(self):
            raise AssertionError

    assert check_texts(Series()) == ["a", "b"]
    assert check_texts(np.array(["a", "b"])) == check_texts(("a", "b")) == ["a", "b"]
    assert all(type(text) is str for text in check_texts(np.array(["a", "b"])))
    assert check_pairs(np.array([["a", "b"], ["c", "d"]], object)) == [("a", "b"), ("c", "d")]
    assert check_labels(np.array([2, 10, 9])).names == ("2", "9", "10")
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        assert check_labels(np.array([[1], [0]])).rows == ["1", "0"]
    assert check_numbers([1, 2.5]).dtype == np.float64
    assert len(PAIRS) == len(SENTENCES) == len(TAGS)


def test_rows_of_another_index_are_named_by_both():
    index = ["r9", "r4", "r7"]
    texts = pandas.Series(["a", None, "c"], index)
    with pytest.raises(UserError, match=r"^X\[1\] \(index 'r4'\) is missing"):
        check_texts(texts)
    with pytest.raises(UserError, match=r"^X\[1\] \(index 'r4'\)\[0\] is missing"):
        check_pairs(pandas.DataFrame({"a": texts, "b": "d"}))
    with pytest.raises(UserError, match=r"^y\[1\] \(index 'r4'\) is missing"):
        check_labels(texts)
    with pytest.raises(UserError, match=r"^y\[2\] \(index 12\) is 3 \(int\), but y\[0\] is 'a'"):
        check_labels(pandas.Series(["a", "b", 3], range(10, 13)))
    with pytest.raises(UserError, match=r"^y\[2\] \(index 'r7'\) is nan: NaN"):
        check_numbers(pandas.Series([1.0, 2.0, NAN], index))
    with pytest.raises(UserError, match=r"^sample_weight\[1\] \(index 'r4'\) is -1"):
        check_weights(pandas.Series([1.0, -1.0, 1.0], index), 3)
    with pytest.raises(UserError, match=r"^X\[1\] is missing"):
        check_texts(texts.reset_index(drop=True))


def test_an_unsorted_index_does_not_move_rows_and_one_in_another_order_is_reported():
    texts, labels = pandas.Series(TEXTS), pandas.Series(LABELS)
    order = np.random.RandomState(0).permutation(len(TEXTS))
    mixed, numbers = texts.iloc[order], pandas.Series(np.arange(len(TEXTS), dtype=float))
    model = weft.Classifier(classic__C=3.0, dev_fraction=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = model.fit(mixed.tolist(), labels.iloc[order].tolist()).predict_proba(NEW)
        same = model.fit(mixed, labels.iloc[order]).predict_proba(NEW)
        np.testing.assert_array_equal(same, expected)
        categories = labels.iloc[order].astype("category").cat.add_categories(["never"])
        assert model.fit(mixed.astype("category"), categories).classes_.tolist() == [
            "negative", "positive",
        ]  # fmt: skip
        np.testing.assert_array_equal(model.predict_proba(NEW), expected)
        check_order(mixed, LABELS)
        check_order(mixed, labels.set_axis(range(1, 1 + len(labels))))
    message = r"X and y have the same index in another order: row 0 is \d+ in X and 0 in y\."
    with pytest.warns(UserNote, match=message):
        model.fit(mixed, labels)
    with pytest.warns(UserNote, match=message):
        model.score(mixed, labels)
    with pytest.warns(UserNote, match=message):
        weft.Regressor()._rows(mixed, numbers)
    with pytest.warns(UserNote, match=message):
        weft.Tagger()._rows(mixed.str.split(), texts.iloc[order].str.split().set_axis(range(60)))
