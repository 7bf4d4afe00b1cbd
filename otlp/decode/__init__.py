"""Decoding: a draft model proposes tokens, a target model verifies them; the output follows p.

A round of decoding has three parts; each part has a small interface.

- `Model`: next-token distributions at the nodes of a token tree after a context.
  ``start(context)``, ``logits(tree, nodes)``, ``advance(tree, node, token)``.  `TabularModel`
  stores its distributions as tables, for exact tests; `NGram` and `PromptLookup` are very cheap
  draft models, `Mixture` mixes models, `Copying` adds copying of repeated text to a model, and
  `TextModel` is the base class of models that are functions of a text.
- `Drafting`: from a draft model to a `DraftTree`.  With a fixed shape (`ShapedDrafting`):
  `iid_paths(K, L)`, `prefix_tree([k1, ...])`, `without_replacement([k1, ...])`, `hub_pairs(L)`,
  `tree_shape(parents, kind)`, `delayed_paths(T, K, L)`, `no_draft()`.  With a shape that depends
  on the draft: `mixed_tree([(c1, k1), ...])`, `top_tree(N, L)`, or a custom `ShapeRule`
  (`RuledDrafting`).
- `Verification`: from a draft tree and the target's distributions at its nodes to an `Outcome`: the
  accepted node and the distribution of the correction token.  ``supports(drafting)`` returns yes or
  the reason against; ``drafting(K, L)`` returns the suitable drafting.  `ALGORITHMS` holds all
  algorithms by name; `find_verification` looks up one algorithm.

`play_round` plays one round:

    draft.start(context); target.start(context)
    round = play_round(draft, target, iid_paths(4, 8), TwoSlicePaths(), rng)
    round.tokens            # accepted tokens and the correction; both models have advanced

`decode` generates texts in rounds, with or without a draft model:

    decode(target, prompts, 64, rng, draft=draft, drafting=iid_paths(4, 8),
           verification=TwoSlicePaths())

For a speculative cascade, pass a transform of `otlp.decode.cascades` as ``transform=``: every
algorithm accepts the distribution T(q, p) as its target.

All random decisions are made by a `Chooser`, so the code that samples can also be enumerated:
`otlp.decode.laws.round_laws.round_law` returns the exact distribution of the next L + 1 tokens on
tabular models and the exact block efficiency; `otlp_lab.laws.prefix_laws.prefix_law` returns the
same for larger models.  `multipath_optimum` bounds the block efficiency of every algorithm with K
i.i.d. paths; `otlp_lab.laws.drafting_lp.drafting_optimum` bounds it on the trees of any drafting.
"""

from otlp.decode import drafting as _drafting
from otlp.decode import verification as _verification
from otlp.decode.choosing import Chooser, RandomChooser, enumerate_choices
from otlp.decode.drafting import *  # noqa: F403
from otlp.decode.laws.multipath_lp import multipath_optimum
from otlp.decode.loop import Text, decode, rounds
from otlp.decode.models.calibration import Calibration
from otlp.decode.models.copying import Copying
from otlp.decode.models.gumbel import GumbelMax, Perturbed, with_shared_noise
from otlp.decode.models.mixture import Mixture
from otlp.decode.models.model import Model, Sampling, check_pair
from otlp.decode.models.n_gram import NGram
from otlp.decode.models.prompt_lookup import PromptLookup
from otlp.decode.models.tabular import TabularModel, random_pair
from otlp.decode.models.text_model import TextModel
from otlp.decode.round import Round, Transform, check_round, play_round
from otlp.decode.tree import DraftTree, TokenTree
from otlp.decode.verification import *  # noqa: F403
from otlp.decode.verification import ALGORITHMS as ALGORITHMS
from otlp.decode.verification import SEEDED as SEEDED

__all__ = [
    *_drafting.__all__,
    *_verification.__all__,
    "Calibration",
    "Chooser",
    "Copying",
    "DraftTree",
    "GumbelMax",
    "Mixture",
    "Model",
    "NGram",
    "Perturbed",
    "PromptLookup",
    "RandomChooser",
    "Round",
    "Sampling",
    "TabularModel",
    "Text",
    "TextModel",
    "TokenTree",
    "Transform",
    "check_pair",
    "check_round",
    "decode",
    "enumerate_choices",
    "multipath_optimum",
    "play_round",
    "random_pair",
    "rounds",
    "with_shared_noise",
]
