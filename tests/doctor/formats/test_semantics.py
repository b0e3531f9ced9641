"""Damaged copies of roles, coreference and tuples: every fault is found at its line."""

import json

import pytest

from tests.fixtures.command import command, fails, ok
from tests.fixtures.semantic_files import COREFERENCE, ROLES, TUPLES, written
from weft.doctor.check import check

LOUDLY = "3\tloudly\tloudly\tADV\tRB\t(ADVP*)\t_"
MAN = "1\told\t{}\n2\tman\t7)\n3\tfed\t{}"
STATION = (
    "A short train stopped at the empty station .\tstopped at\tA short train\tthe empty station"
)
PARK = "The old man fed his birds in the park .\tfed\tThe old man\tbirds"
END_BEGIN = "#end document\n#begin document (second)\n"
# name: format, sound, damaged, line, level
DAMAGES = {
    "unclosed bracket": ("roles", "*)\t*\n3\twants", "*\t*\n3\twants", 2, "error"),
    "unopened bracket": ("roles", "(ARG1*\t*\n5", "*\t*\n5", 6, "error"),
    "malformed bracket": ("roles", "_\t(ARG0*)\n2", "_\t(ARG0)\n2", 10, "error"),
    "role columns": ("roles", "(VP*)\tbark.01", "(VP*)\t_", 10, "error"),
    "ragged sentence": ("roles", "_\t(ARGM-MNR*)", "_", 12, "error"),
    "predicate without V": ("roles", "bark.01\t(V*)", "bark.01\t(ARG1*)", 11, "error"),
    "V elsewhere": (
        *("roles", f"bark.01\t(V*)\n{LOUDLY}\t(ARGM-MNR*)"),
        *(f"bark.01\t*\n{LOUDLY}\t(V*)", 11, "warning"),
    ),
    "misspelt role": ("roles", "_\t(ARG0*)\n2", "_\t(ARGO*)\n2", 10, "error"),
    "repeated core role": ("roles", "(ARGM-MNR*)", "(ARG0*)", 12, "note"),
    "role without its base": ("roles", "(ARGM-MNR*)", "(C-ARG1*)", 12, "note"),
    "overlapping roles": ("roles", "(ARG1*\t*\n5", "(ARG1(ARG2*)\t*\n5", 4, "warning"),
    "repeated id": ("roles", "sent_id = b", "sent_id = a", 10, "warning"),
    "unclosed mention": ("coreference", "3\tdog\t2)", "3\tdog\t_", 4, "error"),
    "unopened mention": ("coreference", "0\tIt\t(2)", "0\tIt\t9)", 8, "error"),
    "malformed mention": ("coreference", "0\tIt\t(2)", "0\tIt\t((2)", 8, "error"),
    "duplicate mention": ("coreference", "0\tIt\t(2)", "0\tIt\t(2)(2)", 8, "error"),
    "mention of two entities": ("coreference", "0\tIt\t(2)", "0\tIt\t(1)(2)", 8, "warning"),
    "crossing mentions": (
        "coreference", MAN.format("_", "_"), MAN.format("(8", "8)"), 16, "note",
    ),
    "mention across sentences": (
        "coreference", "4\t.\t_\n\n0\tIt\t(2)", "4\t.\t(2\n\n0\tIt\t2)", 6, "warning",
    ),
    "document without end": ("coreference", END_BEGIN, END_BEGIN[14:], 1, "error"),
    "end without document": ("coreference", END_BEGIN, END_BEGIN[:14], 20, "error"),
    "repeated document": ("coreference", "(second)", "(first)", 14, "error"),
    "ragged rows": ("coreference", "1\tsaw\t_", "1\tsaw", 3, "error"),
    "too few columns": ("extractions", "\tsaw\tMary\ther dog", "\tsaw", 3, "error"),
    "missing predicate": ("extractions", "\tsaw\tMary", "\t\tMary", 3, "error"),
    "duplicate tuple": ("extractions", "barked at\tit\ther", "saw\tMary\ther dog", 4, "warning"),
    "argument outside the sentence": ("extractions", "saw\tMary", "saw\tPeter", 3, "warning"),
    "empty argument": ("extractions", "saw\tMary\ther dog", "saw\tMary\t", 3, "note"),
    "scattered sentence": ("extractions", STATION, PARK, 5, "warning"),
}  # fmt: skip
SOUND = {"roles": ROLES, "coreference": COREFERENCE, "extractions": TUPLES}
ENDINGS = {"roles": "a.conll", "coreference": "a.conll", "extractions": "a.tsv"}


