"""Files of the built-in reviews: `weft demo --reviews`."""

from tests.fixtures.command import ok
from weft.text.read import read
from weft.text.synthetic.reviews import generate_reviews, write_reviews


def test_reviews_are_written_as_they_are_generated(tmp_path):
    parts = generate_reviews(size=90)
    write_reviews(tmp_path, parts)
    for split, reviews in parts.items():
        got = [(one.text, one.label, one.id) for one in read(tmp_path / f"{split}.tsv")]
        assert got == [(one.text, one.label, one.id) for one in reviews]


def test_pairs_agree_where_their_labels_are_equal(tmp_path):
    parts = generate_reviews(size=90)
    labels = {one.text: one.label for reviews in parts.values() for one in reviews}
    write_reviews(tmp_path, parts)
    rows = (tmp_path / "train-pairs.tsv").read_text("utf-8").splitlines()[1:]
    assert len(rows) == len(parts["train"])
    for row in rows:
        first, second, label = row.split("\t")
        assert label == ("agree" if labels[first] == labels[second] else "differ")


def test_demo_names_the_files_and_the_next_command(tmp_path):
    out = ok("demo", "--reviews", tmp_path / "data").out
    assert "train-pairs.tsv  pairs that agree or differ" in out
    assert out.splitlines()[-1].startswith("next: weft train --recipe cnn --train ")
