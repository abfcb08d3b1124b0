// Receive Module: segments come in, are checked before any of their bytes is placed, and leave as writes of memory, tokens and answers.
//
// The data of a segment wait in a FIFO until its look-up has passed; look-up and checks of one segment go beside the data of the one before. A segment that is
// refused is dropped there: nothing of it is written.
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
    output logic [ 3:0] stat_drop           // not 0: why a segment was dropped, below
);
  localparam int B = DATA_W / 8;
  localparam int LB = $clog2(B);
  localparam int QW = $clog2(QPS);
  localparam int RW = $clog2(READS);
  localparam int CUT = B * 256 < 4096 ? B * 256 : 4096;
  localparam int LC = $clog2(CUT);
  localparam int BEATS = 512 / DATA_W;

  // Reasons of a drop, the names of docs/rnic.md, 15.
  localparam logic [3:0] Truncated = 4'd1;
  localparam logic [3:0] NoQp = 4'd2;
  localparam logic [3:0] NotReady = 4'd3;
  localparam logic [3:0] Malformed = 4'd4;
  localparam logic [3:0] Foreign = 4'd5;
  localparam logic [3:0] Denied = 4'd6;
  localparam logic [3:0] Sequence = 4'd7;
  localparam logic [3:0] Answers = 4'd8;
  localparam logic [3:0] TooLong = 4'd9;
  localparam logic [3:0] Irrq = 4'd10;

  // ---- segments in: all bytes into a FIFO, the first 48 beside it ------------------------------------------------------------------------

  localparam int H = 384;
  logic [H-1:0] head_now, head_kept;
  logic [6:0] head_have, head_more;
  logic told;  // the head of this segment has been handed on
  logic enough, data_ready, head_ready, take, tell;
  logic [ LB:0] bytes_in;
  logic [H-1:0] h;
  logic [15:0] length, peer;
  logic head_valid, head_done;

  always_comb begin
    bytes_in = '0;
    for (int i = 0; i < B; i++) bytes_in += (LB + 1)'(s_axis_tkeep[i]);
    head_now = head_kept;
    for (int i = 0; i < H / 64; i++) if (head_have == 7'(i * 8 / B * B)) head_now[64*i+:64] = s_axis_tdata[64*(i%(B/8))+:64];
    head_more = head_have + 7'(B);
    enough = head_more >= 7'd48 || s_axis_tlast || (head_now[23] && head_more >= 7'd16);
  end
  assign take = s_axis_tvalid && s_axis_tready;
  assign tell = take && enough && !told;
  assign s_axis_tready = data_ready && head_ready && s_seg_valid;
  assign s_seg_ready = take && s_axis_tlast;

  always_ff @(posedge clk) begin
    if (take) begin
      head_kept <= head_now;
      head_have <= s_axis_tlast ? '0 : head_have >= 7'd48 ? head_have : head_more;
      told <= !s_axis_tlast && (told || enough);
    end
    if (rst) begin
      head_have <= '0;
      told <= 1'b0;
    end
  end

  es_fifo #(
      .WIDTH(H + 32),
      .DEPTH(16)
  ) heads (
      .clk,
      .rst,
      .s_data ({head_now, s_seg_length, s_seg_peer}),
      .s_valid(tell),
      .s_ready(head_ready),
      .m_data ({h, length, peer}),
      .m_valid(head_valid),
      .m_ready(head_done)
  );

  logic [DATA_W-1:0] wait_data;
  logic [LB:0] wait_bytes;
  logic wait_last, wait_valid, wait_ready;
  localparam int WAIT = 8192 / B;
  /* verilator lint_off PINCONNECTEMPTY */
  es_fifo_block #(
      .WIDTH(DATA_W + LB + 2),
      .DEPTH(WAIT)
  ) waiting (
      .clk,
      .rst,
      .s_data ({s_axis_tdata, bytes_in, s_axis_tlast}),
      .s_valid(take),
      .s_ready(data_ready),
      .m_data ({wait_data, wait_bytes, wait_last}),
      .m_valid(wait_valid),
      .m_ready(wait_ready),
      .used   ()
  );
  /* verilator lint_on PINCONNECTEMPTY */

  // ---- what is known of a QP -------------------------------------------------------------------------------------------------------------

  logic [31:0] expected[QPS];  // number of the next request message
  logic [31:0] msn0[QPS];
  logic [31:0] msn1[QPS];
  logic [31:0] offset[QPS];  // in the Send under way
  logic [QPS-1:0] begun;  // Synchronise (restart) has come
  logic [QPS-1:0] refused;  // not ready was said, and nothing begun since
  logic [QPS-1:0] has_wqe;  // a receive WQE is under way
  logic [447:0] wqe[QPS];  // wr_id and SGEs of it
  logic [7:0] wqe_status[QPS];  // that it gets if it does not succeed
  logic [15:0] posted[QPS];
  logic [7:0] accepted[QPS];  // Reads of the peer that are not answered

  // ORRQ.
  logic [319:0] sinks[QPS*READS];
  logic [RW:0] sink_tail[QPS];
  logic [RW:0] sink_head[QPS];
  logic [31:0] sink_at[QPS];  // what has come of the oldest
  for (genvar i = 0; i < QPS; i++) begin : gen_room
    assign sink_room[i] = (sink_tail[i] - sink_head[i]) < (RW + 1)'(READS);
  end

  // ---- fields ----------------------------------------------------------------------------------------------------------------------------

  logic [QW-1:0] slot;
  es_rnic_pkg::context_t qp, entering;
  logic [3:0] state_of_qp;
  logic untagged, last;
  logic [1:0] dv, rv;
  logic [3:0] opcode;
  logic [15:0] number, data_bytes, header_bytes;
  logic [31:0] stag, qn, msn, mo, read_length, read_stag;
  logic [63:0] to, read_to;

  assign number = es_rnic_pkg::be16(h[15:0]);
  assign untagged = !h[23];
  assign last = h[22];
  assign dv = h[17:16];
  assign rv = h[31:30];
  assign opcode = h[27:24];
  assign stag = es_rnic_pkg::be32(h[63:32]);
  assign to = es_rnic_pkg::be64(h[127:64]);
  assign qn = es_rnic_pkg::be32(h[95:64]);
  assign msn = es_rnic_pkg::be32(h[127:96]);
  assign mo = es_rnic_pkg::be32(h[159:128]);
  assign read_length = es_rnic_pkg::be32(h[287:256]);
  assign read_stag = es_rnic_pkg::be32(h[319:288]);
  assign read_to = es_rnic_pkg::be64(h[383:320]);
  assign header_bytes = untagged ? 16'd20 : 16'd16;
  assign data_bytes = length - header_bytes;

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
  assign state_of_qp = states[4*slot+:4];

  // ---- checks ----------------------------------------------------------------------------------------------------------------------------

  typedef enum logic [3:0] {
    Idle,
    Check,
    Fetch,
    Fetched,
    Seek,
    Look,
    Place,
    Token,
    Refuse,
    Drop,
    Flush,
    LookFlag
  } state_t;
  state_t state;

  typedef enum logic [3:0] {
    Forget,    // drop it, that is all
    Fault,     // Terminate, ERROR
    Answer,    // an answer, and drop it
    Taken,     // nothing to place
    Put,       // data to be placed
    Fetching,  // a receive WQE first
    Ours       // an answer to us that does not fit
  } verdict_t;
  verdict_t verdict;
  logic [15:0] cause;  // layer, type, code
  logic [3:0] why;
  logic wrong_model, is_send, takes;
  logic [319:0] sink;
  logic [31:0] sink_place;
  logic sink_any;

  assign sink = sinks[{slot, sink_head[slot][RW-1:0]}];
  assign sink_any = sink_head[slot] != sink_tail[slot];
  assign sink_place = sink_at[slot];
  assign is_send = opcode == es_rnic_pkg::Send || opcode == es_rnic_pkg::SendSolicited;

  function automatic logic [31:0] wanted_queue(input logic [3:0] op);
    case (op)
      es_rnic_pkg::ReadRequest: return 32'd1;
      es_rnic_pkg::Terminate: return 32'd2;
      es_rnic_pkg::Synchronise, es_rnic_pkg::Acknowledge: return 32'd4;
      default: return 32'd0;
    endcase
  endfunction

  // The checks of docs/rnic.md, 9, in their order.
  always_comb begin
    verdict = Forget;
    cause = 16'h0000;
    why = '0;
    takes = state_of_qp == es_rnic_pkg::Rtr || state_of_qp == es_rnic_pkg::Rts || state_of_qp == es_rnic_pkg::Sqd;
    wrong_model = untagged == (opcode == es_rnic_pkg::Write || opcode == es_rnic_pkg::ReadResponse);
    if (length < header_bytes) why = Truncated;
    else if (!takes || number != qp.number) begin
      why = NoQp;
      if (opcode == es_rnic_pkg::Synchronise && untagged) verdict = Answer;
    end else if (peer != qp.peer) begin
      why = Foreign;
      if (opcode == es_rnic_pkg::Synchronise && untagged) verdict = Answer;
    end else if (dv != 2'd1) begin
      why = Malformed;
      verdict = Fault;
      cause = untagged ? 16'h1206 : 16'h1104;
    end else if (untagged && qn > 32'd4) begin
      why = Malformed;
      verdict = Fault;
      cause = 16'h1201;
    end else if (rv != 2'd1) begin
      why = Malformed;
      verdict = Fault;
      cause = 16'h0205;
    end else if (wrong_model || (untagged && qn != wanted_queue(opcode))) begin
      why = Malformed;
      verdict = Fault;
      cause = 16'h0206;
    end else begin
      case (opcode)
        es_rnic_pkg::Acknowledge: verdict = Taken;
        es_rnic_pkg::Terminate:   verdict = Taken;
        es_rnic_pkg::Synchronise: begin
          if (stag != '0) begin
            // Restart.
            if (msn == expected[slot]) verdict = Taken;
            else begin
              why = Sequence;
              verdict = begun[slot] || refused[slot] ? Fault : Answer;
              cause = 16'h0000;
            end
          end else if (begun[slot]) verdict = Taken;
          else if (!refused[slot]) verdict = Answer;
        end
        es_rnic_pkg::ReadResponse: begin
          if (sink_any && stag == sink[31:0] && to == {32'b0, sink_place} && {16'b0, data_bytes} <= sink[63:32] - sink_place &&
              last == ({16'b0, data_bytes} == sink[63:32] - sink_place))
            verdict = data_bytes == '0 ? Taken : Put;
          else begin
            why = Answers;
            verdict = Ours;
          end
        end
        default:
        if (!begun[slot]) why = NotReady;
        else begin
          case (opcode)
            es_rnic_pkg::Write:
            if (!qp.rights[0]) begin
              why = Denied;
              verdict = Fault;
              cause = 16'h0102;
            end else verdict = data_bytes == '0 ? Taken : Put;
            es_rnic_pkg::ReadRequest: begin
              verdict = Fault;
              if (msn != msn1[slot]) begin
                why   = Sequence;
                cause = 16'h1203;
              end else if (mo != '0 || !last || data_bytes != 16'd28) begin
                why   = Sequence;
                cause = 16'h1204;
              end else if (accepted[slot] >= qp.ird || accepted[slot] >= 8'(READS)) begin
                why   = Irrq;
                cause = 16'h1202;
              end else if (!qp.rights[1]) begin
                why   = Denied;
                cause = 16'h0102;
              end else verdict = read_length == '0 ? Taken : Put;
            end
            es_rnic_pkg::Send, es_rnic_pkg::SendSolicited: begin
              verdict = Fault;
              if (msn != msn0[slot]) begin
                why   = Sequence;
                cause = 16'h1203;
              end else if (mo != offset[slot]) begin
                why   = Sequence;
                cause = 16'h1204;
              end else if (has_wqe[slot]) verdict = data_bytes == '0 ? Taken : Put;
              else if (posted[slot] != fetched[slot]) verdict = Fetching;
              else begin
                why = NotReady;
                verdict = Answer;
              end
            end
            es_rnic_pkg::SendInvalidate, es_rnic_pkg::SendSolicitedInvalidate: begin
              // No window is ever bound: FEATURES has no WINDOWS.
              why = Denied;
              verdict = Fault;
              cause = 16'h0209;
            end
            default: begin
              why = Malformed;
              verdict = Fault;
              cause = 16'h0206;
            end
          endcase
        end
      endcase
    end
  end

  // ---- placing ---------------------------------------------------------------------------------------------------------------------------

  es_rnic_pkg::sge_t list[3];
  logic [1:0] at;  // in the list
  logic [31:0] skip;  // bytes of the list in front of this segment
  logic [31:0] left;  // bytes of the segment
  logic [31:0] sge_left;
  logic [63:0] look_to, from, from_now;
  logic here, absent, ask_now, ask_flag;
  logic [31:0] look_stag;
  logic placed, missing, ask, checked, found, present, fresh;
  logic [ 2:0] look_cause;
  logic [63:0] address;
  logic [LC:0] to_cut, piece;
  logic [15:0] reason;  // of a fault
  logic [ 3:0] reason_drop;
  logic is_read_request, own;  // own: memory of ours (receive WQE or sink)
  logic [$clog2(BEATS > 1 ? BEATS : 2)-1:0] beat;
  logic [511:0] coming;
  logic flush;
  logic [7:0] flush_status;
  logic coming_new;  // `coming` was read for the flush
  logic finished;  // all bytes of the segment have been commanded away: nothing is left for Drop
  logic [QW-1:0] flush_pick;
  logic [QPS-1:0] flushing, flush_grant;

  // That of a Write begins in the clock of its checks.
  assign ask_now = state == Check && verdict == Put && !own;
  assign ask_flag = state == Idle && look_flag && !looked;
  assign is_read_request = opcode == es_rnic_pkg::ReadRequest;
  assign own = opcode == es_rnic_pkg::ReadResponse || is_send;

  es_rnic_translate #(
      .STAGS(STAGS),
      .PBLS (PBLS)
  ) translate (
      .clk,
      .rst,
      .w_smt,
      .w_pbl,
      .w_address,
      .w_data,
      .w_half,
      .stag(ask_flag ? look_flag_stag : ask_now ? (is_read_request ? read_stag : stag) : look_stag),
      .to(ask_flag ? look_flag_to : ask_now ? (is_read_request ? read_to : to) : look_to),
      .length(ask_flag ? 32'd8 : ask_now ? (is_read_request ? read_length : 32'(data_bytes)) : sge_left < left ? sge_left : left),
      .need(ask_flag || own ? es_rnic_pkg::LocalWrite : is_read_request ? es_rnic_pkg::RemoteRead : es_rnic_pkg::RemoteWrite),
      .pd(ask_flag ? look_flag_pd : qp.pd),
      .valid(ask || ask_now || ask_flag),
      .checked,
      .cause(look_cause),
      .found,
      .present,
      .address
  );

  always_comb begin
    // The address is used in the clock in which it is found.
    from_now = found ? address : from;
    here = found || placed;
    absent = found ? !present : missing;
    to_cut = (LC + 1)'(CUT) - {1'b0, from_now[LC-1:0]};
    piece = to_cut;
    if (32'(piece) > left) piece = left[LC:0];
    if (32'(piece) > sge_left) piece = sge_left[LC:0];
  end

  // Commands to the unpacker: header away, pieces, and the rest away.
  logic [LB-1:0] u_offset, u_offset_out;
  logic [15:0] u_bytes, u_bytes_out;
  logic u_drop, u_end, u_valid, u_ready, u_drop_out, u_end_out, u_valid_out, u_ready_out;
  es_fifo #(
      .WIDTH(LB + 18),
      .DEPTH(16)
  ) commands (
      .clk,
      .rst,
      .s_data ({u_offset, u_bytes, u_drop, u_end}),
      .s_valid(u_valid),
      .s_ready(u_ready),
      .m_data ({u_offset_out, u_bytes_out, u_drop_out, u_end_out}),
      .m_valid(u_valid_out),
      .m_ready(u_ready_out)
  );
  es_axis_unpack #(
      .DATA_W(DATA_W)
  ) unpack (
      .clk,
      .rst,
      .s_axis_tdata (wait_data),
      .s_axis_bytes (wait_bytes),
      .s_axis_tlast (wait_last),
      .s_axis_tvalid(wait_valid),
      .s_axis_tready(wait_ready),
      .c_offset     (u_offset_out),
      .c_bytes      (u_bytes_out),
      .c_drop       (u_drop_out),
      .c_end        (u_end_out),
      .c_valid      (u_valid_out),
      .c_ready      (u_ready_out),
      .m_data,
      .m_strb,
      .m_last,
      .m_valid,
      .m_ready
  );

  logic [63:0] w_piece_address;
  logic [15:0] w_piece_bytes;
  es_rnic_pkg::token_t token;
  logic w_is_token, w_put, w_room;
  es_fifo #(
      .WIDTH(64 + 16 + 1 + $bits(es_rnic_pkg::token_t)),
      .DEPTH(16)
  ) writes (
      .clk,
      .rst,
      .s_data ({w_piece_address, w_piece_bytes, w_is_token, token}),
      .s_valid(w_put),
      .s_ready(w_room),
      .m_data ({c_address, c_bytes, c_is_token, c_token}),
      .m_valid(c_valid),
      .m_ready(c_ready)
  );

  logic put_piece, put_away, put_token;
  assign put_piece         = state == Place && here && !absent && u_ready && w_room && !fresh;
  // The header goes away while the look-up is under way; otherwise all of the segment goes at the end.
  assign put_away          = (((state == Look || state == Place) && fresh && !is_read_request) || state == Drop) && u_ready;
  assign put_token         = state == Token && w_room;
  assign u_valid           = put_piece || put_away;
  assign u_offset          = from_now[LB-1:0];
  assign u_bytes           = put_piece ? 16'(piece) : state == Drop ? '0 : header_bytes;
  assign u_drop            = put_away;
  assign u_end             = put_piece ? left == 32'(piece) : state == Drop;
  assign w_put             = put_piece || put_token;
  assign w_is_token        = put_token;
  assign w_piece_address   = from_now;
  assign w_piece_bytes     = 16'(piece);
  assign stat_placed       = put_piece;
  assign stat_placed_bytes = 16'(piece);

  logic ends_send, ends_read;
  logic [31:0] wqe_bytes;
  assign wqe_bytes = list_bytes(wqe[slot]);
  assign ends_send = is_send && last;
  assign ends_read = opcode == es_rnic_pkg::ReadResponse && last;

  function automatic logic [31:0] list_bytes(input logic [447:0] entry);
    return entry[127+64:96+64] + entry[255+64:224+64] + entry[383+64:352+64];
  endfunction

  always_comb begin
    token = '0;
    token.slot = 16'(slot);
    if (flush) begin
      token.complete = 1'b1;
      token.wr_id = wqe[slot][63:0];
      token.status = flush_status;
    end else begin
      token.source_to = read_to;
      token.source_stag = read_stag;
      token.length = read_length;
      token.sink_to = es_rnic_pkg::be64(h[255:192]);
      token.sink_stag = es_rnic_pkg::be32(h[191:160]);
      token.read = is_read_request;
      token.answer = ends_read;
      token.msn = expected[slot] + 1'b1;
      token.acknowledge = !ends_read;
      token.complete = ends_send;
      token.solicited = opcode == es_rnic_pkg::SendSolicited;
      token.wr_id = wqe[slot][63:0];
      token.bytes = offset[slot] + 32'(data_bytes);
    end
  end

  for (genvar i = 0; i < QPS; i++) begin : gen_flush
    assign flushing[i] = states[4*i+:4] == es_rnic_pkg::Error && (posted[i] != fetched[i] || has_wqe[i]);
  end
  assign flush_grant = flushing & (~flushing + 1'b1);
  always_comb begin
    flush_pick = '0;
    for (int i = 0; i < QPS; i++) if (flush_grant[i]) flush_pick |= QW'(i);
  end

  // ---- answers ---------------------------------------------------------------------------------------------------------------------------

  es_rnic_pkg::job_t reply;
  logic reply_put, reply_room;
  verdict_t doing;

  always_comb begin
    reply = '0;
    reply.untagged = 1'b1;
    reply.stream = qp.stream;
    reply.peer = qp.peer;
    reply.qp = qp.peer_qp;
    reply.opcode = es_rnic_pkg::Acknowledge;
    reply.qn = 32'd4;
    if (doing == Fault) begin
      reply.opcode = es_rnic_pkg::Terminate;
      reply.qn = 32'd2;
      reply.to = {32'd1, 32'd0};
      reply.body_bytes = reason == '0 ? 6'd4 : is_read_request && !wrong_model ? 6'd52 : untagged ? 6'd24 : 6'd20;
      reply.body[31:0] = {13'b0, 3'b0, es_rnic_pkg::be16(reason)};
      if (reason != '0) begin
        reply.body[23:16]  = {1'b1, 1'b1, reply.body_bytes == 6'd52, 5'b0};
        reply.body[47:32]  = es_rnic_pkg::be16(length - 16'd2);
        reply.body[415:48] = h[383:16];
      end
    end else if (reason_drop == NotReady && state_of_qp != es_rnic_pkg::Reset) begin
      reply.stag = 32'd1;
      reply.to   = {expected[slot], qp.rnr_wait_us};
    end else begin
      reply.stag = 32'd2;
      reply.peer = peer;
      reply.qp = '0;
      reply.stream = 16'd1;
      reply.to = {mo, 16'b0, number};
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

  // ---- the state machine -----------------------------------------------------------------------------------------------------------------

  assign m_axi_arlen = 8'(BEATS - 1);
  assign m_axi_rready = 1'b1;
  assign head_done = (state == Drop && u_ready) || (put_token && finished && !flush) ||
      (put_piece && left == 32'(piece) && !last && !flush);

  always_ff @(posedge clk) begin
    ask <= 1'b0;
    ack_valid <= 1'b0;
    oldest_valid <= 1'b0;
    fail_valid <= 1'b0;
    asked_valid <= 1'b0;
    stat_segment <= 1'b0;
    stat_message <= 1'b0;
    stat_drop <= '0;
    if (found) begin
      from <= address;
      placed <= 1'b1;
      missing <= !present;
    end
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
      if (checked && look_cause != es_rnic_pkg::Fine) begin
        looked <= 1'b1;
        looked_fine <= 1'b0;
        state <= Idle;
      end else if (found) begin
        looked <= 1'b1;
        looked_fine <= present;
        looked_address <= address;
        state <= Idle;
      end
      Idle: begin
        flush <= 1'b0;
        finished <= 1'b0;
        fresh <= 1'b1;
        doing <= Forget;
        if (ask_flag) state <= LookFlag;
        else if (head_valid) begin
          slot  <= number[QW-1:0];
          state <= Check;
        end else if (|flush_grant) begin
          slot <= flush_pick;
          flush <= 1'b1;
          flush_status <= has_wqe[flush_pick] ? wqe_status[flush_pick] : 8'd5;
          state <= has_wqe[flush_pick] ? Flush : Fetch;
        end
      end
      Check: begin
        stat_segment <= 1'b1;
        reason <= cause;
        reason_drop <= why;
        doing <= verdict;
        left <= is_read_request ? read_length : 32'(data_bytes);
        at <= '0;
        skip <= is_send ? offset[slot] : opcode == es_rnic_pkg::ReadResponse ? sink_place : '0;
        list[0] <= is_send ? wqe[slot][191:64] : sink[191:64];
        list[1] <= is_send ? wqe[slot][319:192] : sink[319:192];
        list[2] <= is_send ? wqe[slot][447:320] : '0;
        if (opcode == es_rnic_pkg::Write || is_read_request) begin
          look_stag <= is_read_request ? read_stag : stag;
          look_to   <= is_read_request ? read_to : to;
          sge_left  <= is_read_request ? read_length : 32'(data_bytes);
        end
        case (verdict)
          Put:
          if (is_send && offset[slot] + 32'(data_bytes) > wqe_bytes) begin
            doing <= Fault;
            reason <= 16'h1205;
            reason_drop <= TooLong;
            wqe_status[slot] <= 8'd1;
            state <= Refuse;
          end else if (opcode == es_rnic_pkg::Write || is_read_request) begin
            placed <= 1'b0;
            state  <= Look;
          end else state <= Seek;
          Fetching: state <= Fetch;
          Taken: begin
            state <= Drop;
            if (opcode == es_rnic_pkg::Acknowledge) begin
              if (stag == '0) begin
                ack_slot <= slot;
                ack_message <= msn;
                ack_valid <= 1'b1;
              end else begin
                // Not ready, no QP: this embodiment does not begin anew.
                oldest_slot <= slot;
                oldest_status <= stag == 32'd1 ? 8'd13 : 8'd12;
                oldest_valid <= 1'b1;
                fail_slot <= slot;
                fail_valid <= 1'b1;
                fail_told <= 1'b0;
              end
            end else if (opcode == es_rnic_pkg::Terminate) begin
              oldest_slot <= slot;
              oldest_status <= terminated(es_rnic_pkg::be16(h[175:160]));
              oldest_valid <= 1'b1;
              fail_slot <= slot;
              fail_valid <= 1'b1;
              fail_told <= 1'b1;
            end else if (opcode == es_rnic_pkg::Synchronise) begin
              begun[slot]   <= 1'b1;
              refused[slot] <= 1'b0;
              if (stag == '0) begin
                asked_slot <= slot;
                asked_message <= expected[slot];
                asked_valid <= 1'b1;
              end
            end else if (last) state <= Token;
          end
          Forget:   state <= Drop;
          Ours: begin
            oldest_slot <= slot;
            oldest_status <= 8'd7;
            oldest_valid <= 1'b1;
            doing <= Fault;
            reason <= 16'h0000;
            state <= Refuse;
          end
          default:  state <= Refuse;
        endcase
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
        if (doing == Fetching || (flush && !finished)) begin
          if (doing == Fetching || coming_new) begin
            wqe_status[slot] <= 8'd5;
            wqe[slot][63:0] <= coming[127:64];
            wqe[slot][191:64] <= coming[31:24] > 8'd0 ? coming[255:128] : '0;
            wqe[slot][319:192] <= coming[31:24] > 8'd1 ? coming[383:256] : '0;
            wqe[slot][447:320] <= coming[31:24] > 8'd2 ? coming[511:384] : '0;
          end
          finished <= flush;
          if (!flush) state <= Check;
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
          placed <= 1'b0;
          state <= Look;
        end
      end
      Look:
      if (checked) begin
        if (look_cause == es_rnic_pkg::Fine) state <= is_read_request ? Token : Place;
        else begin
          doing <= Fault;
          reason <= own ? 16'h0000 : is_read_request ? remote_cause(look_cause) : tagged_cause(look_cause);
          reason_drop <= Denied;
          if (is_send) wqe_status[slot] <= 8'd4;
          if (opcode == es_rnic_pkg::ReadResponse) begin
            oldest_slot   <= slot;
            oldest_status <= 8'd4;
            oldest_valid  <= 1'b1;
          end
          state <= Refuse;
        end
      end
      Place:
      if (here && absent && !fresh) begin
        if (is_send) wqe_status[slot] <= 8'd4;
        doing  <= Fault;
        reason <= 16'h0000;
        state  <= Refuse;
      end else if (put_piece) begin
        left <= left - 32'(piece);
        sge_left <= sge_left - 32'(piece);
        look_to <= look_to + 64'(piece);
        if (left == 32'(piece)) begin
          finished <= 1'b1;
          state <= last ? Token : Idle;
          if (is_send && !last) offset[slot] <= offset[slot] + 32'(data_bytes);
          if (opcode == es_rnic_pkg::ReadResponse && !last) sink_at[slot] <= sink_place + 32'(data_bytes);
        end else if (sge_left == 32'(piece)) begin
          at <= at + 1'b1;
          state <= Seek;
        end else begin
          ask <= 1'b1;
          placed <= 1'b0;
          state <= Look;
        end
      end
      // A message is whole.
      Token:
      if (put_token) begin
        if (flush) state <= Idle;
        else begin
          stat_message <= 1'b1;
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
          if (is_read_request) begin
            msn1[slot] <= msn1[slot] + 1'b1;
            if (!(served_valid && served_slot == slot)) accepted[slot] <= accepted[slot] + 1'b1;
            else accepted[slot] <= accepted[slot];
          end
        end
      end
      Refuse:
      if (reply_put) begin
        if (doing == Fault) begin
          fail_slot  <= slot;
          fail_valid <= 1'b1;
          fail_told  <= 1'b1;
        end else if (reason_drop == NotReady) begin
          begun[slot]   <= 1'b0;
          refused[slot] <= 1'b1;
        end
        state <= Drop;
      end
      default:  // Drop
      if (u_ready) begin
        stat_drop <= reason_drop;
        state <= Idle;
      end
    endcase
    if (enter_valid && (enter_state == es_rnic_pkg::Reset || enter_state == es_rnic_pkg::Rtr)) begin
      expected[enter_slot] <= entering.first_expected;
      msn0[enter_slot] <= 32'd1;
      msn1[enter_slot] <= 32'd1;
      offset[enter_slot] <= '0;
      begun[enter_slot] <= 1'b0;
      refused[enter_slot] <= 1'b0;
      accepted[enter_slot] <= '0;
      sink_head[enter_slot] <= '0;
      sink_tail[enter_slot] <= '0;
      sink_at[enter_slot] <= '0;
    end
    if (enter_valid && enter_state == es_rnic_pkg::Reset) begin
      has_wqe[enter_slot] <= 1'b0;
      posted[enter_slot]  <= '0;
      fetched[enter_slot] <= '0;
    end
    if (rst) begin
      looked <= 1'b0;
      state <= Idle;
      ask <= 1'b0;
      m_axi_arvalid <= 1'b0;
      begun <= '0;
      refused <= '0;
      has_wqe <= '0;
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

  function automatic logic [15:0] tagged_cause(input logic [2:0] found_cause);
    case (found_cause)
      es_rnic_pkg::InvalidStag: return 16'h1100;
      es_rnic_pkg::NotAssociated: return 16'h1102;
      es_rnic_pkg::NoAccess: return 16'h0102;
      es_rnic_pkg::Wrap: return 16'h1103;
      default: return 16'h1101;
    endcase
  endfunction

  function automatic logic [15:0] remote_cause(input logic [2:0] found_cause);
    case (found_cause)
      es_rnic_pkg::InvalidStag: return 16'h0100;
      es_rnic_pkg::NotAssociated: return 16'h0103;
      es_rnic_pkg::NoAccess: return 16'h0102;
      es_rnic_pkg::Wrap: return 16'h0104;
      default: return 16'h0101;
    endcase
  endfunction

  // The status that a Terminate gives the requester (15).
  function automatic logic [7:0] terminated(input logic [15:0] what);
    if (what == 16'h0000) return 8'd11;
    if (what[15:8] == 8'h01 || what == 16'h0209 || (what[15:8] == 8'h11 && what[7:0] < 8'd4)) return 8'd10;
    return 8'd9;
  endfunction
endmodule
