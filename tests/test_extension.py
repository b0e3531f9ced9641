"""Parts of a user's own module, and of an installed package: trained, saved, loaded, compared."""

import pytest

from tests.fixtures import small
from tests.fixtures.processes import ForkedCommand
from weft import registry
from weft.errors import UserError
from weft.protocols import Encoder
from weft.registry import find, register, trusting

ENCODER = '''
import torch
from weft import register
from weft.batch import Padded
from weft.protocols import Encoder


@register("encoder", "shifted")
class Shifted(torch.nn.Module, Encoder):
    """Each step plus a learned shift."""

    def __init__(self, input_size: int, scale: float = 1.0):
        super().__init__()
        self.output_size, self.scale = input_size, scale
        self.shift = torch.nn.Parameter(torch.zeros(input_size))

    def forward(self, steps: Padded) -> Padded:
        return steps.with_data(steps.data + self.scale * self.shift)
'''
SETTINGS = [f"{key}={value}" for key, value in small.SMALL.items()]
SETTINGS += ["encoder.kind=shifted", "encoder.scale=2.0"]


@pytest.fixture
def module(tmp_path):
    """A module beside the data, with a file of texts."""
    (tmp_path / "my_parts.py").write_text(ENCODER, "utf-8")
    return small.file(tmp_path)


@pytest.fixture
def package(tmp_path, module):
    """The same module as an installed package that declares its part as an entry point."""
    about = tmp_path / "my_parts-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-parts\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[weft.parts]\nencoder.shifted = my_parts:Shifted\n")
    return module


def run(folder, *words, code=0):
    """Run a command in a process of its own: what it imports and registers ends with it."""
    done = ForkedCommand(*words, folder=folder, path=(folder,)).finish()
    assert done.status == code, done.err
    return done.out + done.err


def train_words(data, name="run"):
    words = ["train", "--recipe", "bag", "--train", data, "-o", data.parent / name, "--quiet"]
    return [*words, *(word for one in SETTINGS for word in ("--set", one))]


def test_trusted_module_trains_saves_loads_and_compares(module):
    folder = module.parent
    run(folder, *train_words(module), "--trust", "my_parts")
    answers = run(folder, "predict", "run", "a good film", "--json", "--trust", "my_parts")
    assert '"value"' in answers
    refused = run(folder, "predict", "run", "a good film", code=2)
    assert "Unknown encoder 'shifted'" in refused
    changes = [word for one in SETTINGS for word in ("--set", one)]
    changes += ["--trust", "my_parts", "--seeds", "1", "--quiet"]
    run(folder, "compare", module, "-o", "bake", "--recipes", "bag", *changes)
    board = (folder / "bake" / "leaderboard.json").read_text("utf-8")
    assert '"status": "ranked"' in board


def test_installed_part_is_found_by_its_entry_point(package):
    folder = package.parent
    refused = run(folder, *train_words(package), code=2)
    assert "my_parts:Shifted" in refused
    assert "--trust my_parts" in refused
    assert "shifted" in run(folder, "list", "encoders")
    run(folder, *train_words(package), "--trust", "my_parts")
    refused = run(folder, "predict", "run", "a good film", code=2)
    assert "model.json" in refused
    assert "--trust my_parts" in refused
    assert '"value"' in run(folder, "predict", "run", "good", "--json", "--trust", "my_parts")


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})

    @register("encoder", "mine")
    class Mine(Encoder):
        """A part of this module."""

    return Mine


def test_a_registered_class_is_found_by_name(registered):
    assert find("encoder", "mine") is registered
    with pytest.raises(UserError, match="Did you mean 'mine'"):
        find("encoder", "mime")


def test_saved_model_loads_a_part_only_from_trusted_packages(registered):
    with (
        trusting((), lambda name: "model.json", saved=True),
        pytest.raises(UserError, match=r'^model\.json: encoder .* pass trust=\["tests"\]'),
    ):
        find("encoder", "mine")
    with trusting(["tests"], saved=True):
        assert find("encoder", "mine") is registered


def test_duplicate_part_names_raise_user_error(registered):
    register("encoder", "mine")(registered)  # the same class again, as after a reload

    with pytest.raises(UserError, match="Two encoders are called 'mine'"):
        register("encoder", "mine")(type("Other", (Encoder,), {}))
    with pytest.raises(UserError, match="registers encoder 'rnn', which is built in"):
        register("encoder", "rnn")(type("Other", (Encoder,), {}))
    with pytest.raises(UserError, match="Unknown kind of part 'encodr'"):
        register("encodr", "mine")


def test_a_part_without_its_interface_is_refused(registered):
    message = r"Bare: a part of kind 'encoder' must derive from weft\.protocols\.Encoder\. Write "
    with pytest.raises(UserError, match=message + r"`class Bare\(torch\.nn\.Module, Encoder\)`"):
        register("encoder", "bare")(type("Bare", (), {}))
    with pytest.raises(UserError, match=r"Write `class Bare\(Task\)`"):
        register("task", "bare")(type("Bare", (), {}))


def test_failed_import_of_a_trusted_package_is_reported(tmp_path, monkeypatch):
    (tmp_path / "broken_parts.py").write_text("import nothing_of_that_name\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with (
        trusting(["broken_parts"]),
        pytest.raises(
            UserError, match=r"Cannot import the trusted package 'broken_parts': No module"
        ),
    ):
        find("encoder", "anything")
    with trusting(["not_there_at_all"]), pytest.raises(UserError, match="Unknown encoder"):
        find("encoder", "anything")
