"""A layer of one's own, as tests name it in `layers`."""

from dataclasses import replace

from fedlingua.layers.layer import Layer, Training


class Halved(Layer):
    """Every change is halved at the server."""

    def replies(self, number: int, trained: dict[str, Training]) -> dict[str, Training]:
        for site, training in trained.items():
            start, update = self.run.received_by(site), training.update
            half = {name: (start[name] + new) / 2 for name, new in update.tensors.items()}
            trained[site] = replace(training, update=replace(update, tensors=half))
        return trained
