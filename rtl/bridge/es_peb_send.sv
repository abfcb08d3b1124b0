// Records for the host: control messages, answers of the bridge's ports and the Function's TLPs, put into bodies of Data frames.
//
// What waits when a record ends and fits the rest of the body goes into the same one; nothing is waited for. A TLP that is longer than a body is split (docs/wire.md,
// section 6). Control messages are first, then answers. Three clocks and its beats for each record; latency 5 clocks.
module es_peb_send #(
    parameter int DATA_W = 64,  // bits of tdata: 64, 128, 256 or 512
    parameter int STREAMS = 16,  // streams that a session can have, 2 to 256
    parameter int MESSAGE_BYTES = 8  // the longest control message, a multiple of 4, 4 to 40
) (
    input wire clk,
    input wire rst,  // of a session, too

    input wire [15:0] body_bytes,  // the longest body

    input  wire  [               15:0] c_stream,   // below STREAMS
    input  wire  [8*MESSAGE_BYTES-1:0] c_message,  // byte 0 on top
    input  wire  [                5:0] c_bytes,    // of it, a multiple of 4
    input  wire                        c_valid,
    output logic                       c_ready,

    input  wire                   [15:0] a_stream,  // below STREAMS
    input  wire es_peb_pkg::tlp_t        a_tlp,     // with a DW of data, or without
    input  wire                          a_valid,
    output logic                         a_ready,

    input  wire  [15:0] s_hdr_stream,  // below STREAMS
    input  wire  [12:0] s_hdr_bytes,
    input  wire         s_hdr_valid,
    output logic        s_hdr_ready,

    input  wire  [DATA_W-1:0] s_axis_tdata,
    input  wire               s_axis_tvalid,
    output logic              s_axis_tready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_axis_tvalid,
    input  wire                 m_axis_tready
);
  localparam int BYTES = DATA_W / 8;
  localparam int SW = $clog2(STREAMS);
  localparam int LB = $clog2(BYTES);
  localparam int SHORT_BYTES = MESSAGE_BYTES > 16 ? MESSAGE_BYTES : 16;

  if ((DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512) || STREAMS < 2 || STREAMS > 256 || MESSAGE_BYTES < 4 ||
      MESSAGE_BYTES > 40 || MESSAGE_BYTES % 4 != 0) begin : gen_check
    $error("es_peb_send: DATA_W is not 64, 128, 256 or 512, STREAMS not 2 to 256, or MESSAGE_BYTES no multiple of 4 of 4 to 40");
  end

  localparam logic [1:0] PICK = 2'd0, SIZE = 2'd1, HEAD = 2'd2, DATA = 2'd3;
  localparam logic [1:0] CONTROL = 2'd0, ANSWER = 2'd1, TLP = 2'd2;

  // The record that waits first, if any.
  logic [1:0] waiting;
  logic any;
  logic [12:0] waiting_bytes;
  always_comb begin
    waiting = TLP;
    waiting_bytes = s_hdr_bytes;
    if (c_valid) begin
      waiting = CONTROL;
      waiting_bytes = 13'(c_bytes);
    end else if (a_valid) begin
      waiting = ANSWER;
      waiting_bytes = a_tlp.fmt[1] ? 13'd16 : 13'd12;
    end
  end
  assign any = c_valid || a_valid || s_hdr_valid;

  logic [1:0] state, source, promised_source;
  logic promised;  // the body goes on with this source
  logic [15:0] room;  // bytes left in the body
  logic [12:0] left;  // bytes of the record in this part and further ones
  logic [15:0] part;  // bytes of this part that have not left
  logic first, whole;  // the part begins the record, and ends it
  logic [8*SHORT_BYTES-1:0] short, short_next;  // of a record that is no TLP of the Function, byte 0 in bits 7:0
  logic [15:0] to;
  logic [15:0] places[STREAMS];
  logic [1:0] choice;
  logic picks;

  assign choice = promised ? promised_source : waiting;
  assign picks = state == PICK && (promised || any);
  assign c_ready = picks && choice == CONTROL;
  assign a_ready = picks && choice == ANSWER;
  assign s_hdr_ready = picks && choice == TLP;

  logic piece, piece_ready, piece_last, part_ends, fits, was_any;
  logic [1:0] was_waiting;
  logic [12:0] was_bytes;
  logic [DATA_W-1:0] piece_data;
  logic [LB:0] piece_bytes;
  es_wire_pkg::record_t record;

  assign part_ends = part <= 16'(BYTES);
  // `room` is already without this part.
  assign fits = was_any && 16'(was_bytes) + 16'd8 <= room;
  // What waited in the clock before: it still does.
  always_ff @(posedge clk) begin
    was_any <= any && !rst;
    was_waiting <= waiting;
    was_bytes <= waiting_bytes;
  end

  always_comb begin
    record = '0;
    record.length = part;
    record.kind = source == CONTROL ? es_wire_pkg::CONTROL : es_wire_pkg::TLP;
    record.first = first;
    record.last = whole;
    record.stream = to;
    record.place = places[to[SW-1:0]];
  end

  always_comb begin
    piece = state == HEAD;
    piece_data = DATA_W'(es_wire_pkg::swap8(record));
    piece_bytes = (LB + 1)'(8);
    piece_last = 1'b0;
    if (state == DATA) begin
      piece = source != TLP || s_axis_tvalid;
      piece_data = source == TLP ? s_axis_tdata : DATA_W'(short);
      piece_bytes = part_ends ? part[LB:0] : (LB + 1)'(BYTES);
      piece_last = part_ends && !(whole && fits);
    end
  end
  assign s_axis_tready = state == DATA && source == TLP && piece_ready;

  always_ff @(posedge clk) begin
    case (state)
      PICK:
      if (picks) begin
        state <= SIZE;
        source <= choice;
        promised <= 1'b0;
        first <= 1'b1;
        to <= choice == CONTROL ? c_stream : choice == ANSWER ? a_stream : s_hdr_stream;
        left <= choice == CONTROL ? 13'(c_bytes) : choice == ANSWER ? (a_tlp.fmt[1] ? 13'd16 : 13'd12) : s_hdr_bytes;
        if (!promised) room <= body_bytes;
      end
      SIZE: begin
        state <= HEAD;
        whole <= 16'(left) + 16'd8 <= room;
        part  <= 16'(left) + 16'd8 <= room ? 16'(left) : (room - 16'd8) & ~16'(BYTES - 1);
      end
      HEAD:
      if (piece_ready) begin
        state <= DATA;
        places[to[SW-1:0]] <= places[to[SW-1:0]] + 1'b1;
        room <= room - 16'd8 - part;
        left <= left - 13'(part);
      end
      default:
      if (piece && piece_ready) begin
        part <= part - 16'(BYTES);
        if (part_ends) begin
          first <= 1'b0;
          state <= whole ? PICK : SIZE;
          if (!whole) room <= body_bytes;
          promised <= whole && fits;
          promised_source <= was_waiting;
        end
      end
    endcase
    if (rst) begin
      state <= PICK;
      promised <= 1'b0;
      for (int i = 0; i < STREAMS; i++) places[i] <= '0;
    end
  end

  always_ff @(posedge clk) begin
    if (state == PICK) for (int i = 0; i < SHORT_BYTES; i++) short[8*i+:8] <= short_next[8*(SHORT_BYTES-1-i)+:8];
    else if (state == DATA && piece_ready) short <= (8 * SHORT_BYTES)'({{DATA_W{1'b0}}, short} >> DATA_W);
  end
  always_comb begin
    short_next = '0;
    if (choice == CONTROL) short_next[8*SHORT_BYTES-1-:8*MESSAGE_BYTES] = c_message;
    else short_next[8*SHORT_BYTES-1-:128] = a_tlp;
  end

  logic [DATA_W-1:0] packed_data;
  logic [ BYTES-1:0] packed_keep;
  logic packed_last, packed_valid, packed_ready;

  // Pieces wait here, so that what is taken does not hang on what the packer takes.
  logic [DATA_W-1:0] queued_data;
  logic [LB:0] queued_bytes;
  logic queued_last, queued_valid, queued_ready;

  es_fifo #(
      .WIDTH(DATA_W + LB + 2),
      .DEPTH(4)
  ) pieces (
      .clk,
      .rst,
      .s_data ({piece_last, piece_bytes, piece_data}),
      .s_valid(piece),
      .s_ready(piece_ready),
      .m_data ({queued_last, queued_bytes, queued_data}),
      .m_valid(queued_valid),
      .m_ready(queued_ready)
  );

  es_axis_pack #(
      .DATA_W(DATA_W)
  ) pack (
      .clk,
      .rst,
      .s_data       (queued_data),
      .s_offset     ('0),
      .s_bytes      (queued_bytes),
      .s_last       (queued_last),
      .s_valid      (queued_valid),
      .s_ready      (queued_ready),
      .m_axis_tdata (packed_data),
      .m_axis_tkeep (packed_keep),
      .m_axis_tlast (packed_last),
      .m_axis_tvalid(packed_valid),
      .m_axis_tready(packed_ready)
  );

  /* verilator lint_off PINCONNECTEMPTY */
  es_axis_skid #(
      .DATA_W(DATA_W)
  ) behind (
      .clk,
      .rst,
      .s_axis_tdata (packed_data),
      .s_axis_tkeep (packed_keep),
      .s_axis_tuser (1'b0),
      .s_axis_tlast (packed_last),
      .s_axis_tvalid(packed_valid),
      .s_axis_tready(packed_ready),
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tuser (),
      .m_axis_tlast,
      .m_axis_tvalid,
      .m_axis_tready
  );
  /* verilator lint_on PINCONNECTEMPTY */

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      fits_the_body : assert (state != HEAD || (part != '0 && part + 16'd8 <= room));
      sends_what_there_is : assert (!(c_ready && !c_valid) && !(s_hdr_ready && !s_hdr_valid));
    end
  end
`endif
endmodule
