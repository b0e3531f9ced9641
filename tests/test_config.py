"""Configurations: reading, overriding, writing back, and where a value came from."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft import config
from weft.config import dumps, from_sections, load, overrides, recipe, recipes, setting_names
from weft.errors import UserError

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]

BASE = {
    "embedder": {"kind": "lookup", "width": 7},
    "encoder": {"kind": "rnn", "hidden": 5},
    "train": {"epochs": 3},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("encoder.hidden=11", {"encoder.hidden": 11}),
        ("encoder.dropout=0.5", {"encoder.dropout": 0.5}),
        ("encoder.bidirectional=true", {"encoder.bidirectional": True}),
        ("encoder.widths=[3, 5]", {"encoder.widths": [3, 5]}),
        ("encoder.cell=lstm", {"encoder.cell": "lstm"}),
        ('encoder.cell="lstm"', {"encoder.cell": "lstm"}),
        ("data.train=a folder/b=c.tsv", {"data.train": "a folder/b=c.tsv"}),
        ("data.truncate=head+tail", {"data.truncate": "head+tail"}),
        (" encoder.hidden = 11", {"encoder.hidden": 11}),
        ("data.separator=", {"data.separator": ""}),
        ("data.train=2024-01-31", {"data.train": "2024-01-31"}),
        ("embedder.0.width=7", {"embedder.0.width": 7}),
    ],
)
def test_overrides_are_toml_values_or_bare_words(text, expected):
    found = overrides([text])
    assert found == expected
    assert [type(v) for v in found.values()] == [type(v) for v in expected.values()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden=3", "--set 'hidden=3' should look like section.key=value"),
        ("encoder.hidden", "should look like section.key=value"),
        ("encodr.hidden=3", "Unknown section 'encodr' in --set.*Did you mean 'encoder'"),
    ],
)
def test_overrides_that_say_nothing_are_refused(text, message):
    with pytest.raises(UserError, match=message):
        overrides([text])


def test_the_last_override_wins():
    assert overrides(["train.epochs=3", "train.epochs=5"]) == {"train.epochs": 5}


def test_origins_follow_the_values():
    found = from_sections(BASE, "a.toml").with_values({"encoder.hidden": 11}, "--set")
    assert found["encoder"] == {"kind": "rnn", "hidden": 11}
    assert found.origin("encoder.hidden") == "--set"
    assert found.origin("encoder.kind") == "a.toml"
    assert found.origin("encoder.dropout") == "default"


def test_changing_a_copy_leaves_the_first_alone():
    first = from_sections(BASE, "a.toml")
    first.with_values({"encoder.hidden": 11, "pool.kind": "max"}, "--set")
    assert first["encoder"]["hidden"] == 5
    assert "pool" not in first
    assert first["pool"] == {}


def test_a_list_of_embedders_is_counted_from_zero():
    two = [{"kind": "lookup"}, {"kind": "characters"}]
    base = from_sections({"embedder": two}, "a.toml")
    assert setting_names(base.sections) == ["embedder.0.kind", "embedder.1.kind"]
    changed = base.with_values({"embedder.1.width": 7}, "--set")
    assert changed["embedder"] == [{"kind": "lookup"}, {"kind": "characters", "width": 7}]
    with pytest.raises(UserError, match="there are 2 of these, numbered from 0"):
        base.with_values({"embedder.2.width": 7}, "--set")
    with pytest.raises(UserError, match=r"say which one, as in embedder\.0\.width"):
        base.with_values({"embedder.width": 7}, "--set")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"encodr": {}}, r"Unknown section 'encodr' in a\.toml.*Did you mean 'encoder'"),
        ({"encoder": 3}, r"a\.toml: \[encoder\] should be a section with keys, got 3"),
        ({"pool": [{"kind": "max"}]}, r"\[pool\] should be a section with keys"),
        ({"encoder": [{"kind": "rnn"}, 3]}, r"\[encoder\] should be a section with keys"),
        (
            {"classic": {"kind": "tfidf"}, "encoder": {"kind": "rnn"}, "head": {}},
            r"\[classic\] stands alone; remove \[encoder\], \[head\]",
        ),
    ],
)
def test_sections_that_do_not_fit(sections, message):
    with pytest.raises(UserError, match=message):
        from_sections(sections, "a.toml")


def test_an_override_cannot_make_a_classic_model_neural():
    with pytest.raises(UserError, match=r"--set: \[classic\] stands alone; remove \[encoder\]"):
        recipe("tfidf").with_values({"encoder.kind": "rnn"}, "--set")


def test_a_key_below_a_value_is_refused():
    for key in ("encoder.hidden.size", "encoder.hidden.size.more"):
        with pytest.raises(UserError, match=rf"'{key}': 'encoder\.hidden.* is a value"):
            from_sections(BASE, "a.toml").with_values({key: 3}, "--set")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", b"[encoder\n", r"a\.toml: cannot be read as toml: .*line 1"),
        ("a.toml", b"[encoder]\nhidden = 3\nhidden = 5\n", r"a\.toml: .*line 3"),
        ("a.toml", b"[encoder]\nkind = rnn\n", r"a\.toml: cannot be read as toml: .*line 2"),
        ("a.json", b'{"encoder": }', r"a\.json:1: not readable as JSON: .*column 13"),
        ("a.json", b"[]", r"a\.json: a configuration holds sections .*found a list"),
        ("a.toml", b"\xff\xfe[", r"a\.toml: not UTF-8 text .*at byte 0"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        load(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"no such configuration file.*weft list recipes"):
        load(tmp_path / "none.toml")
    with pytest.raises(UserError, match=r"is a folder; a configuration is a \.toml or \.json file"):
        load(tmp_path)


def test_toml_and_json_say_the_same(tmp_path):
    import json

    (tmp_path / "a.toml").write_text(dumps(BASE), "utf-8")
    (tmp_path / "a.json").write_text(json.dumps(BASE), "utf-8")
    first, second = load(tmp_path / "a.toml"), load(tmp_path / "a.json")
    assert first.sections == second.sections == BASE
    assert first.origin("train.epochs") == str(tmp_path / "a.toml")


def test_recipes_run_from_simple_to_deep():
    names = recipes()
    assert names[0] == "tfidf"
    assert names.index("bag") < names.index("cnn") < names.index("lstm")
    assert recipe("cnn").origin("encoder.kind") == "recipe cnn"
    with pytest.raises(UserError, match=r"Unknown recipe 'bilsmt'\. Did you mean 'bilstm'\?"):
        recipe("bilsmt")


NAMES = st.sampled_from(["kind", "hidden", "widths", "vectors"])
VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=3)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from(config.SECTIONS), TABLES, max_size=3),
    st.lists(TABLES, min_size=1, max_size=3),
)
def test_configuration_round_trips_through_toml(sections, embedders):
    for whole in (sections, {**sections, "embedder": embedders}):
        found = tomllib.loads(dumps(whole))
        assert found == whole
        assert repr(found) == repr({name: whole[name] for name in found})  # 1 is not true or 1.0
