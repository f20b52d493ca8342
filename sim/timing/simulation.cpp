#include "simulation.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace timing {
namespace {

enum Unit { kLoadUnit, kComputeUnit, kStoreUnit, kUnits };  // vtaops.machine.isa.Unit

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// State shared by the processes. The channels have the numbers of _CHANNELS in
// vtaops.program.timing.simulation.
struct Shared {
  Shared(const Work& work, const Machine& machine, bool keep)
      : work(work),
        p(machine),
        port(machine, keep),
        weight_port(machine, keep, true),
        keep(keep),
        lives(keep ? work.count : 0) {
    for (std::size_t i = 0; i < work.count; ++i) of_unit[work.unit[i]].push_back(i);
  }

  void worked(std::size_t index, Time start, Time end) {
    if (keep) stretches.push_back({static_cast<int64_t>(index), start, end});
  }

  const Work& work;
  const Machine& p;
  EventLoop loop;
  Port port, weight_port;
  Channel from_load{loop, kCompute, 0}, from_store{loop, kCompute, 1};  // tokens
  Channel to_load{loop, kLoad, 2}, to_store{loop, kStore, 3};           // of the compute unit
  std::array<Channel, kUnits> instructions{
      {{loop, kLoad, 4}, {loop, kCompute, 5}, {loop, kStore, 6}}};
  // An instruction that leaves its unit's queue frees a place there.
  std::array<Channel, kUnits> places{{{loop, kFetch, 7}, {loop, kFetch, 8}, {loop, kFetch, 9}}};
  std::array<std::vector<std::size_t>, kUnits> of_unit;
  int64_t compute_work = 0;
  Time last = 0;  // end of the last process
  Time finished = kNever;

  const bool keep;
  std::vector<Life> lives;
  std::vector<Stretch> stretches;
};

constexpr Time kUnasked = -kNever;  // no request was announced

constexpr std::size_t kNoInstruction = std::numeric_limits<std::size_t>::max();

// Capacity of a window over the instructions, at most their number.
std::size_t window(int64_t capacity, const Work& work) {
  return std::min(static_cast<std::size_t>(capacity), work.count + 1);
}

// ------------------------------------------------------------------------------------- fetch

// Reads the instructions in bursts and dispatches them in order when queues have room.
class Fetch {
 public:
  explicit Fetch(Shared& shared) : s_(shared) { places_.fill(shared.p.command_depth); }

  Wish step() {
    for (;;) {
      const Channel* missing = dispatch();
      if (!offers()) {
        if (!missing) s_.last = std::max(s_.last, last_ + 1);
        return {missing};
      }
      if (s_.loop.yields(s_.port.turn(kFetch, kRead, request_), asked_)) return {missing, asked_};
      request();
    }
  }

 private:
  // Room in the buffer from `time`, which a dispatched instruction has left.
  struct Room {
    Time time;
    int64_t beats;
  };

  // Dispatches what has arrived; returns the channel of the place that the next one lacks, if any.
  const Channel* dispatch() {
    for (; !arrivals_.empty(); arrivals_.pop_front()) {
      const Time arrival = std::max(last_ + static_cast<Time>(interval_), arrivals_.front());
      const int64_t unit = s_.work.unit[index_];
      Channel& freed = s_.places[unit];
      if (places_[unit] > 0) {
        --places_[unit];
        dispatch(arrival, arrival);
      } else if (freed.empty()) {
        return &freed;
      } else {
        dispatch(arrival, std::max(arrival, freed.take() + 1));
      }
    }
    return nullptr;
  }

  void dispatch(Time arrival, Time time) {
    const Machine& p = s_.p;
    const int64_t begin = (index_ + p.left_out) % per_burst_ * p.instruction_bytes;
    last_ = time;
    rooms_.push_back({time + 1, (begin + p.instruction_bytes) / p.port_bytes - begin / p.port_bytes});
    if (s_.keep) {
      s_.lives[index_].dispatched = time;
      s_.lives[index_].queue_stall = time - arrival;
    }
    s_.instructions[s_.work.unit[index_]].send(time + static_cast<Time>(p.dispatch_latency));
    ++index_;
  }

