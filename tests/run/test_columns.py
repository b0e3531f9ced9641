"""The columns of all files of a run are decided once, printed, saved with the model, or refused."""

import json

import numpy as np
import pytest

import weft
from tests.fixtures.command import command, fails, ok
from weft.config import recipe
from weft.errors import UserError
from weft.run.data import Data
from weft.run.data import choose_columns as chosen
from weft.text.tag_columns import choose_tag_columns

NAMES = ("Ada", "Bo", "Cy", "Di", "Ed", "Flo", "Gil", "Hal", "Ida", "Jo")
WORDS = ("sees", "hears", "the", "dog", "walks", "slowly", "home", "again", "with", "us")


def uner(path, annotators, sentences=40, quiet=0, seed=3):
    """Write `id word tag - annotator`; the first `quiet` sentences have no name."""
    rng = np.random.default_rng(seed)
    lines = []
    for n in range(quiet + sentences):
        who = rng.choice(annotators)
        words = [str(rng.choice(WORDS)) for _ in range(5)]
        tags = ["O"] * 5
        if n >= quiet:
            place = int(rng.integers(5))
            words[place], tags[place] = str(rng.choice(NAMES)), "B-PER"
        lines += [f"# sent_id = s{n}"]
        cells = zip(words, tags, strict=True)
        lines += [f"{i}\t{w}\t{t}\t-\t{who}" for i, (w, t) in enumerate(cells, 1)]
        lines.append("")
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.fixture
def files(tmp_path):
    """Three files like the Swedish UNER: 1,000 lines without a name, annotators who differ."""
    return (
        uner(tmp_path / "train.iob2", ("ann", "bob"), quiet=170),
        uner(tmp_path / "dev.iob2", ("ann", "bob"), 20, seed=4),
        uner(tmp_path / "test.iob2", ("cem", "dan"), 20, seed=5),
    )


def test_tags_are_not_the_annotators(tmp_path, files):
    pytest.importorskip("pycrfsuite")
    train, dev, test = files
    out = ok(
        *("train", "--recipe", "crf", "--train", train, "--dev", dev, "--test", test),
        *("-o", tmp_path / "run"),
    )
    told = "words: column 1; tags: column 2 (PER, IOB2); ignored: 0, 3, 4 (columns count from 0)"
    assert out.err.count(told) == 1
    saved = json.loads((tmp_path / "run/model/model.json").read_text("utf-8"))["config"]["data"]
    assert (saved["text"], saved["label"]) == (1, 2)
    found = json.loads(ok("evaluate", tmp_path / "run", test, "--json").out)
    assert found["f1"]["value"] > 0.9
    # A file of few rows, in which no tag is seen, is read by the same columns.
    short = tmp_path / "short.iob2"
    short.write_text("1\tdog\tO\t-\tcem\n2\twalks\tO\t-\tdan\n", "utf-8")
    evaluated = json.loads(ok("evaluate", tmp_path / "run", short, "--json").out)
    assert evaluated["tag"]["value"] == 1.0


def test_every_verb_prints_the_same_decision_once(tmp_path, files):
    pytest.importorskip("pycrfsuite")
    train, dev, test = files
    told = "words: column 1; tags: column 2 (PER, IOB2); ignored: 0, 3, 4"
    checked = command("check", train, dev, test, "--json")
    assert checked.err.count(told) == 1
    json.loads(checked.out)
    compared = ok(
        *("compare", train, test, "--dev", dev, "--recipes", "crf", "--minutes", 0),
        *("-o", tmp_path / "compared"),
    )
    assert compared.err.count(told) == 1
    pytest.importorskip("optuna")
    tuned = ok(
        *("tune", "--recipe", "crf", "--train", train, "--dev", dev, "-o", tmp_path / "tuned"),
        *("--search", "classic.l2=0.5,1", "--trials", 1, "--seeds", 0),
    )
    assert tuned.err.count("words: column 1; tags: column 2") == 1


def test_two_candidates_stop_the_training(tmp_path):
    rows = [f"w{n} {'NVA'[n % 3]} {'xyz'[n * 7 % 11 % 3]}" for n in range(60)]
    path = tmp_path / "a.conll"
    path.write_text("\n".join(rows) + "\n", "utf-8")
    message = fails("train", "--recipe", "crf", "--train", path, "-o", tmp_path / "run")
    assert "column 1 (N, V, A…) and column 2 (" in message
    assert message.endswith("could each be the tags. Pass --label 1 or --label 2.")
    assert "--label 1 or --label 2" in fails("check", path)
    ok("train", "--recipe", "crf", "--train", path, "-o", tmp_path / "run", "--label", 1)


def test_a_candidate_must_hold_in_every_file(tmp_path):
    one = tmp_path / "a.conll"
    one.write_text("".join(f"w{n} {'NV'[n % 2]} B-X\n" for n in range(40)), "utf-8")
    two = tmp_path / "b.conll"
    two.write_text("".join(f"w{n} B-X m{n}\n" for n in range(40)), "utf-8")
    with pytest.raises(UserError, match=r"a\.conll: column 2, .*b\.conll: column 1\).*--label"):
        choose_tag_columns([str(one), str(two)])
    three = tmp_path / "c.conll"  # without an entity: it does not contradict the first
    three.write_text("".join(f"w{n} {'NV'[n % 2]} O\n" for n in range(40)), "utf-8")
    assert choose_tag_columns([str(one), str(three)]).tags == 2


