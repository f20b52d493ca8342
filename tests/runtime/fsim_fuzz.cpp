// Hostile instruction words for the functional simulator; built with sanitizers by
// trials/sanitized.py. Arguments: a file with the encoding, how many programs, the first seed. The
// programs take turns on all kernels that this CPU has.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "device.hpp"

using namespace fsim;

namespace {

struct Source {
  Geometry geometry;
  Encoding::Table table;
};

Source read_source(const char* path) {
  std::ifstream file(path);
  Source source;
  Geometry& g = source.geometry;
  file >> g.batch >> g.block >> g.uop_depth >> g.inp_depth >> g.wgt_depth >> g.acc_depth >>
      g.post_rows >> g.tables >> g.window_tiles >> g.window_channels >> g.pools >> g.pairs;
  std::string kind, field;
  unsigned offset, width;
  bool is_signed;
  while (file >> kind >> field >> offset >> width >> is_signed) {
    source.table[kind][field] = {offset, width, is_signed};
  }
  return source;
}

void set_field(std::vector<uint64_t>& word, const Encoding::Slot& slot, uint64_t value) {
  const auto& [offset, width, is_signed] = slot;
  const uint64_t mask = (width < 64 ? 1ull << width : 0) - 1;
  word[offset / 64] &= ~(mask << offset % 64);
  word[offset / 64] |= (value & mask) << offset % 64;
}

uint64_t opcode_of(const std::string& kind) {
  const char* const by_opcode[] = {"Load", "Store", "Gemm",      "Finish",
                                   "Alu",  "Post",  "Depthwise", "Pool"};
  uint64_t opcode = 0;
  while (kind != by_opcode[opcode]) ++opcode;
  return opcode;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const Source source = read_source(argv[1]);
  std::vector<std::string> kinds = {"Load", "Store", "Gemm", "Alu"};
  if (source.geometry.post_rows) kinds.push_back("Post");
  if (source.geometry.window_tiles) kinds.push_back("Depthwise");
  if (source.geometry.pools) kinds.push_back("Pool");
  const std::vector<std::string> names = available_kernels();
  std::size_t finished = 0, refused = 0;
  for (int program = 0; program < std::atoi(argv[2]); ++program) {
    std::mt19937_64 random(std::strtoull(argv[3], nullptr, 10) + program);
    const auto below = [&](uint64_t bound) { return random() % bound; };
    const std::size_t chosen = program % (names.size() + 1);
    const Kernels kernels = chosen == names.size() ? checked_kernels(source.geometry)
                                                   : select_kernels(names[chosen], source.geometry);
    Limits limits;
    limits.separate_out = below(2);
    std::optional<uint64_t> seed;
    if (below(2)) seed = random();
    Device device(source.geometry, Encoding(source.table), kernels, limits, seed);
    std::vector<Dram::Handle> buffers;
    for (int i = 0; i < 3; ++i) {
      std::vector<uint32_t> content(1 + below(2048));
      // Half of the micro-ops name elements that exist.
      for (uint32_t& value : content) value = below(2) ? random() : below(8);
      buffers.push_back(device.alloc(content.size() * 4));
      device.write(buffers.back(), content.data(), content.size() * 4);
    }
    // Fields are mostly small, so that many instructions are executed, and sometimes anything.
    std::vector<uint64_t> words;
    const std::size_t count = 1 + below(8);
    for (std::size_t i = 0; i <= count; ++i) {
      const bool last = i == count;
      const std::string kind = last ? "Finish" : kinds[below(kinds.size())];
      std::vector<uint64_t> word(2);
      for (const auto& [name, slot] : source.table.at(kind)) {
        const bool token = name.rfind("pop_", 0) == 0 || name.rfind("push_", 0) == 0;
        uint64_t value = below(4);
        if (token) value = below(60) == 0;
        if (name == "dram_base") value = buffers[below(3)].address / (1 << below(8)) + below(64);
        if (name == "memory") value = kind == "Store" ? 4 : below(8);
        if (name == "alu_op") value = below(5);
        if (name == "x_size" || name == "iter_in") value = below(40);
        if (name == "opcode") continue;
        if (below(60) == 0 && !last) value = random();
        if (last && token) value = 0;
        set_field(word, slot, value);
      }
      set_field(word, source.table.at(kind).at("opcode"), opcode_of(kind));
      if (below(40) == 0 && !last) word = {random(), random()};
      words.insert(words.end(), word.begin(), word.end());
    }
    const Dram::Handle code = device.alloc(words.size() * 8);
    device.write(code, words.data(), words.size() * 8);
    try {
      device.launch(code.address, words.size() / 2, 0.02, [] {});
      ++finished;
    } catch (const Fault&) {
      ++refused;
    }
    std::vector<uint8_t> back(buffers[0].nbytes);
    device.read(buffers[0], back.data(), back.size());
  }
  std::printf("%zu finished, %zu refused, on checked", finished, refused);
  for (const std::string& name : names) std::printf(" %s", name.c_str());
  std::printf("\n");
}