@pytest.mark.parametrize("format", SOUND)
def test_sound_files_have_no_error_and_no_warning(tmp_path, format):
    path = written(tmp_path / ENDINGS[format], SOUND[format])
    found = check(str(path), near=False)
    assert [one.kind for one in found.findings if one.level != "note"] == []
    assert found.rows == {"data": 2 if format == "coreference" else 3}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_at_its_line(tmp_path, name):
    format, old, new, line, level = DAMAGES[name]
    kind = name.removesuffix(" mention") if name.endswith(("ed mention",)) else name
    kind = f"{kind} bracket" if kind in ("unclosed", "unopened", "malformed") else kind
    assert SOUND[format].count(old) == 1, name
    # Roles are recognised by most sentences, so there are many.
    front = SOUND[format].replace(old, new)
    rest = "".join(_vary(SOUND[format], k) for k in range(8)) if format != "extractions" else ""
    path = written(tmp_path / ENDINGS[format], front + rest)
    found = check(str(path), near=False)
    (one,) = [finding for finding in found.findings if finding.kind == kind]
    assert one.level == level
    assert one.places[0].where == f"{path}:{line}"
    damaged = {f.kind for f in found.findings if f.level == "error"} - {kind}
    # A closing bracket of another entity leaves its own one open.
    assert damaged <= {"unclosed bracket", "unopened bracket", "document without end"}


def _vary(content, k):
    """The same file with other sentences, ids and document names."""
    for word in ("dog", "barks", "Yes", "Mary", "birds"):
        content = content.replace(f"\t{word}\t", f"\t{word}{k}\t")
    content = content.replace("(first)", f"(first{k})").replace("(second)", f"(second{k})")
    return content.replace("sent_id = ", f"sent_id = {k}")


def test_a_span_over_a_sentence_end_names_both_lines(tmp_path):
    broken = ROLES.replace("*	*\n\n", "(ARG2*	*\n\n", 1).replace("_	(ARG0*)", "_	*)", 1)
    path = written(tmp_path / "a.conll", broken + "".join(_vary(ROLES, k) for k in range(8)))
    found = {one.kind: one for one in check(str(path), near=False).findings}
    assert found["unclosed bracket"].places[0].where == f"{path}:7"
    assert found["unopened bracket"].places[0].where == f"{path}:10"
    assert "line 7 of the sentence before opens one" in found["unopened bracket"].places[0].detail


def test_singletons_are_found_where_the_scheme_has_none(tmp_path):
    many = "".join(_vary(COREFERENCE, k) for k in range(40))
    lone = COREFERENCE.replace("5	birds	_", "5	birds	(8)")
    found = check(str(written(tmp_path / "a.conll", many + lone)), near=False)
    (one,) = [finding for finding in found.findings if finding.kind == "chain of one mention"]
    assert one.count == 1
    assert "entity 8 'birds'" in one.places[0].detail
    found = check(str(written(tmp_path / "b.conll", lone)), near=False)  # one in four: a scheme
    assert "chain of one mention" not in {finding.kind for finding in found.findings}


@pytest.mark.parametrize(("format", "unit"), [("roles", "sentence"), ("coreference", "document"),
                                              ("extractions", "text")])  # fmt: skip
def test_leaks_between_files_and_long_rows_are_found(tmp_path, format, unit):
    ending = ENDINGS[format]
    train = written(tmp_path / f"train{ending}", SOUND[format])
    test = written(tmp_path / f"test{ending}", SOUND[format])
    found = check([str(train), str(test)], near=False, max_words=5)
    titles = [finding.title for finding in found.findings]
    assert any(unit in title and "also in train" in title for title in titles)
    assert any(unit in title and "more than 5 words" in title for title in titles)
    (leak,) = [f for f in found.findings if "also in train" in f.title]
    assert leak.places[0].where.startswith(str(test))


def test_command_line_checks_and_refuses_to_fix(tmp_path):
    path = written(tmp_path / "a.conll", COREFERENCE)
    ok("check", path)
    assert "--fix cannot write coreference" in fails("check", path, "--fix", tmp_path / "out")
    broken = written(tmp_path / "b.conll", COREFERENCE.replace("3	dog	2)", "3	dog	_"))
    done = command("check", broken, "--json")
    assert done.status == 1
    kinds = {finding["kind"] for finding in json.loads(done.out)["findings"]}
    assert "unclosed bracket" in kinds
    page = tmp_path / "page.html"
    command("check", broken, "--html", page)
    assert "never closes" in page.read_text("utf-8")


@pytest.mark.parametrize("format", SOUND)
def test_other_tasks_do_not_train_on_them(tmp_path, format):
    path = written(tmp_path / ENDINGS[format], SOUND[format] * 3)
    run = ("train", "--recipe", "tfidf", "--train", path, "--set", f"data.format={format}")
    recipe = {"roles": "srl-", "coreference": "coref-", "extractions": "openie-"}[format]
    message = f"the task 'classify' does not learn from data.format = '{format}'"
    message += f"; --recipe {recipe}"
    assert message in fails(*run, "-o", tmp_path / "run")


def test_a_tagger_column_can_still_be_checked(tmp_path):
    path = written(tmp_path / "a.conll", ROLES)
    found = check(str(path), text=1, label=3, near=False)
    assert "tags" in found.layers


def test_roles_are_counted_and_another_scheme_has_no_typos(tmp_path):
    path = written(tmp_path / "a.conll", ROLES)
    assert set(check(str(path), near=False).layers["roles"]) == {"ARG0", "ARG1", "ARGM-MNR", "V"}
    frames = ROLES.replace("ARG0", "Agent").replace("ARG1", "Theme")
    found = check(str(written(tmp_path / "b.conll", frames)), near=False)
    assert "misspelt role" not in {finding.kind for finding in found.findings}
