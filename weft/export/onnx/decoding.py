"""Kinds, numbers and tables that the runtime needs to decode the scores of a graph."""

from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor

from weft.decode.heads.answer_span import AnswerSpanHead
from weft.decode.heads.crf import CRF
from weft.decode.heads.ctc.head import CTCHead
from weft.decode.heads.greedy_merge import GreedyMerger
from weft.decode.heads.intent_slots import IntentSlotHead
from weft.decode.heads.lm import LanguageModelHead
from weft.decode.heads.mlm import MLMHead
from weft.decode.heads.parse import ConstituencyHead, DependencyHead, RecursiveHead
from weft.decode.heads.roles import RoleCRFHead, RoleHead, RoleSpanHead
from weft.decode.heads.semantics.coreference import WordCoreferenceHead
from weft.decode.heads.semantics.tuple_grid import TupleGridHead
from weft.decode.heads.seq2seq import Seq2SeqHead
from weft.decode.heads.span_constituency import SpanScorer
from weft.decode.heads.tag import TagHead
from weft.decode.heads.tree_nodes import TreeNodeHead
from weft.decode.heads.word_numbers import NumberHead
from weft.export.onnx.coreference import mention_tables
from weft.export.onnx.decoders.generation import check_search
from weft.model import EncoderModel, Model

Tables = dict[str, np.ndarray]


def describe_output(model: Model) -> tuple[dict[str, Any], Tables]:
    """Return the kind of a model's answers with its settings, and the tables of decoding."""
    head = model.head
    gives: dict[str, Any] = {"kind": "logits", "stride": 1, "leading": 0}
    if isinstance(model, EncoderModel) and not model.traits.is_bi_encoder:
        gives |= {"stride": model.encoder.stride, "leading": model.encoder.leading}
    if isinstance(head, Seq2SeqHead):
        check_search(head.search)
        ids = {
            "size": head.decoder.words.size,
            "bos": head.bos,
            "eos": head.eos,
            "forbidden": list(head.constraints.forbidden),
        }
        return gives | {"kind": "text", **ids, "search": asdict(head.search)}, {}
    if isinstance(head, LanguageModelHead):
        windows: dict[str, Any] = {
            "row_steps": head.row_steps,
            "new_steps": head.new_steps,
            "bos": head.bos,
        }
        if head.is_bidirectional:
            windows |= {"blank": head.blank, "eos": head.eos, "window": head.window}
            return gives | {"kind": "words", "masks": head.decoder.needs_masking, **windows}, {}
        if head.has_backward_lm:
            windows["max_subtokens"] = head.decoder.max_subtokens
        # Positions beyond the training window were never trained.
        windows["limit"] = None if head.decoder.max_positions is None else head.window
        return gives | {"kind": "tokens", "backward": head.has_backward_lm, **windows}, {}
    if isinstance(head, MLMHead):
        return gives | {"kind": "masked"}, {}
    if isinstance(head, TagHead):
        return gives | {"kind": "tags", "columns": len(head.score)}, crf_tables(head.crfs)
    if isinstance(head, IntentSlotHead):
        return gives | {"kind": "intent-slots", "sentence_columns": 1}, crf_tables(head.crfs)
    if isinstance(head, CTCHead):
        return gives | {"kind": "ctc", "unwritten": head.unwritten, "beams": head.num_beams}, {}
    if isinstance(head, TreeNodeHead):
        return gives | {"kind": "nodes"}, {}
    if isinstance(head, NumberHead):
        return gives | {"kind": "numbers"}, {}
    if isinstance(head, DependencyHead):
        tags = () if head.tags is None else head.tags.crfs
        columns = 0 if head.tags is None else len(head.tags.score)
        gives |= {"kind": "arcs", "search": head.search, "root": head.root, "columns": columns}
        return gives, {"label": _to_numpy(head.arcs.label.weight), **crf_tables(tags)}
    if isinstance(head, ConstituencyHead):
        gives |= {"kind": "brackets", "columns": 1, "epsilon": head.brackets.norm.eps}
        return gives, span_tables(head.brackets)
    if isinstance(head, RecursiveHead):
        return gives | {"kind": "merges", "columns": 1}, merge_tables(head.merger)
    if isinstance(head, RoleHead):
        kind = "tags" if isinstance(head, RoleCRFHead) else "spans"
        return gives | {"kind": "roles", "roles": kind, "verb": head.verb}, role_tables(head)
    if isinstance(head, TupleGridHead):
        labels = {"labels": _to_numpy(head.table.weight)}
        return gives | {"kind": "grid", "rows": head.rows}, labels
    if isinstance(head, WordCoreferenceHead):
        gives |= {"antecedents": head.antecedents, "link_margin": head.link_margin}
        gives |= {"kind": "chains", "singletons": head.singletons, "genres": len(head.genres)}
        return gives, mention_tables(head)
    if isinstance(head, AnswerSpanHead):
        return gives | {"kind": "span", "longest": head.longest}, {}
    return gives, {}


def crf_tables(chains: tuple[CRF, ...]) -> Tables:
    """Return the scores of each column's CRF, -inf where its rules forbid something."""
    tables: Tables = {}
    for column, chain in enumerate(chains):
        rules = (chain.may_follow, chain.may_start, chain.may_end)
        weights = (chain.transitions, chain.start, chain.end)
        for name, weight, rule in zip(("transitions", "start", "end"), weights, rules, strict=True):
            forbidden: Tensor = weight.detach().float().masked_fill(~rule, -np.inf)
            tables[f"column.{column}.{name}"] = _to_numpy(forbidden)
    return tables


def span_tables(scorer: SpanScorer) -> Tables:
    """Return the weights by which spans are scored from the gaps at their ends."""
    weights = {
        "span.bias": scorer.bias,
        "span.norm.weight": scorer.norm.weight,
        "span.norm.bias": scorer.norm.bias,
        "span.weight": scorer.second.weight,
        "span.label_bias": scorer.second.bias,
    }
    return {name: _to_numpy(weight) for name, weight in weights.items()}


def merge_tables(merger: GreedyMerger) -> Tables:
    """Return the weights by which neighbours become a node, which is scored and labelled."""
    left, right = merger.weight.split(merger.weight.shape[0], 1)
    return {
        "merge.weight": np.concatenate([_to_numpy(left), _to_numpy(right)]),  # (2*H, H)
        "merge.bias": _to_numpy(merger.bias),
        "merge.score": _to_numpy(merger.score.weight[0]),
        "merge.label": _to_numpy(merger.label.weight),
        "merge.label_bias": _to_numpy(merger.label.bias),
    }


def role_tables(head: RoleHead) -> Tables:
    """Return the senses of each group of lemmas, and the weights of transitions or labels."""
    tables: Tables = {"candidates": head.senses.candidates.cpu().numpy()}
    if isinstance(head, RoleCRFHead):
        return tables | crf_tables((head.chain,))
    assert isinstance(head, RoleSpanHead)
    return tables | {"labels": _to_numpy(head.labels.weight)}


def _to_numpy(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().float().cpu().contiguous().numpy()
    return array
