"""Slots that a text leaves out, makes up or gets wrong, case by case."""

import pytest

from weft.errors import UserError
from weft.metrics.generation.e2e_slots import RULES
from weft.metrics.generation.slots import SlotErrors, SlotRules, parse_record

RECORD = parse_record(
    "name[The Rice Boat], eatType[pub], food[Indian], priceRange[less than £20], "
    "customer rating[3 out of 5], area[riverside], familyFriendly[no], near[Café Rouge]"
)
CLOWNS = parse_record("name[Clowns], near[Raja Indian Cuisine]")
MIDDLE = {"priceRange": "moderate", "customer rating": "average"}
KNOWN = SlotErrors(RULES.with_names([RECORD, CLOWNS, {"near": "The Rice Boat"}]))


def errors(text: str, record: str | dict[str, str]) -> tuple[list[str], list[str], list[str]]:
    return KNOWN.errors(text, parse_record(record) if isinstance(record, str) else record)


def test_everything_said_in_other_words() -> None:
    text = (
        "Rice Boat, a pub by the river close to the Cafe Rouge, has Indian dishes under 20 pounds. "
        "It is not recommended for kids and has a three star rating."
    )
    assert errors(text, RECORD) == ([], [], [])


def test_missing_wrong_and_added() -> None:
    text = "The Rice Boat is a cheap family-friendly pub near Clowns rated 3 out of 5 stars."
    missing, wrong, added = errors(text, {k: v for k, v in RECORD.items() if k != "eatType"})
    assert missing == ["area", "food", "near"]
    assert wrong == ["familyFriendly", "priceRange"]
    assert added == ["eatType", "name"]


def test_a_name_says_nothing_about_other_slots() -> None:
    assert errors("Clowns is near Raja Indian Cuisine.", CLOWNS) == ([], [], [])
    assert errors("Clowns is near Café Rouge.", "name[Clowns], near[Café Rouge]") == ([], [], [])
    # A name that two slots know is that of the slot that has it in the record.
    assert errors("The Rice Boat is a pub.", "name[The Rice Boat], eatType[pub]") == ([], [], [])
    added = errors("Clowns is a pub near The Rice Boat.", "name[Clowns], eatType[pub]")[2]
    assert added == ["name", "near"]


def test_a_name_never_seen_before_is_looked_for_as_written() -> None:
    record = "name[Old-Mill Inn], dish[plum pie]"
    assert errors("The plum pie of Old Mill Inn", record) == ([], [], [])
    assert errors("The pie of Old Mill Inns", record) == (["dish", "name"], [], [])


@pytest.mark.parametrize(
    ("slot", "value", "text"),
    [
        ("familyFriendly", "no", "It isn't family friendly."),
        ("familyFriendly", "no", "It does not cater for families with children."),
        ("familyFriendly", "no", "an adults only place"),
        ("familyFriendly", "yes", "a great place to bring your kids"),
        ("familyFriendly", "yes", "child-friendly"),
        ("priceRange", "£20-25", "for £20 - £25"),
        ("priceRange", "less than £20", "cheap, less than £20"),
        ("priceRange", "more than £30", "prices start at £30"),
        ("priceRange", "moderate", "a moderate price range"),
        ("priceRange", "high", "expensive"),
        ("priceRange", "cheap", "inexpensive"),
        ("customer rating", "1 out of 5", "rated 1 out of 5 stars"),
        ("customer rating", "5 out of 5", "a five star place with great reviews"),
        ("customer rating", "low", "The customer rating, however, is low."),
        ("customer rating", "high", "highly rated by customers"),
        ("customer rating", "average", "average customer ratings"),
        ("area", "city centre", "in the center of town"),
        ("eatType", "restaurant", "restaurant"),
        ("eatType", "pub", "a pub restaurant"),
        ("food", "Fast food", "fast-food"),
    ],
)
def test_phrases_of_e2e(slot, value, text) -> None:
    assert errors(text, {slot: value}) == ([], [], [])
    other = {"yes": "no", "no": "yes", "city centre": "riverside", "pub": "coffee shop"}
    other |= {"Fast food": "French", "restaurant": "pub", "moderate": "cheap", "average": "low"}
    missing, wrong, added = errors(text, {slot: other.get(value, MIDDLE.get(slot))})
    assert added == []
    assert missing + wrong == [slot]


def test_a_high_price_is_no_high_rating_and_the_other_way_round() -> None:
    text = "It has a high price range and a low customer rating."
    assert errors(text, "priceRange[high], customer rating[low]") == ([], [], [])
    assert errors(text, "priceRange[cheap], customer rating[high]") == (
        [],
        ["customer rating", "priceRange"],
        [],
    )


def test_rates_are_of_all_slots() -> None:
    measure, more = SlotErrors(KNOWN.rules), SlotErrors(KNOWN.rules)
    measure.add(["Clowns is a pub."], [parse_record("name[Clowns], food[Indian], area[riverside]")])
    more.add(["Clowns"], [{"name": "Clowns"}])
    more.add(["Chinese"], [{"food": "French"}])
    measure.merge(more)
    found = {name: figure.value for name, figure in measure.compute(resamples=7).items()}
    assert found == pytest.approx(
        {
            "slot_error": 4 / 5,
            "missing": 2 / 5,
            "wrong": 1 / 5,
            "added": 1 / 5,
            "faultless": 1 / 3,
        }
    )


def test_rules_are_data() -> None:
    rules = SlotRules(
        phrases={"doors": {"two": ["two[- ]door"], "four": ["four[- ]door", "saloon"]}},
        alike={"doors": [frozenset({"two", "four"})]},
    ).with_names([{"make": "Volvo"}, {"make": "Opel"}])
    measure = SlotErrors(rules)
    assert measure.errors("a two-door Volvo saloon", {"make": "Volvo", "doors": "two"})[2] == []
    assert measure.errors("an Opel", {"make": "Volvo", "doors": "two"}) == (["doors"], ["make"], [])
    with pytest.raises(UserError, match=r"value 'three' of slot 'doors'\. Known: four, two\."):
        measure.errors("a car", {"doors": "three"})


def test_records_are_read_with_their_errors() -> None:
    assert parse_record("name[A, B],near[C] ") == {"name": "A, B", "near": "C"}
    assert parse_record("") == {}
    with pytest.raises(UserError, match=r"x.csv:3: expected slot\[value\], found 'near C'"):
        parse_record("name[A], near C", "x.csv:3")
    with pytest.raises(UserError, match="slot 'name' is repeated"):
        parse_record("name[A], name[B]")
    with pytest.raises(UserError, match="slot 'near' has no value; remove it"):
        parse_record("name[A], near[ ]")
