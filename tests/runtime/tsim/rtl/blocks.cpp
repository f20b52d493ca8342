// C interface of blocks.sv for tests/runtime/tsim/test_blocks.py: any port by name, and the clock.
#include <cstring>

#include "Vblocks.h"
#include "verilated.h"

struct Blocks {
  VerilatedContext context;
  Vblocks model{&context};
};

namespace {

struct Port {
  const char* name;
  void* data;
  unsigned nbytes;
};

// The storage of a port, or null.
void* port(Blocks* b, const char* name, unsigned* nbytes) {
  Vblocks& m = b->model;
#define PORT(p) {#p, &m.p, sizeof m.p}
  const Port ports[] = {
      PORT(rst),        PORT(token_push),    PORT(token_pop),       PORT(token_available),
      PORT(token_overflow), PORT(in_valid),  PORT(in_ready),        PORT(in_data),
      PORT(out_valid),  PORT(out_ready),     PORT(out_data),        PORT(wr_slots),
      PORT(wr_lanes),   PORT(wr_index),      PORT(wr_data),         PORT(rd_en),
      PORT(rd_index),   PORT(rd_data),       PORT(block_valid),     PORT(block_ready),
      PORT(block_address), PORT(block_row_bytes), PORT(block_stride_bytes), PORT(block_rows),
      PORT(req_valid),  PORT(req_ready),     PORT(req_address),     PORT(req_beats),
      PORT(alu_op),     PORT(alu_x),         PORT(alu_y),           PORT(alu_result),
      PORT(alu_product), PORT(gemm_enable),  PORT(inp),             PORT(wgt),
      PORT(sums),
      PORT(load_valid), PORT(load_ready), PORT(load_insn), PORT(load_req_valid),
      PORT(load_req_ready), PORT(load_req_address), PORT(load_req_beats), PORT(load_data_valid),
      PORT(load_data), PORT(load_allow), PORT(load_wr_valid), PORT(load_wr_memory),
      PORT(load_wr_index), PORT(load_wr_slots), PORT(load_wr_part), PORT(load_wr_zero),
      PORT(load_wr_data), PORT(load_done), PORT(load_loaded), PORT(load_fault),
      PORT(client_valid), PORT(client_ready), PORT(client_address), PORT(client_beats),
      PORT(client_data_valid), PORT(client_data), PORT(memory_valid), PORT(memory_ready),
      PORT(memory_address), PORT(memory_beats), PORT(memory_client), PORT(rd_valid),
      PORT(rd_client), PORT(rd_last), PORT(rd_word), PORT(port_reading)};
#undef PORT
  for (const Port& p : ports) {
    if (std::strcmp(p.name, name) != 0) continue;
    *nbytes = p.nbytes;
    return p.data;
  }
  return nullptr;
}

}  // namespace

extern "C" {

Blocks* blocks_new() { return new Blocks; }
void blocks_free(Blocks* b) { delete b; }

// Both return the size of the port, 0 if there is none of this name.
unsigned blocks_write(Blocks* b, const char* name, const void* data, unsigned nbytes) {
  unsigned size = 0;
  void* storage = port(b, name, &size);
  if (storage && nbytes <= size) {
    std::memset(storage, 0, size);
    std::memcpy(storage, data, nbytes);
  }
  return size;
}
unsigned blocks_read(Blocks* b, const char* name, void* data, unsigned nbytes) {
  unsigned size = 0;
  void* storage = port(b, name, &size);
  if (storage) std::memcpy(data, storage, nbytes < size ? nbytes : size);
  return size;
}

void blocks_eval(Blocks* b) { b->model.eval(); }
void blocks_clock(Blocks* b) {
  b->model.clk = 1;
  b->model.eval();
  b->model.clk = 0;
  b->model.eval();
}

}  // extern "C"
