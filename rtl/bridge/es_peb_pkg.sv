// TLPs as docs/wire.md, section 7, has them (PCI Express Base Specification 6.0, 2.2, non-flit mode): fields of a header, what a header has to keep to.
//
// A header is a vector of 16 bytes, byte 0 of the TLP on top. One of 3 DW has what follows it in its lowest 4 bytes: the first DW of data, if there is any.
/* verilator lint_off UNUSEDPARAM */
package es_peb_pkg;
  // Flow control classes, and the place of each in a vector of a bit per class.
  localparam bit [1:0] POSTED = 2'd0;
  localparam bit [1:0] NON_POSTED = 2'd1;
  localparam bit [1:0] COMPLETION = 2'd2;

  localparam bit [2:0] MEMORY = 3'd0;
  localparam bit [2:0] CONFIG = 3'd1;
  localparam bit [2:0] COMPLETE = 3'd2;
  localparam bit [2:0] ATOMIC = 3'd3;
  localparam bit [2:0] MESSAGE = 3'd4;
  localparam bit [2:0] NONE = 3'd7;

  // Completion Status (2.2.9).
  localparam bit [2:0] SUCCESS = 3'd0;
  localparam bit [2:0] UNSUPPORTED = 3'd1;

  localparam int MAX_TLP_BYTES = 16 + 4096;

  typedef struct packed {
    logic [2:0]  fmt;
    logic [4:0]  kind;
    logic        tag9;
    logic [2:0]  tc;
    logic        tag8;
    logic        attr2;
    logic        reserved;
    logic        th;
    logic        td;
    logic        ep;
    logic [1:0]  attr;
    logic [1:0]  at;
    logic [9:0]  length;
    logic [15:0] requester;  // of a Request; the Completer of a Completion
    logic [7:0]  tag;        // of a Request
    logic [3:0]  last_be;
    logic [3:0]  first_be;
    logic [31:0] dw2;
    logic [31:0] dw3;
  } tlp_t;

  // A write to the configuration space of the Upstream Port, which each slot has a copy of.
  typedef struct packed {
    logic        valid;
    logic [15:0] target;   // the ID that was written to
    logic [9:0]  dw;       // of the register
    logic [3:0]  enables;
    logic [31:0] data;
  } upstream_write_t;

  // What a Completion has in the places of other fields.
  function automatic logic [15:0] cpl_requester(input tlp_t tlp);
    return tlp.dw2[31:16];
  endfunction

  // Requester ID and Tag, 10 bits, of the Request that a Request is or a Completion answers.
  function automatic logic [25:0] transaction(input tlp_t tlp);
    if (group(tlp) == COMPLETE) return {tlp.dw2[31:16], tlp.tag9, tlp.tag8, tlp.dw2[15:8]};
    return {tlp.requester, tlp.tag9, tlp.tag8, tlp.tag};
  endfunction

  function automatic logic [2:0] group(input tlp_t tlp);
    case (tlp.kind)
      5'b00000: return tlp.fmt[2] ? NONE : MEMORY;
      5'b00100, 5'b00101: return tlp.fmt[2] || tlp.fmt[0] ? NONE : CONFIG;
      5'b01010: return tlp.fmt[2] || tlp.fmt[0] ? NONE : COMPLETE;
      5'b01100, 5'b01101, 5'b01110: return tlp.fmt[2:1] != 2'b01 ? NONE : ATOMIC;
      default: return tlp.kind[4:3] == 2'b10 && tlp.kind[2:1] != 2'b11 && !tlp.fmt[2] && tlp.fmt[0] ? MESSAGE : NONE;
    endcase
  endfunction

  function automatic logic [1:0] class_of(input tlp_t tlp);
    case (group(
        tlp
    ))
      COMPLETE: return COMPLETION;
      MESSAGE:  return POSTED;
      MEMORY:   return tlp.fmt[1] ? POSTED : NON_POSTED;
      default:  return NON_POSTED;
    endcase
  endfunction

  function automatic logic [63:0] address(input tlp_t tlp);
    return tlp.fmt[0] ? {tlp.dw2, tlp.dw3[31:2], 2'b00} : {32'd0, tlp.dw2[31:2], 2'b00};
  endfunction

  // DW of data, as Length says.
  function automatic logic [10:0] length_dw(input tlp_t tlp);
    return {tlp.length == '0, tlp.length};
  endfunction

  // Byte enables of a Memory Request (2.2.5).
  function automatic logic enables_good(input tlp_t tlp);
    logic [3:0] first, last;
    first = tlp.first_be;
    last  = tlp.last_be;
    if (tlp.length == 10'd1) return last == 4'h0;
    if (tlp.length == 10'd2 && !(tlp.fmt[0] ? tlp.dw3[2] : tlp.dw2[2])) return first != 4'h0 && last != 4'h0;
    if (first != 4'hF && first != 4'hE && first != 4'hC && first != 4'h8) return 1'b0;
    return last == 4'hF || last == 4'h7 || last == 4'h3 || last == 4'h1;
  endfunction

  // Address of a Memory Request or AtomicOp: its format (2.2.4.1), and the boundary of 4 KiB (2.2.7).
  function automatic logic address_good(input tlp_t tlp);
    logic [12:0] end_dw;
    end_dw = {3'd0, tlp.fmt[0] ? tlp.dw3[11:2] : tlp.dw2[11:2]} + {2'd0, length_dw(tlp)};
    return !(tlp.fmt[0] && tlp.dw2 == '0) && end_dw <= 13'd1024;
  endfunction

  // Length and alignment of an AtomicOp (2.2.7).
  function automatic logic atomic_good(input tlp_t tlp);
    logic [3:0] low;
    low = tlp.fmt[0] ? tlp.dw3[3:0] : tlp.dw2[3:0];
    if (tlp.kind == 5'b01110) return tlp.length == 10'd2 || (tlp.length == 10'd4 && !low[2]) || (tlp.length == 10'd8 && low[3:2] == 2'b00);
    return tlp.length == 10'd1 || (tlp.length == 10'd2 && !low[2]);
  endfunction

  // Whether this is the header of a TLP of so many bytes.
  function automatic logic good(input tlp_t tlp, input logic [12:0] bytes);
    logic [12:0] wanted;
    wanted = 13'(tlp.fmt[0] ? 16 : 12) + (tlp.fmt[1] ? {length_dw(tlp), 2'b00} : 13'd0);
    if (tlp.td || bytes != wanted) return 1'b0;
    case (group(
        tlp
    ))
      MEMORY: return !tlp.th && tlp.at == '0 && enables_good(tlp) && address_good(tlp);
      ATOMIC: return !tlp.th && tlp.at == '0 && atomic_good(tlp) && address_good(tlp);
      CONFIG: return tlp.length == 10'd1 && tlp.tc == '0 && tlp.attr == '0 && tlp.at == '0 && tlp.last_be == '0;
      COMPLETE, MESSAGE: return 1'b1;
      default: return 1'b0;
    endcase
  endfunction

  // The Completion of a Request, but for what `filled` puts in: Byte Count and Lower Address as 2.3.1.1 has them for a read, 4 and 0 otherwise.
  function automatic tlp_t completion(input tlp_t tlp);
    tlp_t made;
    logic [1:0] lead, trail;
    logic [ 3:0] ends;
    logic [12:0] count;
    ends = tlp.length == 10'd1 ? tlp.first_be : tlp.last_be;
    lead = tlp.first_be[0] || tlp.first_be == '0 ? 2'd0 : tlp.first_be[1] ? 2'd1 : tlp.first_be[2] ? 2'd2 : 2'd3;
    trail = ends[3] ? 2'd0 : ends[2] ? 2'd1 : ends[1] ? 2'd2 : 2'd3;
    count = {length_dw(tlp), 2'b00} - 13'(lead) - 13'(trail);
    made = '0;
    made.kind = 5'b01010;
    made.tag9 = tlp.tag9;
    made.tc = tlp.tc;
    made.tag8 = tlp.tag8;
    made.attr2 = tlp.attr2;
    made.attr = tlp.attr;
    {made.tag, made.last_be, made.first_be} = 16'd4;
    made.dw2 = {tlp.requester, tlp.tag, 8'd0};
    if (group(tlp) == MEMORY) begin
      {made.last_be, made.first_be} = count[7:0];
      made.tag[3:0] = count[11:8];
      if (tlp.first_be == '0) {made.tag[3:0], made.last_be, made.first_be} = 12'd1;
      made.dw2[6:0] = (tlp.fmt[0] ? {tlp.dw3[6:2], 2'b00} : {tlp.dw2[6:2], 2'b00}) | {5'd0, lead};
    end
    return made;
  endfunction

  function automatic tlp_t filled(input tlp_t blank, input logic [15:0] completer, input logic [2:0] status, input logic has_data,
                                  input logic [31:0] data);
    filled = blank;
    filled.fmt[1] = has_data;
    filled.length[0] = has_data;
    filled.requester = completer;
    filled.tag[7:5] = status;
    filled.dw3 = data;
  endfunction

  function automatic logic [127:0] swap16(input logic [127:0] value);
    for (int i = 0; i < 16; i++) swap16[8*i+:8] = value[8*(15-i)+:8];
  endfunction
endpackage
/* verilator lint_on UNUSEDPARAM */
