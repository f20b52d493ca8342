// Python binding (vtaops._fsim): raw calls only; vtaops/runtime/fsim.py implements the Device protocol.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <new>

#include "baseline.hpp"
#include "../gil.hpp"
#include "device.hpp"

namespace nb = nanobind;
using fsim::Device;
using fsim::Dram;
using fsim::Fault;

namespace {

template <class T, class... Shape>
using Array = nb::ndarray<T, nb::numpy, nb::c_contig, nb::device::cpu, Shape...>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const int8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
T* allocate(std::size_t count, nb::capsule& owner) {
  T* const data = new T[count];
  owner = nb::capsule(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return data;
}

// Lets Ctrl-C end a long launch.
void poll_signals() {
  const gil::Held held;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

fsim::Geometry geometry_of(const nb::dict& values) {
  const auto get = [&](const char* key) { return nb::cast<std::size_t>(values[key]); };
  fsim::Geometry geometry;
  geometry.batch = get("batch");
  geometry.block = get("block");
  geometry.uop_depth = get("uop_depth");
  geometry.inp_depth = get("inp_depth");
  geometry.wgt_depth = get("wgt_depth");
  geometry.acc_depth = get("acc_depth");
  geometry.post_rows = get("post_rows");
  geometry.tables = get("tables");
  geometry.window_tiles = get("window_tiles");
  geometry.window_channels = get("window_channels");
  geometry.pools = get("pools");
  geometry.pairs = get("pairs");
  return geometry;
}

fsim::Limits limits_of(const nb::dict& values) {
  const auto flag = [&](const char* key) { return nb::cast<bool>(values[key]); };
  fsim::Limits limits;
  limits.weight_padding = flag("weight_padding");
  limits.acc_padding = flag("acc_padding");
  limits.mul = flag("mul");
  limits.acc_8bit = flag("acc_8bit");
  limits.long_shift = flag("long_shift");
  limits.tensor_shift = flag("tensor_shift");
  limits.empty_rows = flag("empty_rows");
  limits.alu_batch = flag("alu_batch");
  limits.separate_out = flag("separate_out");
  limits.micro_ops = nb::cast<int64_t>(values["micro_ops"]);
  limits.token_capacity = nb::cast<uint64_t>(values["token_capacity"]);
  return limits;
}

void construct(Device* self, const nb::dict& sizes, const fsim::Encoding::Table& slots,
               std::optional<uint64_t> seed, bool check_overflow, const std::string& kernel,
               const nb::dict& limits) {
  const fsim::Geometry geometry = geometry_of(sizes);
  const fsim::Kernels kernels = check_overflow ? fsim::checked_kernels(geometry)
                                               : fsim::select_kernels(kernel, geometry);
  new (self) Device(geometry, fsim::Encoding(slots), kernels, limits_of(limits), seed);
}

nb::dict counters_dict(Device& device) {
  fsim::Counters counters;
  {
    const gil::Released release;
    counters = device.counters();
  }
  nb::dict values;
  values["inp_load_nbytes"] = counters.inp_load_nbytes;
  values["wgt_load_nbytes"] = counters.wgt_load_nbytes;
  values["acc_load_nbytes"] = counters.acc_load_nbytes;
  values["uop_load_nbytes"] = counters.uop_load_nbytes;
  values["out_store_nbytes"] = counters.out_store_nbytes;
  values["gemm_counter"] = counters.gemm_counter;
  values["alu_counter"] = counters.alu_counter;
  return values;
}

void write_array(Device& device, const Dram::Handle& handle, const Bytes& data) {
  const void* const from = data.data();
  const std::size_t nbytes = data.size();
  const gil::Released release;
  device.write(handle, from, nbytes);
}

nb::object read_array(Device& device, const Dram::Handle& handle, std::size_t nbytes) {
  nb::capsule owner;
  uint8_t* const data = allocate<uint8_t>(nbytes, owner);
  {
    const gil::Released release;
    device.read(handle, data, nbytes);
  }
  return nb::cast(Array<uint8_t, nb::ndim<1>>(data, {nbytes}, owner));
}

nb::object plain_matmul(const Matrix& a, const Matrix& b) {
  if (a.shape(1) != b.shape(1)) throw nb::value_error("inner extents differ");
  const std::size_t m = a.shape(0), n = b.shape(0);
  nb::capsule owner;
  int32_t* const c = allocate<int32_t>(m * n, owner);
  fsim::plain_matmul(a.data(), b.data(), c, m, n, a.shape(1));
  return nb::cast(Array<int32_t, nb::ndim<2>>(c, {m, n}, owner));
}

// Python sees Fault(kind, text, [(index, low, high), ...]).
void register_fault(nb::module_& m) {
  static PyObject* const type = PyErr_NewException("vtaops._fsim.Fault", nullptr, nullptr);
  m.attr("Fault") = nb::handle(type);  // lives as long as the process
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const Fault& fault) {
      constexpr const char* kKinds[] = {"device", "deadlock", "timeout", "no room"};
      nb::list refs;
      for (const fsim::InstructionRef& ref : fault.instructions) {
        refs.append(nb::make_tuple(ref.index, ref.word.low, ref.word.high));
      }
      const nb::tuple args =
          nb::make_tuple(kKinds[static_cast<int>(fault.kind)], fault.text, refs);
      PyErr_SetObject(type, args.ptr());
    }
  });
}

}  // namespace

NB_MODULE(_fsim, m) {
  nb::set_leak_warnings(false);  // devices may live until the interpreter ends
  register_fault(m);
  m.def("available_kernels", &fsim::available_kernels);
  m.def("plain_matmul", &plain_matmul, nb::arg("a"), nb::arg("b"));
  m.def("register_macs", &fsim::register_macs, nb::arg("kernel"), nb::arg("count"));

  nb::class_<Dram::Handle>(m, "Buffer")
      .def_ro("address", &Dram::Handle::address)
      .def_ro("nbytes", &Dram::Handle::nbytes)
      .def("__repr__", [](const Dram::Handle& buffer) {
        return nb::str("Buffer(address={}, nbytes={})").format(buffer.address, buffer.nbytes);
      });

  using Unlocked = nb::call_guard<gil::Released>;
  nb::class_<Device>(m, "Device")
      .def("__init__", &construct, nb::arg("sizes"), nb::arg("slots"), nb::arg("seed").none(),
           nb::arg("check_overflow"), nb::arg("kernel"), nb::arg("limits"))
      .def_prop_ro("kernel", &Device::kernel_name)
      .def("alloc", &Device::alloc, nb::arg("nbytes"), Unlocked())
      .def("free", &Device::free, nb::arg("buffer"), Unlocked())
      .def("write", &write_array, nb::arg("buffer"), nb::arg("data"))
      .def("read", &read_array, nb::arg("buffer"), nb::arg("nbytes"))
      .def(
          "launch",
          [](Device& device, uint64_t address, uint64_t count, double timeout) {
            device.launch(address, count, timeout, poll_signals);
          },
          nb::arg("insn_address"), nb::arg("count"), nb::arg("timeout"), Unlocked())
      .def("interrupt", &Device::interrupt)
      .def("stats", &counters_dict)
      .def("reset_stats", &Device::reset_counters, Unlocked())
      .def("close", &Device::close, Unlocked());
}
