"""Blockwise model-update filtering."""

import numpy as np

from hvd_p3.shadow.algorithms.algorithm import Algorithm


class BlockwiseModelUpdateFiltering(Algorithm):
    """Treats what training has brought since the last synchronisation as a step of a descent.

    S-BMUF in the background, FR-BMUF in the foreground. Each rank keeps the same global weights
    `w_global`, which start as the first weights, and the same update `d`, which starts as zero.
    With `n` ranks, each synchronisation computes

        w_mean   = (w_1 + ... + w_n) / n                    by all-reduce
        d        = block_momentum * d + eta * (w_mean - target)
        w_global = w_global + d
        target   = w_global                                 or, with Nesterov's momentum,
                   w_global + block_momentum * d
        w_i      = (1 - alpha) * w_i + alpha * target       on each rank i

    where `target` starts as the first weights, too: the update is measured from where ranks were
    drawn to. With `eta=1` and no momentum this is model averaging. At the end, after one more step
    with the last weights, all ranks are left with `w_global`.

    Statistics, such as those of batch normalisation, and weights with a constraint are averaged
    instead (`w_global = w_mean`, `d = 0`): momentum would lead beyond their bounds.

    Method: ShadowSync (Zheng et al., 2020), the algorithm S-BMUF; Scalable Training of Deep
    Learning Machines by Incremental Block Training with Intra-block Parallel Optimization and
    Blockwise Model-Update Filtering (Chen and Huo, 2016), for the momentum.

    Args:
        alpha: float in (0, 1], the elastic parameter.
        eta: float above 0, the step size of the descent.
        block_momentum: float from 0 to below 1. In the background, synchronisations follow each
            other so fast that little of one is in the weights when the next begins; large values
            overshoot then.
        nesterov: bool, whether ranks look ahead by the momentum.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    ```python
    algorithm = hvd_p3.shadow.BlockwiseModelUpdateFiltering(alpha=0.5, eta=0.9)
    model.fit(data, callbacks=[hvd_p3.shadow.ShadowSync(algorithm)])
    ```
    """

    def __init__(self, alpha=0.5, eta=1.0, block_momentum=0.0, nesterov=False):
        super().__init__(alpha)
        if not eta > 0:
            raise ValueError(
                f"BlockwiseModelUpdateFiltering needs eta above 0. Received: eta={eta!r}"
            )
        if not 0 <= block_momentum < 1:
            raise ValueError(
                "BlockwiseModelUpdateFiltering needs block_momentum from 0 to below 1. "
                f"Received: block_momentum={block_momentum!r}"
            )
        self.eta = float(eta)
        self.block_momentum = float(block_momentum)
        self.nesterov = bool(nesterov)
        self._global = None
        self._update = None

    def start(self, weights, group):
        self._global = weights.copy()
        self._update = np.zeros_like(weights)

    def synchronize(self, weights, group):
        self._step(group.mean(weights), group.bounded)
        return self._target()

    def ranks_changed(self, group):
        # A sum that failed may have come to its end on some ranks.
        self._global = group.broadcast(self._global)
        self._update = group.broadcast(self._update)

    def finish(self, weights, group):
        self._step(group.mean(weights), group.bounded)
        return self._global

    def _target(self):
        """Where ranks are drawn to: the global weights, or ahead of them by the momentum."""
        if self.nesterov:
            return self._global + self.block_momentum * self._update
        return self._global

    def _step(self, mean, bounded):
        averaged = mean[bounded] if bounded is not None else None
        # Training has started from the target, not from the global weights: with Nesterov's
        # momentum, the way between them is no update of training.
        mean -= self._target()
        mean *= self.eta
        self._update *= self.block_momentum
        self._update += mean
        self._global += self._update
        if bounded is not None:
            self._global[bounded] = averaged
            self._update[bounded] = 0
