"""Labels that are slips for others, and labels that are only alike."""

import pytest

from weft.doctor.checks.label_variants import find_variants

BANKING = (
    *("card_arrival", "card_linking", "top_up_failed", "top_up_reverted", "pending_transfer"),
    *(
        "pending_top_up",
        "exchange_rate",
        "exchange_charge",
        "lost_or_stolen_card",
        "card_swallowed",
    ),
    *("transfer_timing", "transfer_into_account", "verify_my_identity", "verify_top_up"),
)


def told(counts: dict[str, int]) -> dict[str, str]:
    return {twin.label: twin.meant for twin in find_variants(counts)}


@pytest.mark.parametrize(
    "slip",
    [
        *("Card_Arrival", " card_arrival", "card arrival", "card-arrival", "CARD_ARRIVAL "),
        *("card_arrivals", "card_arival", "card_arrvial", "card_arrrival", "card_arrixal"),
        *("carrd_arival", "crd_arrival"),
    ],
)
def test_label_typos_are_reported_with_the_intended_label(slip):
    counts = dict.fromkeys(BANKING, 131) | {slip: 2}
    assert told(counts) == {slip: "card_arrival"}
    (twin,) = find_variants(counts)
    assert twin.clear


@pytest.mark.parametrize("slip", ["HMU", "HU", "HUMM", "hum", "HUM "])
def test_short_labels_too_where_the_slip_is_rare(slip):
    assert told({"HUM": 1223, "NUM": 896, "LOC": 835, slip: 1}) == {slip: "HUM"}


@pytest.mark.parametrize(
    "labels",
    [
        dict.fromkeys(BANKING, 100),
        {str(n): 10**n for n in range(1, 6)},
        {"HUM": 1223, "NUM": 896},
        {"en": 900, "es": 3, "de": 500},
        {"positive": 50, "negative": 1},
        {"male": 400, "female": 3},
        {"level 1": 300, "level 2": 2},
        {"relevant": 50, "irrelevant": 40},
        {"typical": 50, "atypical": 40},
        {"hypertension": 50, "hypotension": 31},
    ],
)
def test_sound_sets_give_no_alarm(labels):
    assert told(labels) == {}


def test_a_swapped_letter_is_a_slip_even_when_frequent():
    (twin,) = find_variants({"refund": 31, "refudn": 29})
    assert (twin.label, twin.meant, twin.clear) == ("refudn", "refund", False)


def test_the_most_frequent_form_is_taken_for_right():
    assert told({"Sports": 3, "sports": 41, "SPORTS": 2}) == {
        "Sports": "sports",
        "SPORTS": "sports",
    }


def test_many_labels_take_no_longer():
    counts = {f"topic {i} of {i * 7919 % 9973}": 5 for i in range(6007)}
    assert told(counts) == {}


def test_labels_that_look_the_same():
    found = find_variants({"cafe\u0301": 9, "caf\u00e9": 2, "pos\u200b": 7, "pos": 5, "neg": 9})
    assert [(one.label, one.meant, one.kind, one.clear) for one in found] == [
        ("cafe\u0301", "caf\u00e9", "NFC and NFD", True),
        ("pos\u200b", "pos", "an invisible character", True),
    ]
