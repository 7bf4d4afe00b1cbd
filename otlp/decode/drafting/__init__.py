"""Drafting: grow a tree of tokens from the draft model, level by level."""

from otlp.decode.drafting.drafting import Drafting
from otlp.decode.drafting.growing import Children, ShapeRule
from otlp.decode.drafting.shaped import (
    ShapedDrafting,
    greedy_distribution,
    hub_pairs,
    iid_paths,
    no_draft,
    prefix_tree,
    tree_shape,
    without_replacement,
)

__all__ = [
    "Children",
    "Drafting",
    "ShapeRule",
    "ShapedDrafting",
    "greedy_distribution",
    "hub_pairs",
    "iid_paths",
    "no_draft",
    "prefix_tree",
    "tree_shape",
    "without_replacement",
]