  // Whether there is a burst to request: as soon as the buffer has room for it.
  bool offers() {
    const int64_t count = static_cast<int64_t>(s_.work.count);
    if (burst_ || requested_ == count) return burst_;
    const int64_t place = (requested_ + s_.p.left_out) % per_burst_;
    const int64_t size = std::min(per_burst_ - place, count - requested_);
    const int64_t burst = ceil_div(in_beat() + size * s_.p.instruction_bytes, s_.p.port_bytes);
    for (; free_beats_ < burst; rooms_.pop_front()) {
      if (rooms_.empty()) return false;
      free_beats_ += rooms_.front().beats;
      room_ = rooms_.front().time;
    }
    size_ = size;
    burst_ = burst;
    request_ = std::max(request_ + 1, room_);
    asked_ = kUnasked;
    return true;
  }

  // Where the next instruction to request begins in its beat, in bytes.
  int64_t in_beat() const {
    return (requested_ + s_.p.left_out) * s_.p.instruction_bytes % s_.p.port_bytes;
  }

  void request() {
    const Machine& p = s_.p;
    const Grant grant = s_.port.grant(kFetch, kRead, request_, burst_, requested_,
                                      (requested_ + p.left_out) * p.instruction_bytes);
    request_ = s_.port.accepted;
    for (int64_t k = 1; k <= size_; ++k) {
      const int64_t last_beat = (in_beat() + k * p.instruction_bytes - 1) / p.port_bytes;
      arrivals_.push_back(s_.port.beat(grant, burst_, last_beat) +
                          static_cast<Time>(p.buffer_latency));
    }
    requested_ += size_;
    free_beats_ -= burst_;
    burst_ = 0;
  }

  Shared& s_;
  const int64_t interval_ = std::max<int64_t>(1, s_.p.instruction_bytes / s_.p.port_bytes);
  const int64_t per_burst_ = s_.p.burst_beats * s_.p.port_bytes / s_.p.instruction_bytes;
  int64_t index_ = 0, requested_ = 0;  // instructions dispatched, and requested
  int64_t free_beats_ = s_.p.fetch_bursts * s_.p.burst_beats;
  std::deque<Room> rooms_;              // not counted in `free_beats_` yet
  std::array<int64_t, kUnits> places_;  // not used by any instruction yet
  std::deque<Time> arrivals_;  // of the instructions that are not yet dispatched
  int64_t size_ = 0, burst_ = 0;  // instructions and beats of the request, if there is one
  Time asked_ = kUnasked;
  Time request_ = -1, room_ = 0, last_ = -static_cast<Time>(interval_);
};

// ------------------------------------------------------------------------------------- loads

// Data from the port into scratchpads, for the load and the compute unit. Requests run ahead over
// rows and instructions; writes happen in order.
class LoadEngine {
 public:
  LoadEngine(Shared& shared, Process client) : LoadEngine(shared, client, shared.port) {}

  LoadEngine(Shared& shared, Process client, Port& port)
      : s_(shared), client_(client), port_(port) {}

  // When writing is not allowed: during an interval, and before `allowed` after a given number of
  // cycles of writes.
  struct Pause {
    Time from = 0, until = 0;
    int64_t written = 0;
    Time allowed = 0;
  };

  // Begins the load `index`, started at `start`.
  void begin(std::size_t index, Time start, const Pause& pause) {
    const Work& work = s_.work;
    index_ = index;
    pause_ = pause;
    written_ = 0;
    end = std::max(end, start + static_cast<Time>(s_.p.load_fill));
    if (work.before[index]) write(work.before[index]);
    if (work.beats[index]) {
      free = std::max(start, last_request_) + 1;
      request_ = std::max(request_, free);
    }
    done_ = padded_ = 0;
    asked_ = kUnasked;
    cut_.begin(work.address[index], work.row_bytes[index], work.stride_bytes[index]);
    if (work.beats[index]) next_ = cut_.next(s_.p);
  }

