#include "core/settings.h"

#include <cstring>

namespace hvd_p3 {
namespace {

constexpr char kNone = 0;
constexpr char kSome = 1;

}  // namespace

std::string EncodeSettings(const std::optional<EngineSettings>& settings) {
  if (!settings) return std::string(1, kNone);
  std::string bytes(1 + sizeof(EngineSettings), kSome);
  std::memcpy(bytes.data() + 1, &*settings, sizeof(EngineSettings));
  return bytes;
}

std::optional<EngineSettings> DecodeSettings(std::string* bytes) {
  std::optional<EngineSettings> settings;
  size_t length = 1;
  if (bytes->size() > sizeof(EngineSettings) && bytes->front() == kSome) {
    settings.emplace();
    std::memcpy(&*settings, bytes->data() + 1, sizeof(EngineSettings));
    length += sizeof(EngineSettings);
  }
  bytes->erase(0, length);
  return settings;
}

}  // namespace hvd_p3
