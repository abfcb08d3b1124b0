// es_peb_node of 64 bit as a C library: one call a clock, all pins in two structs (crates/cosim/src/peb.rs has the same).
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "Ves_peb_node.h"
#include "verilated.h"

struct Inputs {
    uint64_t mac_in_data, tlp_in_data;
    uint32_t node[4];
    uint32_t name[8];
    uint32_t dc_name[8];
    uint32_t fresh;
    uint8_t mac_in_keep, mac_in_last, mac_in_valid, mac_out_ready;
    uint8_t tlp_in_keep, tlp_in_last, tlp_in_valid, tlp_out_ready;
    uint8_t room, link_done;
    uint8_t rst, open, want_classic;
};

struct Outputs {
    uint64_t mac_out_data, tlp_out_data;
    uint32_t stats[22];
    uint16_t max_payload, max_read;
    uint8_t mac_out_keep, mac_out_last, mac_out_valid;
    uint8_t tlp_out_keep, tlp_out_last, tlp_out_valid, tlp_out_class, tlp_in_ready;
    uint8_t up, attached, link_reset;
};

// Parameter DC of the model (rtl/tool/cosim.py).
constexpr size_t DC_BYTES = 1 << 18;

struct Node {
    VerilatedContext context;
    Ves_peb_node top{&context};
    // The memory of the DC buffer, in words, which is not zero at first; and the word that was asked for in the clock before.
    std::vector<uint64_t> memory = std::vector<uint64_t>(DC_BYTES / 8, 0xA5A5A5A5A5A5A5A5);
    uint64_t word = 0;
    bool asked = false;
};

extern "C" uint32_t peb_node_sizes() { return sizeof(Inputs) << 16 | sizeof(Outputs); }

extern "C" Node *peb_node_new(uint32_t seed) {
    auto node = std::make_unique<Node>();
    node->context.randReset(2);
    node->context.randSeed(static_cast<int>(seed));
    return node.release();
}

extern "C" void peb_node_free(Node *node) { delete node; }

// Lets the inputs settle, gives the outputs as they are before the clock's edge, then clocks.
extern "C" void peb_node_clock(Node *node, const Inputs *in, Outputs *out) {
    Ves_peb_node &t = node->top;
    t.clk = 0;
    t.rst = in->rst;
    t.open = in->open;
    t.want_classic = in->want_classic;
    for (int i = 0; i < 4; i++) t.node[i] = in->node[i];
    for (int i = 0; i < 8; i++) t.function_name[i] = in->name[i];
    for (int i = 0; i < 8; i++) t.dc_name[i] = in->dc_name[i];
    t.fresh = in->fresh;
    t.m_dc_mem_ready = 1;
    t.s_dc_mem_data = node->word;
    t.s_dc_mem_valid = node->asked;
    t.s_mac_tdata = in->mac_in_data;
    t.s_mac_tkeep = in->mac_in_keep;
    t.s_mac_tuser = 0;
    t.s_mac_tlast = in->mac_in_last;
    t.s_mac_tvalid = in->mac_in_valid;
    t.m_mac_tready = in->mac_out_ready;
    t.s_tlp_tdata = in->tlp_in_data;
    t.s_tlp_tkeep = in->tlp_in_keep;
    t.s_tlp_tlast = in->tlp_in_last;
    t.s_tlp_tvalid = in->tlp_in_valid;
    t.m_tlp_tready = in->tlp_out_ready;
    t.m_tlp_room = in->room;
    t.link_done = in->link_done;
    t.eval();
    out->mac_out_data = t.m_mac_tdata;
    out->mac_out_keep = t.m_mac_tkeep;
    out->mac_out_last = t.m_mac_tlast;
    out->mac_out_valid = t.m_mac_tvalid;
    out->tlp_out_data = t.m_tlp_tdata;
    out->tlp_out_keep = t.m_tlp_tkeep;
    out->tlp_out_last = t.m_tlp_tlast;
    out->tlp_out_valid = t.m_tlp_tvalid;
    out->tlp_out_class = t.m_tlp_tuser;
    out->tlp_in_ready = t.s_tlp_tready;
    out->up = t.up;
    out->attached = t.attached;
    out->link_reset = t.link_reset;
    out->max_payload = t.max_payload;
    out->max_read = t.max_read;
    const uint32_t stats[22] = {t.stat_down, t.stat_down_malformed, t.stat_down_spoofed, t.stat_down_unrouted, t.stat_down_unrouted_completions,
        t.stat_passed, t.stat_fence_timeouts, t.stat_up, t.stat_up_malformed, t.stat_up_spoofed, t.stat_up_refused, t.stat_stray, t.stat_attached,
        t.stat_denied, t.stat_unknown, t.stat_resets, t.stat_sessions, t.stat_violations, t.stat_again,
        t.stat_dc_host, t.stat_dc_device, t.stat_dc_refused};
    std::memcpy(out->stats, stats, sizeof stats);
    node->asked = t.m_dc_mem_valid && !t.m_dc_mem_write && !in->rst;
    if (t.m_dc_mem_valid && !in->rst) {
        uint64_t &word = node->memory[t.m_dc_mem_address];
        uint64_t mask = 0;
        for (int i = 0; i < 8; i++) mask |= t.m_dc_mem_strobe >> i & 1 ? 0xFFull << 8 * i : 0;
        if (t.m_dc_mem_write) word = (word & ~mask) | (t.m_dc_mem_data & mask);
        node->word = word;
    }
    t.clk = 1;
    t.eval();
}
