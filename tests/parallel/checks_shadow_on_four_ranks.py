"""Those checks of ShadowSync that see more on four ranks than on two."""

from checks_shadow import (  # noqa: F401
    check_blockwise_model_update_filtering,
    check_elastic_averaging,
    check_loop_of_your_own,
    check_messages_and_sums,
    check_model_averaging,
    check_ranks_that_finish_early_and_ranks_that_are_slow,
)
