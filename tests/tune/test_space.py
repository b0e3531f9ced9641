"""Search spaces: how they are written, what they refuse, which points they have."""

import pytest

from weft import config
from weft.errors import UserError
from weft.tune.presets import preset
from weft.tune.space import (
    Choices,
    Range,
    base_point,
    flatten,
    grid,
    make_dimensions,
    parse,
    to_settings,
    value_at,
)

TFIDF = config.recipe("tfidf")
RNN = config.recipe("bilstm")


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("train.learning_rate=1e-4..1e-2 log", {"low": 1e-4, "high": 1e-2, "log": True}),
        ("encoder.hidden = 64..256 step 32", {"low": 64, "high": 256, "step": 32}),
        ("encoder.hidden=64,128", [64, 128]),
        ("encoder.cell=lstm,gru", ["lstm", "gru"]),
        ("classic.words=[1,1],[1,2]", [[1, 1], [1, 2]]),
        ("encoder.bidirectional=true,false", [True, False]),
        ("head.dropout=0.5", [0.5]),
        ("head.dropout=-.5..5.", {"low": -0.5, "high": 5.0}),
    ],
)
def test_flags_say_what_a_file_says(text, spec):
    (found,) = parse([text]).values()
    assert found == spec
    assert [type(v) for v in found] == [type(v) for v in spec]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden=3", r"--search 'hidden=3' should look like section\.key=1,2,3"),
        ("encoder.hidden=", "should look like"),
        ("encoder.hidden=a..b", r"a range looks like 1e-4\.\.1e-2 log"),
        ("encoder.hidden=1..2 lgo", "a range looks like"),
        ("encoder.hidden=1..2 step", "a range looks like"),
    ],
)
def test_flags_that_cannot_be_read(text, message):
    with pytest.raises(UserError, match=message):
        parse([text])


def test_a_table_may_quote_its_keys_or_not():
    quoted = {"train.learning_rate": [0.1], "encoder.hidden": {"low": 1, "high": 7}}
    nested = {"train": {"learning_rate": [0.1]}, "encoder": {"hidden": {"low": 1, "high": 7}}}
    assert flatten(quoted) == flatten(nested) == quoted


def test_a_setting_s_own_type_decides_what_is_whole():
    found = make_dimensions(parse(["encoder.hidden=5..7", "train.learning_rate=1..3"]), RNN)
    assert found[0] == Range("encoder.hidden", 5, 7, whole=True)
    assert found[1] == Range("train.learning_rate", 1, 3, whole=False)
    assert found[0].points() == [5, 6, 7]
    assert found[1].points() is None
    assert type(found[1].value(2)) is float


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("encoder.hiden=3,5", "Unknown option 'hiden' in encoder 'rnn'. Did you mean 'hidden'"),
        ("encodr.hidden=3,5", "Unknown section 'encodr' in search.*Did you mean 'encoder'"),
        ("encoder.hidden=3.5,5", "'hidden' should be a whole number, got 3.5"),
        ("encoder.hidden=3,-5", "hidden.*-5"),
        ("encoder.hidden=3..5.5", "is a whole number, so low, high and step are whole too"),
        ("encoder.hidden=3..9 step 0.5", "is a whole number, so low, high and step"),
        ("encoder.cell=1..3", "'cell' should be one of"),
        ("encoder.cell=lstm,gruu", "'cell' should be one of"),
        ("head.dropout=0..1.5", "dropout.*1.5"),
        ("head.dropout=0.5..0.1", "low 0.5 should be below high 0.1"),
        ("train.learning_rate=0..1 log", "a log range begins above 0"),
        ("train.learning_rate=1..2 log step 1", "log and step do not go together"),
        ("head.dropout=0..1 step 0", "step should be a number above 0"),
        ("head.dropout=0.1,0.1", "0.1 is listed twice"),
        ("train.seed=1,2", "pass --seeds K instead"),
        ("train.metric=accuracy,macro_f1", "changes what is measured"),
        ("task.label_smoothing=0.1", "changes what is measured"),
        ("data.dev_fraction=0.1,0.2", "changes the examples.*max_tokens, truncate, phrases"),
        ("data.dev_fracton=0.1,0.2", "Unknown option 'dev_fracton'.*Did you mean 'dev_fraction'"),
        ("classic.C=1,2", r"has no \[classic\]; it has \[tokenizer\], \[embedder\]"),
    ],
)
def test_untrainable_search_space_raises_user_error(search, message):
    with pytest.raises(UserError, match=message):
        make_dimensions(parse([search]), RNN)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("train.epochs=1,2", "a .classic. model has no training loop"),
        ("classic.C=-1..2", "C is -1; it must be above 0"),
        ("classic.lowercase=0..1", "'lowercase' should be true or false"),
        ("encoder.hidden=3", r"has no \[encoder\]"),
    ],
)
def test_a_classic_model_has_its_own_settings(search, message):
    with pytest.raises(UserError, match=message):
        make_dimensions(parse([search]), TFIDF)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ([], "the list is empty"),
        (3, "should be a list of values or a range"),
        ({"low": 1, "hgih": 2}, "Unknown option 'hgih'.*Did you mean 'high'"),
        ({"low": 1}, "'high' should be a number, got None"),
        ({"low": 1, "high": 2, "log": 1}, "'log' should be true or false"),
    ],
)
def test_tables_that_make_no_sense(spec, message):
    with pytest.raises(UserError, match=message):
        make_dimensions({"classic.C": spec}, TFIDF)


