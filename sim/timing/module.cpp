// Python binding (vtaops._timing): columns in, times out; vtaops/program/timing interprets them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>

#include "../gil.hpp"
#include "simulation.hpp"

namespace nb = nanobind;
using Column = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<double, nb::numpy, nb::ndim<2>, nb::c_contig>;

namespace {

timing::Machine machine_of(const nb::dict& values) {
  const auto get = [&](const char* name) { return nb::cast<int64_t>(values[name]); };
  timing::Machine m;
#define VTA_TAKE(name) m.name = get(#name)
  VTA_TAKE(dram_latency);
  VTA_TAKE(request_latency);
  VTA_TAKE(buffer_latency);
  VTA_TAKE(dispatch_latency);
  VTA_TAKE(load_window);
  VTA_TAKE(outstanding);
  VTA_TAKE(burst_beats);
  VTA_TAKE(fetch_bursts);
  VTA_TAKE(command_depth);
  VTA_TAKE(loads_in_flight);
  VTA_TAKE(stores_in_flight);
  VTA_TAKE(loads_in_order);
  VTA_TAKE(load_fill);
  VTA_TAKE(gemm_interval);
  VTA_TAKE(alu_interval);
  VTA_TAKE(alu_tensor_interval);
  VTA_TAKE(compute_fill);
  VTA_TAKE(store_fill);
  VTA_TAKE(store_words);
  VTA_TAKE(store_drain);
  VTA_TAKE(write_bursts);
  VTA_TAKE(saved_beats);
  VTA_TAKE(port_bytes);
  VTA_TAKE(beat_micro_ops);
  VTA_TAKE(instruction_bytes);
  VTA_TAKE(left_out);
  VTA_TAKE(compute_depth);
  VTA_TAKE(output_delay);
  VTA_TAKE(forwards);
  VTA_TAKE(weight_port);
  VTA_TAKE(beat_words);
  VTA_TAKE(page_bytes);
  VTA_TAKE(most_bursts);
  VTA_TAKE(cas_latency);
  VTA_TAKE(precharge);
  VTA_TAKE(activate);
  VTA_TAKE(refresh);
  VTA_TAKE(refresh_interval);
  VTA_TAKE(return_latency);
  VTA_TAKE(write_latency);
#undef VTA_TAKE
  m.beat_cycles = nb::cast<double>(values["beat_cycles"]);
  return m;
}

timing::Work work_of(const nb::dict& columns) {
  timing::Work work;
  work.count = nb::cast<Column>(columns["unit"]).size();
  const auto get = [&](const char* name) {
    const Column column = nb::cast<Column>(columns[name]);  // the dict keeps it alive
    if (column.size() != work.count) throw nb::value_error("columns differ in length");
    return column.data();
  };
#define VTA_TAKE(name) work.name = get(#name)
  VTA_TAKE(unit);
  VTA_TAKE(kind);
  VTA_TAKE(beats);
  VTA_TAKE(before);
  VTA_TAKE(between);
  VTA_TAKE(zeros);
  VTA_TAKE(steps);
  VTA_TAKE(stalled);
  VTA_TAKE(last_waits);
  VTA_TAKE(tensor);
  VTA_TAKE(first);
  VTA_TAKE(last);
  VTA_TAKE(offset);
  VTA_TAKE(address);
  VTA_TAKE(row_bytes);
  VTA_TAKE(stride_bytes);
  VTA_TAKE(of_weights);
  VTA_TAKE(pop_prev);
  VTA_TAKE(pop_next);
  VTA_TAKE(push_prev);
  VTA_TAKE(push_next);
  VTA_TAKE(finish);
#undef VTA_TAKE
  return work;
}

// Rows of doubles; one table per list.
template <class Row, class Values>
nb::object table(const std::vector<Row>& rows, const Values& values) {
  constexpr std::size_t kColumns = std::tuple_size<decltype(values(rows[0]))>::value;
  double* const data = new double[rows.size() * kColumns];
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<double*>(p); });
  double* out = data;
  for (const Row& row : rows) {
    for (const double value : values(row)) *out++ = value;
  }
  return nb::cast(Table(data, {rows.size(), kColumns}, owner));
}

nb::dict simulate(const nb::dict& columns, const nb::dict& parameters, bool keep) {
  const timing::Work work = work_of(columns);
  const timing::Machine machine = machine_of(parameters);
  timing::Result result;
  {
    const gil::Released release;
    result = timing::simulate(work, machine, keep);
  }
  nb::dict found;
  found["end"] = result.end;
  found["stuck"] = result.stuck;
  found["compute_work"] = result.compute_work;
  found["beats"] = result.beats;
  found["contention"] = result.contention;
  found["lives"] = table(result.lives, [](const timing::Life& life) {
    return std::array<double, 7>{life.queue_stall, life.dispatched, life.prev_token,
                                 life.next_token, life.taken,       life.end,
                                 life.completed};
  });
  found["stretches"] = table(result.stretches, [](const timing::Stretch& s) {
    return std::array<double, 3>{static_cast<double>(s.index), s.start, s.end};
  });
  found["grants"] = table(result.grants, [](const timing::Grant& g) {
    return std::array<double, 4>{static_cast<double>(g.client), static_cast<double>(g.index),
                                 g.start, g.end};
  });
  return found;
}

}  // namespace

NB_MODULE(_timing, m) {
  m.attr("sources") = TIMING_DIGEST;
  m.def("simulate", &simulate, nb::arg("columns"), nb::arg("parameters"), nb::arg("keep"));
}
