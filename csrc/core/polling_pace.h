// How long the engine thread sleeps between two looks at what is under way. Owned and used by the
// engine thread alone.
//
// A look costs some microseconds of processor time whether or not it finds something, and what
// happens during a sleep is seen late by half of it on average. So a sleep is a small part of what
// the engine waits for: of the time that slices take here if some are in flight, and else of the
// time waited so far.
#ifndef HVD_P3_CORE_POLLING_PACE_H_
#define HVD_P3_CORE_POLLING_PACE_H_

#include <algorithm>
#include <cstdint>

namespace hvd_p3 {

class PollingPace {
 public:
  static constexpr int64_t kShortestSleepNs = 100'000;
  static constexpr int64_t kLongestSleepNs = 200'000;
  static constexpr int64_t kLongestSleepWithSlicesNs = 300'000;

  // A slice was in flight for this long.
  constexpr void SliceTook(int64_t ns) { slice_ns_ += (ns - slice_ns_) / kLatestCountsOneIn; }

  // waited_ns: the time since a look last found something.
  constexpr int64_t Sleep(int64_t waited_ns, bool slices_in_flight) const {
    if (!slices_in_flight) {
      return std::clamp(waited_ns / kPartOfWait, kShortestSleepNs, kLongestSleepNs);
    }
    return std::clamp(slice_ns_ / kPartOfSlice, kShortestSleepNs, kLongestSleepWithSlicesNs);
  }

 private:
  static constexpr int64_t kPartOfWait = 4;
  // An all-reduce has a few messages in turn, and each is seen late.
  static constexpr int64_t kPartOfSlice = 16;
  static constexpr int64_t kLatestCountsOneIn = 8;

  int64_t slice_ns_ = 0;  // exponential mean
};

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_POLLING_PACE_H_
