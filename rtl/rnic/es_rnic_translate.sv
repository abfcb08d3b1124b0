// Look-up of an STag (docs/rnic.md, 6): STag Management Table and Physical Buffer List Management Table in block RAM.
//
// One look-up at a time: `valid` for one clock, then `checked` tells `cause`, and, if it is Fine, `found` tells the address of the first byte later.
// Latency from valid: checked after 4 clocks, found after 5, one less if the entry is the one looked up last; found two later in a page that is not the first.
// A first page that the entry's copy says is not there is read in the PBLMT as well: that is where the driver serves a miss.
// Any write of the tables by the host drops the entry that is kept.
module es_rnic_translate #(
    parameter int STAGS = 256,  // entries of the SMT, a power of two
    parameter int PBLS  = 4096  // entries of the PBLMT, a power of two
) (
    input wire clk,
    input wire rst,

    // The host's writes.
    input wire        w_smt,
    input wire        w_pbl,
    input wire [22:0] w_address,  // bytes in the table
    input wire [63:0] w_data,
    input wire [ 1:0] w_half,     // 32-bit halves that are written

    input  wire  [31:0] stag,
    input  wire  [63:0] to,
    input  wire  [31:0] length,
    input  wire  [ 4:0] need,     // rights, a bit each
    input  wire  [15:0] pd,
    input  wire         valid,
    input  wire         drop,     // two clocks after valid at the latest: nothing will be told of it
    output logic        checked,
    output logic [ 2:0] cause,
    output logic        found,
    output logic        present,  // with `found`: the page is there
    output logic [63:0] address,
    output logic [11:0] nearby,   // the low bits of `address`, a clock before it: no page is less than 4 KiB
    output logic [31:0] page      // of the region
);
  localparam int SW = $clog2(STAGS);
  localparam int PW = $clog2(PBLS);

  if ((1 << SW) != STAGS || (1 << PW) != PBLS || SW > 24) begin : gen_check
    $error("es_rnic_translate: STAGS or PBLS is not a power of two");
  end

  // SMT, a word for each half of 32 bits so that the host can write each.
  logic [511:0] entry_read, entry;
  for (genvar i = 0; i < 16; i++) begin : gen_smt
    logic [31:0] memory[STAGS];
    logic [31:0] word;
    always_ff @(posedge clk) begin
      if (w_smt && w_address[5:3] == 3'(i / 2) && w_half[i%2]) memory[w_address[6+:SW]] <= w_data[32*(i%2)+:32];
      word <= memory[stag[8+:SW]];
    end
    assign entry_read[32*i+:32] = word;
  end

  logic [PW-1:0] page_index;
  logic [  63:0] page_read;
  for (genvar i = 0; i < 2; i++) begin : gen_pbl
    logic [31:0] memory[PBLS];
    logic [31:0] word;
    always_ff @(posedge clk) begin
      if (w_pbl && w_half[i]) memory[w_address[3+:PW]] <= w_data[32*i+:32];
      word <= memory[page_index];
    end
    assign page_read[32*i+:32] = word;
  end

  // 0: the entry comes out of the memory.  1: it is there.  2: offset.  3: address, unless the page is read first: its index, and what is read.
  logic at_read, at_entry, at_offset, at_place, at_index, at_list;
  logic kept, hit, written;
  logic [23:0] kept_index;
  logic [31:0] stag_q, length_q;
  logic [63:0] to_q, offset, place;
  logic [4:0] need_q;
  logic [15:0] pd_q;
  logic below;
  logic [64:0] ends, limit;  // where the bytes end, and the region
  logic [2:0] early;
  logic [63:0] first, page_shifted, outside, inside_page;
  logic [5:0] shift;

  assign hit = kept && stag[31:8] == kept_index && !w_smt && !w_pbl;
  assign shift = entry[53:48];
  assign page_shifted = place >> shift;
  assign inside_page = place & ~outside;
  assign page_index = PW'(entry[223:192]) + page[PW-1:0];
  assign first = entry[383:320];
  assign nearby = place[11:0];

  always_ff @(posedge clk) begin
    if (valid) begin
      stag_q <= stag;
      to_q <= to;
      length_q <= length;
      need_q <= need;
      pd_q <= pd;
      if (!hit) kept_index <= stag[31:8];
    end
    if (at_read) entry <= entry_read;
    if (at_entry) begin
      offset <= to_q - entry[127:64];
      below  <= to_q < entry[127:64];
      ends   <= {1'b0, to_q} + {33'b0, length_q};
      limit  <= {1'b0, entry[127:64]} + {1'b0, entry[191:128]};
      if (!entry[0] || entry[31:24] != stag_q[7:0] || stag_q[31:8] == '0 || stag_q[31:8+SW] != '0) early <= es_rnic_pkg::InvalidStag;
      else if (entry[47:32] != pd_q || entry[1]) early <= es_rnic_pkg::NotAssociated;
      else if ((need_q & ~entry[12:8]) != '0) early <= es_rnic_pkg::NoAccess;
      else early <= es_rnic_pkg::Fine;
    end
    if (at_offset) begin
      place   <= offset + entry[319:256];
      outside <= {64{1'b1}} << shift;
      if (early != es_rnic_pkg::Fine) cause <= early;
      else if (ends[64] && ends[63:0] != '0) cause <= es_rnic_pkg::Wrap;
      else if (below || ends > limit) cause <= es_rnic_pkg::Bounds;
      else cause <= es_rnic_pkg::Fine;
    end
    if (at_list) address <= {page_read[63:12], 12'b0} | inside_page;
    else address <= entry[3] ? place : {first[63:12], 12'b0} | inside_page;
    page <= page_shifted[31:0];
  end

  logic far;
  assign far = !entry[3] && ((place & outside) != '0 || !first[0]);

  always_ff @(posedge clk) begin
    at_read   <= valid && !hit;
    at_entry  <= at_read || (valid && hit);
    at_offset <= at_entry;
    at_place  <= at_offset;
    checked   <= at_offset;
    at_index  <= at_place && cause == es_rnic_pkg::Fine && far;
    at_list   <= at_index;
    found     <= at_list || (at_place && cause == es_rnic_pkg::Fine && !far);
    present   <= !at_list || page_read[0];
    written   <= w_smt || w_pbl;
    if (at_read) kept <= !written;
    if (rst || w_smt || w_pbl) kept <= 1'b0;
    if (rst || drop) begin
      at_read <= 1'b0;
      at_entry <= 1'b0;
      at_offset <= 1'b0;
      at_place <= 1'b0;
      checked <= 1'b0;
      at_index <= 1'b0;
      at_list <= 1'b0;
      found <= 1'b0;
    end
  end
endmodule
