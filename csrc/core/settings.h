// The settings that may change while the engine runs. Plain data; any thread may use it.
#ifndef HVD_P3_CORE_SETTINGS_H_
#define HVD_P3_CORE_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace hvd_p3 {

struct EngineSettings {
  // A slice is at most this long. With Open MPI's TCP transport, messages of up to 64 KiB are sent
  // at once and longer ones only when the receiver has answered, which costs up to half of the
  // bandwidth; the longest message of an all-reduce is half a slice.
  int64_t slice_bytes = 120 * 1024;
  int64_t credit_bytes = 768 * 1024;
};

// Settings as bytes, for the exchange between ranks; empty for none.
std::string EncodeSettings(const std::optional<EngineSettings>& settings);
// Takes the settings off the front of what an exchange has brought.
std::optional<EngineSettings> DecodeSettings(std::string* bytes);

}  // namespace hvd_p3

#endif  // HVD_P3_CORE_SETTINGS_H_
