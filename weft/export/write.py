"""Write a model folder as an export: graphs, tokenizer, labels, and a report of their agreement."""

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import UserError
from weft.export.parity import MIN_AGREEMENT, Parity, compare_answers
from weft.export.runtime.engine import (
    GRAPH_FILE,
    GRID_FILE,
    ROLES_FILE,
    STEP_FILE,
    TABLES_FILE,
)
from weft.export.runtime.load import load_export
from weft.export.runtime.metadata import (
    EXPORT_FILE,
    ExportInfo,
    Reads,
    Source,
    Weights,
    digest_model,
)
from weft.predict.golden import GOLDEN, answer_exact, golden_line, recorded_inputs
from weft.predict.predictor import Predictor, load, model_folder
from weft.predict.rows import PARSER_FOLDER, SEGMENTER_FILE
from weft.storage import ESCAPE_SURROGATES, atomic_write_folder, write_bytes, write_text

if TYPE_CHECKING:
    from weft.export.onnx import Graph
    from weft.predict.neural import NeuralEngine
    from weft.predict.predictor import Input

PARITY_FILE = "parity.json"
COPIED = ("labels.json", "tokenizer.json", SEGMENTER_FILE, GOLDEN)
MAX_GRAPH_BYTES = 2**31 - 1  # of a message in ONNX's format


def export_onnx(
    model: str | Path,
    output: str | Path,
    *,
    int8: bool = False,
    check: Iterable["Input"] = (),
    overwrite: bool = False,
    trust: Sequence[str] = (),
) -> Parity:
    """Export a model folder to be run with onnxruntime, and compare the two.

    With `int8` large matrices are stored in a quarter of their size, which changes scores a
    little. The recorded answers and the texts of `check` go through both; if they disagree, nothing
    is written.
    """
    folder = model_folder(Path(model))
    predictor = load(folder, device="cpu", trust=trust)
    return export_predictor(
        folder, predictor, Path(output), int8=int8, check=check, overwrite=overwrite
    )


def export_predictor(
    folder: Path,
    predictor: Predictor,
    target: Path,
    *,
    int8: bool = False,
    check: Iterable["Input"] = (),
    overwrite: bool = False,
) -> Parity:
    """Export the model that was loaded from a folder; see `export_onnx`."""
    _check_target(target, overwrite)
    inputs = [*recorded_inputs(folder / GOLDEN), *check]
    with atomic_write_folder(target) as part:
        write_export(folder, predictor, part, int8=int8, place=target)
        exported = load_export(part, replay=False)
        parity = compare_answers(predictor, exported, inputs)
        if not parity.passes:
            raise UserError(
                f"{folder}: the exported model disagrees with it on {parity.disagreements} of "
                f"{parity.texts} texts, first on {parity.first_disagreement!r:.80}; scores differ "
                f"by up to {parity.max_difference:.2g}. Nothing was written."
                + (f" With --int8, {MIN_AGREEMENT:.1%} must agree." if int8 else "")
            )
        if int8:  # its scores differ from those recorded: it will be held to its own
            _record_answers(exported, part, folder)
        report = {"weights": "int8" if int8 else "float32", **parity.to_json()}
        write_text(part / PARITY_FILE, json.dumps(report, indent=1) + "\n")
    return parity


def write_export(
    folder: Path, predictor: Predictor, target: Path, *, int8: bool, place: Path
) -> None:
    """Write the files of an export, which will lie at `place`."""
    golden = len(recorded_inputs(folder / GOLDEN))
    source = Source(_relative(folder, place), digest_model(folder))
    weights: Weights = "int8" if int8 else "float32"
    config = dict(predictor.config)
    if "classic" in config:
        if int8:
            raise UserError(
                f"{folder}: a classical model has no matrices to quantise. Omit --int8."
            )
        _copy_classic(folder, target)
        info = ExportInfo(config, golden, predictor.parameters, weights, source, predictor.note)
        info.write(target)
        return
    from weft.predict.neural import NeuralEngine

    if not isinstance(predictor.engine, NeuralEngine):
        raise UserError(f"{folder}: an ensemble cannot be exported; export its members.")
    for name in COPIED:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, target / name)
    if predictor.engine.parser is not None:
        (target / PARSER_FOLDER).mkdir()
        write_export(
            folder / PARSER_FOLDER, predictor.engine.parser, target / PARSER_FOLDER, int8=int8,
            place=place / PARSER_FOLDER,
        )  # fmt: skip
    graphs, tables, gives = build_graphs(predictor.engine, int8)
    described = {}
    for name, (data, inputs, outputs) in graphs.items():
        if len(data) > MAX_GRAPH_BYTES:
            raise UserError(
                f"{folder}: a graph of {len(data):,} bytes, and ONNX files hold "
                f"{MAX_GRAPH_BYTES:,}. Export it with --int8."
            )
        write_bytes(target / name, data)
        described[name] = {"bytes": len(data), "inputs": inputs, "outputs": outputs}
    if tables:
        from safetensors.numpy import save_file

        save_file(tables, target / TABLES_FILE)
    note = predictor.engine.note
    info = ExportInfo(
        config, golden, predictor.parameters, weights, source, note,
        describe_reads(predictor.engine), gives, described,
    )  # fmt: skip
    info.write(target)