  // Begins a no-operation, which passes through in order.
  void pass(std::size_t index, Time start) {
    index_ = index;
    pause_ = {};
    end = std::max(end, start + static_cast<Time>(s_.p.load_fill));
    write(1);
    done_ = s_.work.beats[index];
    padded_ = s_.work.zeros[index];
  }

  static constexpr Time kOffered = -1;

  // Continues until the load is done (returns kNever), until its last request is offered, or until a
  // request at the returned time.
  Time advance() {
    const Machine& p = s_.p;
    const int64_t beats = s_.work.beats[index_], zeros = s_.work.zeros[index_];
    while (done_ < beats) {
      const int64_t size = next_.beats;
      if (!offered_) {
        wait_for_places(size);
        offered_ = true;
        if (done_ + size == beats) {
          offers.push_back(request_);
          return kOffered;
        }
      }
      const Time turn = port_.turn(client_, kRead, request_);
      if (!port_.of_weights && s_.loop.yields(turn, asked_)) return asked_;
      asked_ = kUnasked;
      offered_ = false;
      const Grant grant = port_.grant(client_, kRead, request_, size, static_cast<int64_t>(index_),
                                      next_.address);
      done_ += size;
      const Time begin = end;
      end = written_by(std::max(end, grant.start + static_cast<Time>(p.buffer_latency)), size);
      end = std::max(end, grant.end + static_cast<Time>(p.buffer_latency));
      s_.worked(index_, end - static_cast<Time>(size), end);
      hold(grant, size, begin);
      last_request_ = request_;
      request_ = port_.accepted + 1;
      if (done_ < beats) {
        if (next_.ends_row) pad(s_.work.between[index_]);
        next_ = cut_.next(p);
      }
    }
    pad(zeros - padded_);
    return kNever;
  }

  Time end = 0;   // end of the last write
  std::vector<Time> offers;  // last requests of all loads
  Time free = 0;  // when the next load from DRAM may start, because the previous one has begun its requests

 private:
  // Places of the buffer, which become free one a cycle, the last one at `until`.
  struct Held {
    int64_t places;
    Time until;
  };

  // End of the next `count` cycles of writes that do not wait for data.
  Time written_by(Time begin, int64_t count) {
    const int64_t ahead = pause_.written - written_;
    if (ahead >= 0 && ahead < count) {
      begin = std::max(begin, pause_.allowed - static_cast<Time>(ahead));
    }
    written_ += count;
    const Time cycles = static_cast<Time>(count);
    if (pause_.from <= begin && begin < pause_.until) begin = pause_.until;
    const bool paused = begin < pause_.from && pause_.from < begin + cycles;
    return begin + cycles + (paused ? pause_.until - pause_.from : 0);
  }

  void write(int64_t elements) {
    const Time begin = end;
    end = written_by(begin, elements);
    s_.worked(index_, begin, end);
  }

  void pad(int64_t elements) {
    padded_ += elements;
    if (elements) write(elements);
  }

  // A burst of `size` waits until so many places of the buffer are free.
  void wait_for_places(int64_t size) {
    in_flight_ += size;
    while (in_flight_ > s_.p.load_window) {
      Held& oldest = held_.front();
      const int64_t freed = std::min(oldest.places, in_flight_ - s_.p.load_window);
      in_flight_ -= freed;
      oldest.places -= freed;
      request_ = std::max(request_, oldest.until - static_cast<Time>(oldest.places));
      if (oldest.places == 0) held_.pop_front();
    }
  }

