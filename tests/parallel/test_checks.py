"""One test for each check in the `checks_*.py` modules, on real ranks."""

import pytest
from conftest import check_names

# module -> numbers of ranks
_MODULES = {
    "checks_ops": [2],
    "checks_collectives": [2],
    "checks_embedding": [2],
    "checks_embedding_on_four_ranks": [4],
    "checks_failures": [2],
    "checks_horovod_api": [2],
    "checks_optimizer": [2],
    "checks_order": [4],
    "checks_reduction": [4],
    "checks_settings": [4],
    "checks_shadow": [2],
    "checks_shadow_on_four_ranks": [4],
    "checks_sparse": [2],
    "checks_tape": [2],
    "checks_timeline": [2],
}

_CASES = [
    pytest.param(module, ranks, check, id=f"{module.removeprefix('checks_')}-{ranks}-{check[6:]}")
    for module, all_ranks in _MODULES.items()
    for ranks in all_ranks
    for check in check_names(module)
]


@pytest.mark.parallel
@pytest.mark.parametrize(("module", "ranks", "check"), _CASES)
def test_check(assert_check, module, ranks, check):
    assert_check(module, ranks, check)


@pytest.mark.parallel
@pytest.mark.parametrize("check", check_names("checks_gloo"))
def test_check_under_gloo(assert_check, check):
    assert_check("checks_gloo", 2, check, controller="--gloo")
