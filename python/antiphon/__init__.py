"""The trainer's side of antiphon: report signals, receive directives.

It deliberately does not train, save or load anything: the loop does, and tells antiphon about it. Nothing here raises
into the loop or makes it wait, and without the `ANTIPHON_*` environment every call does nothing.

    job = antiphon.attach(state=checkpoint.get("antiphon"), step=step)
    while step < total_steps:
        loss = train_one_step()
        step, slot = step + 1, slot + batch
        job.signal(step, slot, loss=loss, step_ms=step_ms, tokens=tokens)
        for directive in job.boundary(step, slot):
            if directive.do == "set_weights":
                mix.update(directive.weights)
                job.applied(directive, slot)
            else:
                job.rejected(directive, "this loop only mixes data")
"""

from .ask import Answer, Ask
from .directive import Directive
from .environment import Endpoint, Environment
from .job import Broadcast, Job, attach
from .sigterm import TermGuard
from .version import __version__

__all__ = [
    "Answer",
    "Ask",
    "Broadcast",
    "Directive",
    "Endpoint",
    "Environment",
    "Job",
    "TermGuard",
    "__version__",
    "attach",
]
