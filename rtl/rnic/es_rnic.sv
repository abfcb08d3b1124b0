// The RNIC core (docs/rnic.md): Host Interface, QP Functions, Completion Manager, Send Module and Receive Module.
//
// Host: AXI-Lite for registers and tables; AXI for memory: `d` reads data, `q` reads WQEs, `w` writes. Link: segments as records of a session, each with its
// length and peer beside its bytes (s_seg, m_seg). QPs of service RC; two SGEs of a send, three of a receive WQE, 480 inline bytes, flags; on-the-fly
// windows.
module es_rnic #(
    parameter int DATA_W = 64,    // bits of a beat, to the link and to memory: 64, 128, 256 or 512
    parameter int QPS    = 16,    // QPs, a power of two
    parameter int CQS    = 16,    // completion queues, a power of two
    parameter int STAGS  = 256,   // entries of the SMT, a power of two
    parameter int PBLS   = 4096,  // entries of the PBLMT, a power of two
    parameter int READS  = 4,     // Reads of a QP under way, each way
    parameter int BEGUN  = 16     // WQEs of a QP that have begun and are not complete
) (
    input wire clk,
    input wire rst,

    input wire [13:0] segment_bytes,  // most data of a segment, a multiple of 8, at least 480

    // The session with a peer is no more: asked until it is done.
    input  wire  [15:0] lost_peer,
    input  wire         lost_valid,
    output logic        lost_ready,

    input  wire  [24:0] s_axil_awaddr,
    input  wire         s_axil_awvalid,
    output logic        s_axil_awready,
    input  wire  [63:0] s_axil_wdata,
    input  wire  [ 7:0] s_axil_wstrb,
    input  wire         s_axil_wvalid,
    output logic        s_axil_wready,
    output logic [ 1:0] s_axil_bresp,
    output logic        s_axil_bvalid,
    input  wire         s_axil_bready,
    input  wire  [24:0] s_axil_araddr,
    input  wire         s_axil_arvalid,
    output logic        s_axil_arready,
    output logic [63:0] s_axil_rdata,
    output logic [ 1:0] s_axil_rresp,
    output logic        s_axil_rvalid,
    input  wire         s_axil_rready,

    output logic [        63:0] m_axi_d_araddr,
    output logic [         7:0] m_axi_d_arlen,
    output logic                m_axi_d_arvalid,
    input  wire                 m_axi_d_arready,
    input  wire  [  DATA_W-1:0] m_axi_d_rdata,
    input  wire                 m_axi_d_rvalid,
    output logic                m_axi_d_rready,
    output logic [        63:0] m_axi_q_araddr,
    output logic [         7:0] m_axi_q_arlen,
    output logic                m_axi_q_arvalid,
    input  wire                 m_axi_q_arready,
    input  wire  [  DATA_W-1:0] m_axi_q_rdata,
    input  wire                 m_axi_q_rlast,
    input  wire                 m_axi_q_rvalid,
    output logic                m_axi_q_rready,
    output logic [        63:0] m_axi_w_awaddr,
    output logic [         7:0] m_axi_w_awlen,
    output logic [         1:0] m_axi_w_awburst,
    output logic                m_axi_w_awvalid,
    input  wire                 m_axi_w_awready,
    output logic [  DATA_W-1:0] m_axi_w_wdata,
    output logic [DATA_W/8-1:0] m_axi_w_wstrb,
    output logic                m_axi_w_wlast,
    output logic                m_axi_w_wvalid,
    input  wire                 m_axi_w_wready,
    input  wire                 m_axi_w_bvalid,
    output logic                m_axi_w_bready,

    output logic [15:0] irq_vector,
    output logic        irq_valid,

    output logic [        15:0] m_seg_length,
    output logic [        15:0] m_seg_peer,
    output logic [        15:0] m_seg_stream,
    output logic                m_seg_valid,
    input  wire                 m_seg_ready,
    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready,

    input  wire  [        15:0] s_seg_length,
    input  wire  [        15:0] s_seg_peer,
    input  wire                 s_seg_valid,
    output logic                s_seg_ready,
    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready
);
  localparam int QW = $clog2(QPS);
  localparam int CW = $clog2(CQS);

  if (QPS < 2 || (1 << QW) != QPS || CQS < 2 || (1 << CW) != CQS || (1 << $clog2(
          READS
      )) != READS || (1 << $clog2(
          BEGUN
      )) != BEGUN) begin : gen_check
    $error("es_rnic: QPS, CQS, READS or BEGUN is not a power of two");
  end
  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) begin : gen_check_width
    $error("es_rnic: DATA_W is not 64, 128, 256 or 512");
  end

  // ---- Host Interface --------------------------------------------------------------------------------------------------------------------

  logic w_smt, w_pbl, w_cmt, w_context, w_head;
  logic [22:0] w_address;
  logic [63:0] w_data;
  logic [ 1:0] w_half;
  logic [QW-1:0] w_slot, db_slot, enter_slot;
  logic [15:0] db_index;
  logic db_sq, db_rq, db_arm, db_cq_valid, enter_valid;
  logic [CW-1:0] db_cq;
  logic [31:0] db_consumer;
  logic [4*QPS-1:0] states;
  logic [3:0] enter_state, enter_from;
  logic [QW-1:0] fault_complete_slot, fault_receive_slot;
  logic fault_complete, fault_receive;
  logic [63:0] counters[37];
  logic [63:0] oldest_miss, miss_answer;
  logic miss_answered;

  logic [QW-1:0] page_slot, peek_slot, offer_slot, pick_slot;
  logic [11:3] page_at;
  logic [ 9:3] peek_at;
  logic [63:0] page_data, peek_data;
  logic [7:0] page_strb;
  logic page_offer, page_valid, page_hold, peek_ready, offer, direct, pick, first, row, more, stat_dropped;
  logic [15:0] posted[QPS];
  logic [15:0] sq_consumer[QPS];
  logic [15:0] rq_consumer[QPS];
  logic [15:0] dropped[QPS];
  logic [15:0] behind[QPS];
  logic [QPS-1:0] queued;
  logic [511:0] block;

  assign w_slot = w_address[8+:QW];
  assign w_head = w_context && w_address[7:6] == '0;

  logic [QW-1:0] blameless_slot, established_slot, violation_slot, gone_slot;
  logic [CW-1:0] overrun_cq;
  logic blameless, overrun_begins, established, violation, gone_idle, event_irq;
  logic [ 7:0] event_kind;
  logic [15:0] event_index;
  logic event_there, event_taken, fence_start, fence_waiting;

  es_rnic_host #(
      .QPS  (QPS),
      .CQS  (CQS),
      .STAGS(STAGS),
      .PBLS (PBLS),
      .READS(READS)
  ) host (
      .fault_slot0 (fault_complete_slot),
      .fault_valid0(fault_complete),
      .fault_slot1 (fault_receive_slot),
      .fault_valid1(fault_receive),
      .*
  );

  es_rnic_fly #(
      .QPS(QPS)
  ) fly (
      .s_slot (page_slot),
      .s_at   (page_at),
      .s_data (page_data),
      .s_strb (page_strb),
      .s_offer(page_offer),
      .s_valid(page_valid),
      .hold   (page_hold),
      .*
  );

  // ---- WQEs ------------------------------------------------------------------------------------------------------------------------------

  logic [63:0] sq_araddr, rq_araddr;
  logic sq_arvalid, sq_arready, sq_rvalid, rq_arvalid, rq_arready, rq_rvalid, rq_rready;
  logic [7:0] rq_arlen;

  es_rnic_read_share wqes (
      .clk,
      .rst,
      .s0_araddr    (sq_araddr),
      .s0_arvalid   (sq_arvalid),
      .s0_arready   (sq_arready),
      .s0_rvalid    (sq_rvalid),
      .s1_araddr    (rq_araddr),
      .s1_arvalid   (rq_arvalid),
      .s1_arready   (rq_arready),
      .s1_rvalid    (rq_rvalid),
      .m_axi_araddr (m_axi_q_araddr),
      .m_axi_arvalid(m_axi_q_arvalid),
      .m_axi_arready(m_axi_q_arready),
      .m_axi_rlast  (m_axi_q_rlast),
      .m_axi_rvalid (m_axi_q_rvalid)
  );

  // ---- QP Functions: SQ and ORRQ ---------------------------------------------------------------------------------------------------------

  es_rnic_pkg::wqe_t wqe;
  logic wqe_taken, further_valid, further_ready;
  logic [511:0] further;
  logic [QPS-1:0] may_fetch, holds, waits, under_way, gone;
  es_rnic_pkg::job_t early;
  logic early_valid, early_ready, late_valid;
  logic [127:0] late;
  es_rnic_pkg::job_t sq_job, read_job, job, urgent, answer;
  logic sq_job_valid, sq_job_ready, job_valid, job_ready, job_is_read, done, urgent_valid, urgent_ready, answer_valid, answer_ready;
  logic [2:0] done_cause;
  logic running_read;
  logic [QW-1:0] note_slot, sink_slot;
  logic [63:0] note_id;
  logic [7:0] note_opcode, note_status;
  logic note_signaled, note_read, note_flags, note_valid, sink_valid;
  logic [QW-1:0] late_slot, flags_slot;
  logic [7:0] late_status;
  logic late_fails, flags_has_local, flags_has_remote, flags_valid, tail_valid, tail_ready;
  es_rnic_pkg::flag_t flags_local;
  logic [511:0] tail_data;
  logic [31:0] note_bytes, note_message, sink_length, sink_stag;
  logic [QPS-1:0] note_room, reading, unanswered, sink_room;
  es_rnic_pkg::sge_t sink0, sink1;

  es_rnic_fetch #(
      .DATA_W(DATA_W),
      .QPS   (QPS)
  ) fetch (
      .db_valid     (db_sq),
      .w_word       (w_address[5:3]),
      .w_valid      (w_head),
      .fetched      (sq_consumer),
      .next         (wqe),
      .next_taken   (wqe_taken),
      .m_axi_araddr (sq_araddr),
      .m_axi_arlen  (m_axi_q_arlen),
      .m_axi_arvalid(sq_arvalid),
      .m_axi_arready(sq_arready),
      .m_axi_rdata  (m_axi_q_rdata),
      .m_axi_rvalid (sq_rvalid),
      .m_axi_rready (m_axi_q_rready),
      .*
  );
  es_rnic_requester #(
      .QPS(QPS)
  ) requester (
      .w_word    (w_address[5:3]),
      .w_valid   (w_head),
      .next      (wqe),
      .next_taken(wqe_taken),
      .job       (sq_job),
      .job_valid (sq_job_valid),
      .job_ready (sq_job_ready),
      .done      (done && !running_read),
      .*
  );

  // ---- Completion Manager ----------------------------------------------------------------------------------------------------------------

  es_rnic_pkg::token_t token;
  logic token_valid, token_ready, token_go, receive_ready;
  logic [QW-1:0] ack_slot, oldest_slot;
  logic [31:0] ack_message;
  logic ack_valid, oldest_valid;
  logic [  7:0] oldest_status;
  logic [ 15:0] oldest_cause;
  logic [ 63:0] cqe_address;
  logic [255:0] cqe_data;
  logic cqe_flag, cqe_valid, cqe_ready, cqe_irq, stat_lost, stat_failed, stat_flushed, stat_not_ready, stat_odd;
  logic [31:0] look_stag;
  logic [63:0] look_to, looked_address;
  logic [15:0] look_pd;
  logic look, looked, looked_fine;
  logic [15:0] cqe_vector;

  es_rnic_complete #(
      .QPS  (QPS),
      .CQS  (CQS),
      .DEPTH(BEGUN)
  ) completions (
      .clk,
      .rst,
      .w_slot,
      .w_word       (w_address[5:3]),
      .w_data,
      .w_half,
      .w_context    (w_head),
      .w_cmt,
      .w_cq         (w_address[6+:CW]),
      .db_cq,
      .db_consumer,
      .db_arm,
      .db_valid     (db_cq_valid),
      .answer_slot  (token.slot[QW-1:0]),
      .answer_valid (token_go && token.answer),
      .receive      (token),
      .receive_valid(token_valid && token.complete),
      .receive_ready,
      .m_cqe_address(cqe_address),
      .m_cqe_data   (cqe_data),
      .m_cqe_flag   (cqe_flag),
      .m_cqe_valid  (cqe_valid),
      .m_cqe_ready  (cqe_ready),
      .m_irq_vector (cqe_vector),
      .m_irq        (cqe_irq),
      .fail_slot    (fault_complete_slot),
      .fail_valid   (fault_complete),
      .*
  );
  assign token_ready = !token.complete || receive_ready;
  assign token_go = token_valid && token_ready;

  // ---- IRRQ: Reads of the peers, in the order in which they came -------------------------------------------------------------------------

  localparam int IW = 16 + 32 + 32 + 64 + 32 + 64;
  logic [QW-1:0] irrq_slot, served_slot;
  logic [15:0] irrq_slot_wide;
  logic [31:0] irrq_length, irrq_stag, irrq_sink_stag;
  logic [63:0] irrq_to, irrq_sink_to;
  logic irrq_valid, irrq_room, served_valid;
  es_rnic_pkg::context_t irrq_context;

  // Each QP has at most READS: there is room for all.
  es_fifo #(
      .WIDTH(IW),
      .DEPTH(QPS * READS)
  ) irrq (
      .clk,
      .rst,
      .s_data ({token.slot, token.length, token.source_stag, token.source_to, token.sink_stag, token.sink_to}),
      .s_valid(token_go && token.read),
      .s_ready(irrq_room),
      .m_data ({irrq_slot_wide, irrq_length, irrq_stag, irrq_to, irrq_sink_stag, irrq_sink_to}),
      .m_valid(irrq_valid),
      .m_ready(job_is_read && job_ready)
  );
  assign irrq_slot = irrq_slot_wide[QW-1:0];
  es_rnic_context #(
      .QPS(QPS)
  ) of_irrq (
      .clk,
      .w_slot,
      .w_word (w_address[5:3]),
      .w_data,
      .w_half,
      .w_valid(w_head),
      .slot   (irrq_slot),
      .entry  (irrq_context)
  );
  always_comb begin
    read_job = '0;
    read_job.stream = irrq_context.stream;
    read_job.peer = irrq_context.peer;
    read_job.qp = irrq_context.peer_qp;
    read_job.pd = irrq_context.pd;
    read_job.opcode = es_rnic_pkg::ReadResponse;
    read_job.stag = irrq_sink_stag;
    read_job.to = irrq_sink_to;
    read_job.length = irrq_length;
    read_job.sge0 = {irrq_length, irrq_stag, irrq_to};
    read_job.to_memory_rights = 1'b1;
  end

  // Responses and requests in turn.
  logic read_last;
  assign job_is_read = irrq_valid && (!sq_job_valid || !read_last);
  assign job = job_is_read ? read_job : sq_job;
  assign job_valid = irrq_valid || sq_job_valid;
  assign sq_job_ready = job_ready && !job_is_read;

  always_ff @(posedge clk) begin
    if (job_valid && job_ready) begin
      read_last <= job_is_read;
      running_read <= job_is_read;
      if (job_is_read) served_slot <= irrq_slot;
    end
    if (rst) read_last <= 1'b0;
  end
  assign served_valid = done && running_read;

  // ---- Acknowledge, Synchronise, Terminate -----------------------------------------------------------------------------------------------

  logic fail_told;
  logic [QW-1:0] asked_slot;
  logic [31:0] asked_message;
  logic asked_valid, stat_acknowledge;
  es_rnic_control #(
      .QPS(QPS)
  ) controls (
      .w_word       (w_address[5:3]),
      .w_valid      (w_head),
      .taken_slot   (token.slot[QW-1:0]),
      .taken_message(token.msn),
      .taken_valid  (token_go && token.acknowledge),
      .told_slot    (fault_receive_slot),
      .told_valid   (fault_receive && fail_told),
      .*
  );

  // ---- pages that are not there ----------------------------------------------------------------------------------------------------------

  logic [63:0] send_miss, receive_miss, served_miss;
  logic send_miss_valid, send_miss_ready, receive_miss_valid, receive_miss_ready, served, miss_irq, stat_miss;
  logic [15:0] write_vector;
  logic write_irq;
  es_rnic_miss misses (
      .s0_miss     (send_miss),
      .s0_valid    (send_miss_valid),
      .s0_ready    (send_miss_ready),
      .s1_miss     (receive_miss),
      .s1_valid    (receive_miss_valid),
      .s1_ready    (receive_miss_ready),
      .oldest      (oldest_miss),
      .answer      (miss_answer),
      .answer_valid(miss_answered),
      .irq         (miss_irq),
      .irq_ready   (!write_irq),
      .*
  );
  // Vector 0 tells of misses and events.
  assign irq_valid  = write_irq || miss_irq || event_irq;
  assign irq_vector = write_irq ? write_vector : '0;

  // ---- events ----------------------------------------------------------------------------------------------------------------------------

  es_rnic_events #(
      .QPS(QPS),
      .CQS(CQS)
  ) events (
      .at_work  (under_way | holds),
      .overrun  (overrun_begins),
      .gone     (gone_idle),
      .kind     (event_kind),
      .index    (event_index),
      .there    (event_there),
      .take     (event_taken),
      .irq      (event_irq),
      .irq_ready(!write_irq && !miss_irq),
      .*
  );

  logic stat_placed, send_free, send_asked, send_ended, receive_free, put_taken;
  logic [15:0] asked, answered;
  es_rnic_fence fence (
      .start  (fence_start),
      .waiting(fence_waiting),
      .put    (stat_placed),
      .*
  );

  // ---- Send Module -----------------------------------------------------------------------------------------------------------------------

  logic stat_sent;
  logic [13:0] stat_sent_bytes;
  es_rnic_segments #(
      .DATA_W(DATA_W),
      .STAGS (STAGS),
      .PBLS  (PBLS)
  ) sender (
      .m_axi_araddr (m_axi_d_araddr),
      .m_axi_arlen  (m_axi_d_arlen),
      .m_axi_arvalid(m_axi_d_arvalid),
      .m_axi_arready(m_axi_d_arready),
      .m_axi_rdata  (m_axi_d_rdata),
      .m_axi_rvalid (m_axi_d_rvalid),
      .m_axi_rready (m_axi_d_rready),
      .miss         (send_miss),
      .miss_valid   (send_miss_valid),
      .miss_ready   (send_miss_ready),
      .stat_segment (stat_sent),
      .stat_bytes   (stat_sent_bytes),
      .*
  );

  // ---- Receive Module --------------------------------------------------------------------------------------------------------------------

  logic [63:0] c_address;
  logic [15:0] c_bytes, stat_placed_bytes;
  es_rnic_pkg::token_t c_token;
  logic c_is_token, c_valid, c_ready, put_last, put_valid, put_ready;
  logic [  DATA_W-1:0] put_data;
  logic [DATA_W/8-1:0] put_strb;
  logic stat_segment, stat_message;
  logic [3:0] stat_drop;

  es_rnic_receive #(
      .DATA_W(DATA_W),
      .QPS   (QPS),
      .STAGS (STAGS),
      .PBLS  (PBLS),
      .READS (READS)
  ) receiver (
      .db_valid      (db_rq),
      .fetched       (rq_consumer),
      .miss          (receive_miss),
      .miss_valid    (receive_miss_valid),
      .miss_ready    (receive_miss_ready),
      .look_flag_stag(look_stag),
      .look_flag_to  (look_to),
      .look_flag_pd  (look_pd),
      .look_flag     (look),
      .m_axi_araddr  (rq_araddr),
      .m_axi_arlen   (rq_arlen),
      .m_axi_arvalid (rq_arvalid),
      .m_axi_arready (rq_arready),
      .m_axi_rdata   (m_axi_q_rdata),
      .m_axi_rvalid  (rq_rvalid),
      .m_axi_rready  (rq_rready),
      .m_data        (put_data),
      .m_strb        (put_strb),
      .m_last        (put_last),
      .m_valid       (put_valid),
      .m_ready       (put_ready),
      .fail_slot     (fault_receive_slot),
      .fail_valid    (fault_receive),
      .at_hand       (holds | waits),
      .*
  );

  es_rnic_write #(
      .DATA_W(DATA_W)
  ) writer (
      .irq_vector   (write_vector),
      .irq_valid    (write_irq),
      .s_data       (put_data),
      .s_strb       (put_strb),
      .s_last       (put_last),
      .s_valid      (put_valid),
      .s_ready      (put_ready),
      .m_axi_awaddr (m_axi_w_awaddr),
      .m_axi_awlen  (m_axi_w_awlen),
      .m_axi_awburst(m_axi_w_awburst),
      .m_axi_awvalid(m_axi_w_awvalid),
      .m_axi_awready(m_axi_w_awready),
      .m_axi_wdata  (m_axi_w_wdata),
      .m_axi_wstrb  (m_axi_w_wstrb),
      .m_axi_wlast  (m_axi_w_wlast),
      .m_axi_wvalid (m_axi_w_wvalid),
      .m_axi_wready (m_axi_w_wready),
      .m_axi_bvalid (m_axi_w_bvalid),
      .m_axi_bready (m_axi_w_bready),
      .*
  );

  // ---- counters (docs/rnic.md, 15) -------------------------------------------------------------------------------------------------------

  always_ff @(posedge clk) begin
    if (stat_sent) begin
      counters[0] <= counters[0] + 1'b1;
      counters[1] <= counters[1] + 64'(stat_sent_bytes);
    end
    if (stat_segment) counters[2] <= counters[2] + 1'b1;
    if (stat_placed) counters[3] <= counters[3] + 64'(stat_placed_bytes);
    if (stat_message) counters[4] <= counters[4] + 1'b1;
    if (cqe_valid && cqe_ready && !cqe_flag) counters[5] <= counters[5] + 1'b1;
    if (stat_failed) counters[6] <= counters[6] + 1'b1;
    if (stat_flushed) counters[7] <= counters[7] + 1'b1;
    if (stat_acknowledge) counters[8] <= counters[8] + 1'b1;
    if (urgent_valid && urgent_ready) begin
      if (urgent.opcode == es_rnic_pkg::Acknowledge && urgent.stag == 32'd1) counters[9] <= counters[9] + 1'b1;
      if (urgent.opcode == es_rnic_pkg::Acknowledge && urgent.stag == 32'd2) counters[11] <= counters[11] + 1'b1;
      if (urgent.opcode == es_rnic_pkg::Terminate) counters[15] <= counters[15] + 1'b1;
    end
    if (stat_not_ready) counters[10] <= counters[10] + 1'b1;
    if (oldest_valid) begin
      if (oldest_status == 8'd12) counters[12] <= counters[12] + 1'b1;
      if (oldest_status >= 8'd9 && oldest_status <= 8'd11) counters[16] <= counters[16] + 1'b1;
    end
    if (stat_odd) counters[30] <= counters[30] + 1'b1;
    if (stat_drop != '0) counters[16+6'(stat_drop)] <= counters[16+6'(stat_drop)] + 1'b1;
    if (stat_lost) counters[32] <= counters[32] + 1'b1;
    if (stat_miss) counters[35] <= counters[35] + 1'b1;
    if (stat_dropped) counters[34] <= counters[34] + 1'b1;
    if (rst) for (int i = 0; i < 37; i++) counters[i] <= '0;
  end
endmodule
