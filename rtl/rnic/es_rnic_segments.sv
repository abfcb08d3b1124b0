// Segment generator of the Send Module: takes jobs (messages), looks up their memory, reads it, and puts headers in front.
//
// Look-up and address of what comes next go beside the data before it: the state machine runs ahead of the data by as many pieces as `ops` holds, so that
// segments after the first cost their beats alone. A piece ends with the segment, its SGE, or where a burst of AXI has to.
// Segments of `urgent` jobs (Acknowledge, Terminate; they have a body) go between any two segments.
//
// `done` tells for each job, when its reads are asked for, whether its memory was fine. A job whose memory is not ends with the segments before. A page that
// is not there is told (`miss`) and awaited; nothing else leaves meanwhile.
module es_rnic_segments #(
    parameter int DATA_W = 64,   // bits of a beat, to the link and to memory
    parameter int STAGS  = 256,
    parameter int PBLS   = 4096
) (
    input wire clk,
    input wire rst,

    input wire [13:0] segment_bytes,  // most data of a segment, a multiple of 8, at least what a WQE holds inline

    input wire        w_smt,
    input wire        w_pbl,
    input wire [22:0] w_address,
    input wire [63:0] w_data,
    input wire [ 1:0] w_half,

    input  wire es_rnic_pkg::job_t urgent,
    input  wire                    urgent_valid,
    output logic                   urgent_ready,

    input  wire es_rnic_pkg::job_t job,
    input  wire                    job_valid,
    output logic                   job_ready,

    // What is behind the bodies of jobs (tail_bytes), 64 bytes a row; each job begins with a row.
    input  wire  [511:0] tail_data,
    input  wire          tail_valid,
    output logic         tail_ready,

    // A Read Request whose last 16 bytes (length, source) come later: it begins to leave before its WQE has come whole.
    input  wire es_rnic_pkg::job_t         early,
    input  wire                            early_valid,
    output logic                           early_ready,
    input  wire                    [127:0] late,         // byte 0 in bits 7:0
    input  wire                            late_valid,

    output logic       done,
    output logic [2:0] done_cause,

    output logic [63:0] miss,         // STag, page of its region
    output logic        miss_valid,
    input  wire         miss_ready,
    input  wire  [63:0] served_miss,
    input  wire         served,

    // Memory reads.
    output logic [      63:0] m_axi_araddr,
    output logic [       7:0] m_axi_arlen,
    output logic              m_axi_arvalid,
    input  wire               m_axi_arready,
    input  wire  [DATA_W-1:0] m_axi_rdata,
    input  wire               m_axi_rvalid,
    output logic              m_axi_rready,

    // A segment's record: length, peer, stream; and its bytes.
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

    // For FENCE.
    output logic send_free,   // nothing is translated
    output logic send_asked,  // a piece of data was asked of memory
    output logic send_ended,  // all of one has come

    output logic        stat_segment,  // a segment was made
    output logic [13:0] stat_bytes     // its data
);
  localparam int B = DATA_W / 8;
  localparam int LB = $clog2(B);
  // Where a burst has to end: 256 beats or 4 KiB.
  localparam int CUT = B * 256 < 4096 ? B * 256 : 4096;
  localparam int LC = $clog2(CUT);
  localparam int HEAD = 20 + 52;  // bytes: header and body

  // What the packer is given, in a row.
  typedef struct packed {
    logic [8*HEAD-1:0] bytes;     // of a head
    logic [LB:0]       step;      // bytes of its first beat
    logic              ends;      // it has no other
    logic [LC:0]       rest;      // its bytes behind the first beat, if there is one
    logic [LB-1:0]     offset;    // of a piece, in its first beat
    logic              untagged;
    logic              last;      // ends the segment
    logic              fill;      // zeros in place of what is read
    logic              tail;      // rows of inline data in place of what is read
    logic              late;      // its last 16 bytes come beside
    logic              head;
  } op_t;

  // ---- jobs to operations ----------------------------------------------------------------------------------------------------------------

  typedef enum logic [3:0] {
    Idle,
    Segment,
    Ask,
    Check,
    Piece,
    Fill,
    Tail,
    End,
    Miss,
    Await,
    Ahead
  } state_t;

  state_t state;
  es_rnic_pkg::job_t now;
  logic [31:0] left;  // of the message
  logic [31:0] sge_left;
  logic [63:0] sge_to;
  logic [31:0] sge_stag;
  logic placed;  // `from` is the address of sge_to
  logic missing;  // that page is absent
  logic again;  // it was told and served
  logic [31:0] page;
  logic [63:0] from, from_now;
  logic here, absent, ask_now, may_head;
  logic [13:0] segment_left;

  logic checked, found, present;
  logic [2:0] cause;
  logic [63:0] address;
  logic ask;

  op_t op, op_put, made;
  logic op_valid, op_ready, made_valid, made_ready;
  logic [  LC:0] count;  // bytes of head or tail
  logic [  LB:0] room;  // of its first beat
  logic [  LC:0] held_count;  // a piece that was put in the clock before
  logic [LB-1:0] held_offset;
  logic held, held_fill, held_last;
  logic [47:0] seg;
  logic seg_ready;
  es_rnic_pkg::job_t source;
  logic [159:0] header;
  logic [13:0] data_bytes;
  logic last;
  // How long the next segment and the next piece are, ahead: two clocks behind what they hang on, and the cut with the address.
  logic [13:0] size, least;
  logic is_last, least_ends_segment, least_ends_sge, stale;
  logic [LC:0] to_cut, piece;
  logic is_least, ends_segment, ends_sge;
  logic [11:0] nearby;
  logic put_early, late_waits, late_have;
  logic [127:0] late_kept;
  logic put_urgent, put_head, put_piece, put_fill, put_tail, can_put;
  logic has_data, has_two;
  logic at_once;  // a job with a body begins to leave in the clock in which it is taken

  // A head is put with its record; a piece with its read. That of the clock before goes first.
  assign can_put = op_ready && seg_ready && !held && (!m_axi_arvalid || m_axi_arready);

  always_comb begin
    source = urgent_valid ? urgent : state != Idle ? now : early_valid ? early : job;
    last = urgent_valid || state == Idle || is_last;
    data_bytes = urgent_valid || state == Idle || now.body_bytes != 0 ? '0 : size;
    header = es_rnic_pkg::ddp_header(source.qp, source.untagged, last, source.opcode, source.stag, source.qn, source.to);
    // The address is used in the clock in which it is found.
    from_now = found ? address : from;
    here = found || placed;
    absent = found ? !present : missing;
    is_least = least <= 14'(to_cut);
    piece = is_least ? (LC + 1)'(least) : to_cut;
    ends_segment = is_least && least_ends_segment;
    ends_sge = is_least && least_ends_sge;
    if (state == Fill) begin
      piece = segment_left > 14'(CUT) ? (LC + 1)'(CUT) : (LC + 1)'(segment_left);
      ends_segment = segment_left <= 14'(CUT);
    end
  end

  // A head does not change what the rest counts: what it has is what is left then.
  always_ff @(posedge clk) begin
    size <= segment_left != '0 ? segment_left : left <= 32'(segment_bytes) ? left[13:0] : segment_bytes;
    is_last <= left <= 32'(segment_bytes);
    least <= 32'(size) < sge_left ? size : sge_left[13:0];
    least_ends_segment <= 32'(size) <= sge_left;
    least_ends_sge <= sge_left <= 32'(size);
    to_cut <= (LC + 1)'(CUT) - {1'b0, placed ? from[LC-1:0] : nearby[LC-1:0]};
    stale <= put_piece || (job_valid && job_ready);
  end

  // An urgent job goes out whenever no segment is begun.
  assign put_urgent = urgent_valid && (state == Idle || state == Segment) && can_put;
  assign may_head = (state == Segment && !stale) || (state == Check && checked && cause == es_rnic_pkg::Fine && segment_left == '0);
  assign at_once = job_valid && job_ready && job.body_bytes != '0;
  assign put_head = (may_head || at_once) && !urgent_valid && can_put;
  assign put_piece = state == Piece && here && !absent && can_put;
  assign put_fill = state == Fill && can_put;
  assign put_tail = state == Tail && op_ready && !held;
  assign urgent_ready = put_urgent;
  assign put_early = early_valid && state == Idle && !urgent_valid && !late_waits && can_put;
  assign early_ready = put_early;
  assign job_ready = state == Idle && !urgent_valid && !early_valid;

  always_comb begin
    count = (source.untagged ? (LC + 1)'(20) : (LC + 1)'(16)) + (LC + 1)'(source.body_bytes);
    op = '0;
    op.head = put_urgent || put_early || put_head;
    op.late = put_early;
    op.tail = put_tail;
    op.untagged = source.untagged;
    op.bytes = source.untagged ? {source.body, header} : {32'b0, source.body, header[127:0]};
    op.last = data_bytes == '0 && source.tail_bytes == '0;
    // A head that has data behind it begins with the bytes that leave the rest of it whole beats.
    room = (LB + 1)'(B);
    if (!op.last) room = source.untagged ? (LB + 1)'(B >= 32 ? 20 : 20 % B == 0 ? B : 20 % B) : (LB + 1)'(B >= 32 ? 16 : B);
    if (put_tail) begin
      count = (LC + 1)'(now.tail_bytes);
      op.last = 1'b1;
      room = (LB + 1)'(B);
    end
    op.ends = count <= (LC + 1)'(room);
    op.step = op.ends ? count[LB:0] : room;
    op.rest = count - (LC + 1)'(room);
    op_put  = op;
    if (held) begin
      op_put = '0;
      op_put.fill = held_fill;
      op_put.offset = held_offset;
      op_put.last = held_last;
      op_put.ends = held_count <= (LC + 1)'(B) - (LC + 1)'(held_offset);
      op_put.step = op_put.ends ? held_count[LB:0] : (LB + 1)'(B) - (LB + 1)'(held_offset);
      op_put.rest = held_count - ((LC + 1)'(B) - (LC + 1)'(held_offset));
    end
  end
  assign op_valid = held || put_urgent || put_early || put_head || put_tail;
  assign seg = {16'(count) + 16'(data_bytes) + 16'(source.tail_bytes), source.peer, source.stream};

  always_ff @(posedge clk) begin
    if (op_ready) held <= put_piece || put_fill;
    if (!held) begin
      held_count  <= piece;
      held_offset <= put_fill ? '0 : from_now[LB-1:0];
      held_fill   <= put_fill;
      held_last   <= ends_segment;
    end
    if (rst) held <= 1'b0;
  end
  assign stat_segment = put_urgent || put_early || put_head;
  // A body is data, but in a Read Request.
  assign has_data = put_head && source.opcode != es_rnic_pkg::ReadRequest;
  assign stat_bytes = has_data ? data_bytes + 14'(source.body_bytes) + 14'(source.tail_bytes) : '0;

  always_ff @(posedge clk) begin
    done <= 1'b0;
    ask  <= 1'b0;
    if (found) begin
      from <= address;
      placed <= 1'b1;
      missing <= !present;
    end
    case (state)
      Idle:
      if (job_valid && job_ready) begin
        now <= job;
        left <= job.length;
        sge_to <= job.sge0.length == '0 ? job.sge1.to : job.sge0.to;
        sge_stag <= job.sge0.length == '0 ? job.sge1.stag : job.sge0.stag;
        sge_left <= job.sge0.length == '0 ? job.sge1.length : job.sge0.length;
        placed <= 1'b0;
        again <= 1'b0;
        done_cause <= es_rnic_pkg::Fine;
        state <= job.body_bytes != '0 || job.length == '0 ? Segment : has_two ? Ahead : Check;
      end
      // The second SGE first, so that nothing of a message leaves whose memory is not all ours.
      Ahead:
      if (checked) begin
        done_cause <= cause;
        state <= cause != es_rnic_pkg::Fine ? End : Ask;
      end
      Ask: begin
        ask <= 1'b1;
        placed <= 1'b0;
        state <= Check;
      end
      // The look-up says whether before it says where: the head goes meanwhile.
      Check:
      if (checked) begin
        done_cause <= cause;
        if (cause != es_rnic_pkg::Fine) state <= segment_left == '0 ? End : Fill;
        else if (segment_left != '0) state <= Piece;
        else if (!put_head) state <= Segment;
      end
      Piece: begin
        if (put_piece) begin
          again <= 1'b0;
          from <= from_now + 64'(piece);
          sge_to <= sge_to + 64'(piece);
          sge_left <= sge_left - 32'(piece);
          segment_left <= segment_left - 14'(piece);
          if (ends_sge) begin
            sge_to   <= now.sge1.to;
            sge_stag <= now.sge1.stag;
            sge_left <= now.sge1.length;
          end
          // A page may end where a cut is: the next one is looked up. So is the next SGE, and each segment of a Read by the peer.
          if (ends_segment && left == '0) state <= End;
          else if (ends_sge || 14'(to_cut) <= least || now.to_memory_rights) state <= Ask;
          else state <= Segment;
        end else if (here && absent) begin
          done_cause <= es_rnic_pkg::Bounds;
          state <= again ? Fill : Miss;
        end
      end
      Miss: if (miss_ready) state <= Await;
      Await:
      if (served && served_miss == miss) begin
        again <= 1'b1;
        state <= Ask;
      end
      // Memory went away within a segment: what has been promised is filled with zeros.
      Fill:
      if (put_fill) begin
        segment_left <= segment_left - 14'(piece);
        if (ends_segment) state <= End;
      end
      Tail: if (put_tail) state <= End;
      End: begin
        done  <= 1'b1;
        state <= Idle;
      end
      default: ;  // Segment: waits until the head can go
    endcase
    if (put_head) begin
      segment_left <= data_bytes;
      left <= left - 32'(data_bytes);
      if (now.untagged) now.to[31:0] <= now.to[31:0] + 32'(data_bytes);
      else now.to <= now.to + 64'(data_bytes);
      state <= source.tail_bytes != '0 ? Tail : data_bytes == '0 ? End : Piece;
      if (at_once && source.tail_bytes == '0) begin
        done  <= 1'b1;
        state <= Idle;
      end
    end
    if (rst) begin
      state <= Idle;
      ask <= 1'b0;
      segment_left <= '0;
    end
  end

  // The first look-up of a job begins in the clock in which it is taken.
  es_rnic_pkg::sge_t look;
  es_rnic_pkg::job_t looking;
  assign ask_now = state == Idle && job_valid && job_ready && job.body_bytes == '0 && job.length != '0;
  assign looking = state == Idle ? job : now;
  assign has_two = job.sge0.length != '0 && job.sge1.length != '0;
  assign look = state != Idle ? {sge_left, sge_stag, sge_to} : has_two || job.sge0.length == '0 ? job.sge1 : job.sge0;

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
      .stag  (look.stag),
      .to    (look.to),
      .length(look.length),
      .need  (looking.to_memory_rights ? es_rnic_pkg::RemoteRead : es_rnic_pkg::LocalRead),
      .pd    (looking.pd),
      .valid (ask || ask_now),
      .drop  (1'b0),
      .checked,
      .cause,
      .found,
      .present,
      .address,
      .nearby,
      .page
  );
  assign send_free = state == Idle;
  assign send_asked = put_piece;
  assign send_ended = made_ready && !made.head && !made.fill && !made.tail;
  assign miss = {sge_stag, page};
  assign miss_valid = state == Miss;

  always_ff @(posedge clk) begin
    if (m_axi_arready) m_axi_arvalid <= 1'b0;
    if (put_piece) begin
      m_axi_arvalid <= 1'b1;
      m_axi_araddr  <= {from_now[63:LB], LB'(0)};
      m_axi_arlen   <= 8'(((LC + 1)'(from_now[LB-1:0]) + piece - 1'b1) >> LB);
    end
    if (rst) m_axi_arvalid <= 1'b0;
  end

  es_fifo #(
      .WIDTH($bits(op_t)),
      .DEPTH(16)
  ) ops (
      .clk,
      .rst,
      .s_data (op_put),
      .s_valid(op_valid),
      .s_ready(op_ready),
      .m_data (made),
      .m_valid(made_valid),
      .m_ready(made_ready)
  );

  es_fifo #(
      .WIDTH(48),
      .DEPTH(16)
  ) records (
      .clk,
      .rst,
      .s_data (seg),
      .s_valid(put_urgent || put_early || put_head),
      .s_ready(seg_ready),
      .m_data ({m_seg_length, m_seg_peer, m_seg_stream}),
      .m_valid(m_seg_valid),
      .m_ready(m_seg_ready)
  );

  // ---- operations to bytes ---------------------------------------------------------------------------------------------------------------

  // What the next beat takes is known a clock before.
  logic [LC:0] rest, rest_next;  // bytes of the operation behind the beat
  logic [6:0] gone;  // bytes of a head
  logic [8*HEAD-1:0] behind, head_bytes;
  logic [LB:0] step, step_next;
  logic begun, ready, ends, ends_next, give, head_here, late_next;
  logic [DATA_W-1:0] pack_data;
  logic [383:0] late_view;
  logic [511:0] row;
  logic row_valid, row_taken;
  localparam int WORDS = 512 / DATA_W;
  logic [(WORDS > 1 ? $clog2(WORDS) : 1)-1:0] word;  // of the row

  assign step = begun ? step_next : made.step;
  assign ends = begun ? ends_next : made.ends;
  assign rest = begun ? rest_next : made.rest;
  assign head_bytes = begun ? behind : made.bytes;
  // The bytes that come late take their place behind the first 32.
  assign late_view = {late_have ? late_kept : late, made.bytes[255:0]};
  always_comb begin
    pack_data = m_axi_rdata;
    if (made.head) pack_data = head_bytes[DATA_W-1:0];
    if (made.late) pack_data = DATA_W'({128'b0, late_view} >> {gone[5:0], 3'b000});
    if (made.fill) pack_data = '0;
    if (made.tail) pack_data = row[DATA_W*word+:DATA_W];
  end
  assign head_here = !made.late || !(begun ? late_next : made.step > (LB + 1)'(32 < B ? 32 : B)) || late_have || late_valid;
  assign give = made_valid && (made.head ? head_here : made.tail ? row_valid : made.fill || m_axi_rvalid);
  assign made_ready = give && ready && ends;
  assign m_axi_rready = made_valid && !made.head && !made.fill && !made.tail && ready;
  assign row_taken = give && ready && made.tail && (ends || 32'(word) == WORDS - 1);

  es_fifo #(
      .WIDTH(512),
      .DEPTH(8)
  ) rows (
      .clk,
      .rst,
      .s_data (tail_data),
      .s_valid(tail_valid),
      .s_ready(tail_ready),
      .m_data (row),
      .m_valid(row_valid),
      .m_ready(row_taken)
  );

  always_ff @(posedge clk) begin
    if (put_early) late_waits <= 1'b1;
    if (late_valid) begin
      late_kept <= late;
      late_have <= 1'b1;
    end
    if (made_ready && made.late) begin
      late_waits <= 1'b0;
      late_have  <= 1'b0;
    end
    if (give && ready && made.tail) word <= row_taken ? '0 : word + 1'b1;
    if (give && ready) begin
      gone <= ends ? '0 : gone + 7'(step);
      late_next <= gone + 7'(step) + 7'(B) > 7'd32;
      begun <= !ends;
      step_next <= rest < (LC + 1)'(B) ? rest[LB:0] : (LB + 1)'(B);
      ends_next <= rest <= (LC + 1)'(B);
      rest_next <= rest - (LC + 1)'(B);
      behind <= begun || made.last ? head_bytes >> DATA_W : head_bytes >> {made.step, 3'b000};
    end
    if (rst) begin
      gone <= '0;
      word <= '0;
      begun <= 1'b0;
      late_waits <= 1'b0;
      late_have <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst && stat_segment) begin
      segments_hold_what_is_inline : assert (segment_bytes >= 14'(es_rnic_pkg::InlineBytes) && segment_bytes[2:0] == '0);
    end
  end
`endif

  es_axis_pack #(
      .DATA_W(DATA_W)
  ) pack (
      .clk,
      .rst,
      .s_data  (pack_data),
      .s_offset(begun || made.head ? '0 : made.offset),
      .s_bytes (step),
      .s_last  (made.last && ends),
      .s_valid (give),
      .s_ready (ready),
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tlast,
      .m_axis_tvalid,
      .m_axis_tready
  );
endmodule
