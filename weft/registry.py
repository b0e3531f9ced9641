"""Names in a config file -> classes in a folder.

A kind is a folder; a part is a decorated class in any module of that folder. The constructor's
signature is the part's schema, so defaults live in one place. Folders are read as text, so listing
parts imports nothing, and building one part imports only the module it lives in.

Parts of other packages have names, too: `@register` adds them when their module is imported, and a
package can declare them as entry points of the group `weft.parts` ("encoder.NAME"). Only trusted
packages are imported, and a saved model finds only built-in parts and those of trusted packages.
"""

import ast
import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import protocols
from weft.errors import UserError, unknown_name

FOLDERS = {
    "tokenizer": "tokens",
    "embedder": "embed",
    "score": "attend",
    "encoder": "encode",
    "pool": "encode",
    "pair": "encode/pair",
    "head": "decode/heads",
    "decoder": "decode/decoders",
    "task": "tasks",
    "classic": "classic",
}
INTERFACES: dict[str, type] = {
    "embedder": protocols.Embedder,
    "encoder": protocols.Encoder,
    "pool": protocols.Pool,
    "pair": protocols.Pair,
    "head": protocols.Head,
    "decoder": protocols.Decoder,
    "task": protocols.Task,
    "classic": protocols.ClassicModel,
}
# What the model works out itself and hands to constructors by these names.
DERIVED = {
    "vocabulary_size",
    "input_size",
    "outputs",
    "directions",
    "query_size",
    "memory_size",
    "frame",
    "modelled",
    "attention_config",
}
ENTRY_POINTS = "weft.parts"  # the group in which other packages declare their parts
MAX_SHOWN_CHARS = 80  # characters of a value in a message
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
P = typing.ParamSpec("P")
R = typing.TypeVar("R")
Source = Callable[[str], str]  # the name of a part -> the file in which it is named


@dataclass(frozen=True)
class Trust:
    """Packages whose parts may be imported, and where the names of parts come from."""

    packages: frozenset[str] = frozenset()
    source: Source = lambda name: ""
    saved: bool = False  # the names come from a saved model

    def covers(self, module: str) -> bool:
        """Return whether a module is or belongs to a trusted package."""
        return any(module == name or module.startswith(f"{name}.") for name in self.packages)


TRUST_NOTHING = Trust()
_TRUST = ContextVar("weft_trust", default=TRUST_NOTHING)


@contextlib.contextmanager
def trusting(
    packages: Sequence[str] = (), source: Source | None = None, saved: bool | None = None
) -> Iterator[None]:
    """Let parts of these packages be imported inside the block, beside those trusted around it.

    Everything else that is named 'package.module:Class' in a model or configuration is refused.
    """
    names = (packages,) if isinstance(packages, str) else tuple(packages)
    for name in names:
        if not isinstance(name, str) or not _MODULE.fullmatch(name):
            raise UserError(f"trust: {name!r} is not the name of a package, such as 'mypackage'.")
    before = _TRUST.get()
    now = Trust(
        before.packages | frozenset(names),
        source or before.source,
        before.saved if saved is None else saved,
    )
    token = _TRUST.set(now)
    try:
        yield
    finally:
        _TRUST.reset(token)


def trusted_packages() -> list[str]:
    """The packages that are trusted here, to be handed to another process."""
    return sorted(_TRUST.get().packages)


