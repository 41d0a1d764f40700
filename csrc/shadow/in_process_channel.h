// Channels between threads of one process, each a rank: for jobs of one rank, and for tests. Any
// thread may call; see channel.h.
#ifndef HVD_P3_SHADOW_IN_PROCESS_CHANNEL_H_
#define HVD_P3_SHADOW_IN_PROCESS_CHANNEL_H_

#include <memory>
#include <string>
#include <vector>

#include "shadow/channel.h"

namespace hvd_p3 {

// One channel for each of `size` ranks. Sums are those of the ranks in ascending order.
std::vector<std::shared_ptr<Channel>> MakeInProcessChannels(const std::string& name, int size);

}  // namespace hvd_p3

#endif  // HVD_P3_SHADOW_IN_PROCESS_CHANNEL_H_
