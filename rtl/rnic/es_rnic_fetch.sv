// SQ controllers: take doorbells and read WQEs, round robin over the QPs, from the rings in memory and from what came on the fly.
//
// Out comes the first block of one WQE after the other, the next one being read while the one before is worked on; further blocks come behind it as rows. A
// WQE may be worked on while it comes: `now` has what is there. In ERROR the WQEs of a queue are read only to be flushed.
module es_rnic_fetch #(
    parameter int DATA_W = 64,
    parameter int QPS    = 16
) (
    input wire clk,
    input wire rst,

    // Host: doorbells, contexts, states.
    input wire [$clog2(QPS)-1:0] db_slot,
    input wire [           15:0] db_index,
    input wire                   db_valid,
    input wire [$clog2(QPS)-1:0] w_slot,
    input wire [            2:0] w_word,
    input wire [           63:0] w_data,
    input wire [            1:0] w_half,
    input wire                   w_valid,
    input wire [      4*QPS-1:0] states,
    input wire [$clog2(QPS)-1:0] enter_slot,
    input wire [            3:0] enter_state,
    input wire                   enter_valid,
    input wire [        QPS-1:0] may_fetch,    // of each QP: there is room for what begins

    // On-the-fly windows.
    output logic [           15:0] posted    [QPS],
    output logic [           15:0] fetched   [QPS],  // out of the ring
    output logic [        QPS-1:0] holds,            // of each QP: a WQE was taken and has not begun
    output logic [        QPS-1:0] waits,            // some of its ring have not been taken
    input  wire                    offer,
    input  wire  [$clog2(QPS)-1:0] offer_slot,
    output logic                   direct,
    input  wire  [        QPS-1:0] queued,
    input  wire  [           15:0] behind    [QPS],
    output logic [$clog2(QPS)-1:0] pick_slot,
    output logic                   pick,
    input  wire                    first,
    input  wire  [          511:0] block,
    input  wire                    row,
    input  wire                    more,

    // WQEs from memory.
    output logic [      63:0] m_axi_araddr,
    output logic [       7:0] m_axi_arlen,
    output logic              m_axi_arvalid,
    input  wire               m_axi_arready,
    input  wire  [DATA_W-1:0] m_axi_rdata,
    input  wire               m_axi_rvalid,
    output logic              m_axi_rready,

    // The WQE that is next.
    output es_rnic_pkg::wqe_t next,
    input  wire               next_taken,

    // Further blocks of WQEs, in order.
    output logic [511:0] further,
    output logic         further_valid,
    input  wire          further_ready
);
  localparam int QW = $clog2(QPS);
  localparam int BEATS = 512 / DATA_W;
  localparam int EARLY = (384 + DATA_W - 1) / DATA_W;  // beats of the first 48 bytes

  es_rnic_pkg::context_t context_now;
  logic [511:0] now;

  logic [QPS-1:0] pending, asked, fly, lost;  // lost: what is behind a WQE without end
  logic [QW-1:0] acceptor_slot;
  logic pick_any, pick_taken;

  logic fetching;
  logic first_block, fetch_void, fetch_cut, cut;
  logic [QW-1:0] fetch_slot, fly_slot;
  logic [15:0] handed;  // blocks that were handed over, of the QP whose WQE comes
  logic [$clog2(BEATS > 1 ? BEATS : 2)-1:0] beat;
  logic last_beat;
  logic [3:0] blocks, to_ask, to_come, follow;  // blocks of the WQE that comes; further ones

  // Two WQEs: one that is worked on, one that comes.
  logic [511:0] wqe[2];
  logic [QW-1:0] wqe_slot[2];
  logic [1:0] wqe_full, wqe_cut, wqe_void;
  logic put_at, take_at;
  logic used;  // the WQE that comes has been worked on already

  // What came on the fly stands behind an index of the ring.
  always_comb begin
    for (int i = 0; i < QPS; i++) begin
      fly[i] = queued[i] && (behind[i] == fetched[i] || lost[i]);
      pending[i] = (fly[i] || ((queued[i] ? behind[i] : posted[i]) != fetched[i] && !lost[i])) && may_fetch[i] &&
          (states[4*i+:4] == es_rnic_pkg::Rts || states[4*i+:4] == es_rnic_pkg::Error);
    end
  end

  always_comb begin
    for (int i = 0; i < QPS; i++) begin
      waits[i] = posted[i] != fetched[i] || queued[i];
      holds[i] = (fetching && first_block && !used && fetch_slot == QW'(i)) || (first && fly_slot == QW'(i));
      for (int j = 0; j < 2; j++) if (wqe_full[j] && wqe_slot[j] == QW'(i)) holds[i] = 1'b1;
    end
  end

  es_arbiter #(
      .N(QPS)
  ) acceptor (
      .clk,
      .rst,
      .request(pending),
      .grant  (asked),
      .index  (acceptor_slot),
      .taken  (pick_taken)
  );
  assign pick_any = |asked;

  // A doorbell, or a WQE on the fly, that finds nothing to do is served without a look at all others.
  logic rung, room;
  logic [QW-1:0] slot_next;
  logic [15:0] index, ask_index;
  assign room = !fetching && !more && !wqe_full[put_at];
  assign rung = db_valid && !pick_any && db_index != fetched[db_slot] && may_fetch[db_slot] && !queued[db_slot] && !lost[db_slot] &&
      states[4*db_slot+:4] == es_rnic_pkg::Rts;
  assign direct = offer && !pick_any && room && posted[offer_slot] == fetched[offer_slot] && !queued[offer_slot] && may_fetch[offer_slot] &&
      states[4*offer_slot+:4] == es_rnic_pkg::Rts;
  assign slot_next = pick_any ? acceptor_slot : db_slot;
  assign pick_taken = (pick_any || rung) && room;
  assign pick_slot = acceptor_slot;
  assign pick = pick_any && room && fly[acceptor_slot];

  // Where the next block is in the ring: the first of a WQE that is picked, or a further one of that which comes.
  assign index = (fetching ? ask_index : fetched[slot_next]) & ~(16'hFFFF << context_now.sq_log2[3:0]);

  es_rnic_context #(
      .QPS(QPS)
  ) of_fetch (
      .clk,
      .w_slot,
      .w_word,
      .w_data,
      .w_half,
      .w_valid,
      .slot (fetching ? fetch_slot : slot_next),
      .entry(context_now)
  );

  assign m_axi_arlen  = 8'(BEATS - 1);
  assign m_axi_rready = 1'b1;
  assign last_beat    = m_axi_rvalid && beat == $bits(beat)'(BEATS - 1);

  // The first word says how many blocks there are.
  always_comb begin
    blocks = m_axi_rdata[19:16];
    cut = m_axi_rdata[23:16] == '0 || m_axi_rdata[23:16] > 8'(es_rnic_pkg::WqeBlocks) || {8'b0, m_axi_rdata[23:16]} > handed;
    if (cut) blocks = 4'd1;
    follow = first_block && beat == '0 ? blocks - 1'b1 : to_come;
  end

  // Rows: as they come from memory, or all at once. There is room for those of two WQEs.
  logic [511:0] assembled, row_whole;
  logic row_ready, row_comes;
  assign row_comes = fetching && !first_block && last_beat;
  always_ff @(posedge clk) if (m_axi_rvalid) assembled[DATA_W*beat+:DATA_W] <= m_axi_rdata;
  always_comb begin
    row_whole = assembled;
    row_whole[511-:DATA_W] = m_axi_rdata;
  end

  es_fifo #(
      .WIDTH(512),
      .DEPTH(16)
  ) rows (
      .clk,
      .rst,
      .s_data (row ? block : row_whole),
      .s_valid(row || row_comes),
      .s_ready(row_ready),
      .m_data (further),
      .m_valid(further_valid),
      .m_ready(further_ready)
  );

  always_ff @(posedge clk) begin
    if (m_axi_arready) m_axi_arvalid <= 1'b0;
    if (pick_taken && !pick) begin
      fetching <= 1'b1;
      first_block <= 1'b1;
      fetch_void <= 1'b0;
      fetch_slot <= slot_next;
      handed <= (queued[slot_next] ? behind[slot_next] : pick_any ? posted[slot_next] : db_index) - fetched[slot_next];
      fetched[slot_next] <= fetched[slot_next] + 1'b1;
      m_axi_araddr <= context_now.sq_address + {42'b0, index, 6'b0};
      m_axi_arvalid <= 1'b1;
      to_ask <= '0;
      ask_index <= fetched[slot_next] + 1'b1;
      beat <= '0;
    end
    if (to_ask != '0 && (!m_axi_arvalid || m_axi_arready)) begin
      m_axi_araddr <= context_now.sq_address + {42'b0, index, 6'b0};
      m_axi_arvalid <= 1'b1;
      to_ask <= to_ask - 1'b1;
      ask_index <= ask_index + 1'b1;
    end
    if (m_axi_rvalid && fetching) begin
      beat <= last_beat ? '0 : beat + 1'b1;
      to_come <= follow;
      if (first_block) begin
        wqe[put_at][DATA_W*beat+:DATA_W] <= m_axi_rdata;
        wqe_slot[put_at] <= fetch_slot;
        if (beat == '0) begin
          fetch_cut <= cut;
          to_ask <= follow;
          if (!fetch_void) begin
            fetched[fetch_slot] <= fetched[fetch_slot] + 16'(follow);
            lost[fetch_slot] <= cut;
          end
        end
        if (last_beat) begin
          first_block <= 1'b0;
          used <= 1'b0;
          if (!used) begin
            wqe_full[put_at] <= 1'b1;
            wqe_cut[put_at] <= beat == '0 ? cut : fetch_cut;
            wqe_void[put_at] <= fetch_void;
            put_at <= !put_at;
          end
        end
      end else if (last_beat) to_come <= to_come - 1'b1;
      if (last_beat && (first_block ? follow == '0 : to_come == 4'd1)) fetching <= 1'b0;
    end
    if (direct || first) begin
      wqe[put_at] <= block;
      wqe_slot[put_at] <= first ? fly_slot : offer_slot;
      wqe_full[put_at] <= 1'b1;
      wqe_cut[put_at] <= 1'b0;
      wqe_void[put_at] <= 1'b0;
      put_at <= !put_at;
    end
    if (pick) fly_slot <= pick_slot;
    if (next_taken) begin
      // What is left of one that is still coming is not needed.
      if (wqe_full[take_at]) begin
        wqe_full[take_at] <= 1'b0;
        take_at <= !take_at;
      end else if (last_beat) begin
        wqe_full[put_at] <= 1'b0;
        put_at <= put_at;
      end else used <= 1'b1;
    end
    if (db_valid) posted[db_slot] <= db_index;
    // What was under way for a QP that goes to RESET is nothing any more.
    if (enter_valid && enter_state == es_rnic_pkg::Reset) begin
      posted[enter_slot] <= '0;
      fetched[enter_slot] <= '0;
      lost[enter_slot] <= 1'b0;
      if (fetch_slot == enter_slot) fetch_void <= 1'b1;
      for (int i = 0; i < 2; i++) begin
        if (put_at == 1'(i) && (first || fetching) ? (first ? fly_slot : fetch_slot) == enter_slot : wqe_slot[i] == enter_slot)
          wqe_void[i] <= 1'b1;
      end
    end
    if (rst) begin
      m_axi_arvalid <= 1'b0;
      fetching <= 1'b0;
      wqe_full <= '0;
      used <= 1'b0;
      put_at <= 1'b0;
      take_at <= 1'b0;
      lost <= '0;
      to_ask <= '0;
      for (int i = 0; i < QPS; i++) begin
        posted[i]  <= '0;
        fetched[i] <= '0;
      end
    end
  end

  // A WQE with one SGE at most is used as soon as its first 48 bytes are there, in the clock in which they come.
  logic coming;
  always_comb begin
    coming = fetching && first_block && !used && put_at == take_at && !wqe_full[take_at];
    now = wqe[take_at];
    if (coming && m_axi_rvalid) now[DATA_W*beat+:DATA_W] = m_axi_rdata;
  end
  always_comb begin
    next.block = now;
    next.slot = 16'(coming ? fetch_slot : wqe_slot[take_at]);
    next.valid = wqe_full[take_at] || (coming && m_axi_rvalid && 4'(beat) + 4'd1 >= 4'(EARLY) && now[31:24] <= 8'd1 && !now[11]);
    next.begins = coming && !next.valid && (beat != '0 || m_axi_rvalid);
    next.cut = coming ? (beat == '0 ? cut : fetch_cut) : wqe_cut[take_at];
    next.is_void = coming ? fetch_void : wqe_void[take_at];
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      rows_find_room : assert (row_ready || !(row || row_comes));
      one_wqe_comes : assert (!(fetching && (row || first || direct)));
      none_is_written_over : assert (!((direct || first) && wqe_full[put_at]));
      taken_is_valid : assert (!next_taken || next.valid);
    end
  end
`endif
endmodule
