// es_rnic of 64 bit as a C library: one call a clock, all pins in two structs (crates/cosim/src/rnic.rs has the same).
#include <cstdint>
#include <memory>

#include "Ves_rnic.h"
#include "verilated.h"

struct Inputs {
    uint64_t wdata, d_rdata, q_rdata, s_data;
    uint32_t awaddr, araddr;
    uint16_t segment_bytes, s_seg_length, s_seg_peer;
    uint8_t wstrb, awvalid, wvalid, bready, arvalid, rready;
    uint8_t d_arready, d_rvalid, q_arready, q_rlast, q_rvalid;
    uint8_t w_awready, w_wready, w_bvalid;
    uint8_t m_seg_ready, m_ready;
    uint8_t s_seg_valid, s_keep, s_last, s_valid;
    uint8_t rst;
};

struct Outputs {
    uint64_t rdata, d_araddr, q_araddr, w_awaddr, w_wdata, m_data;
    uint16_t irq_vector, m_seg_length, m_seg_peer, m_seg_stream;
    uint8_t awready, wready, bvalid, arready, rvalid;
    uint8_t d_arlen, d_arvalid, d_rready, q_arlen, q_arvalid, q_rready;
    uint8_t w_awlen, w_awburst, w_awvalid, w_wstrb, w_wlast, w_wvalid, w_bready;
    uint8_t irq_valid;
    uint8_t m_seg_valid, m_keep, m_last, m_valid;
    uint8_t s_seg_ready, s_ready;
};

struct Rnic {
    VerilatedContext context;
    Ves_rnic top{&context};
};

extern "C" uint32_t rnic_sizes() { return sizeof(Inputs) << 16 | sizeof(Outputs); }

extern "C" Rnic *rnic_new(uint32_t seed) {
    auto rnic = std::make_unique<Rnic>();
    rnic->context.randReset(2);
    rnic->context.randSeed(static_cast<int>(seed));
    return rnic.release();
}

extern "C" void rnic_free(Rnic *rnic) { delete rnic; }

// Lets the inputs settle, gives the outputs as they are before the clock's edge, then clocks.
extern "C" void rnic_clock(Rnic *rnic, const Inputs *in, Outputs *out) {
    Ves_rnic &t = rnic->top;
    t.clk = 0;
    t.rst = in->rst;
    t.segment_bytes = in->segment_bytes;
    t.lost_valid = 0;
    t.s_axil_awaddr = in->awaddr;
    t.s_axil_awvalid = in->awvalid;
    t.s_axil_wdata = in->wdata;
    t.s_axil_wstrb = in->wstrb;
    t.s_axil_wvalid = in->wvalid;
    t.s_axil_bready = in->bready;
    t.s_axil_araddr = in->araddr;
    t.s_axil_arvalid = in->arvalid;
    t.s_axil_rready = in->rready;
    t.m_axi_d_arready = in->d_arready;
    t.m_axi_d_rdata = in->d_rdata;
    t.m_axi_d_rvalid = in->d_rvalid;
    t.m_axi_q_arready = in->q_arready;
    t.m_axi_q_rdata = in->q_rdata;
    t.m_axi_q_rlast = in->q_rlast;
    t.m_axi_q_rvalid = in->q_rvalid;
    t.m_axi_w_awready = in->w_awready;
    t.m_axi_w_wready = in->w_wready;
    t.m_axi_w_bvalid = in->w_bvalid;
    t.m_seg_ready = in->m_seg_ready;
    t.m_axis_tready = in->m_ready;
    t.s_seg_length = in->s_seg_length;
    t.s_seg_peer = in->s_seg_peer;
    t.s_seg_valid = in->s_seg_valid;
    t.s_axis_tdata = in->s_data;
    t.s_axis_tkeep = in->s_keep;
    t.s_axis_tlast = in->s_last;
    t.s_axis_tvalid = in->s_valid;
    t.eval();
    out->awready = t.s_axil_awready;
    out->wready = t.s_axil_wready;
    out->bvalid = t.s_axil_bvalid;
    out->arready = t.s_axil_arready;
    out->rdata = t.s_axil_rdata;
    out->rvalid = t.s_axil_rvalid;
    out->d_araddr = t.m_axi_d_araddr;
    out->d_arlen = t.m_axi_d_arlen;
    out->d_arvalid = t.m_axi_d_arvalid;
    out->d_rready = t.m_axi_d_rready;
    out->q_araddr = t.m_axi_q_araddr;
    out->q_arlen = t.m_axi_q_arlen;
    out->q_arvalid = t.m_axi_q_arvalid;
    out->q_rready = t.m_axi_q_rready;
    out->w_awaddr = t.m_axi_w_awaddr;
    out->w_awlen = t.m_axi_w_awlen;
    out->w_awburst = t.m_axi_w_awburst;
    out->w_awvalid = t.m_axi_w_awvalid;
    out->w_wdata = t.m_axi_w_wdata;
    out->w_wstrb = t.m_axi_w_wstrb;
    out->w_wlast = t.m_axi_w_wlast;
    out->w_wvalid = t.m_axi_w_wvalid;
    out->w_bready = t.m_axi_w_bready;
    out->irq_vector = t.irq_vector;
    out->irq_valid = t.irq_valid;
    out->m_seg_length = t.m_seg_length;
    out->m_seg_peer = t.m_seg_peer;
    out->m_seg_stream = t.m_seg_stream;
    out->m_seg_valid = t.m_seg_valid;
    out->m_data = t.m_axis_tdata;
    out->m_keep = t.m_axis_tkeep;
    out->m_last = t.m_axis_tlast;
    out->m_valid = t.m_axis_tvalid;
    out->s_seg_ready = t.s_seg_ready;
    out->s_ready = t.s_axis_tready;
    t.clk = 1;
    t.eval();
}
