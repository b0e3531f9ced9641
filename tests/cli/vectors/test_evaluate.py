"""weft vectors evaluate, align and plot, from the command line."""

import json

import numpy as np
import pytest

from tests.fixtures.command import fails, ok, says
from weft.embed.subwords import Subwords
from weft.vectors.store import Vectors

E = 7
COUNT = 61
rng = np.random.default_rng(17)
ROTATION = np.linalg.qr(rng.normal(size=(E, E)))[0].astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """a.vec, and b.vec: the same vectors turned, under other names."""
    folder = tmp_path_factory.mktemp("vectors")
    x = rng.normal(size=(COUNT, E)).astype(np.float32)
    Vectors([f"a{i}" for i in range(COUNT)], x).save(folder / "a.vec")
    Vectors([f"b{i}" for i in range(COUNT)], x @ ROTATION).save(folder / "b.vec")
    lines = [f"a{i}\tb{i}\n" for i in range(COUNT)]
    (folder / "learn.txt").write_text("".join(lines[:23]))
    (folder / "test.txt").write_text("".join([*lines[23:], "new\tb1\n"]))
    (folder / "pairs.txt").write_text("".join(f"a{i} A{i + 1} {i % 5}\n" for i in range(COUNT)))
    (folder / "asked.txt").write_text(": one\na1 a2 a3 a4\n: gram2\na5 a6 a7 gone\na1 a3 a5 a7\n")
    return folder


def test_evaluate(folder):
    done = ok("vectors", "evaluate", folder / "a.vec", folder / "pairs.txt", folder / "asked.txt")
    says(done.out, "list", "Spearman", "covered", "pairs", "60/61", "98.4 %")
    says(done.out, "asked", "3CosAdd", "one", "1/1", "gram2", "1/2", "50.0 %", "all", "2/3")
    assert "composed" not in done.out


def test_evaluate_json(folder):
    lists = (folder / "pairs.txt", folder / "asked.txt")
    options = ("--method", "multiply", "--json")
    rows = [json.loads(line) for line in
            ok("vectors", "evaluate", folder / "a.vec", *lists, *options).lines]  # fmt: skip
    assert (rows[0]["list"], rows[0]["kind"], rows[0]["found"]) == ("pairs", "similarity", 60)
    assert set(rows[0]["spearman"]) == {"value", "low", "high", "n"}
    assert rows[0]["coverage"] == pytest.approx(60 / 61)
    assert rows[1]["method"] == "multiply"
    assert rows[1]["sections"]["gram2"]["coverage"] == 0.5


def test_evaluate_options(folder):
    cased = ok(
        "vectors", "evaluate", folder / "a.vec", folder / "pairs.txt", "--case-sensitive", "--json"
    )
    assert json.loads(cased.out)["found"] == 0
    few = ok("vectors", "evaluate", folder / "a.vec", folder / "pairs.txt", "--max-words", 11)
    says(few.out, "10/61")
    says(fails("vectors", "evaluate", folder / "a.vec", folder / "learn.txt"),
         "learn.txt:1: two words and a score expected, found 2 columns")  # fmt: skip
    says(fails("vectors", "evaluate", folder / "a.vec", folder / "asked.txt", "--method", "mul"),
         "Unknown analogy method 'mul'", "add, multiply")  # fmt: skip
    says(
        fails("vectors", "evaluate", folder / "a.vec", folder / "pairs"),
        "no such file",
        "pairs.txt",
    )


def test_align_brings_translations_together(folder, tmp_path):
    given = (folder / "a.vec", folder / "b.vec", "--dictionary", folder / "learn.txt")
    out = tmp_path / "turned.vec"
    done = ok("vectors", "align", *given, "--test", folder / "test.txt", "-o", out)
    says(done.out, "learnt from 23 of 23 pairs", "precision@1: 100.0", "precision@5: 100.0",
         "38 of 39 words (97.4 %)", str(out))  # fmt: skip
    turned, target = Vectors.load(out), Vectors.load(folder / "b.vec")
    assert turned.words[5] == "a5"
    np.testing.assert_allclose(turned.matrix, target.matrix, atol=1e-4)
    says(fails("vectors", "align", *given, "-o", out), "exists. Pass --overwrite")


