// Python binding (vtaops._steps): runs a blob without launches on arrays.
// vtaops/model/export/stages.py makes such blobs from the host stages of a model.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "vta.h"

namespace nb = nanobind;
using Input = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<nb::c_contig, nb::device::cpu>;

namespace {

// No member changes during a run, so threads may run one object concurrently.
class Steps {
 public:
  Steps(const nb::bytes& blob, size_t arena_nbytes)
      : blob_(words(blob.size())), arena_words_(words(arena_nbytes).size()) {
    std::memcpy(blob_.data(), blob.data(), blob.size());
    std::vector<uint64_t> arena(arena_words_);
    check(vta_init(&model_, &device_, blob_.data(), blob.size(), arena.data(), arena_nbytes));
  }

  void run(const std::vector<Input>& inputs, const std::vector<Output>& outputs) const {
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const Input& array : inputs) {
      if (array.nbytes() < vta_input_nbytes(&model_, static_cast<uint32_t>(from.size())))
        throw nb::value_error("an input is too small");
      from.push_back(array.data());
    }
    for (const Output& array : outputs) {
      if (array.nbytes() < vta_output_nbytes(&model_, static_cast<uint32_t>(to.size())))
        throw nb::value_error("an output is too small");
      to.push_back(array.data());
    }
    const nb::gil_scoped_release released;
    const std::unique_ptr<uint64_t[]> arena(new uint64_t[arena_words_]);
    vta_model model = model_;
    model.arena = reinterpret_cast<uint8_t*>(arena.get());
    check(vta_run(&model, from.data(), to.data()));
  }

 private:
  static std::vector<uint64_t> words(size_t nbytes) {
    return std::vector<uint64_t>((nbytes + 7) / 8 + 1);
  }

  static void check(int status) {
    if (status != VTA_OK) throw std::runtime_error(vta_text(status));
  }

  std::vector<uint64_t> blob_;
  size_t arena_words_;
  vta_device device_{};
  vta_model model_{};
};

}  // namespace

NB_MODULE(_steps, m) {
  m.doc() = "Steps of the host, in C.";
  nb::class_<Steps>(m, "Steps", "A blob that needs no device.")
      .def(nb::init<const nb::bytes&, size_t>(), nb::arg("blob"), nb::arg("arena_nbytes"))
      .def("run", &Steps::run, nb::arg("inputs"), nb::arg("outputs"),
           "Set the outputs; arrays are contiguous, one for each input and output.");
}
