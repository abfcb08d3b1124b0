// Whole TLPs, each with its header and whether it is one that docs/wire.md, section 7, takes: what a router needs before it touches a TLP's bytes.
//
// A TLP comes as a packet. For each one `m_hdr_*` has its header, then it follows at `m_axis_*`, also if it is not good: the reader drops it. Longer ones than any TLP
// are dropped here (`stat_overlong`). Latency 6 clocks from a TLP's last beat; a beat a clock.
module es_peb_intake #(
    parameter int DATA_W = 64,    // bits of tdata: 64, 128, 256 or 512
    parameter int DEPTH  = 1024,  // beats kept, a power of two: at least one TLP of 4112 bytes
    parameter int TLPS   = 16     // TLPs kept, a power of two
) (
    input wire clk,
    input wire rst,
    input wire clear, // the counters

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output es_peb_pkg::tlp_t m_hdr_tlp,
    output logic             m_hdr_good,
    output logic             m_hdr_valid,
    input  wire              m_hdr_ready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    output logic [31:0] stat_overlong
);
  localparam int BYTES = DATA_W / 8;
  localparam int AW = $clog2(DEPTH);
  localparam int MOST = es_peb_pkg::MAX_TLP_BYTES;

  if ((DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) || (DEPTH - 4) * BYTES < MOST) begin : gen_check
    $error("es_peb_intake: DATA_W is not 64, 128, 256 or 512, or DEPTH below a TLP of 4112 bytes");
  end

  // A beat is kept for a clock, in which its bytes are counted.
  logic take, fits, room, ample, last;
  logic [12:0] so_far, spare;  // bytes of the packet before this beat; bytes that it may still have
  logic [DATA_W-1:0] data;
  logic [ BYTES-1:0] keep;
  logic [$clog2(BYTES):0] count, count_now;  // bytes of this beat

  always_comb begin
    count_now = '0;
    for (int i = 0; i < BYTES; i++) if (s_axis_tkeep[i]) count_now = ($clog2(BYTES) + 1)'(i + 1);
  end
  assign s_axis_tready = room;
  assign fits = ample || 13'(count) <= spare;

  always_ff @(posedge clk) begin
    take  <= s_axis_tvalid && s_axis_tready && !rst;
    data  <= s_axis_tdata;
    keep  <= s_axis_tkeep;
    last  <= s_axis_tlast;
    count <= count_now;
  end

  // The header, as far as it has come.
  logic [127:0] head, head_now;
  logic first;
  if (DATA_W == 64) begin : gen_halves
    always_comb begin
      head_now = head;
      if (first) head_now[63:0] = data;
      else if (so_far == 13'd8) head_now[127:64] = data;
    end
  end else begin : gen_whole
    assign head_now = first ? data[127:0] : head;
  end

  logic whole, put, pop, ends, cut;
  assign put  = take && fits;
  assign pop  = m_axis_tvalid && m_axis_tready;
  assign ends = put && last;
  assign cut  = take && last && !fits;

  logic [12:0] whole_bytes, spare_next;
  logic dropped;
  logic [$clog2(TLPS):0] tlps;  // that have ended and whose header has not been taken
  logic [AW:0] used, unended;  // beats that are kept, those of the packet that has begun

  assign spare_next = spare - 13'(count);
  always_ff @(posedge clk) begin
    if (take) head <= head_now;
    if (take) whole_bytes <= so_far + 13'(count);
  end

  always_ff @(posedge clk) begin
    whole   <= ends;
    dropped <= cut;
    if (take) begin
      first   <= last;
      unended <= last ? '0 : unended + (AW + 1)'(fits);
      if (last) begin
        so_far <= '0;
        spare  <= 13'(MOST);
        ample  <= 1'b1;
      end else if (fits) begin
        so_far <= so_far + 13'(count);
        spare  <= spare_next;
        ample  <= spare >= 13'(2 * BYTES);
      end else begin
        // Nothing more of it fits.
        spare <= '0;
        ample <= 1'b0;
      end
    end
    if (ends && !(m_hdr_valid && m_hdr_ready)) tlps <= tlps + 1'b1;
    else if (m_hdr_valid && m_hdr_ready && !ends) tlps <= tlps - 1'b1;
    // A TLP that is too long gives its beats back when it ends.
    if (cut) used <= used - unended - (AW + 1)'(pop);
    else if (put && !pop) used <= used + 1'b1;
    else if (pop && !put) used <= used - 1'b1;
    // Two beats, and with them a header, may come beside this.
    room <= used < (AW + 1)'(DEPTH - 3) && tlps < ($clog2(TLPS) + 1)'(TLPS - 3);
    if (rst) begin
      whole <= 1'b0;
      dropped <= 1'b0;
      first <= 1'b1;
      so_far <= '0;
      spare <= 13'(MOST);
      ample <= 1'b1;
      unended <= '0;
      used <= '0;
      tlps <= '0;
      room <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (dropped) stat_overlong <= stat_overlong + 1'b1;
    if (clear) stat_overlong <= '0;
  end

  // Whether it is good takes a clock of its own.
  es_peb_pkg::tlp_t tlp, judged_tlp;
  logic judged, judged_good;
  assign tlp = es_peb_pkg::swap16(head);
  always_ff @(posedge clk) begin
    judged_tlp <= tlp;
    judged_good <= es_peb_pkg::good(tlp, whole_bytes);
    judged <= whole && !rst;
  end

  /* verilator lint_off PINCONNECTEMPTY */
  es_fifo #(
      .WIDTH(129),
      .DEPTH(TLPS)
  ) heads (
      .clk,
      .rst,
      .s_data ({judged_good, judged_tlp}),
      .s_valid(judged),
      .s_ready(),                           // `tlps`
      .m_data ({m_hdr_good, m_hdr_tlp}),
      .m_valid(m_hdr_valid),
      .m_ready(m_hdr_ready)
  );

  es_fifo_commit #(
      .WIDTH(DATA_W + BYTES + 1),
      .DEPTH(DEPTH)
  ) beats (
      .clk,
      .rst,
      .s_data  ({last, keep, data}),
      .s_valid (put),
      .s_commit(ends),
      .s_drop  (cut),
      .s_full  (),                                            // `room`
      .m_data  ({m_axis_tlast, m_axis_tkeep, m_axis_tdata}),
      .m_valid (m_axis_tvalid),
      .m_ready (m_axis_tready)
  );
  /* verilator lint_on PINCONNECTEMPTY */

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      beat_finds_room : assert (!put || used < (AW + 1)'(DEPTH));
      header_finds_room : assert (!whole || tlps <= ($clog2(TLPS) + 1)'(TLPS));
    end
  end
`endif
endmodule