  // Holds the places of a burst's beats until these are written, from `begin` on.
  void hold(const Grant& grant, int64_t size, Time begin) {
    const Time cycles = static_cast<Time>(size);
    if (grant.end - grant.start == cycles || end - begin == cycles) {  // one write a cycle
      return held_.push_back({size, end});
    }
    for (int64_t k = 0; k < size; ++k) {
      const Time beat = port_.beat(grant, size, k) + static_cast<Time>(s_.p.buffer_latency);
      begin = std::max(begin, beat) + 1;
      held_.push_back({1, begin});
    }
    held_.back().until = end;
  }

  Shared& s_;
  const Process client_;
  Port& port_;
  std::deque<Held> held_;
  int64_t in_flight_ = 0;  // places that are held
  Time last_request_ = -1;
  // State of the current load:
  std::size_t index_ = 0;
  int64_t done_ = 0, padded_ = 0;  // beats requested, zeros written
  int64_t written_ = 0;  // cycles of writes
  Time request_ = 0;
  Pause pause_;
  Bursts cut_;
  Bursts::Burst next_{};
  bool offered_ = false;  // the next request
  Time asked_ = kUnasked;
};

// The instructions of the load or of the store unit in order, each with its token from the compute
// unit, if it takes one.
class InOrder {
 protected:
  InOrder(Shared& shared, Unit unit, Channel& tokens, const int64_t* pops)
      : s_(shared),
        mine_(shared.of_unit[unit]),
        instructions_(shared.instructions[unit]),
        tokens_(tokens),
        pops_(pops) {}

  bool ended() const { return !arrived_ && next_ == mine_.size(); }

  // Takes the next instruction and its token; returns the channel that it waits for, if any.
  const Channel* take() {
    if (!arrived_) {
      if (instructions_.empty()) return &instructions_;
      index_ = mine_[next_++];
      start_ = std::max(instructions_.take(), start_ + 1);
      arrived_ = true;
    }
    token_ = 0;
    if (pops_[index_]) {
      if (tokens_.empty()) return &tokens_;
      token_ = tokens_.take();
    }
    arrived_ = false;
    return nullptr;
  }

  Shared& s_;
  std::size_t index_ = 0;        // the current instruction
  Time start_ = -1, token_ = 0;  // its start, and the arrival of its token

 private:
  const std::vector<std::size_t>& mine_;
  Channel &instructions_, &tokens_;
  const int64_t* pops_;  // whether each instruction takes a token
  std::size_t next_ = 0;
  bool arrived_ = false;  // the next instruction has arrived, but not its token
};

class Load : InOrder {
 public:
  explicit Load(Shared& shared) : InOrder(shared, kLoadUnit, shared.to_load, shared.work.pop_next) {}

  Wish step() {
    for (;;) {
      const Channel* missing = start();
      if (sides_[1].advance(s_) == kNever) {  // what waits for no one else comes first
        const Time request = sides_[0].advance(s_);
        if (request >= 0) return {missing, request};
      }
      complete();
    }
  }

 private:
  static constexpr Time kDone = -2;

  struct Started {
    std::size_t index, side;
    Time token, start;
  };

  // An engine, its loads that have started, and the ends of all that are done.
  struct Side {
    Side(Shared& s, Port& port) : engine(s, kLoad, port) {}

    // Begins the next load, unless one moves, and continues as LoadEngine::advance; but kDone: it is
    // done, kNever: there is none.
    Time advance(Shared& s) {
      if (ends.size() == begun) {
        if (begun == loads.size()) return kNever;
        const Started& load = loads[begun++];
        if (s.work.kind[load.index] != kControl) {
          engine.begin(load.index, load.start, {});
        } else {
          engine.pass(load.index, load.start);
        }
      }
      const Time request = engine.advance();
      if (request != kNever) return request;
      ends.push_back(engine.end);
      return kDone;
    }

    // When the next load from DRAM may start: the last one is the only one whose requests have not
    // begun. Null: it is not known yet.
    std::optional<Time> free() const {
      if (reads < 2) return last_read + 1;
      if (engine.offers.size() < reads - 1) return std::nullopt;
      return std::max(last_read, engine.offers[reads - 2]) + 1;
    }

