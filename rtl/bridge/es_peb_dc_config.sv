// Configuration space of the DC buffer (PCI Express Base Specification 6.0, 7.5.1.2): memory of one 64-bit prefetchable BAR, as `kind = "dc"` of a box in software shows it.
//
// Header of Type 0, Power Management (0x40), PCI Express (0x80). A register reads in the clock in which it is asked for, and is written at its end.
module es_peb_dc_config #(
    parameter int BITS = 16  // the BAR has 2**BITS bytes, 12 to 40
) (
    input wire clk,
    input wire rst,

    input  wire  [ 9:0] register,  // DW
    output logic [31:0] read,      // byte 0 of the register in bits 7:0
    input  wire  [ 3:0] enables,
    input  wire  [31:0] data,
    input  wire         write,

    output logic [63:BITS] base,
    output logic           open,    // Memory Space Enable, in D0
    output logic [    2:0] payload  // Max_Payload_Size: 128 bytes << payload, 0 to 2
);
  localparam logic [63:0] BASE_BITS = ~64'd0 << BITS;

  logic [31:0] command, control, power, link_control;
  logic [63:0] bar;
  logic [7:0] cache_line, line;

  always_comb begin
    case (register)
      10'h000: read = 32'h0005_E510;
      10'h001: read = command | 32'h0010_0000;
      // Memory controller, other.
      10'h002: read = 32'h0580_0001;
      10'h003: read = {24'd0, cache_line};
      // 64 bits, prefetchable.
      10'h004: read = bar[31:0] | 32'h0000_000C;
      10'h005: read = bar[63:32];
      10'h00B: read = 32'h0005_E510;
      10'h00D: read = 32'h0000_0040;
      10'h00F: read = {24'd0, line};
      10'h010: read = 32'h0003_8001;
      10'h011: read = power | 32'h0000_0008;
      10'h020: read = 32'h0002_0010;
      10'h021: read = 32'h0000_8FE2;
      10'h022: read = control;
      10'h023: read = 32'h0040_0043;
      10'h024: read = link_control | 32'h1043_0000;
      10'h029: read = 32'h0001_0000;
      10'h02B: read = 32'h0000_000E;
      10'h02C: read = 32'h0000_0003;
      default: read = 32'd0;
    endcase
  end

  // Bits that a write changes; then what they become.
  function automatic logic [31:0] merged(input logic [31:0] old, input logic [31:0] writable, input logic [31:0] value,
                                         input logic [3:0] bytes);
    logic [31:0] mask;
    mask = writable & {{8{bytes[3]}}, {8{bytes[2]}}, {8{bytes[1]}}, {8{bytes[0]}}};
    return (old & ~mask) | (value & mask);
  endfunction

  always_ff @(posedge clk) begin
    if (write) begin
      case (register)
        10'h001: command <= merged(command, 32'h0000_0546, data, enables);
        10'h003: if (enables[0]) cache_line <= data[7:0];
        10'h004: bar[31:0] <= merged(bar[31:0], BASE_BITS[31:0], data, enables);
        10'h005: bar[63:32] <= merged(bar[63:32], BASE_BITS[63:32], data, enables);
        10'h00F: if (enables[0]) line <= data[7:0];
        10'h011: power <= merged(power, 32'h0000_0003, data, enables);
        10'h022: control <= merged(control, 32'h0000_79FF, data, enables);
        10'h024: link_control <= merged(link_control, 32'h0000_00CB, data, enables);
        default: ;
      endcase
    end
    if (rst) begin
      command <= '0;
      cache_line <= '0;
      bar <= '0;
      line <= '0;
      power <= '0;
      control <= 32'h0000_2910;
      link_control <= '0;
    end
  end

  assign base = bar[63:BITS];
  assign open = command[1] && power[1:0] == 2'b00;
  assign payload = control[7:5] > 3'd2 ? 3'd2 : control[7:5];
endmodule
