// The engine's errors as TensorFlow's. Any thread may call it.
#ifndef HVD_P3_TENSORFLOW_STATUS_H_
#define HVD_P3_TENSORFLOW_STATUS_H_

#include "core/status.h"
#include "tensorflow/core/platform/status.h"

namespace hvd_p3 {

absl::Status ToTensorFlow(const Status& status);

}  // namespace hvd_p3

#endif  // HVD_P3_TENSORFLOW_STATUS_H_
