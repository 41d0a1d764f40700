// The part of the module hvd_p3._engine that synchronisation in the background needs. Called once,
// when it is imported.
#ifndef HVD_P3_PYTHON_SHADOW_H_
#define HVD_P3_PYTHON_SHADOW_H_

#include <pybind11/pybind11.h>

namespace hvd_p3 {

void BindShadow(pybind11::module_& module);

}  // namespace hvd_p3

#endif  // HVD_P3_PYTHON_SHADOW_H_