def with_trust(
    source: Callable[[typing.Any], Source], saved: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function so that its `trust` holds while it runs.

    `source` makes of its first argument what says where the names of parts come from; `saved`
    says that they come from a saved model.
    """

    def around(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*given: P.args, **options: P.kwargs) -> R:
            bound = inspect.signature(function).bind(*given, **options).arguments
            with trusting(bound.get("trust", ()), source(next(iter(bound.values()))), saved):
                return function(*given, **options)

        return call

    return around


def check_types(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that an argument of the wrong type is a UserError."""
    signature = inspect.signature(function)
    loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = {name for name, p in signature.parameters.items() if p.kind not in loose}

    @functools.wraps(function)
    def call(*given: P.args, **options: P.kwargs) -> R:
        try:
            bound = signature.bind(*given, **options).arguments
        except TypeError:  # wrong number of arguments: Python's own message is best
            return function(*given, **options)
        hints = _type_hints(function)
        for name in named & bound.keys() & hints.keys():
            if not fits(bound[name], hints[name]):
                shown = f"{bound[name]!r}"
                shown = shown if len(shown) < MAX_SHOWN_CHARS else f"{type(bound[name]).__name__}"
                wanted = describe_type(hints[name])
                raise UserError(f"{function.__name__}: '{name}' should be {wanted}, got {shown}.")
        return function(*given, **options)

    return call


@functools.cache
def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of parameters; not those that only a type checker can import."""
    try:
        return typing.get_type_hints(function)
    except NameError:
        annotations = inspect.get_annotations(function)
        return {name: hint for name, hint in annotations.items() if not isinstance(hint, str)}


@dataclass(frozen=True)
class Part:
    """A registered class as declared in its source, before anything is imported."""

    kind: str
    name: str
    module: str
    attribute: str
    summary: str
    options: tuple[tuple[str, str], ...]  # (name, default as written); required ones have ""

    def load(self) -> type[Any]:
        loaded: type = getattr(importlib.import_module(self.module), self.attribute)
        return loaded


_REGISTERED: dict[tuple[str, str], type] = {}  # parts of other packages that were imported


def register(kind: str, name: str) -> Callable[[type], type]:
    """Decorate a class so that `kind = "name"` in a config finds it.

    Built-in parts are found by reading their folder; those of other modules from the moment on
    that their module is imported.
    """
    if kind not in FOLDERS:
        raise unknown_name("kind of part", kind, FOLDERS)

    def add(cls: type) -> type:
        if cls.__module__.partition(".")[0] == __package__:
            return cls
        where = f"{cls.__module__}:{cls.__qualname__}"
        if ":" in name or name in parts(kind):
            reason = "is built in" if name in parts(kind) else "may not contain a colon"
            raise UserError(f"{where} registers {kind} '{name}', which {reason}. Choose another.")
        _check_interface(kind, cls, where)
        other = _REGISTERED.get((kind, name))
        if other is not None and f"{other.__module__}:{other.__qualname__}" != where:
            first = f"{other.__module__}:{other.__qualname__}"
            raise UserError(f"Two {kind}s are called '{name}': {first} and {where}.")
        _REGISTERED[kind, name] = cls
        return cls

    return add


@functools.cache
def parts(kind: str) -> Mapping[str, Part]:
    """Every part of a kind, by name."""
    by_name: dict[str, Part] = {}
    package = Path(__file__).parent
    for path in sorted((package / FOLDERS[kind]).rglob("*.py")):
        dotted = ".".join(path.relative_to(package).with_suffix("").parts)
        for part in _scan_module(path, f"weft.{dotted}"):
            if part.kind != kind:
                continue
            if part.name in by_name:
                first, second = by_name[part.name].module, part.module
                raise UserError(f"Two {kind}s are called '{part.name}': {first} and {second}.")
            by_name[part.name] = part
    return by_name


def find(kind: str, name: str) -> type[Any]:
    """Return the class of a built-in part, or 'package.module:Class' of a trusted package."""
    if ":" in name:
        return _load_external(kind, name)
    available = parts(kind)
    if name in available:
        return available[name].load()
    return _find_registered(kind, name)


def _find_registered(kind: str, name: str) -> type[Any]:
    """Return the class that a user's module or an installed package registered by name."""
    trust = _TRUST.get()
    declared = declared_parts(kind)
    if (kind, name) not in _REGISTERED:
        for package in sorted(trust.packages - sys.modules.keys()):
            _import_trusted(package)
    if (kind, name) not in _REGISTERED and name in declared:
        return _load_external(kind, declared[name])
    if (kind, name) not in _REGISTERED:
        others = [key for kind_, key in _REGISTERED if kind_ == kind]
        raise unknown_name(kind, name, {*parts(kind), *others, *declared})
    cls = _REGISTERED[kind, name]
    if trust.saved and not trust.covers(cls.__module__):
        source = trust.source(name)
        where = f"{source}: " if source else ""
        raise _untrusted_error(where, kind, f"{cls.__module__}:{cls.__qualname__}", cls.__module__)
    return cls


def _import_trusted(package: str) -> None:
    """Import a trusted package, which registers its parts; one that does not exist is passed by."""
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{package}.".startswith(f"{error.name}."):
            raise UserError(f"Cannot import the trusted package '{package}': {error}.") from error


def declared_parts(kind: str) -> dict[str, str]:
    """Return the parts that installed packages declare as entry points: name -> module:Class."""
    from importlib import metadata  # takes as long as the rest of this module

    points = metadata.entry_points(group=ENTRY_POINTS)
    found = {point.name: point.value for point in points}
    return {
        name.partition(".")[2]: value
        for name, value in sorted(found.items())
        if name.startswith(f"{kind}.")
    }


def _load_external(kind: str, name: str) -> type[Any]:
    """Import a class from a package that the caller trusts; refuse before anything is imported."""
    module, _, attribute = name.partition(":")
    trust = _TRUST.get()
    source = trust.source(name)
    where = f"{source}: " if source else ""
    if not _MODULE.fullmatch(module) or not attribute.isidentifier():
        raise UserError(f"{where}{kind} {name!r:.200} should look like 'package.module:Class'.")
    if not trust.covers(module):
        raise _untrusted_error(where, kind, name, module)
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{where}Cannot import {kind} '{name}': {error}.") from error
    if not isinstance(cls, type):
        raise UserError(f"{where}{kind} '{name}' is not a class, so it cannot be a part.")
    if not trust.covers(cls.__module__):  # what a trusted module has itself imported
        raise _untrusted_error(where, kind, name, cls.__module__)
    _check_interface(kind, cls, f"{where}{name}")
    return cls


def _check_interface(kind: str, cls: type, where: str) -> None:
    """Raise a UserError unless the class derives from the interface of its kind."""
    interface = INTERFACES.get(kind, object)
    if not issubclass(cls, interface):
        module = "" if kind in ("task", "classic") else "torch.nn.Module, "
        raise UserError(
            f"{where}: a part of kind '{kind}' must derive from weft.protocols."
            f"{interface.__name__}. Write `class {cls.__name__}({module}{interface.__name__})`."
        )


def _untrusted_error(where: str, kind: str, name: str, module: str) -> UserError:
    package = module.partition(".")[0]
    return UserError(
        f"{where}{kind} '{name:.99}' is code outside Weft, which would be imported and run. If you "
        f"trust the package '{package}', pass trust=[\"{package}\"] (--trust {package})."
    )


def fill(kind: str, spec: Mapping[str, object], derived: tuple[str, ...] = ()) -> dict[str, Any]:
    """The spec with every default written in, checked against the constructor's signature.

    `derived` names what the surrounding model already knows (input width, number of labels);
    a config may not set those, so one number is never written in two places.
    """
    if "kind" not in spec:
        raise UserError(f"[{kind}] needs a 'kind'. Known: {', '.join(sorted(parts(kind)))}.")
    name = spec["kind"]
    if not isinstance(name, str):
        raise UserError(f"[{kind}] 'kind' should be a name, got {name!r:.200}.")
    cls = find(kind, name)
    given = {key: value for key, value in spec.items() if key != "kind"}
    return {"kind": name, **check(cls, given, f"{kind} '{name}'", derived)}


def build(kind: str, spec: Mapping[str, object], **derived: object) -> Any:
    """Make the part that a spec describes."""
    filled = fill(kind, spec, tuple(derived))
    name = filled.pop("kind")
    cls = find(kind, name)
    accepted = inspect.signature(cls).parameters
    return cls(**{k: v for k, v in derived.items() if k in accepted}, **filled)


def check(
    target: Callable[..., object],
    given: Mapping[str, object],
    where: str,
    derived: tuple[str, ...] = (),
) -> dict[str, Any]:
    """`given` with the signature's defaults; a UserError for anything that does not fit."""
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    parameters = inspect.signature(target).parameters
    options = {name: p for name, p in parameters.items() if name not in derived}
    for name, value in given.items():
        if name in derived:
            raise UserError(f"Remove '{name}' from {where}: the model works it out itself.")
        if name not in options:
            raise unknown_name("option", name, options, where)
        if not fits(value, hints[name]):
            raise UserError(
                f"{where}: '{name}' should be {describe_type(hints[name])}, got {value!r:.200}."
            )
    missing = [n for n, p in options.items() if p.default is p.empty and n not in given]
    if missing:
        raise UserError(f"{where} needs {', '.join(missing)}.")
    return {name: given.get(name, p.default) for name, p in options.items()}


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value from a config file matches an annotation."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return True
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, option) for option in typing.get_args(hint))
    if origin in (list, tuple):
        inner = typing.get_args(hint)[0]
        return isinstance(value, (list, tuple)) and all(fits(item, inner) for item in value)
    if origin is abc.Sequence:
        inner = typing.get_args(hint)[0]
        whole = isinstance(value, abc.Sequence) and not isinstance(value, (str, bytes))
        return whole and all(fits(item, inner) for item in value)
    if origin is typing.IO:
        return hasattr(value, "write")
    if origin in (abc.Iterable, abc.Iterator):  # what is in it is seen when its turn comes
        return isinstance(value, origin) and not isinstance(value, (str, bytes))
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return isinstance(value, float) or abs(value) < 2**1023  # beyond, no float is near it
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def describe_type(hint: Any) -> str:
    """An annotation in words."""
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(a) for a in typing.get_args(hint))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe_type(option) for option in typing.get_args(hint))
    if origin in (list, tuple, abc.Sequence, abc.Iterable, abc.Iterator):
        return f"a list of {describe_type(typing.get_args(hint)[0])}"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    names |= {Path: "a path", os.PathLike: "a path", abc.Mapping: "a dict"}
    if origin in names:
        return names[origin]
    return names.get(
        hint, "nothing" if hint is type(None) else getattr(hint, "__name__", str(hint))
    )


def _scan_module(path: Path, module: str) -> list[Part]:
    declared: list[Part] = []
    source = path.read_text("utf-8")
    if "@register(" not in source:
        return declared  # parsing is the slow part
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "register":
                kind, name = (ast.literal_eval(argument) for argument in call.args)
                summary = (ast.get_docstring(node) or "").split("\n")[0]
                declared.append(Part(kind, name, module, node.name, summary, _options(node)))
    return declared


def _options(node: ast.ClassDef) -> tuple[tuple[str, str], ...]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            arguments = item.args.args[1:]
            defaults = [""] * (len(arguments) - len(item.args.defaults))
            defaults += [ast.unparse(d) for d in item.args.defaults]
            keyword = [
                (a.arg, ast.unparse(d) if d else "")
                for a, d in zip(item.args.kwonlyargs, item.args.kw_defaults, strict=True)
            ]
            positional = zip((a.arg for a in arguments), defaults, strict=True)
            return (*positional, *keyword)
    return ()
