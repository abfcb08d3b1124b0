// Work Acceptor: takes WQEs as es_rnic_fetch reads them, checks them and hands messages to the segment generator.
//
// The next WQE is read while the one before is sent. Each WQE that begins is told to the Completion Manager (`note`). Behind its first block come rows:
// inline data, which go to the segment generator, and the flag block of PUSH and PULL. The flag in the peer's memory is a message of its own behind the WQE's
// (`parked`), of a PULL when its data are here; until then no other WQE of the QP begins.
module es_rnic_requester #(
    parameter int QPS = 16
) (
    input wire clk,
    input wire rst,

    // Host: contexts, states.
    input wire [$clog2(QPS)-1:0] w_slot,
    input wire [            2:0] w_word,
    input wire [           63:0] w_data,
    input wire [            1:0] w_half,
    input wire                   w_valid,
    input wire [      4*QPS-1:0] states,
    input wire [        QPS-1:0] gone,         // of each QP: its peer was lost
    input wire [$clog2(QPS)-1:0] enter_slot,   // a QP goes to a state
    input wire [            3:0] enter_state,
    input wire                   enter_valid,

    // WQEs, as es_rnic_fetch reads them, with their further blocks.
    output logic                   [QPS-1:0] may_fetch,      // of each QP: there is room for what begins
    input  wire es_rnic_pkg::wqe_t           next,
    output logic                             next_taken,
    input  wire                    [  511:0] further,
    input  wire                              further_valid,
    output logic                             further_ready,

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
    // Rows of inline data behind the body of a job.
    output logic              [511:0] tail_data,
    output logic                      tail_valid,
    input  wire                       tail_ready,

    // To the Completion Manager: a WQE has begun.
    output logic               [$clog2(QPS)-1:0] note_slot,
    output logic               [           63:0] note_id,
    output logic               [            7:0] note_opcode,
    output logic                                 note_signaled,
    output logic               [           31:0] note_bytes,
    output logic               [           31:0] note_message,      // the number of the message behind its last
    output logic               [            7:0] note_status,       // not 0: it fails
    output logic                                 note_read,         // its answer is awaited
    output logic                                 note_flags,        // its flag block will come
    output logic                                 note_valid,
    input  wire                [        QPS-1:0] note_room,         // of each QP
    input  wire                [        QPS-1:0] reading,           // Reads of the QP are under way
    input  wire                [        QPS-1:0] unanswered,        // some of these have not all of their data
    // Of the WQE begun last: it fails; its flag block.
    output logic               [$clog2(QPS)-1:0] late_slot,
    output logic               [            7:0] late_status,
    output logic                                 late_fails,
    output logic               [$clog2(QPS)-1:0] flags_slot,
    output es_rnic_pkg::flag_t                   flags_local,
    output logic                                 flags_has_local,
    output logic                                 flags_has_remote,
    output logic                                 flags_valid,

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

  es_rnic_pkg::context_t context_now, of_entering;
  logic [  31:0] enter_first;

  // ---- WQEs ------------------------------------------------------------------------------------------------------------------------------

  logic [ 511:0] now;
  logic [QW-1:0] slot;
  logic now_valid, now_begins, now_cut, now_void, wqe_taken;
  logic [QPS-1:0] parked;
  assign now = next.block;
  assign slot = next.slot[QW-1:0];
  assign now_valid = next.valid;
  assign now_begins = next.begins;
  assign now_cut = next.cut;
  assign now_void = next.is_void;
  assign next_taken = wqe_taken;
  assign may_fetch = note_room & ~parked;

  // ---- WQEs to messages ------------------------------------------------------------------------------------------------------------------

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
  logic sends, starts, free, gone_early;  // its Read Request has begun to leave
  logic busy;  // a job is with the segment generator
  logic [7:0] blocks;  // that it should have
  logic posting;  // rows of the WQE begun last come
  logic flag_go;  // a flag for the peer's memory leaves
  logic [QW-1:0] flag_slot, job_slot;
  es_rnic_pkg::flag_t flag_now;

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
      .slot (flag_go ? flag_slot : slot),
      .entry(context_now)
  );

  always_comb begin
    sge0 = now[383:256];
    sge1 = now[511:384];
    if (sges < 8'd1) sge0.length = '0;
    if (sges < 8'd2) sge1.length = '0;
    is_inline = flags[3];
    is_write = opcode == es_rnic_pkg::WqeWrite;
    is_send = opcode == es_rnic_pkg::WqeSend || opcode == es_rnic_pkg::WqeSendInvalidate;
    is_read = opcode == es_rnic_pkg::WqeRead;
    total = is_inline ? {1'b0, inline_bytes} : {1'b0, sge0.length} + {1'b0, sge1.length};
    // 32 bytes, or two SGEs, in the first block; 64 bytes in each further one; the flag block.
    blocks = 8'd1 + 8'(flags[4]) + (is_inline && inline_bytes > 32'd32 ? 8'((inline_bytes[8:0] + 9'd31) >> 6) : '0);
    allowed = (is_write || is_send || is_read || opcode == es_rnic_pkg::WqeNothing) && !now_cut && now[23:16] == blocks && sges <= 8'd2 &&
        flags[7:5] == '0 && !(opcode == es_rnic_pkg::WqeNothing && (flags[4] || sges != '0)) &&
        (!is_inline || ((is_write || is_send) && sges == '0 && inline_bytes <= 32'(es_rnic_pkg::InlineBytes)));
    // In SQD what was fetched before has begun.
    flush = (states[4*slot+:4] != es_rnic_pkg::Rts && states[4*slot+:4] != es_rnic_pkg::Sqd) || broken[slot];
    status = flush ? 8'd5 : gone[slot] ? 8'd12 : !allowed ? 8'd2 : total > 33'h8000_0000 ? 8'd1 : 8'd0;
    // Behind a fence, and with the ORRQ full, a WQE waits. No other begins before it.
    may_begin = status != '0 || ((!flags[1] || !reading[slot]) && (!is_read || sink_room[slot]) && !parked[slot]);
    go = now_valid && (now_void || free) && !flag_go && !posting && (may_begin || gone_early || now_void);
    early_valid = now_begins && !gone_early && is_read && allowed && sges <= 8'd1 && !flags[1] && !flush && !gone[slot] && !now_void &&
        free && !flag_go && !posting && sink_room[slot] && !parked[slot];

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
      job.body_bytes = inline_bytes > 32'd32 ? 6'd32 : inline_bytes[5:0];
      job.tail_bytes = inline_bytes > 32'd32 ? inline_bytes[8:0] - 9'd32 : '0;
    end
    job.opcode = es_rnic_pkg::Write;
    job.stag = now[223:192];
    job.to = now[191:128];
    if (is_send) begin
      job.opcode = flags[2] ? es_rnic_pkg::SendSolicited : es_rnic_pkg::Send;
      job.untagged = 1'b1;
      job.stag = '0;
      if (opcode == es_rnic_pkg::WqeSendInvalidate) begin
        job.opcode = flags[2] ? es_rnic_pkg::SendSolicitedInvalidate : es_rnic_pkg::SendInvalidate;
        job.stag   = now[255:224];
      end
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
    starts = go && !now_void && !gone_early && status == '0 && opcode != es_rnic_pkg::WqeNothing;
    sends  = starts || (go && gone_early);
    // The flag in the peer's memory: a Write of its own.
    if (flag_go) begin
      job.opcode = es_rnic_pkg::Write;
      job.untagged = 1'b0;
      job.qn = '0;
      job.stag = flag_now.stag;
      job.to = flag_now.to;
      job.length = '0;
      job.body = 416'(flag_now.value);
      job.body_bytes = 6'd8;
      job.tail_bytes = '0;
    end
    job_valid = starts || flag_go;

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
    note_flags = flags[4] && status == '0;
  end
  assign wqe_taken = go && (!starts || job_ready);
  assign sink_valid = wqe_taken && note_read && !now_void;
  assign late_valid = wqe_taken && gone_early;
  assign note_valid = wqe_taken && !now_void;
  // One job at a time, so that the one begun last is known.
  assign free = !busy || (done && done_cause == es_rnic_pkg::Fine);

  always_ff @(posedge clk) begin
    if (done) busy <= 1'b0;
    if (early_valid && early_ready) gone_early <= 1'b1;
    if (done && busy && done_cause != es_rnic_pkg::Fine) broken[job_slot] <= 1'b1;
    if (note_valid && note_status != '0) broken[slot] <= 1'b1;
    if (enter_valid && enter_state == es_rnic_pkg::Reset) broken[enter_slot] <= 1'b0;
    if (wqe_taken) begin
      gone_early <= 1'b0;
      if (starts) begin
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
    if (flag_go && job_ready) begin
      busy <= 1'b1;
      job_slot <= flag_slot;
    end
    if (flags_valid && flags_has_remote) message[flags_slot] <= message[flags_slot] + 1'b1;
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

  // ---- further blocks --------------------------------------------------------------------------------------------------------------------

  logic [3:0] rows_left;
  logic rows_inline, rows_flags;  // what they are; neither: of a WQE that failed
  logic is_flag_row, flag_bad, flags_pull;
  logic [QPS-1:0] pulls, sending, flag_wants;
  es_rnic_pkg::flag_t remote[QPS];

  assign is_flag_row = rows_flags && rows_left == 4'd1;
  assign tail_data = further;
  assign tail_valid = posting && further_valid && rows_inline && !is_flag_row;
  assign further_ready = posting && (!tail_valid || tail_ready);

  always_ff @(posedge clk) begin
    if (further_valid && further_ready) begin
      rows_left <= rows_left - 1'b1;
      if (rows_left == 4'd1) posting <= 1'b0;
    end
    if (wqe_taken && !now_cut && now[19:16] != 4'd1) begin
      posting <= 1'b1;
      rows_left <= now[19:16] - 1'b1;
      rows_inline <= is_inline && status == '0 && !now_void;
      rows_flags <= note_flags && !now_void;
      flags_slot <= slot;
      flags_pull <= is_read;
    end
    if (rst) posting <= 1'b0;
  end

  assign flags_local = {further[191:128], further[127:64], further[63:32]};
  assign flags_valid = further_valid && further_ready && is_flag_row;
  assign flag_bad = (further[0] && further[66:64] != '0) || (further[1] && further[258:256] != '0);
  assign flags_has_local = further[0] && !flag_bad;
  assign flags_has_remote = further[1] && !flag_bad;

  always_comb begin
    late_fails  = 1'b0;
    late_slot   = job_slot;
    late_status = 8'd4;
    if (done && busy && done_cause != es_rnic_pkg::Fine) late_fails = 1'b1;
    else if (flags_valid && flag_bad) begin
      late_fails  = 1'b1;
      late_slot   = flags_slot;
      late_status = 8'd2;
    end
  end

  for (genvar i = 0; i < QPS; i++) begin : gen_sending
    assign sending[i] = (states[4*i+:4] == es_rnic_pkg::Rts || states[4*i+:4] == es_rnic_pkg::Sqd) && !broken[i];
  end
  // Flags that wait leave one after the other, before the next WQE begins.
  assign flag_wants = parked & sending & ~(pulls & unanswered);
  always_comb begin
    flag_slot = '0;
    for (int i = QPS - 1; i >= 0; i--) if (flag_wants[i]) flag_slot = QW'(i);
  end
  assign flag_now = remote[flag_slot];
  assign flag_go  = |flag_wants && free && !gone_early && !posting;

  always_ff @(posedge clk) begin
    parked <= parked & sending;
    if (flag_go && job_ready) parked[flag_slot] <= 1'b0;
    if (flags_valid && flags_has_remote) begin
      parked[flags_slot] <= 1'b1;
      pulls[flags_slot]  <= flags_pull;
      remote[flags_slot] <= {further[383:320], further[319:256], further[223:192]};
    end
    if (rst) parked <= '0;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      // A WQE begins alone: its job and its rows are those that come next.
      one_at_a_time : assert (!(wqe_taken && (posting || flag_go)));
      a_flag_is_the_last_row : assert (!flags_valid || rows_left == 4'd1);
      nothing_begins_behind_a_flag : assert (!(note_valid && sends && parked[note_slot]));
    end
  end
`endif

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
