// Implementation of kernels.hpp.
#include "kernels.hpp"

#include "fault.hpp"

namespace fsim {

namespace {

struct Entry {
  const char* name;
  bool (*is_supported)();
  Kernels (*make)(const Geometry&);
};

#if defined(FSIM_X86)
bool has_avx512vnni() {
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}
bool has_avxvnni() { return __builtin_cpu_supports("avxvnni"); }
bool has_avx2() { return __builtin_cpu_supports("avx2"); }
#endif

// Fastest first.
const Entry kEntries[] = {
#if defined(FSIM_X86)
    {"avx512vnni", has_avx512vnni, avx512vnni_kernels},
    {"avxvnni", has_avxvnni, avxvnni_kernels},
    {"avx2", has_avx2, avx2_kernels},
#endif
    {"generic", [] { return true; }, generic_kernels},
};

}  // namespace

std::vector<std::string> available_kernels() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) {
    if (entry.is_supported()) names.emplace_back(entry.name);
  }
  return names;
}

Kernels select_kernels(const std::string& name, const Geometry& geometry) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (!entry.is_supported()) continue;
    if (name == "auto" || name == entry.name) return entry.make(geometry);
    known += std::string(", ") + entry.name;
  }
  throw Fault("no kernels '" + name + "' on this CPU; give one of auto" + known);
}

}  // namespace fsim
