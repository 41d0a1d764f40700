// The checks of a GPU. Each adds rows to the report, and throws if it cannot go on.
#ifndef HVD_P3_TESTS_GPU_CHECKS_H_
#define HVD_P3_TESTS_GPU_CHECKS_H_

#include "report.h"

namespace hvd_p3 {

// CudaScale against Scale in core/arithmetic.h, for all types.
void CheckScale(Report* report);
// The engine with NCCL on one rank against host computation, for all types.
void CheckResults(Report* report);
// The host goes on while the gradient is still being computed.
void CheckPushes(Report* report);
// The host goes on while the result is still being reduced, and the program's stream waits for it.
void CheckPulls(Report* report);
// Reductions come before the program's kernels that wait for a place on the GPU.
void CheckStreamPriority(Report* report);
// A more urgent tensor overtakes one that is in the queue.
void CheckOrderOfSlices(Report* report);
// Time and processor time of a slice, by its size.
void MeasureSlices(Report* report);
// Ends with and without other ranks.
void CheckEnds(Report* report);

}  // namespace hvd_p3

#endif  // HVD_P3_TESTS_GPU_CHECKS_H_
