// es_efe of 64 bit as a C library: one call a clock, all pins in two structs (crates/cosim/src/efe.rs has the same).
#include <cstdint>
#include <cstring>
#include <memory>

#include "Ves_efe.h"
#include "verilated.h"

struct Inputs {
    uint64_t s_data, mac_in_data;
    uint32_t node[4];
    uint32_t fresh;
    uint32_t features;
    uint8_t s_keep, s_last, s_valid;
    uint8_t m_ready;
    uint8_t mac_in_keep, mac_in_user, mac_in_last, mac_in_valid;
    uint8_t mac_out_ready;
    uint8_t rst, open, active, want_classic;
};

struct Outputs {
    uint64_t m_data, mac_out_data;
    uint32_t stats[15];
    uint32_t agreed;
    uint16_t body_bytes;
    uint8_t s_ready;
    uint8_t m_keep, m_last, m_valid;
    uint8_t mac_out_keep, mac_out_last, mac_out_valid;
    uint8_t up, classic;
};

struct Efe {
    VerilatedContext context;
    Ves_efe top{&context};
};

extern "C" uint32_t efe_sizes() { return sizeof(Inputs) << 16 | sizeof(Outputs); }

extern "C" Efe *efe_new(uint32_t seed) {
    auto efe = std::make_unique<Efe>();
    efe->context.randReset(2);
    efe->context.randSeed(static_cast<int>(seed));
    return efe.release();
}

extern "C" void efe_free(Efe *efe) { delete efe; }

// Lets the inputs settle, gives the outputs as they are before the clock's edge, then clocks.
extern "C" void efe_clock(Efe *efe, const Inputs *in, Outputs *out) {
    Ves_efe &t = efe->top;
    t.clk = 0;
    t.rst = in->rst;
    t.open = in->open;
    t.active = in->active;
    t.want_classic = in->want_classic;
    for (int i = 0; i < 4; i++) t.node[i] = in->node[i];
    t.fresh = in->fresh;
    t.features = in->features;
    t.s_axis_tdata = in->s_data;
    t.s_axis_tkeep = in->s_keep;
    t.s_axis_tlast = in->s_last;
    t.s_axis_tvalid = in->s_valid;
    t.m_axis_tready = in->m_ready;
    t.s_mac_tdata = in->mac_in_data;
    t.s_mac_tkeep = in->mac_in_keep;
    t.s_mac_tuser = in->mac_in_user;
    t.s_mac_tlast = in->mac_in_last;
    t.s_mac_tvalid = in->mac_in_valid;
    t.m_mac_tready = in->mac_out_ready;
    t.eval();
    out->m_data = t.m_axis_tdata;
    out->m_keep = t.m_axis_tkeep;
    out->m_last = t.m_axis_tlast;
    out->m_valid = t.m_axis_tvalid;
    out->s_ready = t.s_axis_tready;
    out->mac_out_data = t.m_mac_tdata;
    out->mac_out_keep = t.m_mac_tkeep;
    out->mac_out_last = t.m_mac_tlast;
    out->mac_out_valid = t.m_mac_tvalid;
    out->up = t.up;
    out->classic = t.classic;
    out->agreed = t.agreed;
    out->body_bytes = t.body_bytes;
    const uint32_t stats[15] = {t.window, t.srtt, t.stat_good, t.stat_refused, t.stat_check, t.stat_full, t.stat_sessions, t.stat_dropped,
        t.stat_violations, t.stat_taken, t.stat_old, t.stat_unwanted, t.stat_again, t.stat_timeouts, t.stat_probes};
    std::memcpy(out->stats, stats, sizeof stats);
    t.clk = 1;
    t.eval();
}
