"""Drafting: grow a tree of tokens level by level from the draft model."""

from otlp.decode.drafting.drafting import Drafting
from otlp.decode.drafting.growing import Children, ShapeRule
from otlp.decode.drafting.mixed import certain_tree, mixed_tree
from otlp.decode.drafting.most_likely import TopTree, top_tree
from otlp.decode.drafting.ruled import RuledDrafting
from otlp.decode.drafting.shaped import (
    ShapedDrafting,
    delayed_paths,
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
    "RuledDrafting",
    "ShapeRule",
    "ShapedDrafting",
    "TopTree",
    "certain_tree",
    "delayed_paths",
    "hub_pairs",
    "iid_paths",
    "mixed_tree",
    "no_draft",
    "prefix_tree",
    "top_tree",
    "tree_shape",
    "without_replacement",
]