GraphFile = tuple[bytes, dict[str, Any], dict[str, Any]]  # its inputs and outputs are described


def build_graphs(
    engine: "NeuralEngine", int8: bool
) -> tuple[dict[str, GraphFile], dict[str, np.ndarray], dict[str, Any]]:
    """Return the graphs of a model, the tables that decoding needs, and what it gives."""
    import torch

    from weft.decode.heads.roles import RoleHead
    from weft.decode.heads.semantics.tuple_grid import TupleGridHead
    from weft.export.onnx import Graph
    from weft.export.onnx.decoding import describe_output
    from weft.export.onnx.grid import write_grid_row
    from weft.export.onnx.model import write_step
    from weft.export.onnx.roles import write_roles
    from weft.model import EncoderDecoderModel

    graphs = {GRAPH_FILE: Graph(int8=int8)}
    model = engine.model.eval()
    with torch.no_grad():
        gives, tables = describe_output(model)
        graphs[GRAPH_FILE].run(model)
        if isinstance(model, EncoderDecoderModel):
            graphs[STEP_FILE] = Graph(int8=int8)
            decoder = model.head.decoder
            gives["dynamic"], gives["static"] = write_step(
                graphs[STEP_FILE], decoder, graphs[GRAPH_FILE]
            )
        if isinstance(model.head, RoleHead):
            graphs[ROLES_FILE] = Graph(int8=int8)
            write_roles(graphs[ROLES_FILE], model.head)
        if isinstance(model.head, TupleGridHead):
            graphs[GRID_FILE] = Graph(int8=int8)
            write_grid_row(graphs[GRID_FILE], model.head)
    return {name: _describe_graph(graph, gives) for name, graph in graphs.items()}, tables, gives


def _describe_graph(graph: "Graph", gives: Mapping[str, Any]) -> GraphFile:
    model = graph.to_model({"weft": "export", "kind": str(gives["kind"])})
    inputs = {name: [str(dtype), list(shape)] for name, (dtype, shape) in graph.inputs.items()}
    outputs = {name: [str(v.dtype), list(shape)] for name, (v, shape) in graph.outputs.items()}
    return model.SerializeToString(), inputs, outputs


def describe_reads(engine: "NeuralEngine") -> Reads:
    """Return how the texts of a model become rows, and rows the inputs of its graph."""
    from weft.embed.contextual import Contextual
    from weft.export.onnx.model import spelling_of
    from weft.export.onnx.trees import tree_arity

    model, index = engine.model, engine.indexer
    traits, embedders = model.traits, model.embedder_parts
    readers = [part for part in embedders if isinstance(part, Contextual)]
    return Reads(
        input_kind=traits.input_kind,
        is_structured=traits.is_structured,
        is_bi_encoder=traits.is_bi_encoder,
        is_lm=traits.is_lm,
        is_mlm=traits.is_mlm,
        features=traits.features,
        frontend=None if traits.frontend is None else asdict(traits.frontend),
        frame={name: _plain(value) for name, value in asdict(index.frame).items()},
        spellings=tuple(spelling_of(part) for part in model.subtoken_embedders),
        subwords=traits.subwords,
        subword_pooling=readers[0].subword_pooling if traits.subwords and readers else "",
        max_positions=readers[0].max_positions if readers else None,
        limit=index.limit,
        policy=index.policy,
        overlap=index.overlap,
        characters=index.characters,
        full_sentences=index.full_sentences,
        extended_vocab_start=index.extended_vocab_start,
        reads_ids=index.reads_ids,
        arity=tree_arity(model) if traits.input_kind == "trees" else 0,
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _copy_classic(folder: Path, target: Path) -> None:
    """Copy a classical model, which needs no torch as it is."""
    for path in folder.iterdir():
        if path.is_file() and path.name not in ("model.json", "README.md"):
            shutil.copyfile(path, target / path.name)


def _record_answers(exported: Predictor, target: Path, folder: Path) -> None:
    """Record the answers of the export to the golden texts of its model."""
    golden = recorded_inputs(folder / GOLDEN)
    lines = [
        golden_line(text, answer)
        for text, answer in zip(golden, answer_exact(exported, golden), strict=True)
    ]
    write_text(target / GOLDEN, "".join(lines), errors=ESCAPE_SURROGATES)


def _relative(folder: Path, place: Path) -> str:
    """Return the path of a model seen from its export; "" if there is none."""
    try:
        return Path(os.path.relpath(folder.resolve(), place.resolve())).as_posix()
    except ValueError:  # another drive
        return ""


def _check_target(folder: Path, overwrite: bool) -> None:
    """Raise UserError if an existing folder must not be touched."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder to -o.")
    present = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
    if present and not overwrite:
        raise UserError(f"{folder} is not empty. Pass --overwrite, or choose another folder.")
    if present and EXPORT_FILE not in present:
        raise UserError(f"{folder} holds no {EXPORT_FILE}, so --overwrite leaves it alone.")
