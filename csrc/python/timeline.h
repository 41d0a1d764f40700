// The part of the module hvd_p3._engine that timelines need. Called once, when it is imported.
#ifndef HVD_P3_PYTHON_TIMELINE_H_
#define HVD_P3_PYTHON_TIMELINE_H_

#include <pybind11/pybind11.h>

namespace hvd_p3 {

void BindTimeline(pybind11::module_& module);

}  // namespace hvd_p3

#endif  // HVD_P3_PYTHON_TIMELINE_H_