    LoadEngine engine;
    std::vector<Started> loads;
    std::vector<Time> ends;
    std::size_t begun = 0, completed = 0;
    std::size_t reads = 0;  // loads from DRAM that have started
    Time last_read = -1;    // start of the last of them
  };

  // Starts all loads whose start is known; returns what the next one waits for, if it is not a load.
  const Channel* start() {
    for (;; waits_ = false) {
      if (!waits_) {
        if (ended()) return nullptr;
        if (const Channel* missing = take()) return missing;
        waits_ = true;
      }
      const std::size_t number = s_.p.weight_port && s_.work.of_weights[index_];
      Side& side = sides_[number];
      const bool reads = s_.work.beats[index_] != 0;
      const auto before = oldest(side.ends, side.loads.size(), s_.p.loads_in_flight);
      const auto in_order = oldest(order_, started_.size(), in_order_);
      const auto free = reads ? side.free() : std::optional<Time>(0);
      if (!before || !in_order || !free) return nullptr;
      start_ = std::max({start_, token_, *before, *in_order, *free});
      s_.places[kLoadUnit].send(start_);
      started_.push_back({index_, number, token_, start_});
      side.loads.push_back(started_.back());
      side.reads += reads;
      if (reads) side.last_read = start_;
    }
  }

  // The end of the load `most` before the one of this number, of which `ends` are known: a load
  // waits for it. Null: it is not known yet.
  static std::optional<Time> oldest(const std::vector<Time>& ends, std::size_t number, int64_t most) {
    const std::size_t window = static_cast<std::size_t>(most);
    if (number < window) return 0;
    if (number - window < ends.size()) return ends[number - window];
    return std::nullopt;
  }

  // Ends loads in program order, and sends their tokens.
  void complete() {
    for (; order_.size() < started_.size(); order_.push_back(end_)) {
      const Started& load = started_[order_.size()];
      Side& side = sides_[load.side];
      if (side.completed == side.ends.size()) return;
      const Time ended = side.ends[side.completed++];
      end_ = std::max(ended, end_ + 1);
      s_.last = std::max(s_.last, end_);
      if (s_.keep) {
        Life& life = s_.lives[load.index];
        life.next_token = load.token;
        life.taken = load.start;
        life.end = ended;
        life.completed = end_;
      }
      const Time delay = static_cast<Time>(s_.p.forwards);
      if (s_.work.push_next[load.index]) s_.from_load.send(end_ + delay);
    }
  }

  const int64_t in_order_ = s_.p.weight_port ? s_.p.loads_in_order : s_.p.loads_in_flight;
  std::array<Side, 2> sides_{Side{s_, s_.port}, Side{s_, s_.weight_port}};
  std::vector<Started> started_;  // of both engines, in program order
  std::vector<Time> order_;       // end times, each with all before it
  bool waits_ = false;            // an instruction that is taken has not started yet
  Time end_ = -1;
};

// ----------------------------------------------------------------------------------- compute

class Compute {
 public:
  explicit Compute(Shared& shared) : s_(shared) {}

  Wish step() {
    for (;;) {
      const Channel* missing = take();  // while the one before moves its data, too
      if (moves_) {
        const Time request = engine_.advance();
        if (request == LoadEngine::kOffered) continue;
        if (request != kNever) return {missing, request};
        moves_ = false;
        issue(std::max(begin_, engine_.end), 1);
        loads_ = true;
        complete();
      } else if (taken_) {
        begin();
      } else {
        if (!missing) s_.last = std::max(s_.last, completed_);
        return {missing};
      }
    }
  }

 private:
  // The instruction, and the arrivals of its tokens.
  struct Taken {
    std::size_t index = 0;
    Time time = -1, load_token = 0, store_token = 0;
  };

