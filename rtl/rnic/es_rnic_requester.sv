// SQ controllers and Work Acceptor: takes doorbells, reads WQEs (round robin over the QPs), checks them and hands messages to the segment generator.
//
// The next WQE is read and checked while the one before is sent. Each WQE that begins is told to the Completion Manager (`note`).
// In ERROR the WQEs of a queue are read only to be flushed.
module es_rnic_requester #(
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
    input wire [$clog2(QPS)-1:0] enter_slot,   // a QP goes to a state
    input wire [            3:0] enter_state,
    input wire                   enter_valid,

    // WQEs from memory.
    output logic [      63:0] m_axi_araddr,
    output logic [       7:0] m_axi_arlen,
    output logic              m_axi_arvalid,
    input  wire               m_axi_arready,
    input  wire  [DATA_W-1:0] m_axi_rdata,
    input  wire               m_axi_rvalid,
    output logic              m_axi_rready,

    output es_rnic_pkg::job_t         job,
    output logic                      job_valid,
    input  wire                       job_ready,
    // A Read Request that begins to leave when the first word of its WQE has come; the rest comes with late_valid.
    output es_rnic_pkg::job_t         early,
    output logic                      early_valid,
    input  wire                       early_ready,
    output logic              [127:0] late,
    output logic                      late_valid,
    input  wire                       done,
    input  wire               [  2:0] done_cause,

    // To the Completion Manager: a WQE has begun.
    output logic [$clog2(QPS)-1:0] note_slot,
    output logic [           63:0] note_id,
    output logic [            7:0] note_opcode,
    output logic                   note_signaled,
    output logic [           31:0] note_bytes,
    output logic [           31:0] note_message,   // the number of the message behind its last
    output logic [            7:0] note_status,    // not 0: it fails
    output logic                   note_read,      // its answer is awaited
    output logic                   note_valid,
    input  wire  [        QPS-1:0] note_room,      // of each QP
    input  wire  [        QPS-1:0] reading,        // Reads of the QP are under way
    output logic                   job_failed,     // the memory of the WQE begun last was not fine
    output logic [$clog2(QPS)-1:0] job_slot,

    // To the Receive Module: where the data of a Read go.
    output es_rnic_pkg::sge_t                   sink0,
    output es_rnic_pkg::sge_t                   sink1,
    output logic              [           31:0] sink_length,
    output logic              [           31:0] sink_stag,
    output logic              [$clog2(QPS)-1:0] sink_slot,
    output logic                                sink_valid,
    input  wire               [        QPS-1:0] sink_room
);
  localparam int QW = $clog2(QPS);
  localparam int BEATS = 512 / DATA_W;
  localparam int EARLY = (384 + DATA_W - 1) / DATA_W;  // beats of the first 48 bytes

  es_rnic_pkg::context_t fetch_context, context_now, of_entering;
  logic [31:0] enter_first;

  // ---- WQEs from memory ------------------------------------------------------------------------------------------------------------------

  logic [15:0] posted[QPS];
  logic [15:0] fetched[QPS];
  logic [QPS-1:0] pending, asked;
  logic [QW-1:0] pick;
  logic pick_any, pick_taken;

  logic fetching;
  logic [QW-1:0] fetch_slot;
  logic [$clog2(BEATS > 1 ? BEATS : 2)-1:0] beat;

  // Two WQEs: one that is worked on, one that comes.
  logic [511:0] wqe[2];
  logic [QW-1:0] wqe_slot[2];
  logic [1:0] wqe_full;
  logic put_at, take_at;
  logic wqe_taken;
  logic used;  // the WQE that comes has been worked on already

  always_comb begin
    for (int i = 0; i < QPS; i++) begin
      pending[i] = posted[i] != fetched[i] && note_room[i] && (states[4*i+:4] == es_rnic_pkg::Rts || states[4*i+:4] == es_rnic_pkg::Error);
    end
  end

  es_arbiter #(
      .N(QPS)
  ) acceptor (
      .clk,
      .rst,
      .request(pending),
      .grant  (asked),
      .index  (pick),
      .taken  (pick_taken)
  );
  assign pick_any = |asked;

  // A doorbell that finds nothing to do is served without a look at all others.
  logic direct;
  logic [QW-1:0] slot_next;
  logic [15:0] index_next;
  assign direct = db_valid && !pick_any && db_index != fetched[db_slot] && note_room[db_slot] && states[4*db_slot+:4] == es_rnic_pkg::Rts;
  assign slot_next = pick_any ? pick : db_slot;
  assign index_next = fetched[slot_next] & ~(16'hFFFF << fetch_context.sq_log2[3:0]);
  assign pick_taken = (pick_any || direct) && !fetching && !wqe_full[put_at];

  es_rnic_context #(
      .QPS(QPS)
  ) of_fetch (
      .clk,
      .w_slot,
      .w_word,
      .w_data,
      .w_half,
      .w_valid,
      .slot (slot_next),
      .entry(fetch_context)
  );

  assign m_axi_arlen  = 8'(BEATS - 1);
  assign m_axi_rready = 1'b1;

  always_ff @(posedge clk) begin
    if (m_axi_arready) m_axi_arvalid <= 1'b0;
    if (pick_taken) begin
      fetching <= 1'b1;
      fetch_slot <= slot_next;
      fetched[slot_next] <= fetched[slot_next] + 1'b1;
      m_axi_araddr <= fetch_context.sq_address + {42'b0, index_next, 6'b0};
      m_axi_arvalid <= 1'b1;
      beat <= '0;
    end
    if (m_axi_rvalid && fetching) begin
      wqe[put_at][DATA_W*beat+:DATA_W] <= m_axi_rdata;
      wqe_slot[put_at] <= fetch_slot;
      beat <= beat + 1'b1;
      if (beat == $bits(beat)'(BEATS - 1)) begin
        fetching <= 1'b0;
        used <= 1'b0;
        if (!used) begin
          wqe_full[put_at] <= 1'b1;
          put_at <= !put_at;
        end
      end
    end
    if (wqe_taken) begin
      // What is left of one that is still coming is not needed.
      if (wqe_full[take_at]) begin
        wqe_full[take_at] <= 1'b0;
        take_at <= !take_at;
      end else if (beat == $bits(beat)'(BEATS - 1)) begin
        wqe_full[put_at] <= 1'b0;
        put_at <= put_at;
      end else used <= 1'b1;
    end
    if (db_valid) posted[db_slot] <= db_index;
    if (enter_valid && enter_state == es_rnic_pkg::Reset) begin
      posted[enter_slot]  <= '0;
      fetched[enter_slot] <= '0;
    end
    if (rst) begin
      m_axi_arvalid <= 1'b0;
      fetching <= 1'b0;
      wqe_full <= '0;
      used <= 1'b0;
      put_at <= 1'b0;
      take_at <= 1'b0;
      for (int i = 0; i < QPS; i++) begin
        posted[i]  <= '0;
        fetched[i] <= '0;
      end
    end
  end

  // ---- WQEs to messages ------------------------------------------------------------------------------------------------------------------

  logic [511:0] now;
  logic [QW-1:0] slot;
  logic now_valid;
  // The next request message, MSN of queues 0 and 1, serial of the next Read.
  logic [31:0] message[QPS];
  logic [31:0] msn0[QPS];
  logic [31:0] msn1[QPS];
  logic [19:0] serial[QPS];
  logic [QPS-1:0] broken;  // a WQE has failed: none behind it begins

  logic [7:0] opcode, flags, sges;
  logic [31:0] inline_bytes;
  es_rnic_pkg::sge_t sge0, sge1;
  logic [32:0] total;
  logic is_inline, is_read, is_send, is_write, allowed, flush, may_begin, go;
  logic [7:0] status;
  logic sends, gone_early;  // its Read Request has begun to leave
  logic busy;  // a job is with the segment generator

  // A WQE with one SGE at most is used as soon as its first 48 bytes are there, in the clock in which they come.
  logic coming;
  always_comb begin
    coming = fetching && !used && put_at == take_at && !wqe_full[take_at];
    now = wqe[take_at];
    if (coming && m_axi_rvalid) now[DATA_W*beat+:DATA_W] = m_axi_rdata;
  end
  assign slot = coming ? fetch_slot : wqe_slot[take_at];
  assign now_valid = wqe_full[take_at] || (coming && m_axi_rvalid && 4'(beat) + 4'd1 >= 4'(EARLY) && now[31:24] <= 8'd1 && !now[11]);
  assign opcode = now[7:0];
  assign flags = now[15:8];
  assign sges = now[31:24];
  assign inline_bytes = now[63:32];

  es_rnic_context #(
      .QPS(QPS)
  ) of_now (
      .clk,
      .w_slot,
      .w_word,
      .w_data,
      .w_half,
      .w_valid,
      .slot,
      .entry(context_now)
  );

  always_comb begin
    sge0 = now[383:256];
    sge1 = now[511:384];
    if (sges < 8'd1) sge0.length = '0;
    if (sges < 8'd2) sge1.length = '0;
    is_inline = flags[3];
    is_write = opcode == es_rnic_pkg::WqeWrite;
    is_send = opcode == es_rnic_pkg::WqeSend;
    is_read = opcode == es_rnic_pkg::WqeRead;
    total = is_inline ? {1'b0, inline_bytes} : {1'b0, sge0.length} + {1'b0, sge1.length};
    allowed = (is_write || is_send || is_read || opcode == es_rnic_pkg::WqeNothing) && now[23:16] == 8'd1 && sges <= 8'd2 && !flags[4] &&
        (!is_inline || ((is_write || is_send) && sges == '0 && inline_bytes <= 32'd32));
    flush = states[4*slot+:4] != es_rnic_pkg::Rts || broken[slot];
    status = flush ? 8'd5 : !allowed ? 8'd2 : total > 33'h8000_0000 ? 8'd1 : 8'd0;
    // Behind a fence, and with the ORRQ full, a WQE waits. No other begins before it.
    may_begin = status != '0 || ((!flags[1] || !reading[slot]) && (!is_read || sink_room[slot]));
    go = now_valid && !busy && (may_begin || gone_early);
    early_valid = coming && !now_valid && !gone_early && (beat != '0 || m_axi_rvalid) && is_read && allowed && sges <= 8'd1 && !flags[1] &&
        !flush && !busy && sink_room[slot];

    sink_stag = {4'hF, serial[slot], 8'd0};

    job = '0;
    job.stream = context_now.stream;
    job.peer = context_now.peer;
    job.qp = context_now.peer_qp;
    job.pd = context_now.pd;
    job.sge0 = sge0;
    job.sge1 = sge1;
    job.length = is_inline ? '0 : total[31:0];
    if (is_inline) begin
      job.body = {160'b0, now[511:256]};
      job.body_bytes = inline_bytes[5:0];
    end
    job.opcode = es_rnic_pkg::Write;
    job.stag = now[223:192];
    job.to = now[191:128];
    if (is_send) begin
      job.opcode = flags[2] ? es_rnic_pkg::SendSolicited : es_rnic_pkg::Send;
      job.untagged = 1'b1;
      job.stag = '0;
      job.to = {msn0[slot], 32'b0};
    end
    if (is_read) begin
      job.opcode = es_rnic_pkg::ReadRequest;
      job.untagged = 1'b1;
      job.qn = 32'd1;
      job.stag = '0;
      job.to = {msn1[slot], 32'b0};
      job.length = '0;
      job.body_bytes = 6'd28;
      job.body = {
        192'b0,
        es_rnic_pkg::be64(now[191:128]),
        es_rnic_pkg::be32(now[223:192]),
        es_rnic_pkg::be32(total[31:0]),
        64'b0,
        es_rnic_pkg::be32(sink_stag)
      };
    end
    early = job;
    late  = {job.body[223:96]};
    // What is not allowed, and is on its way, asks for nothing.
    if (status != '0) late[31:0] = '0;
    job_valid = go && !gone_early && status == '0 && opcode != es_rnic_pkg::WqeNothing;
    sends = go && (job_valid || gone_early);

    sink0 = sge0;
    sink1 = sge1;
    sink_length = total[31:0];
    sink_slot = slot;

    note_slot = slot;
    note_id = now[127:64];
    note_opcode = opcode;
    note_signaled = flags[0] || context_now.signal_all;
    note_bytes = total[31:0];
    note_message = message[slot] + 32'(sends);
    note_status = status;
    note_read = sends && is_read && status == '0;
  end
  assign wqe_taken  = go && (!job_valid || job_ready);
  assign sink_valid = wqe_taken && note_read;
  assign late_valid = wqe_taken && gone_early;
  assign note_valid = wqe_taken;

  always_ff @(posedge clk) begin
    job_failed <= done && busy && done_cause != es_rnic_pkg::Fine;
    if (done) busy <= 1'b0;
    if (early_valid && early_ready) gone_early <= 1'b1;
    if (done && busy && done_cause != es_rnic_pkg::Fine) broken[job_slot] <= 1'b1;
    if (note_valid && note_status != '0) broken[slot] <= 1'b1;
    if (enter_valid && enter_state == es_rnic_pkg::Reset) broken[enter_slot] <= 1'b0;
    if (wqe_taken) begin
      gone_early <= 1'b0;
      if (job_valid) begin
        busy <= 1'b1;
        job_slot <= slot;
      end
      if (sends) begin
        message[slot] <= message[slot] + 1'b1;
        if (is_send) msn0[slot] <= msn0[slot] + 1'b1;
        if (is_read) begin
          msn1[slot]   <= msn1[slot] + 1'b1;
          serial[slot] <= serial[slot] + 1'b1;
        end
      end
    end
    if (enter_valid && enter_state == es_rnic_pkg::Rtr) begin
      message[enter_slot] <= enter_first;
      msn0[enter_slot] <= 32'd1;
      msn1[enter_slot] <= 32'd1;
    end
    if (rst) begin
      busy <= 1'b0;
      gone_early <= 1'b0;
      broken <= '0;
      for (int i = 0; i < QPS; i++) serial[i] <= '0;
    end
  end

  assign enter_first = of_entering.first_sent;
  es_rnic_context #(
      .QPS(QPS)
  ) of_enter (
      .clk,
      .w_slot,
      .w_word,
      .w_data,
      .w_half,
      .w_valid,
      .slot (enter_slot),
      .entry(of_entering)
  );
endmodule
