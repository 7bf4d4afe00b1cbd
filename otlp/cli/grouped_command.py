"""Commands with grouped options in their help."""

from __future__ import annotations

from collections.abc import Callable

import click

HEADINGS = {
    "Input": "capture logits pad-vocabulary row rows synthetic vocab-size prompts limit "
    "statistics baseline toggle request texts",
    "Models": "target draft device dtype",
    "Rules": "command uniforms stated solver solvers option engine rules lossy algorithms "
    "calibration cascades threshold",
    "Drafts": "scheme schemes n drafts paths length nodes trees draft-cost node-cost",
    "Sampling": "temperature draft-temperature top-k top-p sampling-top-k sampling-top-p "
    "sampling-min-p whole-draft tokens text",
    "Test": "samples false-alarm-rate tolerance max-paths plant",
    "Run": "seed jobs journal time-limit memory-limit check compile clock races parallel timeout "
    "key-variable",
    "Output": "to output form top-logprobs over brief config json figure table help",
}
"""Names of options under each heading, in the order of the help."""

MAX_UNGROUPED = 8
"""Maximum number of options without headings."""


class GroupedCommand(click.Command):
    """A command whose help shows more than `MAX_UNGROUPED` options under `HEADINGS`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, under headings if there are many."""
        found = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        options = {one.opts[-1].lstrip("-"): one for one in found}
        if len(options) <= MAX_UNGROUPED + 1:  # --help is not counted
            return super().format_options(ctx, formatter)
        for heading, names in HEADINGS.items():
            shown = [options[name] for name in names.split() if name in options]
            records = [record for one in shown if (record := one.get_help_record(ctx))]
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
        return None


def grouped_command(epilog: str) -> Callable[[Callable[..., None]], GroupedCommand]:
    """Return a decorator that makes a `GroupedCommand`."""
    return click.command(cls=GroupedCommand, epilog=epilog)