  // Takes the next instruction and its tokens, and frees its place in the queue, once the one before
  // has begun; returns the channel that it waits for, if any.
  const Channel* take() {
    if (taken_ || number_ == mine_.size()) return nullptr;
    const std::size_t index = mine_[number_];
    Channel& instructions = s_.instructions[kComputeUnit];
    if (next_.index != index) {
      if (instructions.empty()) return &instructions;
      next_ = {index, std::max({instructions.take(), now_.time + 1, moved_}), kNever, kNever};
    }
    if (const Channel* missing = take(s_.from_load, s_.work.pop_prev[index], next_.load_token)) {
      return missing;
    }
    if (const Channel* missing = take(s_.from_store, s_.work.pop_next[index], next_.store_token)) {
      return missing;
    }
    next_.time = std::max({next_.time, next_.load_token, next_.store_token});
    s_.places[kComputeUnit].send(next_.time);
    taken_ = true;
    return nullptr;
  }

  // Takes a token into `arrival` unless it is there; returns the channel if it has none.
  static const Channel* take(Channel& tokens, int64_t pops, Time& arrival) {
    if (arrival != kNever) return nullptr;
    if (pops && tokens.empty()) return &tokens;
    arrival = pops ? tokens.take() : 0;
    return nullptr;
  }

  // Begins the instruction that is taken; ends it, if it does not load.
  void begin() {
    const Work& work = s_.work;
    now_ = next_;
    index_ = now_.index;
    taken_ = false;
    ++number_;
    begin_ = std::max(now_.time + static_cast<Time>(s_.p.compute_fill), issued_);
    const int64_t moved = work.beats[index_] + work.before[index_] + work.zeros[index_];
    moves_ = moved != 0;
    if (moves_) {
      s_.compute_work += moved + 1;  // one more step retires a load
      return begin_load();
    }
    moved_ = begin_ - 1;
    loads_ = false;
    const int64_t issues =
        std::max<int64_t>(work.steps[index_], 1) * interval() + work.stalled[index_];
    s_.compute_work += issues;
    issue(begin_, issues);
    s_.worked(index_, begin_, issued_);
    complete();
  }

  void begin_load() {
    const Work& work = s_.work;
    const Time start = std::max(now_.time + 1, work.beats[index_] ? engine_.free : 0.0);
    moved_ = std::max(begin_, start + 1) - 1;
    if (work.kind[index_] != kUopLoad) {  // a LOAD enters the empty pipeline once it is written
      engine_.begin(index_, start,
                    {issued_, completed_, 0, loads_ ? completed_before_ : completed_});
    } else if (work.first[index_] < loops_last_) {
      engine_.begin(index_, start, {0, 0, words_before_loops(), loops_end_});
    } else {
      engine_.begin(index_, start, {});
    }
    completed_before_ = completed_;
  }

  // Port words of a load of micro-ops that do not overlap those that the last loops read. A word
  // after its first element counts as a whole one.
  int64_t words_before_loops() const {
    const int64_t ahead = loops_first_ - s_.work.first[index_], slots = s_.p.beat_micro_ops;
    return ahead < slots ? 0 : (ahead + s_.work.offset[index_]) / slots;
  }

  // Cycles between micro-ops.
  int64_t interval() const {
    switch (s_.work.kind[index_]) {
      case kGemm:
      case kReset: return s_.p.gemm_interval;
      case kAlu: return s_.work.tensor[index_] ? s_.p.alu_tensor_interval : s_.p.alu_interval;
    }
    return 1;
  }

  // Issues for a number of cycles from `begin` on. The last two steps may wait later, in the stage
  // after the next: they stop the issue of what follows in that cycle, if anything is there.
  void issue(Time begin, int64_t cycles) {
    const int64_t last = s_.work.last_waits[index_];
    issued_ = begin + static_cast<Time>(cycles - (last & 1) - (last >> 1));
    for (const Time wait : waits_) issued_ += begin <= wait && wait < issued_;
    while (!waits_.empty() && waits_.front() < issued_) waits_.pop_front();
    if (last & 2) waits_.push_back(issued_ + static_cast<Time>(waits_.size()));
    if (last & 1) waits_.push_back(issued_ + 1 + static_cast<Time>(waits_.size()));
    completed_ = issued_ + static_cast<Time>(waits_.size()) + depth_;
  }

