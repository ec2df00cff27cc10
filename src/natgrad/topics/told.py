"""What documents told the nodes that all documents share: a fitted network in, messages out, and back into the next network.

A message is what a node's natural parameter holds beyond what the shared nodes say to one another; in the network of the next
documents it is an observation with log density ⟨m, φ(x)⟩. Messages of earlier documents are among those of later ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.network.bind.remembering import Message, messages_to
from natgrad.network.network import Network

__all__ = ["Told", "reminded", "told_to", "with_rows"]

Told = dict[str, tuple[Any, ...]]
# Plates along which documents, their words and their tokens lie; some have the number of a time at the end.
OF_DOCUMENTS = ("doc", "cell", "token")


def told_to(network: Network, fit: Any) -> Told:
    """What the documents of a fit, and those before, told each shared node."""
    nodes = {name: network.nodes[name] for name in fit if _is_shared(network.nodes[name])}
    return {name: message for name, (message, _) in messages_to(nodes, {name: fit[name] for name in nodes}).items()}


def reminded(network: Network, told: Told) -> Network:
    """The network with what earlier documents told its shared nodes."""
    if not told:
        return network
    leaves = [node for node in network.nodes.values() if node.is_observed]
    messages = [
        Message(network.nodes[name], tuple(map(np.asarray, message)))
        for name, message in told.items()
        if name in network.nodes
    ]
    return Network(*leaves, *messages)


def with_rows(message: tuple[Any, ...], places: Any, size: int) -> tuple[Any, ...]:
    """A message to elements that are now among ``size``, at these places; the others were told nothing."""
    longer = []
    for part in message:
        new = np.zeros((size, *part.shape[1:]))
        new[places] = part
        longer.append(new)
    return tuple(longer)


def _is_shared(node: Any) -> bool:
    return not any(plate.name.rstrip("0123456789") in OF_DOCUMENTS for plate in node.plates)
