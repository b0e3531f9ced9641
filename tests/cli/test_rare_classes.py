"""Classes with one row: they are learned, whatever the split."""

from tests.fixtures.command import SMALL, ok


def rows(folder):
    path = folder / "rare.tsv"
    texts = [f"{'ab'[i % 2]}\ttext {i} of {'ab'[i % 2]}\n" for i in range(61)]
    texts += [f"rare{i}\tonly this {i}\n" for i in range(23)]
    path.write_text("".join(texts))
    return path


def test_classes_with_one_row_can_be_trained(tmp_path):
    data = rows(tmp_path)
    for recipe, more in (("tfidf", ()), ("bag", SMALL)):
        more = (*more, "--set", "data.dev_fraction=0.3")
        done = ok("train", "--recipe", recipe, "--train", data, "-o", tmp_path / recipe, *more)
        said = " ".join(done.err.split())
        assert "note: kept in train, as dev would have taken every row of them: 'rare" in said


def test_classes_with_one_row_can_be_compared(tmp_path):
    data = rows(tmp_path)
    more = ("--recipes", "tfidf", "--seeds", "1")
    done = ok("compare", data, "-o", tmp_path / "folds", "--folds", "3", *more)
    assert "failed" not in done.err
    ok("compare", data, "-o", tmp_path / "test", *more)