  void complete() {
    const Work& work = s_.work;
    const bool loops = work.steps[index_] != 0;
    if (loops) loops_end_ = issued_;
    loops_first_ = loops ? work.first[index_] : 0;
    loops_last_ = loops ? work.last[index_] : 0;
    if (s_.keep) {
      Life& life = s_.lives[index_];
      life.prev_token = now_.load_token;
      life.next_token = now_.store_token;
      life.taken = now_.time;
      life.end = issued_;
      life.completed = completed_;
    }
    const Time delay = static_cast<Time>(s_.p.output_delay);
    if (work.push_prev[index_]) s_.to_load.send(completed_ + (s_.p.forwards ? delay : 0));
    if (work.push_next[index_]) s_.to_store.send(completed_ + delay);
    if (work.finish[index_]) s_.finished = completed_;
  }

  Shared& s_;
  const std::vector<std::size_t>& mine_ = s_.of_unit[kComputeUnit];
  LoadEngine engine_{s_, kCompute};
  const Time depth_ = static_cast<Time>(s_.p.compute_depth);
  std::size_t number_ = 0, index_ = 0;  // instructions that have begun; the last of them
  Taken now_, next_{kNoInstruction};
  bool taken_ = false;           // `next_` has its tokens
  bool moves_ = false;           // the last one moves its data
  Time moved_ = -1;              // when it moved to execution
  Time issued_ = -1;             // end of its last issue
  Time completed_ = depth_ - 1;  // when it left the pipeline
  Time completed_before_ = completed_;  // and the one before that, if it is a load
  bool loads_ = false;           // whether it does
  std::deque<Time> waits_;       // cycles after `issued_` in which nothing is issued
  Time begin_ = 0;               // start of the first issue
  // Micro-ops that the last loops read, and the end of these reads.
  int64_t loops_first_ = 0, loops_last_ = 0;
  Time loops_end_ = 0;
};

// ------------------------------------------------------------------------------------- store

class Store : InOrder {
 public:
  explicit Store(Shared& shared)
      : InOrder(shared, kStoreUnit, shared.to_store, shared.work.pop_prev),
        completions_(window(s_.p.stores_in_flight, s_.work)),
        accepted_(static_cast<std::size_t>(s_.p.write_bursts), 0.0),
        words_(static_cast<std::size_t>(s_.p.store_words) + 1, -kNever) {}

  Wish step() {
    const Work& work = s_.work;
    for (;;) switch (state_) {
        case kInstruction: {
          if (ended()) {
            s_.last = std::max(s_.last, complete_);
            return {};
          }
          if (const Channel* missing = take()) return {missing};
          enter();
          s_.places[kStoreUnit].send(start_);
          asked_ = kUnasked;
          bursts_ = written_ = 0;
          cut_.begin(work.address[index_], work.row_bytes[index_], work.stride_bytes[index_]);
          state_ = kMove;
          continue;
        }
        case kMove: {
          for (; written_ < work.beats[index_]; ++bursts_) {
            const Time queued = std::max(start_ + static_cast<Time>(1 + bursts_), accepted_[0]);
            const Time turn = s_.port.turn(kStore, kWrite, s_.port.cuts ? offered() : queued);
            if (s_.port.limited && s_.loop.yields(turn, asked_)) return {nullptr, asked_};
            asked_ = kUnasked;
            if (!s_.port.limited) {  // no other unit writes: one grant for all
              write({0, work.beats[index_], true}, std::max(offered(), sent_));
            } else if (s_.port.cuts) {
              write(cut_.next(s_.p), offered());
            } else {
              s_.port.settle(queued);
              write(cut_.next(s_.p), std::max(offered(), sent_));
            }
          }
          complete();
          continue;
        }
      }
  }