def test_align_json_and_refinement(folder):
    given = (folder / "a.vec", folder / "b.vec", "--dictionary", folder / "learn.txt")
    row = json.loads(ok("vectors", "align", *given, "--test", folder / "test.txt",
                        "--refine", 2, "--centre", "--json").out)  # fmt: skip
    assert row["precision@1"]["value"] == 1
    assert (len(row["rounds"]), row["given"], row["coverage"]) == (3, 23, 38 / 39)


def test_align_by_identical_strings(folder, tmp_path):
    words = [f"b{i}" if i % 2 else f"a{i}" for i in range(COUNT)]
    mixed = tmp_path / "mixed.safetensors"
    table = rng.normal(size=(COUNT + 13, E)).astype(np.float32)
    Vectors(words, None, subwords=Subwords(table, COUNT)).save(mixed)
    out = tmp_path / "out.safetensors"
    done = ok("vectors", "align", mixed, folder / "b.vec", "--identical", "-o", out)
    says(done.out, "learnt from 30 of 30 pairs")
    # Turned n-grams make the turned vectors.
    one, two = Vectors.load(mixed), Vectors.load(out)
    turn = np.linalg.lstsq(one.matrix, two.matrix, rcond=None)[0]
    np.testing.assert_allclose(one["unheard"] @ turn, two["unheard"], atol=1e-4)
    done = ok("vectors", "align", mixed, folder / "b.vec", "--identical", "--centre",
              "-o", out, "--overwrite")  # fmt: skip
    says(done.err, "sub-words are left out")
    assert Vectors.load(out).subwords is None
    both = (folder / "a.vec", folder / "b.vec")
    says(fails("vectors", "align", *both, "--identical", "-o", "x.vec"),
         "no word in common", "--dictionary")  # fmt: skip


def test_align_needs_a_source_of_pairs_and_something_to_do(folder):
    both = (folder / "a.vec", folder / "b.vec")
    says(fails("vectors", "align", *both, "-o", "x.vec"), "either --dictionary FILE or --identical")
    says(fails("vectors", "align", *both, "--identical"), "Nothing to do: pass -o FILE")


def test_few_pairs_are_noted(folder, tmp_path):
    few = tmp_path / "few.txt"
    few.write_text("a1 b1\na2 b2\n")
    done = ok("vectors", "align", folder / "a.vec", folder / "b.vec", "--dictionary", few,
              "--test", folder / "test.txt")  # fmt: skip
    says(done.err, "fewer pairs than numbers in a vector (7)")


def test_plot(folder, tmp_path):
    page = tmp_path / "map.html"
    listed = tmp_path / "words.txt"
    listed.write_text("a1\na9\n")
    done = ok(
        "vectors", "plot", folder / "a.vec", "--words", f"@{listed}", "--neighbours", 3, "-o", page
    )
    says(done.err, "map.html: 8 words")
    text = page.read_text("utf-8")
    assert "t-SNE preserves" in text
    assert "PCA preserves" in text
    ok("vectors", "plot", folder / "a.vec", "--top", 11, "--method", "pca", "-o", page)
    assert "t-SNE preserves" not in page.read_text("utf-8")
    picture = tmp_path / "map.svg"
    ok("vectors", "plot", folder / "a.vec", "--words", "a1, a2", "--neighbours", 0, "-o", picture)
    text = picture.read_text("utf-8")
    assert text.startswith("<svg")
    assert text.count("<circle") == 2


def test_plot_errors(folder, tmp_path):
    says(fails("vectors", "plot", folder / "a.vec", "-o", tmp_path / "map.png"),
         "name a .html page or a .svg picture")  # fmt: skip
    says(fails("vectors", "plot", folder / "a.vec", "--words", "a1,zz", "-o", tmp_path / "m.svg"),
         "No vector for 'zz'")  # fmt: skip
    says(fails("vectors", "plot", folder / "a.vec", "--method", "tsne", "-o", tmp_path / "m.svg"),
         "Unknown projection 'tsne'. Did you mean 't-sne'?")  # fmt: skip