ROLES = (
    "1\tBush\tBush\tPROPN\tNNP\t(TOP(S(NP*)\t_\t(ARG0*)\n"
    "2\tsaw\tsee\tVERB\tVBD\t(VP*)))\tsee.01\t(V*)\n"
)
OIE = (
    "word_id\tword\tpred\tpred_id\thead_pred_id\tsent_id\trun_id\tlabel\n"
    "0\tQVC\tsaid\t[1]\t1\t0\t0\tA0-B\n1\tsaid\tsaid\t[1]\t1\t0\t0\tP-B\n"
)
LITBANK = (
    "#begin document (a); part 0\n"
    "a\t0\t0\tLord\t_\t_\t(0|(1)\na\t0\t1\tJim\t_\t_\t0)\na\t0\t2\tran\t_\t_\t\n"
)
GUM = "#begin document (a)\n0\tThe\t(abstract-1\n1\tdog\tabstract-1)\n2\tran\t_\n"


@pytest.mark.parametrize(
    ("content", "name", "fix"),
    [
        (ROLES, "semantic role labelling", "--text 1 --label upos"),
        (OIE, "open information extraction", "--text word --label label"),
        (LITBANK, "coreference", "--text 3 --label 6"),
        (GUM, "coreference", "--text 1 --label 2"),
    ],
)
def test_structures_that_are_no_tags_are_refused(tmp_path, content, name, fix):
    pytest.importorskip("pycrfsuite")
    path = tmp_path / "a.conll"
    path.write_text((content + "\n") * 30 if content is not OIE else content, "utf-8")
    run = ("train", "--recipe", "crf", "--train", path, "--set", "data.dev_fraction=0")
    message = fails(*run, "-o", tmp_path / "run")
    assert name in message
    assert fix in message
    if content is OIE:  # the others are checked as what they are
        assert name in fails("check", path)
    ok(*run, "-o", tmp_path / "run", *fix.split())  # what the message says can be done


def table(path, rows):
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


def test_columns_of_a_table_are_printed_saved_and_used_again(tmp_path):
    rows = [
        f"n{i},{'good' if i % 2 else 'bad'} film {i},{'pos' if i % 2 else 'neg'}" for i in range(40)
    ]
    train = table(tmp_path / "a.csv", ["name,review,sentiment", *rows])
    told = "text: column 'review'; label: column 'sentiment'; ignored: 'name'"
    out = ok("train", "--recipe", "tfidf", "--train", train, "-o", tmp_path / "run")
    assert out.err.count(told) == 1
    saved = json.loads((tmp_path / "run/model/model.json").read_text("utf-8"))["config"]["data"]
    assert (saved["text"], saved["label"]) == ("review", "sentiment")
    checked = command("check", train, "--json")
    assert told in checked.err
    assert json.loads(checked.out)
    # By itself this file would be read with 'text' as the text.
    test = table(tmp_path / "b.csv", ["text,review,sentiment", "a bad film,good film 1,pos"])
    found = json.loads(ok("evaluate", tmp_path / "run", test, "--json").out)
    assert found["accuracy"]["value"] == 1.0


def test_positions_are_not_used_where_a_file_has_names(tmp_path):
    rows = [
        f"{'pos' if i % 2 else 'neg'}\t{'good' if i % 2 else 'bad'} film {i}" for i in range(40)
    ]
    ok(
        "train",
        "--recipe",
        "tfidf",
        "--train",
        table(tmp_path / "a.tsv", rows),
        "-o",
        tmp_path / "run",
    )
    test = table(tmp_path / "b.csv", ["text,label", "good film 1,pos", "bad film 2,neg"])
    done = ok("evaluate", tmp_path / "run", test, "--json")
    assert json.loads(done.out)["accuracy"]["value"] == 1.0
    assert "b.csv: text: column 'text'; label: column 'label'" in done.err


LICENCES = ("CC-BY 2.0 (France) tatoeba", "CC0 1.0 Universal tatoeba", "CC-BY 4.0 by tatoeba")


def test_a_licence_is_neither_text_nor_target(tmp_path):
    rows = [
        f"We see {i} dogs today.\t我们今天看见{i}只狗了\t{LICENCES[i % 3]} {LICENCES[i % 2]}"
        for i in range(40)
    ]
    path = table(tmp_path / "a.tsv", rows)
    settings = recipe("seq2seq").with_values({"data.train": str(path)}, "test").sections

    data, lines = chosen(Data(train=str(path)), {"kind": "seq2seq"})
    assert (data.text, data.label) == (0, 1)
    assert lines == ("text: column 0; label: column 1; ignored: 2 (columns count from 0)",)
    assert settings["task"]["kind"] == "seq2seq"
    with pytest.raises(
        UserError, match=r"column 0 .* and column 1 .* could each be the text.*--text 0"
    ):
        chosen(Data(train=str(path)), {"kind": "classify"})
    unique = [f"{row} number {i}" for i, row in enumerate(rows)]
    table(path, unique)
    with pytest.raises(UserError, match=r"could each be source or target\. Pass --text"):
        chosen(Data(train=str(path)), {"kind": "seq2seq"})


def test_pairs_without_names_are_not_guessed(tmp_path):
    rows = [f"a dog {i} runs,the dog {i} ran,{i / 10}" for i in range(40)]
    path = table(tmp_path / "a.csv", rows)
    message = fails(
        *("train", "--recipe", "towers", "--task", "pair-score", "--train", path),
        *("-o", tmp_path / "run"),
    )
    assert "--text A --text-pair B" in message


def test_python_reads_with_the_saved_columns_too(tmp_path, files):
    pytest.importorskip("pycrfsuite")
    train, dev, _ = files
    config = recipe("crf").with_values({"data.train": str(train), "data.dev": str(dev)}, "test")
    found = weft.train(config, tmp_path / "run", quiet=True)
    assert found.predictor.config["data"]["label"] == 2
