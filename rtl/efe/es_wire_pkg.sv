// The bytes of docs/wire.md: the frame's header, SACK block, Hello and record header, as packed structs.
//
// A struct's first field is what leaves first: its most significant byte is byte 0 of the wire. A stream has byte 0 in bits 7:0, so
// a struct is turned round byte by byte on its way (`swap48` and the like).
/* verilator lint_off UNUSEDPARAM */
package es_wire_pkg;
  localparam bit [3:0] VERSION = 4'd1;
  localparam int HEADER_BYTES = 48;
  localparam int SACK_BYTES = 32;
  localparam int CHECK_BYTES = 4;
  localparam int TAG_BYTES = 16;
  localparam int HELLO_BYTES = 24;
  localparam int RECORD_BYTES = 8;
  localparam int SACK_BITS = 224;
  localparam bit [31:0] NO_CAP = 32'hFFFFFFFF;

  localparam bit [3:0] HELLO = 4'd1;
  localparam bit [3:0] HELLO_ACK = 4'd2;
  localparam bit [3:0] DATA = 4'd3;
  localparam bit [3:0] ACK = 4'd4;
  localparam bit [3:0] CLOSE = 4'd5;

  localparam bit [31:0] CLASSIC = 32'h0000_0001;  // feature bits of the Hello
  localparam bit [31:0] RDMA = 32'h0000_0010;

  localparam bit [7:0] TLP = 8'd1;  // kinds of record
  localparam bit [7:0] CONTROL = 8'd2;
  localparam bit [7:0] DDP = 8'd3;

  typedef struct packed {
    logic header_check;
    logic congested;
    logic sealed;
    logic retransmission;
    logic ack_now;
    logic echo;
    logic ack;
    logic sack;
  } flags_t;

  typedef struct packed {
    logic [3:0]  version;
    logic [3:0]  kind;
    flags_t      flags;
    logic [15:0] body_length;
    logic [31:0] dst_epoch;
    logic [31:0] src_epoch;
    logic [31:0] sequence_number;
    logic [63:0] packet_number;
    logic [31:0] ack;
    logic [31:0] tx_ts;
    logic [31:0] echo_ts;
    logic [31:0] hold;
    logic [31:0] credit;
    logic [31:0] receiver_cap;
  } header_t;

  typedef struct packed {
    logic [31:0] base;
    logic [SACK_BITS-1:0] bitmap;  // bit i of the wire is bit SACK_BITS - 1 - i
  } sack_t;

  typedef struct packed {
    logic [127:0] node;
    logic [15:0]  max_frame_bytes;
    logic [15:0]  window_frames;
    logic [31:0]  features;
  } hello_t;

  typedef struct packed {
    logic [15:0] length;
    logic [7:0]  kind;
    logic [5:0]  reserved;
    logic        last;
    logic        first;
    logic [15:0] stream;
    logic [15:0] place;
  } record_t;

  function automatic logic [383:0] swap48(input logic [383:0] value);
    for (int i = 0; i < 48; i++) swap48[8*i+:8] = value[8*(47-i)+:8];
  endfunction

  function automatic logic [255:0] swap32(input logic [255:0] value);
    for (int i = 0; i < 32; i++) swap32[8*i+:8] = value[8*(31-i)+:8];
  endfunction

  function automatic logic [191:0] swap24(input logic [191:0] value);
    for (int i = 0; i < 24; i++) swap24[8*i+:8] = value[8*(23-i)+:8];
  endfunction

  function automatic logic [63:0] swap8(input logic [63:0] value);
    for (int i = 0; i < 8; i++) swap8[8*i+:8] = value[8*(7-i)+:8];
  endfunction

  function automatic logic [31:0] swap4(input logic [31:0] value);
    for (int i = 0; i < 4; i++) swap4[8*i+:8] = value[8*(3-i)+:8];
  endfunction
endpackage
/* verilator lint_on UNUSEDPARAM */