 private:
  // The previous store retires from a queue, which it enters when it is sent and there is a place.
  // This one also needs a place unless it starts in that very cycle.
  void enter() {
    const std::size_t most = static_cast<std::size_t>(s_.p.stores_in_flight);
    const std::size_t count = completions_.size();
    Time entered = drained_;
    if (count == most) entered = std::max(entered, completions_[0]);
    start_ = std::max({start_, token_, entered});
    if (start_ > entered && count + 1 >= most) {
      start_ = std::max(start_, completions_[count - (most - 1)]);
    }
  }

  // When the output memory delivers the next beat.
  Time offered() const { return start_ + static_cast<Time>(s_.p.store_fill + written_); }

  void write(const Bursts::Burst& burst, Time ready) {
    const int64_t size = burst.beats;
    const Grant grant = s_.port.grant(kStore, kWrite, ready, size, static_cast<int64_t>(index_),
                                      burst.address);
    sent_ = grant.end;
    written_ += size;
    accepted_.push(sent_);
    for (int64_t k = std::max<int64_t>(size - s_.p.store_words - 1, 0); k < size; ++k) {
      words_.push(s_.port.beat(grant, size, k));
    }
    s_.worked(index_, grant.start, grant.end);
  }

  void complete() {
    const int64_t beats = s_.work.beats[index_];
    drained_ = start_ + static_cast<Time>(beats) + 1;
    if (beats) {
      drained_ = std::max(drained_, words_[0] + 2);
      complete_ = sent_ - 1 + s_.port.acknowledgement + static_cast<Time>(s_.p.store_drain);
    } else {
      complete_ = std::max(start_ + static_cast<Time>(s_.p.store_fill), complete_);
      s_.worked(index_, start_, start_ + 1);
    }
    if (s_.keep) {
      Life& life = s_.lives[index_];
      life.prev_token = token_;
      life.taken = start_;
      life.end = beats ? sent_ : start_ + 1;
      life.completed = complete_;
    }
    completions_.push(complete_);
    if (s_.work.push_prev[index_]) s_.from_store.send(complete_);
    state_ = kInstruction;
  }

  enum { kInstruction, kMove } state_ = kInstruction;
  Last<Time> completions_;  // of stores in flight
  Last<Time> accepted_;     // arrival of the last bursts at the DRAM, as many as it queues
  Last<Time> words_;        // sending of the last words, one more than fit before the port
  Bursts cut_;
  int64_t bursts_ = 0, written_ = 0;  // of the store, written so far
  Time asked_ = kUnasked;
  Time sent_ = 0, drained_ = 0, complete_ = 0;
};

}  // namespace

Result simulate(const Work& work, const Machine& machine, bool keep) {
  Shared shared(work, machine, keep);
  Fetch fetch(shared);
  Load load(shared);
  Compute compute(shared);
  Store store(shared);
  const auto stuck = shared.loop.run([&](Process process) -> Wish {
    switch (process) {
      case kFetch: return fetch.step();
      case kLoad: return load.step();
      case kCompute: return compute.step();
      default: return store.step();
    }
  });
  Port& port = shared.port;
  const Port& weights = shared.weight_port;
  std::array<int64_t, kProcesses + 1> beats{};
  std::copy(port.beats_of.begin(), port.beats_of.end(), beats.begin());
  beats.back() = weights.beats_of[kLoad];
  port.grants.insert(port.grants.end(), weights.grants.begin(), weights.grants.end());
  const Time end = shared.finished == kNever ? shared.last : shared.finished;
  return {end,
          stuck,
          shared.compute_work,
          beats,
          port.contention,
          std::move(shared.lives),
          std::move(shared.stretches),
          std::move(port.grants)};
}

}  // namespace timing
