// Receive Module: segments come in, are checked before any of their bytes is placed, and leave as writes of memory, tokens and answers.
//
// The data of a segment wait (es_rnic_heads) until checks (es_rnic_check) and look-up have passed, and are laid in place then (es_rnic_place); look-up and
// checks of one segment go beside the data of the one before. A segment that is refused is dropped: nothing of it is written.
module es_rnic_receive #(
    parameter int DATA_W = 64,
    parameter int QPS    = 16,
    parameter int STAGS  = 256,
    parameter int PBLS   = 4096,
    parameter int READS  = 4     // Reads of a QP under way, each way; a power of two
) (
    input wire clk,
    input wire rst,

    // Host.
    input  wire  [$clog2(QPS)-1:0] db_slot,
    input  wire  [           15:0] db_index,
    input  wire                    db_valid,
    input  wire                    w_context,
    input  wire                    w_smt,
    input  wire                    w_pbl,
    input  wire  [           22:0] w_address,
    input  wire  [           63:0] w_data,
    input  wire  [            1:0] w_half,
    input  wire  [      4*QPS-1:0] states,
    input  wire  [$clog2(QPS)-1:0] enter_slot,
    input  wire  [            3:0] enter_state,
    input  wire                    enter_valid,
    output logic [           15:0] fetched    [QPS], // receive WQEs taken out of the ring

    // Segments: length and peer, and their bytes.
    input  wire  [        15:0] s_seg_length,
    input  wire  [        15:0] s_seg_peer,
    input  wire                 s_seg_valid,
    output logic                s_seg_ready,
    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    // Receive WQEs from memory.
    output logic [      63:0] m_axi_araddr,
    output logic [       7:0] m_axi_arlen,
    output logic              m_axi_arvalid,
    input  wire               m_axi_arready,
    input  wire  [DATA_W-1:0] m_axi_rdata,
    input  wire               m_axi_rvalid,
    output logic              m_axi_rready,

    // Reads of ours.
    input  wire es_rnic_pkg::sge_t                   sink0,
    input  wire es_rnic_pkg::sge_t                   sink1,
    input  wire                    [           31:0] sink_length,
    input  wire                    [           31:0] sink_stag,
    input  wire                    [$clog2(QPS)-1:0] sink_slot,
    input  wire                                      sink_valid,
    output logic                   [        QPS-1:0] sink_room,

    output logic receive_free,  // nothing is translated

    // A peer is lost: asked until it is done. QPs of it fail, or will with what they begin.
    input  wire  [           15:0] lost_peer,
    input  wire                    lost_valid,
    output logic                   lost_ready,
    input  wire  [        QPS-1:0] under_way,         // of each QP: send WQEs that are not complete
    input  wire  [        QPS-1:0] at_hand,           // some that have not begun
    output logic [        QPS-1:0] gone,              // its peer was lost
    output logic [$clog2(QPS)-1:0] gone_slot,
    output logic                   gone_idle,         // and it had nothing to do
    // Events of responders.
    output logic [$clog2(QPS)-1:0] established_slot,
    output logic                   established,
    output logic [$clog2(QPS)-1:0] violation_slot,
    output logic                   violation,

    // To the write side: pieces and tokens in order, the data beside.
    output logic                [           63:0] c_address,
    output logic                [           15:0] c_bytes,
    output es_rnic_pkg::token_t                   c_token,
    output logic                                  c_is_token,
    output logic                                  c_valid,
    input  wire                                   c_ready,
    output logic                [     DATA_W-1:0] m_data,
    output logic                [   DATA_W/8-1:0] m_strb,
    output logic                                  m_last,
    output logic                                  m_valid,
    input  wire                                   m_ready,
    // A Read of the peer has been answered.
    input  wire                 [$clog2(QPS)-1:0] served_slot,
    input  wire                                   served_valid,

    // The place of a flag: asked until `looked`, 8 bytes with LOCAL_WRITE.
    input  wire  [31:0] look_flag_stag,
    input  wire  [63:0] look_flag_to,
    input  wire  [15:0] look_flag_pd,
    input  wire         look_flag,
    output logic        looked,
    output logic        looked_fine,
    output logic [63:0] looked_address,

    // A page is not there: told once, if there is room (a request of the peer's, which comes again), or until there is.
    output logic [63:0] miss,
    output logic        miss_valid,
    input  wire         miss_ready,
    input  wire  [63:0] served_miss,
    input  wire         served,

    // Segments to be sent at once.
    output es_rnic_pkg::job_t answer,
    output logic              answer_valid,
    input  wire               answer_ready,

    // To the Completion Manager.
    output logic [$clog2(QPS)-1:0] ack_slot,
    output logic [           31:0] ack_message,
    output logic                   ack_valid,
    output logic [$clog2(QPS)-1:0] oldest_slot,
    output logic [            7:0] oldest_status,
    output logic [           15:0] oldest_cause,   // of a Terminate: layer, type, code
    output logic                   oldest_valid,
    // The QP goes to ERROR; whether the peer knows, by a Terminate of ours or its own.
    output logic [$clog2(QPS)-1:0] fail_slot,
    output logic                   fail_valid,
    output logic                   fail_told,
    // Synchronise (question): the peer asks what has been taken.
    output logic [$clog2(QPS)-1:0] asked_slot,
    output logic [           31:0] asked_message,
    output logic                   asked_valid,

    output logic        stat_segment,
    output logic        stat_message,
    output logic        stat_placed,        // a piece of data was handed to the write side
    output logic [15:0] stat_placed_bytes,
    output logic [ 3:0] stat_drop           // not 0: why a segment was dropped, as es_rnic_pkg names it
);
  localparam int QW = $clog2(QPS);
  localparam int RW = $clog2(READS);
  localparam int LB = $clog2(DATA_W / 8);
  localparam int BEATS = 512 / DATA_W;

  // ---- segments in -----------------------------------------------------------------------------------------------------------------------

  es_rnic_pkg::head_t   head;
  es_rnic_pkg::fields_t f;
  logic head_valid, head_done;
  logic [DATA_W-1:0] wait_data;
  logic [LB:0] wait_bytes;
  logic wait_last, wait_valid, wait_ready;

  es_rnic_heads #(
      .DATA_W(DATA_W)
  ) heads (
      .m_data (wait_data),
      .m_bytes(wait_bytes),
      .m_last (wait_last),
      .m_valid(wait_valid),
      .m_ready(wait_ready),
      .*
  );
  assign f = es_rnic_pkg::fields(head);

  // ---- what is known of a QP -------------------------------------------------------------------------------------------------------------

  logic [31:0] expected[QPS];  // number of the next request message
  logic [31:0] msn0[QPS];
  logic [31:0] msn1[QPS];
  logic [31:0] offset[QPS];  // in the Send under way
  logic [QPS-1:0] begun;  // Synchronise (restart) has come
  logic [QPS-1:0] refused;  // not ready was said, and nothing begun since
  logic [QPS-1:0] writing;  // a Write is under way
  logic [QPS-1:0] has_wqe;  // a receive WQE is under way
  logic [QPS-1:0] lost;  // what is behind a receive WQE without end
  logic [447:0] wqe[QPS];  // wr_id and SGEs of it
  logic [31:0] room[QPS];  // its bytes
  logic [7:0] wqe_status[QPS];  // that it gets if it does not succeed
  logic [15:0] posted[QPS];
  logic [7:0] accepted[QPS];  // Reads of the peer that are not answered

  // ORRQ.
  logic [319:0] sinks[QPS*READS];
  logic [RW:0] sink_tail[QPS];
  logic [RW:0] sink_head[QPS];
  logic [31:0] sink_at[QPS];  // what has come of the oldest
  logic [RW:0] sinks_most[QPS];  // ORD
  for (genvar i = 0; i < QPS; i++) begin : gen_room
    assign sink_room[i] = (sink_tail[i] - sink_head[i]) < sinks_most[i];
  end

  logic [QW-1:0] slot;
  es_rnic_pkg::context_t qp, entering;
  es_rnic_pkg::known_t known;
  logic [3:0] state_of_qp;
  logic [319:0] sink;

  assign state_of_qp = states[4*slot+:4];
  assign sink = sinks[{slot, sink_head[slot][RW-1:0]}];
  always_comb begin
    known.expected = expected[slot];
    known.msn0 = msn0[slot];
    known.msn1 = msn1[slot];
    known.offset = offset[slot];
    known.begun = begun[slot];
    known.refused = refused[slot];
    known.writing = writing[slot];
    known.has_wqe = has_wqe[slot];
    known.room = room[slot];
    known.may_fetch = posted[slot] != fetched[slot] && !lost[slot];
    known.accepted = accepted[slot];
    known.sink_any = sink_head[slot] != sink_tail[slot];
    known.sink_stag = sink[31:0];
    known.sink_place = sink_at[slot];
    known.sink_left = sink[63:32] - sink_at[slot];
  end

  es_rnic_context #(
      .QPS(QPS)
  ) of_qp (
      .clk,
      .w_slot (w_address[8+:QW]),
      .w_word (w_address[5:3]),
      .w_data,
      .w_half,
      .w_valid(w_context && w_address[7:6] == '0),
      .slot,
      .entry  (qp)
  );
  es_rnic_context #(
      .QPS(QPS)
  ) of_entering (
      .clk,
      .w_slot(w_address[8+:QW]),
      .w_word(w_address[5:3]),
      .w_data,
      .w_half,
      .w_valid(w_context && w_address[7:6] == '0),
      .slot(enter_slot),
      .entry(entering)
  );

  // ---- checks ----------------------------------------------------------------------------------------------------------------------------

  es_rnic_pkg::verdict_t verdict, doing;
  logic [15:0] cause;  // layer, type, code
  logic [ 3:0] why;
  logic is_send, is_response, is_read, own;

  es_rnic_check #(
      .READS(READS)
  ) check (
      .length(head.length),
      .peer  (head.peer),
      .state (state_of_qp),
      .*
  );
  assign is_send = f.opcode == es_rnic_pkg::Send || f.opcode == es_rnic_pkg::SendSolicited;
  assign is_response = f.opcode == es_rnic_pkg::ReadResponse;
  assign is_read = f.opcode == es_rnic_pkg::ReadRequest;
  assign own = is_send || is_response;  // memory of ours: receive WQE or sink

  // ---- placing ---------------------------------------------------------------------------------------------------------------------------

  typedef enum logic [4:0] {
    Idle,
    Know,      // what is known of its QP
    Weigh,     // the segment beside it
    Check,
    Find,      // the QP whose peer's is not there
    Fetch,
    Fetched,
    Seek,
    Look,
    Place,
    Miss,      // a page is told of
    Await,     // it is served
    Token,
    Refuse,
    Drop,
    Flush,
    LookFlag,
    MissFlag,
    Lose       // the QPs of a peer that was lost
  } state_t;
  state_t state;

  es_rnic_pkg::sge_t list[3];
  logic [1:0] at;  // in the list
  logic [31:0] skip;  // bytes of the list in front of this segment
  logic [31:0] left;  // bytes of the segment
  logic [31:0] sge_left;
  logic [63:0] look_to;
  logic [31:0] look_stag;
  logic ask, ask_now, ask_flag, fresh, again;
  logic flag_waits, flag_again;  // a flag's page is awaited; was served
  logic checked, found, present, absent;
  logic [ 2:0] look_cause;
  logic [63:0] address;
  logic [31:0] page, piece;
  logic [63:0] flag_miss;
  logic [15:0] reason;  // of a fault
  logic [ 3:0] reason_drop;
  logic put_piece, put_away, put_token, ends;
  logic [$clog2(BEATS > 1 ? BEATS : 2)-1:0] beat;
  logic [511:0] coming;
  es_rnic_pkg::sge_t came_sge[3];  // of it; one that is not formed well holds no byte
  logic flush;
  logic [7:0] flush_status;
  logic coming_new;  // `coming` was read for the flush
  logic finished;  // all bytes of the segment have been commanded away: nothing is left for Drop
  logic [QW-1:0] flush_pick;
  logic [QPS-1:0] flushing, flush_grant;
  es_rnic_pkg::token_t token;

  // That of a Write or Read of the peer begins beside its checks, and is dropped if these say so.
  assign ask_now  = state == Know && (f.opcode == es_rnic_pkg::Write || is_read);
  assign ask_flag = state == Idle && look_flag && !looked && !flag_waits;

  es_rnic_place #(
      .DATA_W(DATA_W),
      .STAGS (STAGS),
      .PBLS  (PBLS)
  ) placement (
      .stag(ask_flag ? look_flag_stag : ask_now ? (is_read ? f.read_stag : f.stag) : look_stag),
      .to(ask_flag ? look_flag_to : ask_now ? (is_read ? f.read_to : f.to) : look_to),
      .length(ask_flag ? 32'd8 : ask_now ? (is_read ? f.read_length : 32'(f.data_bytes)) : sge_left < left ? sge_left : left),
      .need(ask_flag || own ? es_rnic_pkg::LocalWrite : is_read ? es_rnic_pkg::RemoteRead : es_rnic_pkg::RemoteWrite),
      .pd(ask_flag ? look_flag_pd : qp.pd),
      .look(ask || ask_now || ask_flag),
      .drop(state == Check && verdict != es_rnic_pkg::Put),
      .cause(look_cause),
      .header_bytes(f.header_bytes),
      .place(state == Place && !fresh),
      // The header goes away while the look-up is under way; otherwise all of the segment goes at the end.
      .header(((state == Check && verdict == es_rnic_pkg::Put) || state == Look || state == Place) && fresh && !is_read),
      .rest(state == Drop),
      .tell(state == Token),
      .s_data(wait_data),
      .s_bytes(wait_bytes),
      .s_last(wait_last),
      .s_valid(wait_valid),
      .s_ready(wait_ready),
      .*
  );
  assign ends = left == piece;
  assign miss = state == MissFlag ? flag_miss : {look_stag, page};
  assign miss_valid = state == Miss || state == MissFlag;
  assign receive_free = state == Idle;
  assign stat_placed = put_piece;
  assign stat_placed_bytes = piece[15:0];

  // The QP of ours whose Synchronise found no QP: the last it sent.
  logic is_peers;
  assign is_peers = qp.peer == head.peer && qp.peer_qp == f.mo[15:0] && f.msn == qp.first_sent + 1'b1 &&
      (state_of_qp == es_rnic_pkg::Rts || state_of_qp == es_rnic_pkg::Sqd);

  // A QP of the peer that was lost.
  logic is_lost;
  logic [QPS-1:0] begun_before;  // its first message came in RTR, and was told
  logic [1:0] pause;  // faults are taken one after the other
  assign is_lost = qp.peer == lost_peer &&
      (state_of_qp == es_rnic_pkg::Rtr || state_of_qp == es_rnic_pkg::Rts || state_of_qp == es_rnic_pkg::Sqd);

  // What a Terminate tells; one that is too short tells nothing (0.2.255).
  logic [15:0] told_cause;
  assign told_cause = f.data_bytes < 16'd4 ? 16'h02FF : es_rnic_pkg::be16(head.bytes[175:160]);

  logic ends_send, ends_read;
  assign ends_send = is_send && f.last;
  assign ends_read = is_response && f.last;

  always_comb begin
    token = '0;
    token.slot = 16'(slot);
    token.wr_id = wqe[slot][63:0];
    if (flush) begin
      token.complete = 1'b1;
      token.status   = flush_status;
    end else begin
      token.source_to = f.read_to;
      token.source_stag = f.read_stag;
      token.length = f.read_length;
      token.sink_to = f.sink_to;
      token.sink_stag = f.sink_stag;
      token.read = is_read;
      token.answer = ends_read;
      token.msn = expected[slot] + 1'b1;
      token.acknowledge = !ends_read;
      token.complete = ends_send;
      token.solicited = f.opcode == es_rnic_pkg::SendSolicited;
      token.bytes = offset[slot] + 32'(f.data_bytes);
    end
  end

  for (genvar i = 0; i < QPS; i++) begin : gen_flush
    assign flushing[i] = states[4*i+:4] == es_rnic_pkg::Error && ((posted[i] != fetched[i] && !lost[i]) || has_wqe[i]);
  end
  assign flush_grant = flushing & (~flushing + 1'b1);
  always_comb begin
    flush_pick = '0;
    for (int i = 0; i < QPS; i++) if (flush_grant[i]) flush_pick |= QW'(i);
  end

  // ---- answers ---------------------------------------------------------------------------------------------------------------------------

  es_rnic_pkg::job_t reply;
  logic reply_put, reply_room;

  always_comb begin
    reply = '0;
    reply.untagged = 1'b1;
    reply.stream = qp.stream;
    reply.peer = qp.peer;
    reply.qp = qp.peer_qp;
    reply.opcode = es_rnic_pkg::Acknowledge;
    reply.qn = 32'd4;
    if (doing == es_rnic_pkg::Fault) begin
      reply.opcode = es_rnic_pkg::Terminate;
      reply.qn = 32'd2;
      reply.to = {32'd1, 32'd0};
      reply.body_bytes = reason == '0 ? 6'd4 : is_read && reason[15:8] == 8'h01 ? 6'd52 : f.untagged ? 6'd24 : 6'd20;
      reply.body[31:0] = {13'b0, 3'b0, es_rnic_pkg::be16(reason)};
      if (reason != '0) begin
        reply.body[23:16]  = {1'b1, 1'b1, reply.body_bytes == 6'd52, 5'b0};
        reply.body[47:32]  = es_rnic_pkg::be16(head.length - 16'd2);
        reply.body[415:48] = head.bytes[383:16];
      end
    end else if (reason_drop == es_rnic_pkg::NotReady && state_of_qp != es_rnic_pkg::Reset) begin
      reply.stag = 32'd1;
      reply.to   = {expected[slot], qp.rnr_wait_us};
    end else begin
      reply.stag = 32'd2;
      reply.to   = {f.mo, 16'b0, f.number};
      // That of a QP that is not there, to the node; that of one that has not begun, to its peer.
      if (reason_drop == es_rnic_pkg::NoQp || reason_drop == es_rnic_pkg::Foreign) begin
        reply.peer = head.peer;
        reply.qp = '0;
        reply.stream = 16'd1;
      end
    end
  end
  assign reply_put = state == Refuse && reply_room;

  es_fifo #(
      .WIDTH($bits(es_rnic_pkg::job_t)),
      .DEPTH(4)
  ) replies (
      .clk,
      .rst,
      .s_data (reply),
      .s_valid(reply_put),
      .s_ready(reply_room),
      .m_data (answer),
      .m_valid(answer_valid),
      .m_ready(answer_ready)
  );

  // ---- a receive WQE that has come --------------------------------------------------------------------------------------------------------

  always_comb begin
    for (int i = 0; i < 3; i++) begin
      came_sge[i] = '0;
      if (coming[23:16] == 8'd1 && coming[31:24] <= 8'd3 && coming[31:24] > 8'(i)) came_sge[i] = coming[128+128*i+:128];
    end
  end

  // ---- the state machine -----------------------------------------------------------------------------------------------------------------

  assign m_axi_arlen = 8'(BEATS - 1);
  assign m_axi_rready = 1'b1;
  assign head_done = (state == Drop && put_away) || (put_token && finished && !flush) || (put_piece && ends && !f.last && !flush);

  always_ff @(posedge clk) begin
    ask <= 1'b0;
    ack_valid <= 1'b0;
    oldest_valid <= 1'b0;
    oldest_cause <= '0;
    fail_valid <= 1'b0;
    asked_valid <= 1'b0;
    lost_ready <= 1'b0;
    gone_idle <= 1'b0;
    gone_slot <= slot;
    established <= 1'b0;
    established_slot <= slot;
    violation <= 1'b0;
    violation_slot <= slot;
    pause <= pause + 1'b1;
    stat_segment <= head_done;
    stat_message <= 1'b0;
    stat_drop <= '0;
    if (m_axi_arready) m_axi_arvalid <= 1'b0;
    if (db_valid) posted[db_slot] <= db_index;
    if (sink_valid) begin
      sinks[{sink_slot, sink_tail[sink_slot][RW-1:0]}] <= {sink1, sink0, sink_length, sink_stag};
      sink_tail[sink_slot] <= sink_tail[sink_slot] + 1'b1;
    end
    if (served_valid) accepted[served_slot] <= accepted[served_slot] - 1'b1;
    if (put_away) fresh <= 1'b0;
    looked <= 1'b0;
    case (state)
      LookFlag:
      if ((checked && look_cause != es_rnic_pkg::Fine) || (found && (present || flag_again))) begin
        looked <= 1'b1;
        looked_fine <= found && present;
        looked_address <= address;
        flag_again <= 1'b0;
        state <= Idle;
      end else if (found) begin
        flag_miss <= {look_flag_stag, page};
        flag_waits <= 1'b1;
        state <= MissFlag;
      end
      Idle: begin
        flush <= 1'b0;
        finished <= 1'b0;
        fresh <= 1'b1;
        again <= 1'b0;
        doing <= es_rnic_pkg::Forget;
        if (ask_flag) state <= LookFlag;
        else if (lost_valid && !lost_ready) begin
          slot  <= '0;
          pause <= '0;
          state <= Lose;
        end else if (head_valid) begin
          slot  <= f.number[QW-1:0];
          state <= Know;
        end else if (|flush_grant) begin
          slot <= flush_pick;
          flush <= 1'b1;
          flush_status <= has_wqe[flush_pick] ? wqe_status[flush_pick] : 8'd5;
          state <= has_wqe[flush_pick] ? Flush : Fetch;
        end
      end
      Know: begin
        left <= is_read ? f.read_length : 32'(f.data_bytes);
        if (!own) begin
          look_stag <= is_read ? f.read_stag : f.stag;
          look_to   <= is_read ? f.read_to : f.to;
          sge_left  <= is_read ? f.read_length : 32'(f.data_bytes);
        end
        state <= Weigh;
      end
      Weigh: state <= Check;
      Check: begin
        if (why == es_rnic_pkg::TooLong) wqe_status[slot] <= 8'd1;
        if (verdict == es_rnic_pkg::Taken && f.opcode == es_rnic_pkg::Write) writing[slot] <= !f.last;
        reason <= cause;
        reason_drop <= why;
        doing <= verdict;
        at <= '0;
        skip <= is_send ? offset[slot] : is_response ? sink_at[slot] : '0;
        list[0] <= is_send ? wqe[slot][191:64] : sink[191:64];
        list[1] <= is_send ? wqe[slot][319:192] : sink[319:192];
        list[2] <= is_send ? wqe[slot][447:320] : '0;
        case (verdict)
          es_rnic_pkg::Put: state <= own ? Seek : Look;
          es_rnic_pkg::Fetching: state <= Fetch;
          es_rnic_pkg::Absent: begin
            slot  <= '0;
            state <= Find;
          end
          es_rnic_pkg::Taken: begin
            state <= Drop;
            if (f.opcode == es_rnic_pkg::Acknowledge) begin
              // What is before the number has been taken, ready or not. This embodiment does not begin anew.
              ack_slot <= slot;
              ack_message <= f.msn;
              ack_valid <= f.stag != 32'd2;
              oldest_slot <= slot;
              oldest_status <= f.stag == 32'd1 ? 8'd13 : 8'd12;
              oldest_valid <= f.stag != '0;
              fail_slot <= slot;
              fail_valid <= f.stag == 32'd2;
              fail_told <= 1'b1;
            end else if (f.opcode == es_rnic_pkg::Terminate) begin
              oldest_slot <= slot;
              oldest_status <= es_rnic_pkg::status_of(told_cause);
              oldest_cause <= told_cause;
              oldest_valid <= 1'b1;
              fail_slot <= slot;
              fail_valid <= 1'b1;
              fail_told <= 1'b1;
            end else if (f.opcode == es_rnic_pkg::Synchronise) begin
              begun[slot]   <= 1'b1;
              refused[slot] <= 1'b0;
              if (f.stag == '0) begin
                asked_slot <= slot;
                asked_message <= expected[slot];
                asked_valid <= 1'b1;
              end
            end else if (f.last) state <= Token;
          end
          es_rnic_pkg::Forget: state <= Drop;
          es_rnic_pkg::Ours: begin
            oldest_slot <= slot;
            oldest_status <= 8'd7;
            oldest_valid <= 1'b1;
            doing <= es_rnic_pkg::Fault;
            reason <= 16'h0000;
            state <= Refuse;
          end
          default: state <= Refuse;
        endcase
      end
      // The peer's QP is the one that a QP of ours speaks to; this embodiment does not begin anew.
      Find: begin
        slot <= slot + 1'b1;
        if (is_peers) begin
          oldest_slot <= slot;
          oldest_status <= 8'd12;
          oldest_valid <= 1'b1;
          fail_slot <= slot;
          fail_valid <= 1'b1;
          fail_told <= 1'b1;
          state <= Drop;
        end else if (slot == QW'(QPS - 1)) state <= Drop;
      end
      Lose:
      if (&pause) begin
        slot <= slot + 1'b1;
        if (is_lost && !gone[slot]) begin
          gone[slot] <= 1'b1;
          gone_idle  <= !under_way[slot] && !at_hand[slot];
          if (under_way[slot]) begin
            oldest_slot <= slot;
            oldest_status <= 8'd12;
            oldest_valid <= 1'b1;
            fail_slot <= slot;
            fail_valid <= 1'b1;
            fail_told <= 1'b1;
          end
        end
        if (slot == QW'(QPS - 1)) begin
          lost_ready <= 1'b1;
          state <= Idle;
        end
      end
      // A receive WQE.
      Fetch: begin
        m_axi_araddr <= qp.rq_address + {42'b0, fetched[slot] & ~(16'hFFFF << qp.rq_log2[3:0]), 6'b0};
        m_axi_arvalid <= 1'b1;
        fetched[slot] <= fetched[slot] + 1'b1;
        beat <= '0;
        state <= Fetched;
      end
      Fetched:
      if (m_axi_rvalid) begin
        coming[DATA_W*beat+:DATA_W] <= m_axi_rdata;
        beat <= beat + 1'b1;
        if (beat == $bits(beat)'(BEATS - 1)) begin
          has_wqe[slot] <= 1'b1;
          state <= Flush;
        end
      end
      // The WQE is there: go on with the segment, or flush it.
      Flush: begin
        if (doing == es_rnic_pkg::Fetching || (flush && !finished)) begin
          if (doing == es_rnic_pkg::Fetching || coming_new) begin
            wqe_status[slot] <= 8'd5;
            // Where the next one is only a WQE of one block says.
            wqe[slot] <= {came_sge[2], came_sge[1], came_sge[0], coming[127:64]};
            room[slot] <= came_sge[0].length + came_sge[1].length + came_sge[2].length;
            if (coming[23:16] != 8'd1) lost[slot] <= 1'b1;
          end
          finished <= flush;
          if (!flush) state <= Know;
        end else begin
          has_wqe[slot] <= 1'b0;
          state <= Token;
        end
      end
      // The SGE where the segment's data begin.
      Seek: begin
        if (list[at].length <= skip) begin
          skip <= skip - list[at].length;
          at   <= at + 1'b1;
        end else begin
          look_stag <= list[at].stag;
          look_to <= list[at].to + 64'(skip);
          sge_left <= list[at].length - skip;
          skip <= '0;
          ask <= 1'b1;
          state <= Look;
        end
      end
      Look:
      if (checked) begin
        if (look_cause == es_rnic_pkg::Fine) state <= is_read ? Token : Place;
        else begin
          doing <= es_rnic_pkg::Fault;
          reason <= own ? 16'h0000 : is_read ? es_rnic_pkg::read_cause(look_cause) : es_rnic_pkg::tagged_cause(look_cause);
          reason_drop <= es_rnic_pkg::Denied;
          if (is_send) wqe_status[slot] <= 8'd4;
          if (is_response) begin
            oldest_slot   <= slot;
            oldest_status <= 8'd4;
            oldest_valid  <= 1'b1;
          end
          state <= Refuse;
        end
      end
      Place:
      if (absent && !fresh && again) begin
        // Served, and not there: the memory of a Read of ours is gone.
        oldest_slot <= slot;
        oldest_status <= 8'd4;
        oldest_valid <= 1'b1;
        doing <= es_rnic_pkg::Fault;
        reason <= 16'h0000;
        state <= Refuse;
      end else if (absent && !fresh) state <= Miss;
      else if (put_piece) begin
        again <= 1'b0;
        left <= left - piece;
        sge_left <= sge_left - piece;
        look_to <= look_to + 64'(piece);
        if (ends) begin
          finished <= 1'b1;
          state <= f.last ? Token : Idle;
          if (!own) writing[slot] <= !f.last;
          if (is_send && !f.last) offset[slot] <= offset[slot] + 32'(f.data_bytes);
          if (is_response && !f.last) sink_at[slot] <= sink_at[slot] + 32'(f.data_bytes);
        end else if (sge_left == piece) begin
          at <= at + 1'b1;
          state <= Seek;
        end else begin
          ask   <= 1'b1;
          state <= Look;
        end
      end
      // A request of the peer's is tried again by the peer; a Read of ours waits.
      Miss:
      if (is_response) begin
        if (miss_ready) state <= Await;
      end else begin
        doing <= es_rnic_pkg::Answer;
        reason_drop <= es_rnic_pkg::NotReady;
        state <= Refuse;
      end
      MissFlag: if (miss_ready) state <= Idle;
      Await:
      if (served && served_miss == miss) begin
        again <= 1'b1;
        ask   <= 1'b1;
        state <= Look;
      end
      // A message is whole.
      Token:
      if (put_token) begin
        if (flush) state <= Idle;
        else begin
          stat_message <= !ends_read;
          if (!ends_read && state_of_qp == es_rnic_pkg::Rtr) begin
            established <= !begun_before[slot];
            begun_before[slot] <= 1'b1;
          end
          state <= finished ? Idle : Drop;
          if (ends_read) begin
            sink_head[slot] <= sink_head[slot] + 1'b1;
            sink_at[slot]   <= '0;
          end else expected[slot] <= expected[slot] + 1'b1;
          if (ends_send) begin
            msn0[slot] <= msn0[slot] + 1'b1;
            offset[slot] <= '0;
            has_wqe[slot] <= 1'b0;
          end
          if (is_read) begin
            msn1[slot] <= msn1[slot] + 1'b1;
            if (!(served_valid && served_slot == slot)) accepted[slot] <= accepted[slot] + 1'b1;
            else accepted[slot] <= accepted[slot];
          end
        end
      end
      Refuse:
      if (reply_put) begin
        if (doing == es_rnic_pkg::Fault) begin
          fail_slot  <= slot;
          fail_valid <= 1'b1;
          fail_told  <= 1'b1;
          violation  <= es_rnic_pkg::status_of(reason) == 8'd10;
        end else if (reason_drop == es_rnic_pkg::NotReady) begin
          begun[slot]   <= 1'b0;
          refused[slot] <= 1'b1;
          writing[slot] <= 1'b0;
          // The message comes from its beginning.
          offset[slot]  <= '0;
        end
        state <= Drop;
      end
      default:  // Drop
      if (put_away) begin
        // The one that is told *not ready* is counted as that.
        if (doing != es_rnic_pkg::Answer || reason_drop != es_rnic_pkg::NotReady) stat_drop <= reason_drop;
        state <= Idle;
      end
    endcase
    if (enter_valid && (enter_state == es_rnic_pkg::Reset || enter_state == es_rnic_pkg::Rtr)) begin
      expected[enter_slot] <= entering.first_expected;
      msn0[enter_slot] <= 32'd1;
      msn1[enter_slot] <= 32'd1;
      offset[enter_slot] <= '0;
      begun[enter_slot] <= 1'b0;
      writing[enter_slot] <= 1'b0;
      refused[enter_slot] <= 1'b0;
      accepted[enter_slot] <= '0;
      sink_head[enter_slot] <= '0;
      sink_tail[enter_slot] <= '0;
      sink_at[enter_slot] <= '0;
    end
    if (enter_valid && enter_state == es_rnic_pkg::Rts)
      sinks_most[enter_slot] <= entering.ord > 8'(READS) ? (RW + 1)'(READS) : entering.ord[RW:0];
    if (enter_valid && enter_state == es_rnic_pkg::Reset) begin
      gone[enter_slot] <= 1'b0;
      begun_before[enter_slot] <= 1'b0;
      has_wqe[enter_slot] <= 1'b0;
      lost[enter_slot] <= 1'b0;
      posted[enter_slot] <= '0;
      fetched[enter_slot] <= '0;
    end
    if (served && served_miss == flag_miss) begin
      flag_again <= flag_waits;
      flag_waits <= 1'b0;
    end
    if (rst) begin
      looked <= 1'b0;
      flag_waits <= 1'b0;
      flag_again <= 1'b0;
      lost <= '0;
      state <= Idle;
      ask <= 1'b0;
      m_axi_arvalid <= 1'b0;
      begun <= '0;
      writing <= '0;
      refused <= '0;
      has_wqe <= '0;
      gone <= '0;
      begun_before <= '0;
      lost_ready <= 1'b0;
      for (int i = 0; i < QPS; i++) begin
        posted[i] <= '0;
        fetched[i] <= '0;
        accepted[i] <= '0;
        sink_head[i] <= '0;
        sink_tail[i] <= '0;
      end
    end
  end

  always_ff @(posedge clk) begin
    if (state == Fetched) coming_new <= 1'b1;
    else if (state == Idle) coming_new <= 1'b0;
  end
endmodule
