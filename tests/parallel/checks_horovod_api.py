"""What users of Horovod's Keras API have, on real ranks. The checks are in horovod_api/."""

# ruff: noqa: F401 - run_checks.py finds the checks by their names.

from horovod_api.callbacks import (
    check_best_model_is_that_of_all_ranks,
    check_best_model_needs_the_metric_on_all_ranks,
    check_local_variables_are_not_broadcast,
    check_warm_up_corrects_momentum_in_both_modes,
)
from horovod_api.collectives import (
    check_capabilities,
    check_collectives_take_what_horovods_keras_api_takes,
    check_compression,
    check_global_variables_are_refused,
    check_grouped_collectives,
    check_join,
    check_reducescatter_and_alltoall,
    check_variables_may_have_other_names_on_other_ranks,
)
from horovod_api.data import (
    check_equal_batches_of_datasets,
    check_longest_repeats_the_shorter_dataset,
    check_numbers_that_ranks_cannot_agree_on,
    check_python_datasets,
)
from horovod_api.elastic import (
    check_commit_in_the_middle_of_overlapped_training,
    check_objects_and_variables_of_rank_0,
    check_run_synchronises_first,
)
from horovod_api.loading import check_loaded_model_continues_bit_for_bit
from horovod_api.process_sets import (
    check_collectives_of_process_sets,
    check_process_sets_are_removed_and_added_again,
)
from horovod_api.sync_batch_normalization import (
    check_statistics_and_gradients_are_those_of_the_whole_batch,
)

SETTINGS = {"process_sets": "dynamic"}