def test_nothing_to_search_says_what_there_is():
    with pytest.raises(UserError, match=r"Nothing to search.*Settings:.*classic\.C"):
        make_dimensions({}, TFIDF)
    with pytest.raises(UserError, match=r"Give --search 'classic\.order=LOW\.\.HIGH', a"):
        make_dimensions({}, config.recipe("kneser-ney"))
    with pytest.raises(UserError, match="--preset small has nothing for this configuration"):
        preset("small", config.recipe("kneser-ney"))


def test_the_points_of_a_grid_are_exact():
    found = (Range("head.dropout", 0, 0.5, step=0.1), Choices("encoder.cell", ("lstm", "gru")))
    points = grid(found)
    assert points is not None
    assert points[::2] == [(x, "lstm") for x in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)]
    assert len(points) == 12
    assert grid((*found, Range("train.learning_rate", 0.1, 0.2))) is None


def test_lists_are_stored_as_texts_and_come_back():
    (words,) = make_dimensions(parse(["classic.words=[1,1],[1,2]"]), TFIDF)
    stored = words.points()[1]
    assert isinstance(stored, str)
    assert to_settings({"classic.words": stored}, [words]) == {"classic.words": [1, 2]}


def test_base_point_is_the_configuration_if_inside_the_space():
    inside = make_dimensions(parse(["classic.C=1..20 log", "classic.words=[1,1],[1,2]"]), TFIDF)
    fixed = TFIDF.with_values({"classic.C": 10.0}, "test")
    assert base_point(fixed, inside) == (10.0, "[1, 2]")
    assert base_point(TFIDF, make_dimensions(parse(["classic.C=1..7"]), TFIDF)) is None


def test_the_small_grid_of_the_lecture():
    wanted = make_dimensions(preset("bert", RNN), RNN)
    points = grid(wanted)
    assert points is not None
    assert len(points) == 24
    assert {d.key: d.to_config() for d in wanted} == {
        "train.batch_size": [16, 32],
        "train.learning_rate": [3e-6, 1e-5, 3e-5, 5e-5],
        "train.epochs": [2, 3, 4],
    }
    with pytest.raises(UserError, match="no training loop"):
        make_dimensions(preset("bert", TFIDF), TFIDF)
    with pytest.raises(UserError, match=r"Unknown preset 'brt'.*Did you mean 'bert'"):
        preset("brt", RNN)


@pytest.mark.parametrize("name", config.recipes())
def test_the_small_preset_fits_every_recipe(name):
    base = config.recipe(name)
    found = {d.key: d for d in make_dimensions(preset("small", base), base)}
    assert found
    if "classic" in base:
        own = {"tfidf": {"characters", "words"}, "fasttext": {"learning_rate", "order"}}[name]
        assert set(found) == {f"classic.{key}" for key in own}
    else:
        rate = found["train.learning_rate"]
        assert isinstance(rate, Range)
        assert rate.low < value_at(base.sections, "train.learning_rate") < rate.high


@pytest.mark.parametrize("task", ["tag", "parse", "constituency", "nodes"])
def test_recipes_with_an_answer_at_every_word_can_be_searched(task):
    from weft.config import recipe, recipes
    from weft.tune.space import check_buildable

    for name in recipes(task):
        assert check_buildable(recipe(name))["task"]["kind"] == task
