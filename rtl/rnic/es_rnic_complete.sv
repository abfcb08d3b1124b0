// Completion Manager: keeps the WQEs that have begun, completes them in order as they are acknowledged or answered, and writes CQEs through the CMT.
//
// CQEs of receive WQEs come in beside (`receive`). A CQE is a write of 32 bytes (`m_cqe`); an interrupt goes out when it has been written (by its owner). A
// flag in our memory is a write of 8 bytes in front of it, whose place the Receive Module looks up (`look`).
module es_rnic_complete #(
    parameter int QPS   = 16,
    parameter int CQS   = 16,
    parameter int DEPTH = 16   // WQEs of a QP that have begun and are not complete, a power of two
) (
    input wire clk,
    input wire rst,

    // Host.
    input wire [$clog2(QPS)-1:0] w_slot,
    input wire [            2:0] w_word,
    input wire [           63:0] w_data,
    input wire [            1:0] w_half,
    input wire                   w_context,
    input wire                   w_cmt,
    input wire [$clog2(CQS)-1:0] w_cq,
    input wire [$clog2(CQS)-1:0] db_cq,
    input wire [           31:0] db_consumer,
    input wire                   db_arm,
    input wire                   db_valid,
    input wire [      4*QPS-1:0] states,
    input wire [$clog2(QPS)-1:0] enter_slot,
    input wire [            3:0] enter_state,
    input wire                   enter_valid,

    // WQEs that begin.
    input  wire                     [$clog2(QPS)-1:0] note_slot,
    input  wire                     [           63:0] note_id,
    input  wire                     [            7:0] note_opcode,
    input  wire                                       note_signaled,
    input  wire                     [           31:0] note_bytes,
    input  wire                     [           31:0] note_message,
    input  wire                     [            7:0] note_status,
    input  wire                                       note_read,
    input  wire                                       note_flags,
    input  wire                                       note_valid,
    output logic                    [        QPS-1:0] note_room,
    output logic                    [        QPS-1:0] reading,
    output logic                    [        QPS-1:0] unanswered,
    output logic                    [        QPS-1:0] under_way,         // WQEs of it have begun and are not complete
    // The WQE that began last fails; its flag block.
    input  wire                     [$clog2(QPS)-1:0] late_slot,
    input  wire                     [            7:0] late_status,
    input  wire                                       late_fails,
    input  wire                     [$clog2(QPS)-1:0] flags_slot,
    input  wire es_rnic_pkg::flag_t                   flags_local,
    input  wire                                       flags_has_local,
    input  wire                                       flags_has_remote,
    input  wire                                       flags_valid,
    // The oldest WQE fails: what the peer's Terminate says.
    input  wire                     [$clog2(QPS)-1:0] oldest_slot,
    input  wire                     [            7:0] oldest_status,
    input  wire                     [           15:0] oldest_cause,
    input  wire                                       oldest_valid,

    // All request messages before this one have been taken by the peer; a Read has been answered.
    input wire [$clog2(QPS)-1:0] ack_slot,
    input wire [           31:0] ack_message,
    input wire                   ack_valid,
    input wire [$clog2(QPS)-1:0] answer_slot,
    input wire                   answer_valid,

    input  wire es_rnic_pkg::token_t receive,
    input  wire                      receive_valid,
    output logic                     receive_ready,

    // Where a flag is: asked until it is answered.
    output logic [31:0] look_stag,
    output logic [63:0] look_to,
    output logic [15:0] look_pd,
    output logic        look,
    input  wire         looked,
    input  wire         looked_fine,
    input  wire  [63:0] looked_address,

    output logic [ 63:0] m_cqe_address,
    output logic [255:0] m_cqe_data,
    output logic         m_cqe_flag,     // it is a flag, in the lowest 8 bytes
    output logic         m_cqe_valid,
    input  wire          m_cqe_ready,
    output logic [ 15:0] m_irq_vector,   // in the clock of the CQE
    output logic         m_irq,

    // A QP's WQE failed: the QP goes to ERROR.
    output logic [$clog2(QPS)-1:0] fail_slot,
    output logic                   fail_valid,
    output logic [$clog2(QPS)-1:0] blameless_slot,  // it fails, and no WQE has begun that could tell it
    output logic                   blameless,
    output logic [$clog2(CQS)-1:0] overrun_cq,      // a CQ goes to OVERRUN
    output logic                   overrun_begins,
    output logic                   stat_lost,       // a CQE found its CQ full
    output logic                   stat_failed,     // a WQE failed
    output logic                   stat_flushed,
    output logic                   stat_not_ready,  // an Acknowledge that says so
    output logic                   stat_odd         // an Acknowledge of what was not sent, or before the last one
);
  localparam int QW = $clog2(QPS);
  localparam int DW = $clog2(DEPTH);
  localparam int CW = $clog2(CQS);

  typedef struct packed {
    logic [63:0] id;
    logic [31:0] message;
    logic [31:0] bytes;
    logic [7:0]  status;
    logic [7:0]  opcode;
    logic        flags;
    logic        read;
    logic        signaled;
  } begun_t;
  typedef struct packed {
    es_rnic_pkg::flag_t local_flag;
    logic               has_local;
    logic               has_remote;
  } flags_t;

  // ---- WQEs that have begun --------------------------------------------------------------------------------------------------------------

  begun_t begun[QPS*DEPTH];
  begun_t oldest;
  logic oldest_there;
  flags_t flags[QPS*DEPTH];  // of WQEs that have a flag block
  flags_t flags_oldest;
  logic [DW-1:0] flags_at;
  logic flags_came;
  logic [QW-1:0] flags_came_slot;
  logic [QPS-1:0] flags_come;  // those of the newest WQE are not here
  logic [DW:0] tail[QPS];
  logic [DW:0] head[QPS];
  logic [7:0] reads_under_way[QPS];
  logic [7:0] reads_answered[QPS];
  logic [31:0] acknowledged[QPS];
  logic [31:0] sent[QPS];
  // A failure that came after the WQE had begun: its place, and the status.
  logic [QPS-1:0] failing;
  logic [QPS-1:0] broken;  // a WQE has failed: all behind it are flushed
  logic [DW-1:0] failing_at[QPS];
  logic [7:0] failing_status[QPS];
  // The oldest that is not complete fails, by what the peer says.
  logic [QPS-1:0] refused;
  logic [7:0] refused_status[QPS];
  logic [15:0] refused_cause[QPS];
  logic [QPS-1:0] check, granted;
  logic [QW-1:0] pick, slot;

  for (genvar i = 0; i < QPS; i++) begin : gen_room
    assign note_room[i] = (tail[i] - head[i]) < (DW + 1)'(DEPTH - 1);
    assign reading[i] = reads_under_way[i] != '0;
    assign under_way[i] = tail[i] != head[i];
    assign unanswered[i] = reads_under_way[i] != reads_answered[i];
  end

  typedef enum logic [2:0] {
    Idle,
    Read,
    Weigh,   // its last message against the last number that was acknowledged
    Decide,
    Look,    // for the place of a flag
    Store,   // the flag
    Forget,  // the answer for a QP that went to RESET
    Write
  } state_t;
  state_t state;

  es_arbiter #(
      .N(QPS)
  ) next (
      .clk,
      .rst,
      .request(check),
      .grant  (granted),
      .index  (pick),
      .taken  (state == Idle)
  );


  es_rnic_pkg::context_t context_now, context_receive, of_entering;
  logic [31:0] enter_first;
  logic flushing, covered, complete, fails, is_refused, has_flags, resets;
  logic [31:0] taken_before;  // the number that was acknowledged last
  logic reached, passed;  // all of its messages were acknowledged, but for a flag; and one more
  logic [63:0] place;  // of a flag
  logic [ 7:0] status;
  logic [255:0] cqe_send, cqe_receive;
  logic send_ready;

  es_rnic_context #(
      .QPS(QPS)
  ) of_now (
      .clk,
      .w_slot,
      .w_word,
      .w_data,
      .w_half,
      .w_valid(w_context),
      .slot,
      .entry  (context_now)
  );
  es_rnic_context #(
      .QPS(QPS)
  ) of_receive (
      .clk,
      .w_slot,
      .w_word,
      .w_data,
      .w_half,
      .w_valid(w_context),
      .slot(receive.slot[QW-1:0]),
      .entry(context_receive)
  );

  always_comb begin
    flushing = states[4*slot+:4] == es_rnic_pkg::Error || states[4*slot+:4] == es_rnic_pkg::Reset;
    // What was acknowledged is complete, also in ERROR.
    has_flags = oldest.flags && !(flags_come[slot] && head[slot] + 1'b1 == tail[slot]);
    covered = (has_flags && flags_oldest.has_remote ? passed : reached) && (!oldest.read || reads_answered[slot] != '0);
    covered = covered && has_flags == oldest.flags && oldest.status == '0 && !broken[slot];
    fails = failing[slot] && failing_at[slot] == head[slot][DW-1:0];
    is_refused = refused[slot] && !covered && !fails && oldest.status == '0 && !broken[slot];
    complete = oldest_there && ((covered && !fails) || oldest.status != '0 || fails || is_refused || flushing || broken[slot]);
    if (fails) status = failing_status[slot];
    else if (oldest.status != '0) status = oldest.status;
    else if (is_refused) status = refused_status[slot];
    else status = covered ? 8'd0 : 8'd5;
    cqe_send = '0;
    cqe_send[63:0] = oldest.id;
    cqe_send[71:64] = status;
    cqe_send[79:72] = oldest.opcode;
    cqe_send[111:96] = context_now.number;
    cqe_send[159:128] = status == '0 ? oldest.bytes : '0;
    if (is_refused) cqe_send[239:224] = refused_cause[slot];
    cqe_receive = '0;
    cqe_receive[63:0] = receive.wr_id;
    cqe_receive[71:64] = receive.status;
    cqe_receive[79:72] = 8'h80;
    cqe_receive[81] = receive.invalidated;
    cqe_receive[111:96] = context_receive.number;
    cqe_receive[159:128] = receive.bytes;
    cqe_receive[191:160] = receive.immediate;
  end

  always_ff @(posedge clk) begin
    if (note_valid) begin
      begun[{
        note_slot, tail[note_slot][DW-1:0]
      }] <= {
        note_id, note_message, note_bytes, note_status, note_opcode, note_flags, note_read, note_signaled
      };
    end
    // Kept until it goes, so that it is the one that was weighed: one that begins meanwhile has the QP looked at again.
    if (state == Read) begin
      oldest <= begun[{slot, head[slot][DW-1:0]}];
      oldest_there <= under_way[slot];
    end
    if (flags_valid) flags[{flags_slot, flags_at}] <= {flags_local, flags_has_local, flags_has_remote};
    flags_oldest <= flags[{slot, head[slot][DW-1:0]}];
    // What is acknowledged meanwhile has the QP looked at again.
    taken_before <= acknowledged[slot];
    reached <= taken_before - oldest.message < 32'h8000_0000;
    passed <= taken_before - oldest.message < 32'h8000_0000 && taken_before != oldest.message;
  end
  assign flags_at = tail[flags_slot][DW-1:0] - 1'b1;
  assign look_stag = flags_oldest.local_flag.stag;
  assign look_to = flags_oldest.local_flag.to;
  assign look_pd = context_now.pd;
  assign look = state == Look || state == Forget;
  assign resets = enter_valid && enter_state == es_rnic_pkg::Reset && enter_slot == slot;

  logic ack_fits;
  assign ack_fits = ack_message - acknowledged[ack_slot] < 32'h8000_0000 && sent[ack_slot] - ack_message < 32'h8000_0000;

  logic step;  // the oldest WQE of `slot` goes
  logic stores, told;  // it has a flag to be stored; it makes a CQE
  assign stores = has_flags && flags_oldest.has_local && status == '0;
  assign told = oldest.signaled || status != '0;
  assign step = (state == Decide && complete && !told && !stores) ||
      (state == Store && send_ready && !told) || (state == Write && send_ready);

  always_ff @(posedge clk) begin
    fail_valid <= 1'b0;
    case (state)
      Idle:
      if (|granted) begin
        slot  <= pick;
        check <= check & ~granted;
        state <= Read;
      end
      Read: state <= Weigh;
      Weigh: state <= Decide;
      Decide:
      if (!complete) state <= Idle;
      else if (stores) state <= Look;
      else if (told) state <= Write;
      else state <= Read;
      // A flag that has no place, or none that 8 bytes can be stored to at once, fails the WQE.
      Look:
      if (looked) begin
        place <= looked_address;
        state <= looked_fine && looked_address[2:0] == '0 ? Store : Decide;
        if (!(looked_fine && looked_address[2:0] == '0)) begin
          failing[slot] <= 1'b1;
          failing_at[slot] <= head[slot][DW-1:0];
          failing_status[slot] <= 8'd4;
        end
      end
      Store: if (send_ready) state <= told ? Write : Read;
      Forget: if (looked) state <= Idle;
      default: if (send_ready) state <= Read;
    endcase
    // Nothing more is told of a QP that goes to RESET.
    if (resets && state != Idle) state <= (state == Look || state == Forget) && !looked ? Forget : Idle;
    if (step) begin
      head[slot] <= head[slot] + 1'b1;
      if (oldest.read) begin
        if (reads_answered[slot] != '0) reads_answered[slot] <= reads_answered[slot] - 1'b1;
        if (!(note_valid && note_read && note_slot == slot)) reads_under_way[slot] <= reads_under_way[slot] - 1'b1;
      end
      if (fails) failing[slot] <= 1'b0;
      if (is_refused) refused[slot] <= 1'b0;
      if (status != '0) broken[slot] <= 1'b1;
      if (status != '0 && status != 8'd5) begin
        fail_valid <= 1'b1;
        fail_slot  <= slot;
      end
    end
    if (note_valid) begin
      tail[note_slot] <= tail[note_slot] + 1'b1;
      if (note_read && !(step && oldest.read && note_slot == slot)) reads_under_way[note_slot] <= reads_under_way[note_slot] + 1'b1;
      check[note_slot] <= 1'b1;
      sent[note_slot]  <= note_message;
    end
    // A clock later they can be read.
    flags_came <= flags_valid;
    flags_came_slot <= flags_slot;
    if (flags_came) begin
      flags_come[flags_came_slot] <= 1'b0;
      check[flags_came_slot] <= 1'b1;
    end
    if (note_valid) flags_come[note_slot] <= note_flags;
    if (flags_valid) begin
      sent[flags_slot] <= sent[flags_slot] + 32'(flags_has_remote);
    end
    if (late_fails) begin
      failing[late_slot] <= 1'b1;
      failing_at[late_slot] <= tail[late_slot][DW-1:0] - 1'b1;
      failing_status[late_slot] <= late_status;
      check[late_slot] <= 1'b1;
    end
    // Whom it would be of is complete already.
    blameless <= state == Decide && !under_way[slot] && refused[slot] && !rst;
    blameless_slot <= slot;
    if (state == Decide && !under_way[slot]) refused[slot] <= 1'b0;
    // Not ready comes with a number, as an Acknowledge does.
    if (oldest_valid && (!ack_valid || ack_fits)) begin
      refused[oldest_slot] <= 1'b1;
      refused_status[oldest_slot] <= oldest_status;
      refused_cause[oldest_slot] <= oldest_cause;
      check[oldest_slot] <= 1'b1;
    end
    // A number before the last one known, or beyond what was sent, is none.
    stat_odd <= ack_valid && !ack_fits;
    stat_not_ready <= ack_valid && ack_fits && oldest_valid;
    if (ack_valid && ack_fits) begin
      acknowledged[ack_slot] <= ack_message;
      check[ack_slot] <= 1'b1;
    end
    if (answer_valid) begin
      reads_answered[answer_slot] <= reads_answered[answer_slot] + 8'(!(step && oldest.read && answer_slot == slot));
      check[answer_slot] <= 1'b1;
    end
    if (enter_valid) begin
      check[enter_slot] <= 1'b1;
      if (enter_state == es_rnic_pkg::Reset) begin
        head[enter_slot] <= '0;
        tail[enter_slot] <= '0;
        reads_under_way[enter_slot] <= '0;
        reads_answered[enter_slot] <= '0;
        failing[enter_slot] <= 1'b0;
        refused[enter_slot] <= 1'b0;
        broken[enter_slot] <= 1'b0;
        check[enter_slot] <= 1'b0;
      end
      if (enter_state == es_rnic_pkg::Rtr) begin
        acknowledged[enter_slot] <= enter_first;
        sent[enter_slot] <= enter_first;
      end
    end
    if (rst) begin
      state <= Idle;
      check <= '0;
      flags_came <= 1'b0;
      failing <= '0;
      refused <= '0;
      broken <= '0;
      fail_valid <= 1'b0;
      for (int i = 0; i < QPS; i++) begin
        head[i] <= '0;
        tail[i] <= '0;
        reads_under_way[i] <= '0;
        reads_answered[i] <= '0;
      end
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
      .w_valid(w_context),
      .slot(enter_slot),
      .entry(of_entering)
  );

  // ---- CQs -------------------------------------------------------------------------------------------------------------------------------

  logic [63:0] ring[CQS];
  logic [31:0] setting[CQS];
  logic [31:0] producer[CQS];
  logic [31:0] consumer[CQS];
  logic [CQS-1:0] armed, overrun;
  logic [CW-1:0] cq;
  logic from_receive, offered, free;
  logic [255:0] offer, cqe;

  // A CQE takes three clocks: what it says, how its CQ stands, whether there is room.
  logic cqe_there, cqe_weighed;
  logic set, full;
  logic [31:0] produced, used, size;
  logic [63:0] base;

  assign from_receive = receive_valid && state != Write && state != Store;
  assign offer = from_receive ? cqe_receive : cqe_send;
  assign offered = from_receive || (state == Write && !resets);
  assign free = !cqe_there && !cqe_weighed && (!m_cqe_valid || m_cqe_ready);
  assign send_ready = (state == Write || state == Store) && free && !resets;
  assign receive_ready = state != Write && state != Store && free;
  assign full = used >= size || overrun[cq] || !set;

  always_ff @(posedge clk) begin
    if (free) begin
      cqe <= offer;
      cq  <= CW'(from_receive ? context_receive.rq_cq : context_now.sq_cq);
    end
    produced <= producer[cq];
    used <= producer[cq] - consumer[cq];
    size <= 32'd1 << setting[cq][12:8];
    set <= setting[cq][0];
    base <= ring[cq];
  end

  always_ff @(posedge clk) begin
    cqe_there <= offered && free;
    cqe_weighed <= cqe_there;
    stat_lost <= 1'b0;
    overrun_begins <= 1'b0;
    overrun_cq <= cq;
    stat_failed <= offered && free && offer[71:64] != '0 && offer[71:64] != 8'd5;
    stat_flushed <= offered && free && offer[71:64] == 8'd5;
    if (m_cqe_ready) begin
      m_cqe_valid <= 1'b0;
      m_irq <= 1'b0;
    end
    if (state == Store && send_ready) begin
      m_cqe_valid <= 1'b1;
      m_cqe_address <= place;
      m_cqe_data <= 256'(flags_oldest.local_flag.value);
      m_cqe_flag <= 1'b1;
    end
    if (cqe_weighed) begin
      m_cqe_flag <= 1'b0;
      if (full) begin
        stat_lost <= 1'b1;
        overrun[cq] <= set;
        overrun_begins <= set && !overrun[cq];
      end else begin
        m_cqe_valid <= 1'b1;
        m_cqe_address <= base + {27'b0, produced & (size - 1'b1), 5'b0};
        m_cqe_data <= cqe;
        // PHASE: 1 in the first lap.
        m_cqe_data[87] <= (produced & size) == '0;
        m_irq <= armed[cq];
        m_irq_vector <= setting[cq][31:16];
        armed[cq] <= 1'b0;
        producer[cq] <= produced + 1'b1;
      end
    end
    if (db_valid) begin
      consumer[db_cq] <= db_consumer;
      if (db_arm) armed[db_cq] <= 1'b1;
    end
    if (w_cmt && w_word == 3'd0 && w_half[0]) begin
      setting[w_cq] <= w_data[31:0];
      if (!w_data[0]) begin
        producer[w_cq] <= '0;
        consumer[w_cq] <= '0;
        overrun[w_cq] <= 1'b0;
        armed[w_cq] <= 1'b0;
      end
    end
    if (w_cmt && w_word == 3'd1) begin
      if (w_half[0]) ring[w_cq][31:0] <= w_data[31:0];
      if (w_half[1]) ring[w_cq][63:32] <= w_data[63:32];
    end
    if (rst) begin
      cqe_there <= 1'b0;
      cqe_weighed <= 1'b0;
      m_cqe_valid <= 1'b0;
      m_irq <= 1'b0;
      armed <= '0;
      overrun <= '0;
      for (int i = 0; i < CQS; i++) begin
        producer[i] <= '0;
        consumer[i] <= '0;
        setting[i]  <= '0;
      end
    end
  end
endmodule
