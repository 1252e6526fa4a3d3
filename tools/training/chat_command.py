"""`python -m tools.training chat`: trains the chat model, one stage of a curriculum at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from evals.slices.registry import SLICES, find
from tools.training import export
from tools.training.chat_curve import learning_curve
from tools.training.chat_source import POSITIONS, ChatCoder, ChatSource
from tools.training.options import run_options, schedule_and_settings
from tools.training.trainer import Trainer


def shares(text: str) -> dict[str, float]:
    """The slices and shares of --mix, such as "facts:1,json:2.5". Raises click.BadParameter, naming the fault."""
    try:
        parts = (part.split(":") for part in text.split(","))
        return {find(name).name: float(share) for name, share in parts}
    except (KeyError, ValueError) as error:
        raise click.BadParameter(f"--mix: {error.args[0]}; write facts:1,json:2.5") from None


@click.command()
@click.option("--init-from", type=click.Path(path_type=Path), default="models/slipstream-chat", show_default=True)
@click.option("--mix", required=True, help="Slices and their shares of the tokens: facts:1,json:2.5")
@click.option("--copying", default=0.05, show_default=True, help="Share of the windows with random ids to copy.")
@click.option("--watch", default="", help="Slices of the learning curve, with commas; those of the mix if not given.")
@click.option("--watch-items", default=40, show_default=True, help="Held-out items of each.")
@click.option("--watch-every", default=0, show_default=True, help="Steps between points of the curve; 0: none.")
@run_options
def command(
    init_from: Path, mix: str, copying: float, watch: str, watch_items: int, watch_every: int, **options: Any
) -> None:
    """Train on the training side of evals/slices.

    A stage is a mixture of slices and window lengths; the next goes on from the folder this one leaves in RUN/export.
    Stop it with SIGTERM, start it again to go on.
    """
    schedule, settings = schedule_and_settings(options)
    wanted = shares(mix)
    watched = [one.name for one in SLICES if one.name in (watch.split(",") if watch else wanted)]
    coder = ChatCoder(init_from)
    trainer = Trainer(
        model=export.load(init_from, max_position_embeddings=POSITIONS),
        source=ChatSource(coder, {find(name): share for name, share in wanted.items()}, options["seed"], copying),
        schedule=schedule,
        settings=msgspec.structs.replace(settings, evaluate_every=watch_every),
        folder=options["run"],
        evaluate=learning_curve(coder, watched, watch_items),
        say=click.echo,
    )
    trainer.run()
    end_ids = json.loads((init_from / "generation_config.json").read_text())["eos_token_id"]
    export.save(trainer.model, options["run"] / "export", init_from, end_ids)
