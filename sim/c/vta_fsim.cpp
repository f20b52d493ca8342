// The functional simulator behind the five functions of a device. Its geometry and encoding come from
// fsim/fsim_config.inc, which vtaops generates.
#include "vta_fsim.h"

#include <cstring>
#include <new>
#include <optional>
#include <string>

#include "engine.hpp"
#include "executor.hpp"
#include "hardware.h"
#include "kernels.hpp"

namespace {

fsim::Geometry geometry() {
  fsim::Geometry made;
#define SIZE(name, value) made.name = value;
#define LIMIT(name, value)
#define SLOT(kind, name, offset, width, is_signed)
#include "fsim_config.inc"
#undef SIZE
#undef LIMIT
  return made;
}

fsim::Limits limits() {
  fsim::Limits made;
#define SIZE(name, value)
#define LIMIT(name, value) made.name = value;
#include "fsim_config.inc"
#undef LIMIT
#undef SLOT
  return made;
}

fsim::Encoding::Table slots() {
  fsim::Encoding::Table made;
#define LIMIT(name, value)
#define SLOT(kind, name, offset, width, is_signed) made[kind][name] = {offset, width, is_signed != 0};
#include "fsim_config.inc"
  return made;
}

struct Simulator {
  fsim::Dram dram;
  fsim::Encoding encoding{slots()};
  fsim::Executor executor{geometry(), encoding, fsim::select_kernels("auto", geometry()), limits(),
                          dram};
  fsim::Engine engine{encoding, executor, dram, limits().token_capacity, std::nullopt};
  uint32_t address = 0, count = 0;
  std::string message;
};

// Calls `act` on the simulator; exceptions become a status.
template <class Act>
int guarded(void* context, int refused, const Act& act) {
  auto& simulator = *static_cast<Simulator*>(context);
  try {
    act(simulator);
    return VTA_OK;
  } catch (const fsim::Fault& fault) {
    simulator.message = fault.text;
    return fault.kind == fsim::Fault::Kind::Timeout ? VTA_ERROR_TIMEOUT : refused;
  } catch (const std::bad_alloc&) {
    simulator.message = "no memory";
    return VTA_ERROR_MEMORY;
  }
}

int allocate(void* context, uint32_t nbytes, uint32_t* address) {
  return guarded(context, VTA_ERROR_MEMORY, [&](Simulator& simulator) {
    *address = static_cast<uint32_t>(simulator.dram.alloc(nbytes).address);
  });
}

int write(void* context, uint32_t address, const void* data, uint32_t nbytes) {
  return guarded(context, VTA_ERROR_DEVICE, [&](Simulator& simulator) {
    fsim::Dram::Hint hint;
    std::memcpy(simulator.dram.at(address, nbytes, hint), data, nbytes);
  });
}

int read(void* context, uint32_t address, void* data, uint32_t nbytes) {
  return guarded(context, VTA_ERROR_DEVICE, [&](Simulator& simulator) {
    fsim::Dram::Hint hint;
    std::memcpy(data, simulator.dram.at(address, nbytes, hint), nbytes);
  });
}

int launch(void* context, uint32_t address, uint32_t count) {
  auto& simulator = *static_cast<Simulator*>(context);
  simulator.address = address;
  simulator.count = count;
  return VTA_OK;
}

int wait(void* context, uint32_t milliseconds) {
  return guarded(context, VTA_ERROR_FAULT, [&](Simulator& simulator) {
    simulator.engine.launch(simulator.address, simulator.count, 1e-3 * milliseconds, [] {});
  });
}

}  // namespace

int vta_fsim_open(vta_device* device) {
  if (!device) return VTA_ERROR_ARGUMENT;
  try {
    *device = {new Simulator(), VTA_CONFIG, allocate, write, read, launch, wait};
    return VTA_OK;
  } catch (const fsim::Fault&) {
    return VTA_ERROR_DEVICE;
  } catch (const std::bad_alloc&) {
    return VTA_ERROR_MEMORY;
  }
}

void vta_fsim_close(vta_device* device) {
  delete static_cast<Simulator*>(device->context);
  device->context = nullptr;
}

const char* vta_fsim_message(const vta_device* device) {
  return static_cast<Simulator*>(device->context)->message.c_str();
}
