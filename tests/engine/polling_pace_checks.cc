// How long the engine sleeps between two looks at what is under way, checked by the compiler.
#include "core/polling_pace.h"

namespace hvd_p3 {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

// The sleep while slices are in flight that took `slice_ns` each.
constexpr int64_t SleepAfterSlices(int slices, int64_t slice_ns) {
  PollingPace pace;
  for (int i = 0; i < slices; ++i) pace.SliceTook(slice_ns);
  return pace.Sleep(/*waited_ns=*/0, /*slices_in_flight=*/true);
}

constexpr int64_t SleepWithoutSlices(int64_t waited_ns) {
  return PollingPace().Sleep(waited_ns, /*slices_in_flight=*/false);
}

// The mean after a slow and many fast slices is that of the fast ones.
constexpr int64_t SleepAfterOneSlowSlice(int fast_slices) {
  PollingPace pace;
  pace.SliceTook(1000 * kMillisecond);
  for (int i = 0; i < fast_slices; ++i) pace.SliceTook(kMillisecond);
  return pace.Sleep(0, true);
}

static_assert(SleepAfterSlices(0, 0) == PollingPace::kShortestSleepNs);
static_assert(SleepAfterSlices(100, kMillisecond) == PollingPace::kShortestSleepNs);
static_assert(SleepAfterSlices(100, 4 * kMillisecond) > 240'000);
static_assert(SleepAfterSlices(100, 4 * kMillisecond) <= 250'000);
static_assert(SleepAfterSlices(100, 100 * kMillisecond) == PollingPace::kLongestSleepWithSlicesNs);
static_assert(SleepAfterOneSlowSlice(0) == PollingPace::kLongestSleepWithSlicesNs);
static_assert(SleepAfterOneSlowSlice(100) == PollingPace::kShortestSleepNs);
static_assert(SleepWithoutSlices(0) == PollingPace::kShortestSleepNs);
static_assert(SleepWithoutSlices(600'000) == 150'000);
static_assert(SleepWithoutSlices(100 * kMillisecond) == PollingPace::kLongestSleepNs);

}  // namespace
}  // namespace hvd_p3
