"""Model averaging."""

from hvd_p3.shadow.algorithms.algorithm import Algorithm


class ModelAveraging(Algorithm):
    """Draws the weights of all ranks to their mean.

    S-MA in the background, FR-MA in the foreground. With `n` ranks, each synchronisation computes

        w_mean = (w_1 + ... + w_n) / n                      by all-reduce
        w_i    = (1 - alpha) * w_i + alpha * w_mean         on each rank i

    In the background, `w_i` has moved on while the sum was on its way; the blend keeps what
    training has added meanwhile. At the end all ranks are left with the mean of their last weights.

    Method: ShadowSync (Zheng et al., 2020), the algorithm S-MA.

    Args:
        alpha: float in (0, 1], the elastic parameter.

    Raises:
        ValueError: If `alpha` is out of range.

    Example:

    ```python
    sync = hvd_p3.shadow.ShadowSync(hvd_p3.shadow.ModelAveraging(alpha=0.5))
    model.fit(data, callbacks=[sync])
    ```
    """

    def __init__(self, alpha=0.5):
        super().__init__(alpha)

    def synchronize(self, weights, group):
        return group.mean(weights)
